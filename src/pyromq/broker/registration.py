"""Registration: tells every name server which topics this broker has (docs/spec/broker.md 1.4).

Each name server has its own link, with its own timer and its own memory of what that name server knows. So a dead
one delays no other, one that came back empty is told everything as soon as it is reachable, and a change that one
missed is repeated only there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, RemoteProtocolError, RequestTimeout, broker_error
from pyromq.protocol.bodies import DataVersion, KVTable
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import QueryDataVersionReply, RegisterBrokerReply
from pyromq.remoting.address_server import look_up, lookup_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, RemotingClient

    from .config import BrokerConfig, LiveConfig
    from .registration_requests import RegistrationRequests

logger = logging.getLogger(__name__)

_FIRST_PERIOD = 10.0
_REFRESH = 120.0
# Changes come in bursts, such as the topics of a producer that just started.
_GATHER = 0.01
_LEAVE_TIMEOUT = 3.0
_FIRST_RETRY = 1.0


class Registration:
    """A broker's registration with all its name servers. `order_topics` receives the ordered topics.

    A failing name server raises nothing here: it is logged once, and `run` tries again.
    """

    def __init__(
        self,
        client: RemotingClient,
        live: LiveConfig,
        requests: RegistrationRequests,
        order_topics: Callable[[Collection[str]], None],
    ) -> None:
        self._client = client
        self._live = live
        self._requests = requests
        self._order_topics = order_topics
        self._links: dict[str, _Link] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._look_again = asyncio.Event()
        # For a slave: the master's address for clients, and its address for slaves.
        self.master_address: str | None = None
        self.master_ha_address: str | None = None

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(self._links)

    @property
    def registered_count(self) -> int:
        """How many name servers know this broker."""
        return sum(link.present for link in self._links.values())

    @property
    def registered(self) -> bool:
        """Whether some name server knows this broker."""
        return any(link.present for link in self._links.values())

    async def start(self) -> None:
        """Find the name servers and tell each everything, whatever it may already know."""
        await self.refresh()
        if not self._links:
            logger.warning("no name server is set; clients can reach this broker only by its address")
        await self.register()

    async def run(self) -> None:
        """Keep the name servers and their list up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for link in self._links.values():
                link.start(tasks)
            pause = _FIRST_PERIOD
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._look_again.wait()
                self._look_again.clear()
                await self.refresh()
                pause = _REFRESH

    async def register(self) -> None:
        """Tell all name servers everything now; returns when each has answered or timed out."""
        await asyncio.gather(*(link.register() for link in self._links.values()))

    async def settle(self) -> None:
        """Return when each reachable name server has all current topics, or failed to take them.

        Each is told only the changed topics, if that is all it lacks. Name servers that could not be reached last
        time are not waited for: `run` tries them at once.
        """
        await asyncio.gather(*(link.catch_up() for link in self._present() if not link.up_to_date))

    def announce(self) -> None:
        """Topics have changed: tell all name servers everything soon, without waiting."""
        for link in self._links.values():
            link.announce()

    def ask_for_master(self) -> None:
        """For a slave: have the name servers tell again where its master is, without waiting."""
        for link in self._links.values():
            link.ask()

    async def unregister(self) -> None:
        """Unregister everywhere. `run` must have ended, or it would register again."""
        await asyncio.gather(*(link.leave() for link in self._links.values()))

    def refresh_soon(self) -> None:
        """The settings that locate the name servers have changed."""
        self._look_again.set()

    async def refresh(self) -> None:
        """Look up the name servers. If that fails, keep the known ones."""
        config = self._live.config
        try:
            addresses = await _listed(config)
        except (PyroMQError, ValueError) as exc:
            logger.warning("cannot look up name servers: %s; keeping %s", exc, ";".join(self._links) or "none")
            return
        for address in self._links.keys() - set(addresses):
            logger.info("name server %s is no longer listed", address)
            self._links.pop(address).stop()
            # A name server forgets a broker whose connection ends.
            self._client.close_connection(address)
        new = [address for address in addresses if address not in self._links]
        for address in new:
            link = _Link(address, self._client, self._requests, self._live, self._answered)
            if self._tasks is not None:
                link.start(self._tasks)
            self._links[address] = link
        # In list order: the first that answers is the one we believe.
        self._links = {address: self._links[address] for address in addresses}

    def _present(self) -> list[_Link]:
        """The links that are up. The others are told to check whether their name server is back."""
        for link in self._links.values():
            if not link.present:
                link.hurry()
        return [link for link in self._links.values() if link.present]

    def _answered(self, speaker: _Link, reply: Command) -> None:
        # Name servers may disagree; believing each in turn, topics would change all the time.
        first = next((link for link in self._links.values() if link.present), None)
        if first is not speaker:
            return
        header = reply.header(RegisterBrokerReply)
        self.master_address, self.master_ha_address = header.master_addr, header.ha_server_addr
        if reply.body_bytes:
            try:
                self._order_topics(KVTable.decode(reply.body_bytes).table)
            except RemoteProtocolError as exc:
                logger.warning("name server %s: cannot read order topics: %s", speaker.address, exc)


