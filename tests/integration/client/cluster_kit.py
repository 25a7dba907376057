"""A name server and brokers in this process, over real sockets, that can be stopped, restarted and cut off."""

from __future__ import annotations

from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server
from tests.ports import free_port

from pyromq.remoting import RemotingServer, ServerConfig

__all__ = ["Cluster", "Spy", "eventually"]


class Cluster:
    """One name server, the broker `broker-a`, and more brokers if wanted. `async with`: then all of it has ended."""

    def __init__(self, folder, *sets):
        self._folder = folder
        self._sets = sets
        self._namesrv_port = free_port()
        self._ports = {}
        self._settings = {}
        self._peer = Peer()
        self.name_server = None
        self.brokers = {}

    @property
    def namesrv(self):
        """The address of the name server, whether it runs or not."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def broker(self):
        """The broker `broker-a`."""
        return self.brokers["broker-a"]

    @property
    def peer(self):
        """A client that says single requests; see life_kit."""
        return self._peer

    def address(self, name="broker-a"):
        """The address of a broker, whether it runs or not."""
        return f"127.0.0.1:{self._ports[name]}"

    async def __aenter__(self):
        await self.start_name_server()
        try:
            await self.start_broker("broker-a", *self._sets)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info):
        await self._peer.close()
        for name in tuple(self.brokers):
            await self.stop_broker(name)
        await self.stop_name_server()

    async def start_name_server(self):
        folder = self._folder / "namesrv"
        folder.mkdir(exist_ok=True, parents=True)
        self.name_server = await new_name_server(folder, self._namesrv_port).__aenter__()
        self._namesrv_port = self.name_server.port

    async def stop_name_server(self):
        server, self.name_server = self.name_server, None
        if server is not None:
            await server.__aexit__()

    async def start_broker(self, name="broker-a", *sets):
        """Start a broker; one that was stopped starts in its folder, on its port, with its settings."""
        settings = self._settings.setdefault(name, sets)
        where = [f"brokerName={name}", f"listenPort={self._ports.get(name) or free_port()}"]
        broker = new_broker(self._folder / name, *where, *settings, namesrv_addr=self.namesrv)
        self.brokers[name] = await broker.__aenter__()
        self._ports[name] = broker.port
        if self.name_server is not None:
            await self.registered(name)

    async def stop_broker(self, name="broker-a"):
        broker = self.brokers.pop(name, None)
        if broker is not None:
            await broker.__aexit__()

    async def restart_broker(self, name="broker-a"):
        await self.stop_broker(name)
        await self.start_broker(name)

    def cut_connections(self, name="broker-a"):
        """Every connection to a broker ends without a word, as when the network breaks."""
        for server in self.brokers[name]._ports._servers:
            for connection in server.connections:
                connection.abort()

    async def registered(self, name):
        """Wait until the name server knows a broker."""

        async def known():
            return (name, 0) in await self._peer.brokers(self.namesrv)

        await eventually(known)

    async def routed(self, topic):
        """Wait until the name server has a route for `topic`."""
        await self._peer.routed(self.namesrv, topic)

    async def create_topic(self, topic, queues=4, broker="broker-a"):
        """Create a topic, and wait until it has a route."""
        await self._peer.create_topic(self.address(broker), topic, queues)
        await self.routed(topic)

    def producers(self, group, name="broker-a"):
        """The client ids of the producers of a group that a broker knows."""
        return _ids(self.brokers[name]._parts.tables.clients.producer_group(group))

    def consumers(self, group, name="broker-a"):
        """The client ids of the consumers of a group that a broker knows."""
        known = self.brokers[name]._parts.tables.clients.consumer_group(group)
        return _ids(known and known.connections)


def _ids(members):
    return sorted(info.client_id for info in (members or {}).values())


class Spy:
    """A server in the place of a broker or name server that answers as it is told, and remembers what it was asked.

    What it has no answer for, it says yes to.
    """

    def __init__(self, processors=None):
        self.requests = []
        table = {code: self._noting(processor) for code, processor in (processors or {}).items()}
        config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
        self._server = RemotingServer(config, table, default=self._noting(lambda _, request: request.reply()))

    @property
    def address(self):
        return f"127.0.0.1:{self._server.port}"

    @property
    def connections(self):
        return self._server.connections

    def asked(self, code):
        """The requests with that code so far."""
        return [request for request in self.requests if request.code == code]

    async def __aenter__(self):
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc_info):
        await self._server.__aexit__(*exc_info)

    def _noting(self, processor):
        def noting(connection, request):
            self.requests.append(request)
            return processor(connection, request)

        return noting
