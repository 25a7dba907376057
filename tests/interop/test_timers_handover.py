"""Pending timers go from Apache's broker to ours and back: each is delivered once, by whoever is there at its time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Broker, environment
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, wait_until

from pyromq.protocol.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

PULL_MESSAGE, SEND_MESSAGE, RECALL_MESSAGE = 11, 10, 370
TOPIC = "reminders"
READY_SECONDS = 15.0
SUBSCRIPTION = 4
# 5.5.0 takes 17 s to stop and 10 to boot.
WHILE_IT_STOPS = 40.0
WHILE_IT_BOOTS = 60.0
SETTINGS: dict[str, Any] = {
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20,
}


class House:
    """One data directory in which brokers of either make live, one after the other."""

    def __init__(self, home: Path, namesrv: str) -> None:
        self._home = home
        self._namesrv = namesrv
        self._port = free_port()
        self._broker: Process | None = None
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def apache(self) -> None:
        broker = Broker("5.5.0", self._home, self._namesrv, name="shared", port=self._port, **SETTINGS)
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

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def connect(self) -> wire.Connection:
        return wire.Connection(f"127.0.0.1:{self._port}")

    def create_topic(self) -> None:
        with self.connect() as connection:
            wire.create_topic(connection, TOPIC, 1)

    def send(self, body: str, seconds: float, *, recalled: bool = False) -> None:
        """A timer, which may be recalled at once."""
        self._sent += 1
        properties = {
            "TIMER_DELIVER_MS": int(1000 * (time.time() + seconds)),
            "UNIQ_KEY": f"{int(time.time() * 1000):X}{self._sent:08X}",
            "TAGS": "A",
        }
        with self.connect() as connection:
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
                properties="\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
            )
            assert answer.code == 0, answer
            if recalled:
                handle = answer.ext["recallHandle"]
                answer = connection.ask(RECALL_MESSAGE, producerGroup="p", topic=TOPIC, recallHandle=handle)
                assert answer.code == 0, answer

    def delivered(self) -> Counter[str]:
        found: Counter[str] = Counter()
        offset = 0
        with self.connect() as connection:
            while True:
                answer = connection.ask(
                    PULL_MESSAGE,
                    consumerGroup="g",
                    topic=TOPIC,
                    queueId=0,
                    queueOffset=offset,
                    maxMsgNums=32,
                    sysFlag=SUBSCRIPTION,
                    commitOffset=0,
                    suspendTimeoutMillis=0,
                    subVersion=0,
                    subscription="*",
                    expressionType="TAG",
                )
                if answer.code != 0:
                    return found
                messages = list(decode_records(answer.body))
                found.update(message.body.decode() for message in messages)
                offset = int(answer.ext["nextBeginOffset"])

    def wait_for(self, *bodies: str, seconds: float) -> None:
        wait_until(lambda: set(bodies) <= self.delivered().keys(), seconds, f"{bodies} are delivered")


@pytest.fixture(scope="module")
def namesrv(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with NameServer(OURS, tmp_path_factory.mktemp("namesrv")) as running:
        yield running


@pytest.fixture
def house(namesrv: NameServer, tmp_path: Path) -> Iterator[House]:
    """A house in which Apache's broker lives."""
    with House(tmp_path, namesrv.address) as house:
        house.apache()
        house.create_topic()
        yield house


def test_timers_go_to_us_and_back(house: House):
    house.send("of Apache, at once", 2)
    house.send("of Apache, by us", WHILE_IT_STOPS)
    house.send("of Apache, recalled", WHILE_IT_STOPS, recalled=True)
    house.send("of Apache, by Apache", WHILE_IT_STOPS + WHILE_IT_BOOTS)
    house.wait_for("of Apache, at once", seconds=10)
    house.stop()

    house.ours()
    house.send("ours, at once", 2)
    house.send("ours, by Apache", WHILE_IT_BOOTS)
    house.send("ours, recalled", WHILE_IT_BOOTS, recalled=True)
    house.wait_for("of Apache, by us", "ours, at once", seconds=WHILE_IT_STOPS)
    house.send("ours, the last", 1)
    house.wait_for("ours, the last", seconds=10)
    house.stop()

    house.apache()
    house.send("of Apache, again", 2)
    house.wait_for("of Apache, again", "ours, by Apache", "of Apache, by Apache", seconds=WHILE_IT_BOOTS + 20)
    house.stop()

    house.ours()
    house.send("ours, again", 1)
    house.wait_for("ours, again", seconds=10)
    assert house.delivered() == dict.fromkeys(
        (
            "of Apache, at once",
            "of Apache, by us",
            "of Apache, by Apache",
            "ours, at once",
            "ours, by Apache",
            "ours, the last",
            "of Apache, again",
            "ours, again",
        ),
        1,
    )
