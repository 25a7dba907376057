"""A broker of Apache's ends, ours goes on with its files, its name and its address, and gives everything back.

Ours is started with Apache's own broker.conf: nothing is converted. By default 5.5.0 keeps topics, groups and offsets
in the same JSON files as 4.9 (configManagerVersion=v1, storeType=default, useSingleRocksDBForAllConfigs=false,
persistConsumerOffsetIncrementally=false). Its folder `rocksdbstore` is there all the same, for a timer, an index and
transactions that are off (timerRocksDBEnable, indexRocksDBEnable and transRocksDBEnable are false).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Broker, environment
from tests.interop.drivers import Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, wait_until

from pyromq.protocol import fastjson
from pyromq.store.metadata.json_files import consumer_offsets_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

GET_ALL_TOPIC_CONFIG = 21
GET_ALL_CONSUMER_OFFSET = 43
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201

CLIENT = "java-5.5.0"
TOPIC, LATE = "orders", "late"
QUEUES = 4
CONFIG_FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
READY_SECONDS = 15.0
SOON = 30.0
HEALED = 40.0  # a connected client may wait for an answer of the broker that is gone, up to 30 s
# 5.5.0 takes 17 s to stop and 4.9.7 takes 7: what has level 4 is left to be delivered by whoever comes next.
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
    "messageDelayLevel": "1s 1s 1s 18s 30m",
}
# Nothing in it is as it would be by default. Only 5.x knows the last ones.
CUSTOM_GROUP = {
    "groupName": "custom",
    "consumeBroadcastEnable": False,
    "consumeFromMinEnable": False,
    "retryQueueNums": 2,
    "retryMaxTimes": 3,
    "whichBrokerWhenConsumeSlowly": 2,
    "consumeMessageOrderly": True,
    "consumeTimeoutMinute": 7,
    "groupRetryPolicy": {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 3000, "max": 9000, "multiplier": 3},
    },
}


class House:
    """One data directory, one broker name and one address. Brokers of either make live in it, one after the other."""

    def __init__(self, version: str, home: Path, namesrv: str) -> None:
        self.root = home / "broker" / "store"
        self.version = version
        self._home = home
        self._namesrv = namesrv
        self._port = free_port()
        self._clients = 0
        self._broker: Process | None = None
        self._sent: dict[tuple[int, int], str] = {}  # by queue and offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def broker(self) -> Process:
        assert self._broker is not None, "nobody has moved in"
        return self._broker

    def apache(self) -> None:
        """Let Apache's broker move in."""
        home = self._home / "broker"
        broker = Broker(self.version, home, self._namesrv, name="shared", port=self._port, **SETTINGS)
        self._broker = broker.process
        broker.wait_until_booted()
        self._wait_until_registered()

    def ours(self) -> None:
        """Let our broker move in, with the settings of Apache's."""
        config = str(self._home / "broker" / "broker.conf")
        command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", config, "drainSeconds=1"]
        self._broker = Process("pyromq", command, log=self._home / "pyromq.out", env=environment(self._home))
        self._broker.wait_for("boot success", READY_SECONDS)
        self._wait_until_registered()

    def _wait_until_registered(self) -> None:
        known = {"shared": {"0": self._address}}
        wait_until(lambda: wire.brokers(self._namesrv) == known, SOON, f"the name server knows {known}")

    def stop(self) -> None:
        """Let the broker end by itself, however long that takes."""
        self.broker.terminate()
        self.broker.wait(STOP_SECONDS)
        assert not (self.root / "abort").exists(), "it did not end cleanly"

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def client(self) -> Driver:
        self._clients += 1
        return Driver(CLIENT, self._home / f"client-{self._clients}", self._namesrv)

    def send(self, name: str, count: int) -> set[str]:
        """Send so many messages, to the queues in turn; their bodies."""
        with wire.Connection(self._address) as connection:
            for n in range(count):
                offset = wire.send(connection, TOPIC, n % QUEUES, f"{name}-{n}".encode(), KEYS=f"{name}-{n}")
                assert (n % QUEUES, offset) not in self._sent
                self._sent[n % QUEUES, offset] = f"{name}-{n}"
        return {f"{name}-{n}" for n in range(count)}

    def create_topics(self) -> None:
        with wire.Connection(self._address) as connection:
            wire.create_topic(connection, TOPIC, QUEUES)
            more = {"attributes": "+message.type=DELAY"} if self.version.startswith("5.") else {}
            wire.create_topic(connection, LATE, 1, **more)

    def create_group(self, group: dict[str, Any]) -> None:
        with wire.Connection(self._address) as connection:
            answer = connection.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(group).encode())
            assert answer.code == 0, answer

    def committed(self, group: str) -> list[int]:
        """What the broker says that a group committed, queue by queue."""
        table = wire.ask(self._address, GET_ALL_CONSUMER_OFFSET).json["offsetTable"]
        return list(dict(sorted(table.get(f"{TOPIC}@{group}", {}).items())).values())

    def wait_until_committed(self, group: str, offset: int) -> None:
        """Wait until a group is so far in every queue. A Java client commits after 10 s, or when it leaves."""
        wait_until(lambda: self.committed(group) == [offset] * QUEUES, SOON, f"{group} committed {offset}")

    def not_saved(self, group: str) -> set[str]:
        """All messages that a group has not consumed, by what a broker that was killed saved last."""
        offsets = consumer_offsets_file(self.root).load().offset_table.get(f"{TOPIC}@{group}", {})
        return {body for (queue_id, offset), body in self._sent.items() if offset >= offsets.get(queue_id, 0)}

    def tables(self) -> dict[str, Any]:
        """Topics and groups, as the broker tells them to operators and slaves."""
        return {
            "topics": wire.ask(self._address, GET_ALL_TOPIC_CONFIG).json["topicConfigTable"],
            "groups": wire.ask(self._address, GET_ALL_SUBSCRIPTIONGROUP_CONFIG).json["subscriptionGroupTable"],
        }

    def files(self) -> dict[str, Any]:
        """The files of `config` that both makes write, with all that is in them."""
        return {name: fastjson.loads((self.root / "config" / name).read_bytes()) for name in CONFIG_FILES}


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Members that are gone or have another value; new ones do not count."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for name, value in before.items():
            found += differences(value, after[name], f"{path}/{name}") if name in after else [f"{path}/{name} is gone"]
        return found
    return [] if before == after else [f"{path} was {before}, is {after}"]