class _Link:
    """One name server, and what it knows about this broker."""

    def __init__(
        self,
        address: str,
        client: RemotingClient,
        requests: RegistrationRequests,
        live: LiveConfig,
        answered: Callable[[_Link, Command], None],
    ) -> None:
        self.address = address
        self._client = client
        self._requests = requests
        self._live = live
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        # The version up to which this name server has every topic; None if uncertain.
        self._known: DataVersion | None = None
        # Whether it answered the last request and has not hung up since.
        self.present = False
        self._connection: Connection | None = None
        self._speaking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._announced = False
        self._asked = False
        self._failures = 0
        self._next = self._loop.time()
        self._task: asyncio.Task[None] | None = None

    @property
    def up_to_date(self) -> bool:
        """Whether this name server has all current topics."""
        return self._known == self._requests.version

    # The task

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self._run(), name=f"register with {self.address}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def announce(self) -> None:
        self._announced = True
        self._wake.set()

    def ask(self) -> None:
        """Register soon for the sake of the answer. A name server that does not answer is asked as always."""
        if self.present:
            self._asked = True
            self._wake.set()

    def hurry(self) -> None:
        """Register again now."""
        self._next = self._loop.time()
        self._wake.set()

    async def _run(self) -> None:
        if self.present:
            self._next = self._loop.time() + min(_FIRST_PERIOD, self._live.config.register_interval)
        while True:
            if self._loop.time() >= self._next:
                self._announced = False
                await self.register(forced=self._live.config.force_register)
            elif self._asked:
                self._asked = False
                await self._ask()
            elif self._announced:
                await asyncio.sleep(_GATHER)
                self._announced = False
                await self._say_in_passing()
            else:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next):
                        await self._wake.wait()

    # Requests

    async def register(self, *, forced: bool = True) -> None:
        """Register all topics; unless forced, only if this name server lacks some."""
        deadline = self._loop.time() + self._live.config.register_timeout / 1000
        try:
            async with self._turn(deadline):
                self._known = None
                if forced or await self._differs(self._requests.version, deadline):
                    await self._register(self._requests.register_all, deadline)
                else:
                    self._succeeded(self._requests.version)
        except PyroMQError as exc:
            self._failed(exc)

    async def catch_up(self) -> None:
        """Register the topics that changed since the last time, or all if that is unknown."""
        deadline = self._loop.time() + self._live.config.register_timeout / 1000
        try:
            async with self._turn(deadline):
                if self.up_to_date:
                    return  # by an earlier registration, while this one waited for its turn
                known, self._known = self._known, None
                changed = None if known is None else self._requests.changed_since(known)
                # The request carries the version of all topics: a name server lacking another would never get that.
                if changed is None:
                    await self._register(self._requests.register_all, deadline)
                else:
                    await self._register(lambda: self._requests.register_topics(changed), deadline)
        except PyroMQError as exc:
            self._failed(exc)

    async def _ask(self) -> None:
        """Register without topics, if it has them: only the answer is of interest."""
        deadline = self._loop.time() + self._live.config.register_timeout / 1000
        due = self._next
        try:
            async with self._turn(deadline):
                if self.up_to_date:
                    await self._register(lambda: self._requests.register_topics(()), deadline)
                    self._next = due  # this was no full registration, which is due as before
                    return
        except PyroMQError as exc:
            self._failed(exc)
            return
        await self.register()

    async def _register(self, make: Callable[[], Command], deadline: float) -> None:
        version = self._requests.version
        reply = await self._invoke(make(), deadline)
        self._succeeded(version)
        self._answered(self, reply)

    async def _say_in_passing(self) -> None:
        """Register all topics without waiting for an answer; skipped if the name server has them or is unreachable."""
        if self._known is None or self.up_to_date:
            return
        deadline = self._loop.time() + self._live.config.register_timeout / 1000
        try:
            async with self._turn(deadline):
                version, self._known = self._requests.version, None
                left = deadline - self._loop.time()
                await self._client.oneway(self.address, self._requests.register_all(oneway=True), left)
                self._known = version
        except PyroMQError as exc:
            self._failed(exc)

    async def leave(self) -> None:
        self.present = False
        # A name server that is unreachable or does not answer will notice by itself.
        with contextlib.suppress(PyroMQError):
            await self._client.invoke(self.address, self._requests.unregister(), _LEAVE_TIMEOUT)

    async def _differs(self, version: DataVersion, deadline: float) -> bool:
        """Whether this name server lacks topics; True if it cannot say."""
        try:
            reply = await self._invoke(self._requests.query_version(), deadline)
            if reply.header(QueryDataVersionReply).changed:
                return True
            return bool(reply.body_bytes) and DataVersion.decode(reply.body_bytes) != version
        except PyroMQError as exc:
            logger.info("name server %s: cannot compare versions: %s; registering anyway", self.address, exc)
            return True

    async def _invoke(self, request: Command, deadline: float) -> Command:
        connection = await self._client.connection(self.address, deadline - self._loop.time())
        if connection is not self._connection:
            self._connection = connection
            connection.lost.add_done_callback(lambda _: self._lost(connection))
        reply = await self._client.invoke(self.address, request, deadline - self._loop.time())
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        return reply

    @contextlib.asynccontextmanager
    async def _turn(self, deadline: float) -> AsyncIterator[None]:
        """One request at a time, so that a name server gets them in order."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._speaking.acquire()
        except TimeoutError:
            waited = self._live.config.register_timeout / 1000
            raise RequestTimeout(self.address, RequestCode.REGISTER_BROKER, waited) from None
        try:
            yield
        finally:
            self._speaking.release()

    # Outcomes

    def _succeeded(self, version: DataVersion) -> None:
        if not self.present:
            logger.info("registered with name server %s", self.address)
        self.present = True
        self._known = version
        self._failures = 0
        self._next = self._loop.time() + self._live.config.register_interval

    def _failed(self, exc: PyroMQError) -> None:
        if not self._failures:
            logger.warning("cannot register with name server %s: %s; trying again", self.address, exc)
        # A second, two, four: a name server that is being restarted gets its brokers back soon.
        pause = _FIRST_RETRY * 2 ** min(self._failures, 10)
        self._failures += 1
        self._absent(min(pause, self._live.config.register_interval))

    def _lost(self, connection: Connection) -> None:
        if self._task is not None and self._task.done():
            return  # nobody registers any more: this broker stops, or has another role
        if connection is self._connection and self.present:
            logger.warning("name server %s hung up; registering again", self.address)
            self._absent(_FIRST_RETRY)

    def _absent(self, pause: float) -> None:
        self.present = False
        self._known = None
        self._next = self._loop.time() + pause
        self._wake.set()


async def _listed(config: BrokerConfig) -> list[str]:
    """The name servers that the settings name, or those that the address server lists."""
    if config.namesrv_addr or not config.fetch_namesrv_addr:
        return config.name_servers
    return await look_up(lookup_url(config.address_server_domain, config.address_server_subgroup))
