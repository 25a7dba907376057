"""Filter bitmaps go from Apache's broker to ours and back: each reads what the other wrote, and writes the same."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Broker, environment
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, wait_until

from pyromq.protocol.record import decode_records
from pyromq.store import StoreConfig
from pyromq.store.check.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

PULL_MESSAGE, HEART_BEAT, QUERY_CONSUME_QUEUE = 11, 34, 321
TOPIC = "readings"
GROUPS = {"big": "a > 5", "few": "b IN ('x', 'y') AND a <> 3"}
SENT = 40  # by each broker; more than a file of units holds
READY_SECONDS, ENTERED_SECONDS = 15.0, 10.0
EXT_FILE_SIZE, LOG_FILE_SIZE, QUEUE_FILE_SIZE = 1000, 1 << 20, 20 * 30
SETTINGS: dict[str, Any] = {
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "notifyConsumerIdsChangedEnable": "false",  # our connection takes everything for an answer
    "mappedFileSizeConsumeQueueExt": EXT_FILE_SIZE,
    "mappedFileSizeCommitLog": LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_SIZE,
}


class Visit:
    """A broker of one make, while it lives in the data directory, and one connection to it that is all the clients."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self._connection = wire.Connection(f"127.0.0.1:{port}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(STOP_SECONDS)

    def create_topic(self) -> None:
        wire.create_topic(self._connection, TOPIC, 1)

    def beat(self) -> None:
        """All groups say by what they filter."""
        groups = [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": TOPIC,
                        "subString": text,
                        "subVersion": 1,
                        "expressionType": "SQL92",
                        "classFilterMode": False,
                        "codeSet": [],
                        "tagsSet": [],
                    }
                ],
            }
            for group, text in GROUPS.items()
        ]
        body = {"clientID": "c", "consumerDataSet": groups, "producerDataSet": []}
        assert self._connection.ask(HEART_BEAT, json.dumps(body).encode()).code == 0

    def send(self) -> None:
        for number in range(SENT):
            properties = {"a": str(number % 10), "TAGS": f"T{number % 3}"}
            if number % 4 == 0:
                properties["b"] = "x"
            wire.send(self._connection, TOPIC, 0, b"%d" % number, **properties)

    def shown(self, group: str, count: int) -> dict[str, Any]:
        """What the broker tells of the queue, once it has so many entries."""

        def ask() -> Any:
            index, data = 0, []
            # One answer ends with a file of the queue.
            while True:
                answer = self._connection.ask(
                    QUERY_CONSUME_QUEUE, topic=TOPIC, queueId=0, index=index, count=100, consumerGroup=group
                )
                assert answer.code == 0, answer
                if not answer.body or not answer.json["queueData"]:
                    break
                whole = answer.json
                data += whole["queueData"]
                index = len(data)
            return whole | {"queueData": data} if len(data) >= count else None

        shown: list[dict[str, Any]] = []

        def is_there() -> bool:
            if (answer := ask()) is not None:
                shown.append(answer)
            return bool(shown)

        wait_until(is_there, ENTERED_SECONDS, f"{count} entries are in the queue")
        return shown[-1]

    def pulled(self, group: str) -> list[str]:
        found: list[str] = []
        offset = 0
        while True:
            answer = self._connection.ask(
                PULL_MESSAGE,
                consumerGroup=group,
                topic=TOPIC,
                queueId=0,
                queueOffset=offset,
                maxMsgNums=32,
                sysFlag=0,
                commitOffset=0,
                suspendTimeoutMillis=0,
                subVersion=1,
                expressionType="SQL92",
            )
            if answer.code not in (0, 20):  # 20: none of those looked at
                assert answer.code == 19, answer
                return found
            found += [message.body.decode() for message in decode_records(answer.body)] if answer.code == 0 else []
            offset = int(answer.ext["nextBeginOffset"])


class House:
    def __init__(self, home: Path, namesrv: str) -> None:
        self._home = home
        self._namesrv = namesrv

    @contextlib.contextmanager
    def apache(self) -> Iterator[Visit]:
        broker = Broker("5.5.0", self._home, self._namesrv, name="shared", port=free_port(), **SETTINGS)
        with broker.process:
            broker.wait_until_booted()
            with Visit(broker.process, broker.port) as visit:
                yield visit

    @contextlib.contextmanager
    def ours(self) -> Iterator[Visit]:
        port = free_port()
        command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(self._home / "broker.conf")]
        settings = [f"listenPort={port}", "drainSeconds=1"]
        with Process(
            "pyromq", [*command, *settings], log=self._home / "us.out", env=environment(self._home)
        ) as process:
            process.wait_for("boot success", READY_SECONDS)
            with Visit(process, port) as visit:
                yield visit


@pytest.fixture
def house(java_packages: None, tmp_path: Path) -> Iterator[House]:
    with NameServer(OURS, tmp_path / "namesrv") as namesrv:
        home = tmp_path / "house"
        home.mkdir()
        yield House(home, namesrv.address)


def matching(group: str) -> list[str]:
    """The bodies of one lot that a group wants, by its own words."""
    tests = {"big": lambda n: n % 10 > 5, "few": lambda n: n % 4 == 0 and n % 10 != 3}
    return [str(number) for number in range(SENT) if tests[group](number)]


def units(shown: dict[str, Any]) -> list[tuple[object, ...]]:
    """Of each entry all but its time, which differs, and its address, which 4.9 and 5.5 show differently."""
    return [
        (entry["bitMap"], entry["eval"], {**json.loads(entry["extendDataJson"]), "msgStoreTime": 0})
        for entry in shown["queueData"]
    ]


def test_filter_bitmaps_are_handed_over_and_back(house: House, tmp_path: Path) -> None:
    with house.apache() as apache:
        apache.create_topic()
        apache.beat()
        apache.send()
        written = {group: apache.shown(group, SENT) for group in GROUPS}
        assert apache.pulled("big") == matching("big")
    with house.ours() as ours:
        ours.beat()
        for group, theirs in written.items():
            read = ours.shown(group, SENT)
            assert read["queueData"] != []
            for mine, other in zip(read["queueData"], theirs["queueData"], strict=True):
                assert {**mine, "tagsCode": 0} == {**other, "tagsCode": 0}
            assert json.loads(read["filterData"]) == json.loads(theirs["filterData"]), theirs["filterData"]
            assert ours.pulled(group) == matching(group)
        ours.send()
        after = {group: ours.shown(group, 2 * SENT) for group in GROUPS}
        for group, shown in after.items():
            assert units(shown)[SENT:] == units(written[group])
            assert ours.pulled(group) == matching(group) * 2
    files: dict[str, Any] = {
        "commit_log_file_size": LOG_FILE_SIZE,
        "consume_queue_file_size": QUEUE_FILE_SIZE,
        "consume_queue_ext_file_size": EXT_FILE_SIZE,
        "hash_slots": 10_000,
        "index_entries": 40_000,
    }
    root = tmp_path / "house" / "store"
    assert [str(finding) for finding in check_store(root, StoreConfig(root=str(root), **files))] == []
    with house.apache() as apache:
        apache.beat()
        for group, shown in after.items():
            assert units(apache.shown(group, 2 * SENT)) == units(shown)
            assert apache.pulled(group) == matching(group) * 2
        apache.send()
        assert units(apache.shown("few", 3 * SENT))[2 * SENT :] == units(written["few"])