@pytest.fixture(scope="module")
def namesrv(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with NameServer(OURS, tmp_path_factory.mktemp("namesrv")) as running:
        yield running


@pytest.fixture(params=["5.5.0", "4.9.7"], ids=lambda version: f"apache-{version}")
def house(request: pytest.FixtureRequest, namesrv: NameServer, tmp_path: Path) -> Iterator[House]:
    """A house in which Apache's broker lives."""
    with House(request.param, tmp_path, namesrv.address) as house:
        house.apache()
        house.create_topics()
        yield house


@pytest.mark.scenario("store 25")
def test_topics_groups_and_offsets_go_to_us_and_back(house: House):
    house.create_group(CUSTOM_GROUP)
    first = house.send("first", 40)
    with house.client() as client:
        client.do("push", name="connected", group="connected", topic=TOPIC)
        client.do("push", name="one", group="g", topic=TOPIC)
        for consumer in ("one", "connected"):
            client.wait_for_bodies(consumer, first, SOON)
        client.do("leave", name="one")
        house.wait_until_committed("g", 10)
        unread = house.send("unread", 8)
        client.wait_for_bodies("connected", unread, SOON)
        tables = house.tables()
        client.send(topic=LATE, body="late", delay=4)
        house.stop()
        files = house.files()

        house.ours()
        assert house.committed("g") == [10] * QUEUES
        assert [house.tables()[kind].keys() >= tables[kind].keys() for kind in tables] == [True, True]
        client.do("push", name="two", group="g", topic=TOPIC)
        client.wait_for_bodies("two", unread, SOON)
        client.do("leave", name="two")
        assert sorted(client.bodies("two")) == sorted(unread), "it goes on where it was"
        client.do("push", name="late", group="late", topic=LATE)
        client.wait_for_bodies("late", {"late"}, SOON)
        more = house.send("more", 8) | {"by-java"}
        assert client.send(topic=TOPIC, body="by-java")[0].status == "SEND_OK"
        client.wait_for_bodies("connected", more, HEALED)
        house.stop()
        ours = house.files()
        for name in ("topics.json", "subscriptionGroup.json"):
            del files[name]["dataVersion"]
            assert differences(files[name], ours[name]) == []
        assert ours["consumerOffset.json"]["offsetTable"]["orders@g"] == dict.fromkeys("0123", 12)
        assert ours["delayOffset.json"]["offsetTable"]["4"] == 1

        house.apache()
        assert house.committed("g") == [12] * QUEUES
        assert differences(tables, house.tables()) == []
        client.do("push", name="three", group="g", topic=TOPIC)
        more |= house.send("last", 8)
        for consumer in ("three", "connected"):
            client.wait_for_bodies(consumer, more, HEALED)
        assert sorted(client.bodies("three")) == sorted(more), "it goes on where it was"
        assert sorted(client.bodies("connected")) == sorted(first | unread | more)
        assert client.bodies("late") == ["late"]


def test_after_a_kill_no_more_comes_again_than_was_not_saved(house: House):
    expected = house.send("first", 40)
    for number, move_in in enumerate((house.ours, house.apache), 1):
        with house.client() as client:
            client.do("push", name="one", group="g", topic=TOPIC)
            client.wait_for_bodies("one", expected, HEALED)
            # The broker may have saved some of this, all or nothing.
            house.wait_until_committed("g", 10 * number)
            assert sorted(client.bodies("one")) == sorted(expected)
            house.kill()
        expected = house.not_saved("g")
        move_in()
        expected |= house.send(f"more-{number}", 40)
    with house.client() as client:
        client.do("push", name="one", group="g", topic=TOPIC)
        client.wait_for_bodies("one", expected, HEALED)
        assert sorted(client.bodies("one")) == sorted(expected)
