"""Official clients whose master dies and comes back, while a slave of ours keeps their messages (docs/spec/ha.md 6).

The masters are ours and Apache's, the slaves ours. Consumers read on from the slave; producers fail clearly, or use
another broker. Afterwards everything that was acknowledged has been consumed, some of it perhaps twice.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Broker
from tests.interop.drivers import Driver
from tests.interop.peers import NameServer
from tests.interop.process import PeerFailed, Process, wait_until
from tests.interop.pyromq_up import PyroMQ

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

PAIR, OTHER = "pair", "other"
MAKES = ("ours", "apache-5.5.0")
PEERS = ("java-5.5.0", "java-4.9.8", "go-2.1.2")
QUEUES = 4
SOON = 30.0
# Clients ask for routes every 30 s, and wait as long for answers to the pulls that the dead broker held.
HEALED = 90.0
SETTINGS: dict[str, Any] = {"brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20}


class Pair:
    """A master that can die and come back, its slave, and a broker of another name that a test may start."""

    def __init__(self, make: str, home: Path, life: ExitStack) -> None:
        self._make = make
        self._home = home
        self._names = {"brokerClusterName": CLUSTER, "brokerName": PAIR}
        self.namesrv = life.enter_context(NameServer("ours", home / "namesrv")).address
        (home / "master").mkdir()
        if make == "ours":
            own = {**self._names, **SETTINGS, "brokerRole": "SYNC_MASTER"}
            self._ours = PyroMQ(home / "master", namesrv=self.namesrv, **own)
            self.master_port = self._ours.port
        else:
            self.master_port = 0
        self._process: Process
        life.callback(lambda: self._process.kill())
        self.start_master()
        slave = {**self._names, **SETTINGS, "brokerRole": "SLAVE", "brokerId": 1}
        self.slave = life.enter_context(PyroMQ(home / "slave", namesrv=self.namesrv, **slave))
        self.other = PyroMQ(
            home / "other", namesrv=self.namesrv, brokerClusterName=CLUSTER, brokerName=OTHER, **SETTINGS
        )

    @property
    def master(self) -> str:
        return f"127.0.0.1:{self.master_port}"

    def start_master(self) -> None:
        if self._make == "ours":
            self._process = self._ours.start().process
            return
        version = self._make.removeprefix("apache-")
        broker = Broker(version, self._home / "master", self.namesrv, name=PAIR, port=self.master_port, **SETTINGS)
        self.master_port, self._process = broker.port, broker.process
        broker.wait_until_booted()

    def kill_master(self) -> None:
        self._process.kill()
        wait_until(lambda: "0" not in self.known(), SOON, "the name server has noticed")

    def known(self) -> dict[str, str]:
        """The addresses of the pair's brokers by id, as the name server has them."""
        return wire.brokers(self.namesrv).get(PAIR, {})

    def create_topic(self, topic: str) -> None:
        with wire.Connection(self.master) as connection:
            wire.create_topic(connection, topic, QUEUES)

        def is_copied() -> bool:
            return topic in wire.ask(self.slave.address, 21).json["topicConfigTable"]

        wait_until(is_copied, SOON, f"the slave knows {topic}")

    def wait_until_copied(self) -> None:
        """Wait until the slave has the master's whole log."""

        def ends(address: str) -> str:
            return str(wire.ask(address, 28).json["table"]["commitLogMaxOffset"])

        wait_until(lambda: ends(self.slave.address) == ends(self.master), SOON, "the slave has the whole log")


@pytest.fixture(scope="module", params=MAKES)
def pair(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with ExitStack() as life:
        yield Pair(request.param, tmp_path_factory.mktemp("pair"), life)


class Sender:
    """A producer, and what was acknowledged to it: only that counts as sent."""

    def __init__(self, client: Driver, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._numbers = itertools.count()
        self.acknowledged: set[str] = set()

    def send(self, what: str) -> str:
        """Send one message; the name of the broker that stored it. PeerFailed if none did."""
        body = f"{what}-{next(self._numbers)}"
        [sent] = self._client.send(topic=self._topic, body=body)
        if sent.status != "SEND_OK":
            raise PeerFailed(f"{body}: {sent.status}")
        self.acknowledged.add(body)
        return sent.broker

    def sends_to(self, broker: str) -> bool:
        try:
            return self.send("again") == broker
        except PeerFailed:
            return False


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.scenario("ha 15")
@pytest.mark.scenario("ha 16")
def test_clients_live_through_the_death_of_the_only_master(pair: Pair, tmp_path: Path, peer: str) -> None:
    topic = f"only-{peer}".replace(".", "_")
    pair.create_topic(topic)
    with Driver(peer, tmp_path / "sends", pair.namesrv) as producing, Driver(peer, tmp_path, pair.namesrv) as consuming:
        sender = Sender(producing, topic)
        wait_until(lambda: sender.sends_to(PAIR), SOON, "the slave follows")
        consuming.do("push", name="one", group=f"g-{topic}", topic=topic)
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)
        with consuming.frozen():
            # Pulls that the master holds may still be answered by it, with the first message of each queue.
            for _ in range(4 * QUEUES):
                sender.send("before")
            pair.wait_until_copied()
            pair.kill_master()
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)

        with pytest.raises(PeerFailed, match=f"failed .*({PAIR}|{topic}|{pair.master})"):
            sender.send("meanwhile")

        pair.start_master()
        wait_until(lambda: sender.sends_to(PAIR), HEALED, f"{peer} sends again")
        for _ in range(2 * QUEUES):
            sender.send("after")
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.scenario("ha 15")
def test_sends_go_to_another_broker_while_a_master_is_dead(pair: Pair, tmp_path: Path, peer: str) -> None:
    topic = f"two-{peer}".replace(".", "_")
    with (
        pair.other as other,
        Driver(peer, tmp_path / "sends", pair.namesrv) as producing,
        Driver(peer, tmp_path, pair.namesrv) as consuming,
    ):
        pair.create_topic(topic)
        other.create_topic(topic, QUEUES)
        sender = Sender(producing, topic)
        wait_until(lambda: sender.sends_to(PAIR), SOON, "the slave follows")
        assert {sender.send("first") for _ in range(4 * QUEUES)} == {PAIR, OTHER}
        consuming.do("push", name="one", group=f"g-{topic}", topic=topic)
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)
        with consuming.frozen():
            for _ in range(8 * QUEUES):
                sender.send("before")
            pair.wait_until_copied()
            pair.kill_master()
        if peer.startswith("java"):
            assert {sender.send("meanwhile") for _ in range(4 * QUEUES)} == {OTHER}
        else:  # goes through the queues in turn: those of the dead broker fail until it asks for the route again
            for _ in range(4 * QUEUES):
                wait_until(lambda: sender.sends_to(OTHER), SOON, f"{peer} sends to the other broker")
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)

        pair.start_master()
        wait_until(lambda: sender.sends_to(PAIR), HEALED, f"{peer} sends to the master again")
        for _ in range(4 * QUEUES):
            sender.send("after")
        consuming.wait_for_bodies("one", sender.acknowledged, HEALED)
