"""A group that fails over: brokers of one name, each ours or Apache's, under controllers that are ours or Apache's."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.interop import wire
from tests.interop.apache import CLUSTER, Broker
from tests.interop.controllers import ControllerInNameServer
from tests.interop.peers import OURS, Controller, NameServer
from tests.interop.process import Process, free_port, stop_all, wait_until
from tests.interop.pyromq_up import PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

APACHE = "apache-5.5.0"
NAME, TOPIC, QUEUES = "pair", "T", 4
# A slave of 5.5.0 reports 5 s late, and asks where its master takes slaves when it registers: at once, or 30 s later.
SOON = 60.0
FILE = 1 << 20


class Replica:
    """One broker of the group. Its port and its files stay the same when it is started again."""

    def __init__(self, make: str, home: Path, namesrv: str, settings: dict[str, Any]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.make = make
        self._home = home
        self._namesrv = namesrv
        self._settings = {"brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": FILE, **settings}
        self._process: Process | None = None
        self._ours: PyroMQ | None = None
        if make == OURS:
            own: dict[str, Any] = {"brokerClusterName": CLUSTER, "brokerName": NAME, **self._settings}
            self._ours = PyroMQ(home, namesrv=namesrv, **own)
            self.port = self._ours.port
        else:
            self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        return self._home / ("data" if self.make == OURS else "store")

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was not started"
        return self._process

    def start(self) -> None:
        if self._ours is not None:
            self._process = self._ours.start().process
            return
        version = self.make.removeprefix("apache-")
        own: dict[str, Any] = {"brokerId": -1, "brokerRole": "SLAVE", **self._settings}
        broker = Broker(version, self._home, self._namesrv, name=NAME, port=self.port, **own)
        self._process = broker.process
        broker.wait_until_booted()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still: its connections stay, but it neither reads nor answers."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    @property
    def end(self) -> int:
        """Where its log ends; -1 while it does not answer."""
        try:
            return int(wire.ask(self.address, 28).json["table"]["commitLogMaxOffset"])
        except (OSError, KeyError):
            return -1

    def log(self, end: int) -> bytes:
        """The log up to there. What lies behind means nothing: Apache's slaves do not clear what they cut off."""
        files = sorted((self.store / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files)[:end]

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The table of epochs in its file: each epoch, and where it begins."""
        lines = (self.store / "epochFileCheckpoint").read_text().splitlines()[2:]
        return [(int(epoch), int(start)) for epoch, start in (line.split("-") for line in lines)]


class Group:
    """Brokers by the ids that the controllers give them: 1 is started first."""

    def __init__(self, home: Path, namesrv: NameServer, controllers: Sequence[str]) -> None:
        self.home = home
        self.namesrv = namesrv
        self.controllers = controllers
        self.replicas: dict[int, Replica] = {}
        self.acknowledged: set[bytes] = set()
        self._count = 0

    # Who is what

    def add(self, make: str, **settings: Any) -> Replica:
        """Start another broker and wait until it is in sync and registered."""
        number = len(self.replicas) + 1
        mode = {"enableControllerMode": "true", "controllerAddr": ";".join(self.controllers)}
        mode |= {"allAckInSyncStateSet": "true"}
        home = self.home / f"broker-{number}"
        replica = self.replicas[number] = Replica(make, home, self.namesrv.address, mode | settings)
        replica.start()
        self.wait_for(f"broker {number} is in sync", set=sorted(self.replicas))
        wait_until(lambda: len(self.routes) == number, SOON, f"broker {number} is registered")
        return replica

    @property
    def leader(self) -> str:
        """The controller that leads; empty while none does."""
        for address in self.controllers:
            with contextlib.suppress(OSError):
                if leader := wire.ask(address, 1005).ext.get("controllerLeaderAddress"):
                    return leader
        return ""

    @property
    def state(self) -> dict[str, Any]:
        """What the controllers say of the group."""
        try:
            answer = wire.ask(self.leader, 1004, brokerName=NAME)
        except (OSError, ValueError):
            return {}
        if answer.code:
            return {}
        master = int(answer.ext.get("masterBrokerId", 0))
        members = sorted(answer.json["syncStateSet"])
        return {"master": master, "epoch": int(answer.ext["masterEpoch"]), "set": members}

    def wait_for(self, what: str, seconds: float = SOON, **expected: object) -> float:
        """Wait until the controllers say that."""
        last: dict[str, Any] = {}

        def holds() -> bool:
            last.update(self.state)
            return expected.items() <= last.items()

        try:
            return wait_until(holds, seconds, what)
        except Exception as exc:
            exc.add_note(f"the controllers say {last}, not {expected}")
            raise

    @property
    def master(self) -> Replica:
        return self.replicas[self.state["master"]]

    @property
    def routes(self) -> dict[str, str]:
        return wire.brokers(self.namesrv.address).get(NAME, {})

    def wait_for_routes(self, master: int, *slaves: int) -> None:
        """Wait until clients find these brokers, and no others."""
        wanted = {str(number): self.replicas[number].address for number in slaves}
        wanted["0"] = self.replicas[master].address
        wait_until(lambda: self.routes == wanted, SOON, f"routes are {wanted}")

    def elect(self, number: int) -> None:
        """Make a broker the master, as an operator does."""
        names: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": NAME}
        answer = wire.ask(self.leader, 1002, **names, brokerId=number, designateElect="true", invokeTime=1)
        assert answer.code == 0, answer

    # Messages

    def create_topic(self, topic: str = TOPIC) -> None:
        with wire.Connection(self.master.address) as connection:
            wire.create_topic(connection, topic, QUEUES)

    def send(self, count: int, size: int = 1000) -> None:
        """Send so many to the master, once it takes them, and remember what it acknowledged."""
        wait_until(self._sends, SOON, "the master takes messages")
        with wire.Connection(self.master.address) as connection:
            for _ in range(count):
                self._count += 1
                body = b"message %d " % self._count
                wire.send(connection, TOPIC, self._count % QUEUES, body.ljust(size, b"x"), KEYS=f"k{self._count}")
                self.acknowledged.add(body)

    def _sends(self) -> bool:
        self._count += 1
        body = b"message %d " % self._count
        try:
            with wire.Connection(self.master.address) as connection:
                wire.send(connection, TOPIC, 0, body)
        except (AssertionError, OSError, KeyError):
            return False
        self.acknowledged.add(body)
        return True

    # What all must have

    def wait_until_equal(self) -> None:
        """All logs are the same bytes, and have every message that was acknowledged."""
        replicas = list(self.replicas.values())
        ends: list[int] = []

        def same() -> bool:
            ends[:] = [replica.end for replica in replicas]
            return ends[0] > 0 and len(set(ends)) == 1

        wait_until(same, SOON, f"all logs end at one place: {ends}")
        first, *others = (replica.log(ends[0]) for replica in replicas)
        assert all(other == first for other in others)
        assert {body for body in self.acknowledged if body not in first} == set()

    def wait_until_shown(self) -> None:
        """The master shows consumers every message of its queues."""
        with wire.Connection(self.master.address) as connection:

            def counted() -> int:
                ends = (connection.ask(30, topic=TOPIC, queueId=queue) for queue in range(QUEUES))
                return sum(int(answer.ext["offset"]) for answer in ends)

            wait_until(lambda: counted() >= len(self.acknowledged), SOON, "consumers see all that was acknowledged")


@contextlib.contextmanager
def group_under(make: str, home: Path, **settings: object) -> Iterator[Group]:
    """An empty group under a controller inside a name server, which has these settings."""
    with (
        ControllerInNameServer(make, home / "namesrv", **settings) as server,
        _served(Group(home, server, [server.controller])) as group,
    ):
        yield group


@contextlib.contextmanager
def group_under_three(make: str, home: Path) -> Iterator[tuple[Group, dict[str, Controller]]]:
    """An empty group under three controllers, and these by their addresses. The name server is ours."""
    with (
        NameServer(OURS, home / "namesrv") as namesrv,
        several(make, home, 3) as controllers,
        _served(Group(home, namesrv, list(controllers))) as group,
    ):
        yield group, controllers


@contextlib.contextmanager
def _served(group: Group) -> Iterator[Group]:
    wait_until(lambda: bool(group.leader), SOON, "a controller leads")
    try:
        yield group
    finally:
        stop_all(replica.process for replica in group.replicas.values())


@contextlib.contextmanager
def several(make: str, home: Path, count: int) -> Iterator[dict[str, Controller]]:
    """So many controllers that know each other, by their addresses."""
    ports = [free_port() for _ in range(count)]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    controllers = [
        Controller(
            make,
            home / f"controller-{number}",
            port=port,
            controllerDLegerPeers=peers,
            controllerDLegerSelfId=f"n{number}",
        )
        for number, port in enumerate(ports)
    ]
    try:
        for controller in controllers:
            controller.launch()
        for controller in controllers:
            controller.wait_until_booted()
        yield {controller.address: controller for controller in controllers}
    finally:
        stop_all(controller.process for controller in controllers)
