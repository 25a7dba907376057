"""POP with the official Java client 5.5.0, and pending pops that go from Apache's broker to ours and back."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Admin, Broker, environment
from tests.interop.drivers import Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, wait_until
from tests.interop.pyromq_up import PyroMQ

from pyromq.protocol.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

JAVA = "java-5.5.0"
SOON = 30.0
# The client has a message that failed invisible for ten seconds first.
AFTER_A_FAILURE = 40.0
GET_MAX_OFFSET, SEND_MESSAGE, POP_MESSAGE, ACK_MESSAGE = 30, 10, 200050, 200051


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PyroMQ]:
    with PyroMQ(tmp_path_factory.mktemp("up"), reviveInterval=100) as running:
        yield running


@pytest.fixture(scope="module")
def peer(up: PyroMQ, java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(JAVA, tmp_path_factory.mktemp("peer"), up.namesrv) as driver:
        yield driver


@pytest.fixture(scope="module")
def admin(up: PyroMQ, java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Admin:
    return Admin("5.5.0", tmp_path_factory.mktemp("admin"), up.namesrv)


def popping(up: PyroMQ, peer: Driver, admin: Admin, topic: str, *, retries: int = 16, **options: object) -> None:
    """A consumer of the Java client in POP mode, as mqadmin sets it."""
    up.create_topic(topic)
    # The group must be there before its mode can be set.
    said = admin.run(f"updateSubGroup -b {up.address} -g g-{topic} -r {retries}")[0]
    assert "success" in said, said
    said = admin.run(f"setConsumeMode -b {up.address} -t {topic} -g g-{topic} -m POP -q 0")[0]
    assert "success" in said, said
    peer.do("push", name=topic, group=f"g-{topic}", topic=topic, pop=10_000, **options)


def checkpoints(up: PyroMQ) -> int:
    """How many timers there ever were: pops and acks make them, pulls do not."""
    with wire.Connection(up.address) as connection:
        return int(connection.ask(GET_MAX_OFFSET, topic="rmq_sys_wheel_timer", queueId=0).ext["offset"])


def test_the_java_client_pops_and_acknowledges(up: PyroMQ, peer: Driver, admin: Admin) -> None:
    before = checkpoints(up)
    popping(up, peer, admin, "popped")
    peer.send("async", topic="popped", count=40)
    wanted = {f"popped-{number}" for number in range(40)}
    peer.wait_for_bodies("popped", wanted, SOON)
    assert checkpoints(up) >= before + 2
    # Longer than the messages are invisible: those that were not acknowledged would come back.
    time.sleep(14)
    assert sorted(peer.bodies("popped")) == sorted(wanted)
    peer.do("leave", name="popped")


def test_a_message_that_fails_comes_back_to_the_java_client(up: PyroMQ, peer: Driver, admin: Admin) -> None:
    popping(up, peer, admin, "failing", fail=1)
    peer.send(topic="failing", body="twice", tags="A", keys="k")
    wait_until(lambda: len(peer.received("failing")) == 2, AFTER_A_FAILURE, "it comes twice")
    first, second = peer.received("failing")
    assert [(got.topic, got.body, got.times, got.tags) for got in (first, second)] == [
        ("failing", "twice", 0, "A"),
        ("failing", "twice", 1, "A"),
    ]
    peer.do("leave", name="failing")


def test_after_the_groups_maximum_a_message_is_a_dead_letter(up: PyroMQ, peer: Driver, admin: Admin) -> None:
    """With Apache's broker it would be lost: the client acknowledges what comes back too often, and tells nobody."""
    popping(up, peer, admin, "hopeless", fail=9, retries=0)
    peer.send(topic="hopeless", body="bad")
    dead = "%DLQ%g-hopeless"

    def is_dead() -> bool:
        with wire.Connection(up.address) as connection:
            return int(connection.ask(GET_MAX_OFFSET, topic=dead, queueId=0).ext["offset"]) == 1

    wait_until(is_dead, AFTER_A_FAILURE, "there is a dead letter")
    assert len(peer.bodies("hopeless")) == 1
    peer.do("leave", name="hopeless")


def test_the_java_client_gets_all_when_the_broker_is_killed_in_between(up: PyroMQ, peer: Driver, admin: Admin) -> None:
    popping(up, peer, admin, "killed")
    peer.send("async", topic="killed", count=20)
    peer.wait_for_bodies("killed", {f"killed-{number}" for number in range(20)}, SOON)
    up.restart(kill=True)
    peer.send("async", topic="killed", count=30)
    peer.wait_for_bodies("killed", {f"killed-{number}" for number in range(30)}, AFTER_A_FAILURE)
    # The second time 0 to 19 were sent, too.
    wait_until(lambda: len(peer.bodies("killed")) == 50, SOON, "all have come")
    peer.do("leave", name="killed")


