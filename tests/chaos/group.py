"""A group of brokers, their controller and their name server as processes, with a line between any two that can break.

Every broker announces addresses of its own on which not it but a proxy listens, and finds its controller and its name
server behind proxies, too:

    127.0.1.n   clients, other brokers and the controller reach broker n
    127.0.2.n   slaves reach it for replication
    127.0.3.n   broker n reaches its controller
    127.0.4.n   and its name server
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.chaos.broker_process import LOST_POWER
from tests.crash.lives import SMALL
from tests.integration.broker.command_kit import environment, run
from tests.integration.broker.life_kit import Peer
from tests.ports import free_port

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import BrokerReplicasInfo
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ElectMaster
from pyromq.testing import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from pyromq.protocol.bodies import ReplicasInfo

REPOSITORY = Path(__file__).parents[2]
NAME = "g"
CLUSTER = "DefaultCluster"
# Seconds; other people may use the machine.
BOOTED_WITHIN = 60.0
ENDED_WITHIN = 60.0
HEALED_WITHIN = 90.0

# Everything is noticed soon, so that rounds are short.
BROKER = (
    *SMALL,
    "enableControllerMode=true",
    f"brokerName={NAME}",
    "controllerHeartBeatTimeoutMills=2000",
    "brokerHeartbeatInterval=200",
    "sendHeartbeatTimeoutMillis=600",
    "syncBrokerMetadataPeriod=500",
    "checkSyncStateSetPeriod=200",
    "haMaxTimeSlaveNotCatchup=2000",
    "haSendHeartbeatInterval=300",
    "haHousekeepingInterval=2500",
    "slaveTimeout=1500",
    "slaveSyncInterval=500",
    "transactionTimeOut=1000",
    "transactionCheckInterval=500",
    "transactionCheckMax=1000",
    "registerNameServerPeriod=10000",
)
CONTROLLER = ("scanNotActiveBrokerInterval=200", "scanInactiveMasterInterval=500", "bindAddress=127.0.0.1")


class Lines(NamedTuple):
    """All that connects one broker with the others, by who is at the other end."""

    client: tuple[Proxy, ...]  # also the controller's and the slaves' questions
    slave: tuple[Proxy, ...]
    controller: tuple[Proxy, ...]
    name_server: tuple[Proxy, ...]

    def all(self) -> list[Proxy]:
        return [proxy for proxies in self for proxy in proxies]


class Server:
    """A command as a process that can be killed and started again. What it logs is appended to `<name>.log`."""

    def __init__(self, home: Path, name: str, command: Sequence[str], ready: str) -> None:
        self.name = name
        self._home = home
        self._command = command
        self._ready = ready
        self.process: subprocess.Popen[str] | None = None
        self.alone = asyncio.Lock()  # for whoever kills it or lets it stand still

    @property
    def log(self) -> Path:
        return self._home / f"{self.name}.log"

    async def start(self, *more: str) -> None:
        prefix = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
                [sys.executable, *self._command, *more],
                env=environment(self._home) | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/src"} | prefix,
                cwd=self._home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        async with asyncio.timeout(BOOTED_WITHIN):
            await asyncio.to_thread(self._booted, self.process)

    def _booted(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if self._ready in line:
                return
        raise AssertionError(f"{self.name} did not start: {self.last_words()}")

    def last_words(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-15:])

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def assert_alive(self) -> None:
        assert self.is_running, f"{self.name} ended by itself: {self.last_words()}"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def order(self, text: str) -> None:
        if self.process is None:
            return  # it forgets such orders when it ends anyway
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()

    async def kill(self) -> int:
        """Kill it, or see how it died; gives its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.kill()
        return await _end(process)

    async def died(self) -> int:
        """Wait until it has ended by itself."""
        process, self.process = self.process, None
        assert process is not None
        return await _end(process)

    async def stop(self) -> None:
        """Stop it as operators do."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        code = await _end(process)
        assert code == 0, f"{self.name} ended with {code}: {self.last_words()}"


async def _end(process: subprocess.Popen[str]) -> int:
    with process:
        return await asyncio.to_thread(process.wait, ENDED_WITHIN)


class Member(Server):
    """One broker of the group."""

    def __init__(self, home: Path, number: int, port: int, lines: Lines, settings: Iterable[str]) -> None:
        self.number = number
        self.folder = home / f"broker-{number}"
        self.lines = lines
        self.address = f"127.0.1.{number}:{port}"
        places = [
            f"storePathRootDir={self.folder}",
            f"brokerConfigPath={home}/broker-{number}.properties",
            f"listenPort={port}",
            f"brokerIP1=127.0.1.{number}",
            f"brokerIP2=127.0.2.{number}",
            f"controllerAddr={lines.controller[0].address}",
            f"namesrvAddr={lines.name_server[0].address}",
        ]
        command = ["-m", "tests.chaos.broker_process", str(self.folder), *BROKER, *places, *settings]
        super().__init__(home, f"broker-{number}", command, "boot success")

    @property
    def id(self) -> int | None:
        """What the controller calls it; None if it has never met one."""
        try:
            return int((self.folder / "brokerIdentity").read_text().rpartition("#")[2])
        except FileNotFoundError:
            return None

    async def lose_power(self, seed: int) -> None:
        """Lose what was not on disk."""
        after = self.folder.with_name(f"{self.folder.name} after the power failure")
        self.order(f"power {seed} {after}")
        code = await self.died()
        assert code == LOST_POWER, f"{self.name} ended with {code}: {self.last_words()}"
        await asyncio.to_thread(shutil.rmtree, self.folder)
        after.rename(self.folder)

    async def wipe(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self.folder)

    def restore(self) -> None:
        for proxy in self.lines.all():
            proxy.restore()


class Group:
    """All processes of one life of the group."""

    def __init__(
        self, home: Path, peer: Peer, namesrv: Server, controllers: list[Server], members: list[Member]
    ) -> None:
        self.home = home
        self.namesrv = namesrv
        self.controllers = controllers  # one, as long as decisions are kept in a journal
        self.members = members
        self.namesrv_address = ""
        self.controller_address = ""
        self.journal = home / "controller"
        self._peer = peer

    @property
    def servers(self) -> list[Server]:
        return [self.namesrv, *self.controllers, *self.members]

    async def info(self) -> ReplicasInfo | None:
        """What the controller says about the group; None if it says nothing."""
        request = Command.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b'["g"]')
        try:
            reply = await self._peer.invoke(self.controller_address, request, 3.0)
        except PyroMQError:
            return None
        if reply.code:
            return None
        return BrokerReplicasInfo.decode(reply.body_bytes).replicas_info_table.get(NAME)

    async def elect(self, broker_id: int) -> int | None:
        """Have the controller make this broker master, as operators do; gives the code of the answer."""
        header = ElectMaster(
            cluster_name=CLUSTER, broker_name=NAME, broker_id=broker_id, designate_elect=True, invoke_time=0
        )
        request = Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        try:
            return (await self._peer.invoke(self.controller_address, request, 3.0)).code
        except PyroMQError:
            return None

    def by_id(self, broker_id: int | None) -> Member | None:
        return next((member for member in self.members if member.id == broker_id), None)

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

    async def close(self) -> None:
        for server in self.servers:
            if server.process is not None:
                server.signal(signal.SIGCONT)
                await server.kill()

    async def stop(self) -> None:
        """Stop all, without another election, and see that the stores are in order."""
        for server in (*self.controllers, *self.members, self.namesrv):
            await server.stop()
        for member in self.members:
            code, out, err = await asyncio.to_thread(run, self.home, "check", member.folder.name)
            assert code == 0, f"pyromq check {member.folder.name}: {out}{err}"


@contextlib.asynccontextmanager
async def running_group(home: Path, brokers: int, settings: Sequence[str]) -> AsyncIterator[Group]:
    # This process moves every byte between the others: what is slow here is late there.
    asyncio.get_running_loop().set_debug(False)
    home.mkdir()  # noqa: ASYNC240 - nobody waits yet
    namesrv_port, controller_port = free_port(), free_port()
    first = free_port(brokers)
    namesrv_address, controller_address = f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{controller_port}"
    async with contextlib.AsyncExitStack() as life:

        async def proxies(network: int, number: int, *ports: int) -> tuple[Proxy, ...]:
            host = f"127.0.{network}.{number}"
            made = [Proxy(f"127.0.0.1:{port}", port, host) for port in ports]
            return tuple([await life.enter_async_context(proxy) for proxy in made])

        members = []
        for number in range(1, brokers + 1):
            port = first + 10 * (number - 1)
            lines = Lines(
                await proxies(1, number, port, port - 2),
                await proxies(2, number, port + 1),
                await proxies(3, number, controller_port),
                await proxies(4, number, namesrv_port),
            )
            members.append(Member(home, number, port, lines, settings))
        cli = ["-m", "pyromq.cli.main"]
        files = [f"kvConfigPath={home}/kv.json", f"configStorePath={home}/namesrv.properties"]
        namesrv = Server(
            home,
            "namesrv",
            [*cli, "namesrv", f"listenPort={namesrv_port}", "bindAddress=127.0.0.1", *files],
            "boot success",
        )
        places = [
            f"controllerDLegerPeers=n0-{controller_address}",
            f"controllerStorePath={home}/controller",
            f"configStorePath={home}/controller.properties",
        ]
        controller = Server(home, "controller", [*cli, "controller", *CONTROLLER, *places], "boot success")
        peer = await life.enter_async_context(Peer())
        group = Group(home, peer, namesrv, [controller], members)
        group.namesrv_address, group.controller_address = namesrv_address, controller_address
        life.push_async_callback(group.close)
        await asyncio.gather(namesrv.start(), controller.start())
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
