"""A group of brokers with its controllers, its name server and, under three controllers, its etcd: all processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING

from tests.chaos.etcd import Etcd, EtcdMember
from tests.chaos.lines import Junction, Line, Lines
from tests.chaos.server import NAME, PYTHON, Member, Server
from tests.integration.broker.command_kit import run
from tests.integration.broker.life_kit import Peer
from tests.ports import free_port

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import BrokerReplicasInfo
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ElectMaster
from pyromq.testing import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from pyromq.protocol.bodies import ReplicasInfo

CLUSTER = "DefaultCluster"
CONTROLLERS = "controllers"
# Seconds; other people may use the machine.
HEALED_WITHIN = 90.0

CONTROLLER = ("scanNotActiveBrokerInterval=200", "scanInactiveMasterInterval=500", "bindAddress=127.0.0.1")


class Controller(Server):
    """One of the controllers. `etcd` is its line to the members of etcd, if decisions are kept there."""

    def __init__(self, home: Path, number: int, port: int, settings: Sequence[str], etcd: Line) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.etcd = etcd
        name = f"controller-{number}"
        places = [f"controllerStorePath={home}/{name}", f"configStorePath={home}/{name}.properties"]
        super().__init__(home, name, [*PYTHON, "pyromq.cli.main", "controller", *CONTROLLER, *places, *settings])


class Group:
    """All processes of one life of the group."""

    def __init__(
        self, home: Path, namesrv: Server, controllers: list[Controller], members: list[Member], etcd: Etcd | None
    ) -> None:
        self.home = home
        self.namesrv = namesrv
        self.controllers = controllers
        self.members = members
        self.etcd = etcd
        self.on_disk = False  # whether what is acknowledged is on the disks of the in-sync set
        self.client_line = Line()  # between clients and the name server
        self.namesrv_address = ""
        self.journal = home / "controller-1"
        self.peer = Peer()

    @property
    def servers(self) -> list[Server]:
        return [*(self.etcd.members if self.etcd else ()), self.namesrv, *self.controllers, *self.members]

    async def info(self) -> ReplicasInfo | None:
        """What the controller that leads says about the group; None if it says nothing."""
        request = Command.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b'["g"]')
        reply = await self._ask(request)
        return None if reply is None else BrokerReplicasInfo.decode(reply.body_bytes).replicas_info_table.get(NAME)

    async def elect(self, broker_id: int) -> None:
        """Have the controllers make this broker master, as operators do."""
        header = ElectMaster(
            cluster_name=CLUSTER, broker_name=NAME, broker_id=broker_id, designate_elect=True, invoke_time=0
        )
        await self._ask(Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header))

    async def leader(self) -> Controller | None:
        """The controller that leads; None if none says so."""
        request = Command.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b'["g"]')
        for controller in self.controllers:
            if await self._asked(controller, request) is not None:
                return controller
        return None

    async def _ask(self, request: Command) -> Command | None:
        """The answer of the controller that leads, if that is 0."""
        for controller in self.controllers:
            reply = await self._asked(controller, request)
            if reply is not None:
                return reply
        return None

    async def _asked(self, controller: Controller, request: Command) -> Command | None:
        try:
            reply = await self.peer.invoke(controller.address, request, 1.0 if self.etcd else 3.0)
        except PyroMQError:
            return None
        return None if reply.code else reply

    async def masters(self) -> dict[int, str]:
        """The addresses of the masters by epoch, as the controllers have decided."""
        return masters(self.journal) if self.etcd is None else await self.etcd.masters()

    def by_id(self, broker_id: int | None) -> Member | None:
        return next((member for member in self.members if member.id == broker_id), None)

    def restore(self) -> None:
        """All lines are whole again."""
        for member in self.members:
            member.lines.restore()
        for controller in self.controllers:
            controller.etcd.restore()
        for etcd in self.etcd.members if self.etcd else ():
            etcd.peers.restore()
        self.client_line.restore()

    async def whole(self) -> Member:
        """Wait until there is a master, and every broker belongs to the in-sync set; gives the master."""
        said: ReplicasInfo | None = None
        try:
            async with asyncio.timeout(HEALED_WITHIN):
                while True:
                    for server in self.servers:
                        server.assert_alive()
                    said = await self.info()
                    if said is not None and said.master_broker_id is not None:
                        in_sync = {each.broker_id for each in said.in_sync_replicas if each.alive}
                        if in_sync == {member.id for member in self.members}:
                            master = self.by_id(said.master_broker_id)
                            assert master is not None
                            return master
                    await asyncio.sleep(0.05)
        except TimeoutError:
            words = "\n".join(f"{server.name}: {server.last_words()}" for server in self.servers)
            raise AssertionError(f"the group did not become whole; the controller says {said}\n{words}") from None

    async def doubts(self, member: Member) -> None:
        """Wait until the controller hears from this broker that it may lack messages."""
        async with asyncio.timeout(HEALED_WITHIN):
            while True:
                said = await self.info()
                brokers = [*said.in_sync_replicas, *said.not_in_sync_replicas] if said is not None else []
                if any(each.broker_id == member.id and each.alive and each.doubtful for each in brokers):
                    return
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        for server in self.servers:
            if server.process is not None:
                server.signal(signal.SIGCONT)
                await server.kill()

    async def stop(self) -> None:
        """Stop all, without another election, and see that the stores are in order."""
        for server in (*self.controllers, *self.members, self.namesrv):
            await server.stop()
        for server in self.etcd.members if self.etcd else ():
            await server.kill()
        for member in self.members:
            code, out, err = await asyncio.to_thread(run, self.home, "check", member.folder.name)
            assert code == 0, f"pyromq check {member.folder.name}: {out}{err}"


def masters(journal: Path) -> dict[int, str]:
    """The addresses of the masters by epoch, as the controller has decided."""
    addresses: dict[int, str] = {}
    chosen: dict[int, str] = {}
    for line in (journal / "journal").read_text().splitlines():
        decision = json.loads(line.partition(" ")[2])
        event = decision.get("event", {})
        match event.get("eventType"):
            case "APPLY_BROKER_ID_EVENT":
                addresses[event["newBrokerId"]] = event["brokerAddress"]
            case "ELECT_MASTER_EVENT" if event.get("newMasterBrokerId") is not None:
                chosen[decision["masterEpoch"]] = addresses[event["newMasterBrokerId"]]
    return chosen


class Places:
    """Makes the parts of a group, each with its lines, and lets them end together."""

    def __init__(self, home: Path, life: contextlib.AsyncExitStack) -> None:
        self._home = home
        self._life = life

    async def proxy(self, host: str, port: int) -> Proxy:
        """Listens at the port of this host instead of whoever listens at it on 127.0.0.1."""
        return await self._life.enter_async_context(Proxy(f"127.0.0.1:{port}", port, host))

    async def etcd(self) -> Etcd:
        ports = [(free_port(), free_port()) for _ in range(3)]
        peers = [await self.proxy(f"127.0.7.{number}", peer) for number, (_, peer) in enumerate(ports, 1)]
        cluster = ",".join(f"etcd-{number}=http://{proxy.address}" for number, proxy in enumerate(peers, 1))
        members = [
            EtcdMember(self._home, number, both, proxy, cluster)
            for number, (both, proxy) in enumerate(zip(ports, peers, strict=True), 1)
        ]
        return Etcd(members, f"/pyromq/{CONTROLLERS}/groups/{NAME}")

    async def controllers(self, etcd: Etcd | None) -> list[Controller]:
        ports = [free_port() for _ in range(3 if etcd else 1)]
        peers = ";".join(f"n{number}-127.0.8.{number}:{port}" for number, port in enumerate(ports, 1))
        settings = [f"controllerDLegerPeers={peers}", f"controllerDLegerGroup={CONTROLLERS}"]
        made = []
        for number, port in enumerate(ports, 1):
            ways = [await self.proxy(f"127.0.6.{number}", each.port) for each in (etcd.members if etcd else ())]
            own = [f"controllerDLegerSelfId=n{number}"]
            if etcd:
                endpoints = ";".join(way.address for way in ways)
                own += ["controllerStore=etcd", "controllerEtcdLease=2000", f"controllerEtcdEndpoints={endpoints}"]
            made.append(Controller(self._home, number, port, [*settings, *own], Line(by=tuple(ways))))
        return made

    async def brokers(
        self, count: int, controllers: list[Controller], namesrv: int, settings: Sequence[str]
    ) -> list[Member]:
        first = free_port(count)
        hosts = [f"127.0.9.{number}" for number in range(1, count + 1)]
        made = []
        for number in range(1, count + 1):
            port = first + 10 * (number - 1)
            main, fast, replication = [
                await self._life.enter_async_context(
                    Junction(f"127.0.0.1:{each}", each, f"127.0.{network}.{number}", hosts)
                )
                for network, each in ((1, port), (1, port - 2), (2, port + 1))
            ]
            ways = [await self.proxy(f"127.0.3.{number}", each.port) for each in controllers]
            name_server = await self.proxy(f"127.0.4.{number}", namesrv)
            lines = Lines(hosts[number - 1], main, fast, replication, tuple(ways), name_server)
            made.append(Member(self._home, number, port, lines, settings))
        return made


@contextlib.asynccontextmanager
async def running_group(
    home: Path, brokers: int, settings: Sequence[str], *, etcd: bool = False
) -> AsyncIterator[Group]:
    """So many brokers with one controller, or with three of them that keep their decisions in etcd."""
    # This process moves every byte between the others: what is slow here is late there.
    asyncio.get_running_loop().set_debug(False)
    home.mkdir()  # noqa: ASYNC240 - nobody waits yet
    async with contextlib.AsyncExitStack() as life:
        places = Places(home, life)
        port = free_port()
        files = [f"kvConfigPath={home}/kv.json", f"configStorePath={home}/namesrv.properties"]
        address = [f"listenPort={port}", "bindAddress=127.0.0.1"]
        namesrv = Server(home, "namesrv", [*PYTHON, "pyromq.cli.main", "namesrv", *address, *files])
        kept = await places.etcd() if etcd else None
        controllers = await places.controllers(kept)
        members = await places.brokers(brokers, controllers, port, settings)
        group = Group(home, namesrv, controllers, members, kept)
        group.on_disk = "flushDiskType=SYNC_FLUSH" in settings
        to_namesrv = await places.proxy("127.0.5.1", port)
        group.client_line, group.namesrv_address = Line(by=(to_namesrv,)), to_namesrv.address
        await life.enter_async_context(group.peer)
        life.push_async_callback(group.close)
        await asyncio.gather(namesrv.start(), *(member.start() for member in (kept.members if kept else ())))
        await asyncio.gather(*(controller.start() for controller in controllers))
        await asyncio.gather(*(member.start() for member in members))
        await group.whole()
        yield group


async def until(condition: Callable[[], bool], patience: float, why: Callable[[], str]) -> None:
    """Wait for something that other processes do."""
    try:
        async with asyncio.timeout(patience):
            while not condition():  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(why()) from None