# One data directory, two makes of brokers


TOPIC, GROUP = "handed", "takers"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
READY_SECONDS = 15.0
# 5.5.0 takes 17 s to stop and 10 to boot.
OVER_A_STOP = 45_000
OVER_A_BOOT = 40_000


class House:
    """One data directory in which brokers of either make live, one after the other."""

    def __init__(self, home: Path, namesrv: str) -> None:
        self._home = home
        self._namesrv = namesrv
        self._port = free_port()
        self._broker: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._broker is not None:
            self._broker.kill()

    def apache(self) -> None:
        settings: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 1000}
        broker = Broker("5.5.0", self._home, self._namesrv, name="shared", port=self._port, **settings)
        self._broker = broker.process
        broker.wait_until_booted()

    def ours(self) -> None:
        command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(self._home / "broker.conf")]
        log = self._home / "pyromq.out"
        self._broker = Process("pyromq", [*command, "drainSeconds=1"], log=log, env=environment(self._home))
        self._broker.wait_for("boot success", READY_SECONDS)

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.terminate()
        self._broker.wait(STOP_SECONDS)

    def connect(self) -> wire.Connection:
        return wire.Connection(f"127.0.0.1:{self._port}")

    def send(self, *bodies: str) -> None:
        with self.connect() as connection:
            wire.create_topic(connection, TOPIC, 1)
            for body in bodies:
                answer = connection.ask(
                    SEND_MESSAGE,
                    body.encode(),
                    producerGroup="p",
                    topic=TOPIC,
                    defaultTopic="TBW102",
                    defaultTopicQueueNums=4,
                    queueId=0,
                    sysFlag=0,
                    bornTimestamp=1_700_000_000_000,
                    flag=0,
                    properties=f"UNIQ_KEY\x01{body}",
                )
                assert answer.code == 0, answer

    def pop(self, invisible: int, *, acknowledge: str = "") -> dict[str, int]:
        """Pop, and acknowledge one of the messages; gives how often each was popped before."""
        found = {}
        with self.connect() as connection:
            answer = connection.ask(
                POP_MESSAGE,
                consumerGroup=GROUP,
                topic=TOPIC,
                queueId=-1,
                maxMsgNums=32,
                invisibleTime=invisible,
                pollTime=0,
                bornTime=int(time.time() * 1000),
                initMode=0,
                order="false",
            )
            assert answer.code in (0, 210), answer
            if answer.code:
                return {}
            starts = {
                tuple(part.split(" ")[:2]): part.split(" ")[2] for part in answer.ext["startOffsetInfo"].split(";")
            }
            for record in decode_records(answer.body):
                body = record.body.decode()
                found[body] = record.reconsume_times
                handle = record.find_property("POP_CK")
                if handle is None:
                    start = starts["0", str(record.queue_id)]
                    ext = answer.ext
                    handle = f"{start} {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 shared "
                    handle += f"{record.queue_id} {record.queue_offset}"
                if body == acknowledge:
                    real = RETRY if handle.split(" ")[4] == "1" else TOPIC
                    said = connection.ask(
                        ACK_MESSAGE,
                        consumerGroup=GROUP,
                        topic=real,
                        queueId=record.queue_id,
                        extraInfo=handle,
                        offset=record.queue_offset,
                    )
                    assert said.code == 0, said
        return found

    def comes_back(self, *bodies: str, invisible: int, acknowledge: str = "", seconds: float = 90) -> None:
        """Pop until all of these came, each once, with nothing else."""
        found: dict[str, int] = {}

        def all_there() -> bool:
            for body, times in self.pop(invisible, acknowledge=acknowledge).items():
                assert body not in found, f"{body} comes twice"
                found[body] = times
            return found.keys() >= set(bodies)

        wait_until(all_there, seconds, f"{bodies} come back")
        assert found.keys() == set(bodies)
        assert all(times > 0 for times in found.values()), found


@pytest.fixture(scope="module")
def namesrv(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with NameServer(OURS, tmp_path_factory.mktemp("namesrv")) as running:
        yield running


def test_pops_that_are_not_acknowledged_go_to_us_and_back(namesrv: NameServer, tmp_path: Path) -> None:
    with House(tmp_path, namesrv.address) as house:
        house.apache()
        house.send("acked at Apache", "acked at ours", "acked at Apache again")
        assert house.pop(OVER_A_STOP, acknowledge="acked at Apache").keys() == {
            "acked at Apache",
            "acked at ours",
            "acked at Apache again",
        }
        house.stop()

        house.ours()
        assert house.pop(OVER_A_BOOT) == {}
        house.comes_back("acked at ours", "acked at Apache again", invisible=OVER_A_BOOT, acknowledge="acked at ours")
        house.stop()

        house.apache()
        house.comes_back("acked at Apache again", invisible=60_000, acknowledge="acked at Apache again")
