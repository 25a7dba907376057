"""Pulls by the fast path and by the processor: whatever is asked and changed meanwhile, both answer the same."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.memory_line import MemoryLine
from tests.unit.broker.message_kit import Parts, pull_request

from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.command import Language, SerializeType
from pyromq.protocol.frame import encode
from pyromq.remoting.connection import Connection
from pyromq.remoting.endpoint import Endpoint, FastRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPICS = ("orders", "events")
COMMITS, SUSPENDS, SUBSCRIBES = 1, 2, 4


class Outcome(NamedTuple):
    answers: list[bytes]
    committed: Any
    counts: dict[Any, Any]
    transferred: tuple[int, int, int]
    held: int


class Counted:
    """The fast path, and how many requests it has taken."""

    def __init__(self, fast: FastRequests) -> None:
        self._fast = fast
        self.taken = self.in_all = 0

    def take(self, connection: Connection, data: bytes, at: int, most: int, max_header: int) -> int:
        end = self._fast.take(connection, data, at, most, max_header)
        self.taken = self._fast.taken
        self.in_all += self.taken
        return end


def outcome(folder: Path, steps: list[tuple[str, Any]], *, compiled: bool) -> tuple[Outcome, int]:
    """What becomes of pulls and changes in turn; and how many pulls the fast path took."""

    async def served() -> tuple[Outcome, int]:
        parts = Parts(folder, commit_log_file_size=1 << 16)
        try:
            for topic in TOPICS:
                parts.topics.update(TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2))
                for number in range(40):
                    await parts.send(b"%d" % number * (number % 7 * 40), "TAGS\x01A", topic=topic, queue_id=number % 2)
            parts.groups.update(SubscriptionGroupConfig(group_name="readers"))
            counted = Counted(parts.broker.fast) if compiled and parts.broker.fast is not None else None
            endpoint = Endpoint(processors=parts.processors, fast=counted, holds_requests=True, follow_peer=True)
            line = MemoryLine(("192.168.1.10", 54321))
            connection = Connection(endpoint)
            connection.connection_made(line)
            for kind, what in steps:
                if kind == "read":
                    if not connection.closed:
                        connection.data_received(what)
                else:
                    await CHANGES[kind](parts, connection, what)
                for _ in range(3):
                    await parts.broker.gate.topics_settled()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
            stats = parts.stats
            counters = {
                key: (each.value, each.calls) for key, each in stats._counters.items() if "LATENCY" not in key[0]
            }
            flow = stats.throughput
            return (
                Outcome(
                    [line.sent],
                    parts.offsets.snapshot().offset_table,
                    counters,
                    (flow.found, flow.missed, flow.transferred),
                    parts.pulls.held.weight,
                ),
                0 if counted is None else counted.in_all,
            )
        finally:
            parts.close()

    return asyncio.run(served())


async def _puts(parts: Parts, connection: Connection, topic: str) -> None:
    await parts.send(b"new", "TAGS\x01B", topic=topic, queue_id=1)


async def _changes_topic(parts: Parts, connection: Connection, change: tuple[str, dict[str, Any]]) -> None:
    found = parts.topics.get(change[0])
    if found is not None:
        parts.topics.update(replace(found, **change[1]))


async def _deletes_topic(parts: Parts, connection: Connection, topic: str) -> None:
    parts.topics.delete(topic)
    parts.broker._delete_queues(topic)


async def _changes_group(parts: Parts, connection: Connection, enabled: bool | str) -> None:
    config = SubscriptionGroupConfig(
        group_name="readers",
        consume_enable=bool(enabled),
        consume_broadcast_enable=enabled != "broadcasts not",
        broker_id=3,
    )
    parts.groups.update(config)


async def _changes_settings(parts: Parts, connection: Connection, text: str) -> None:
    update = parts.live.planned(text.encode(), "127.0.0.1:1")
    assert update is not None
    parts.live.apply(update, "127.0.0.1:1", parts.now)


async def _leaves(parts: Parts, connection: Connection, _: None) -> None:
    parts.clients.closed(connection)


async def _beats(parts: Parts, connection: Connection, what: tuple[str, int, MessageModel]) -> None:
    expression, version, model = what
    subscription = SubscriptionData(topic="orders", sub_string=expression, sub_version=version)
    consumer = ConsumerData(
        group_name="readers",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[subscription],
    )
    data = HeartbeatData(client_id="c1", consumer_data_set=[consumer])
    parts.clients.heartbeat(connection, data, parts.now, version=409, language=Language.JAVA)


CHANGES: dict[str, Callable[[Parts, Connection, Any], Coroutine[None, None, None]]] = {
    "put": _puts,
    "topic": _changes_topic,
    "delete": _deletes_topic,
    "group": _changes_group,
    "beat": _beats,
    "config": _changes_settings,
    "leave": _leaves,
}


def frame(
    offset: int,
    *,
    kind: SerializeType = SerializeType.JSON,
    opaque: int = 7,
    flag: int = 0,
    code: int = 11,
    body: bytes | None = None,
    more: dict[str, str] | None = None,
    **fields: Any,
) -> bytes:
    request = pull_request(offset, consumer_group="readers", **fields)
    request.ext = (request.ext or {}) | (more or {})
    request.serialize, request.opaque, request.flag, request.code, request.body = kind, opaque, flag, code, body
    return encode(request)


def odd_json(offset: str, commit: str, opaque: str, order: int, twice: str) -> bytes:
    """A pull as other writers of JSON put it, or as nobody does."""
    ext = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": offset,
        "maxMsgNums": "32",
        "sysFlag": "5",
        "commitOffset": commit,
        "suspendTimeoutMillis": "1",
        "subVersion": "0",
        "subscription": "*",
    }
    names = sorted(ext, key=lambda name: hash((order, len(name), name[-1])) % 97)
    fields = ",".join(f"{json.dumps(name)}:{json.dumps(ext[name])}" for name in names) + twice
    space = " " if order % 3 == 0 else ""
    text = f'{{"opaque":{space}{opaque},"code":11,"flag":0,"language":"GO","version":317,"extFields":{{{fields}}}}}'
    data = text.encode()
    return (4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


offsets = st.one_of(st.integers(0, 25), st.sampled_from([-1, 19, 20, 21, 2**40]))
usual = st.builds(
    lambda offset, kind, opaque, queue, flag, commit: frame(
        offset, kind=kind, opaque=opaque, queue_id=queue, sys_flag=flag, commit_offset=commit
    ),
    st.integers(0, 19),
    st.sampled_from(list(SerializeType)),
    st.integers(0, 9),
    st.integers(0, 1),
    st.sampled_from([SUBSCRIBES, SUBSCRIBES, SUBSCRIBES | COMMITS, COMMITS, 0]),
    st.integers(0, 5),
)
unusual = st.builds(
    lambda offset, kind, fields, frames: frame(offset, kind=kind, **fields, **frames),
    offsets,
    st.sampled_from(list(SerializeType)),
    st.sampled_from(
        [
            {},
            {"topic": "events"},
            {"topic": "nowhere"},
            {"queue_id": 5},
            {"subscription": "B"},
            {"subscription": "A || B"},
            {"subscription": ""},
            {"sys_flag": SUSPENDS | SUBSCRIBES},
            {"sys_flag": 0, "sub_version": 3},
            {"max_msg_nums": 1},
            {"max_msg_nums": -3},
            {"max_msg_nums": 100_000},
            {"commit_offset": -7},
            {"expression_type": "TAG"},
            {"expression_type": "SQL92", "subscription": "a = 1"},
            {"subscription": '"queueOffset":"3"'},
        ]
    ),
    st.sampled_from(
        [{}, {}, {"flag": 2}, {"code": 361}, {"body": b"x"}, {"more": {"z": "queueOffset"}}, {"opaque": -3}]
    ),
)
odd = st.builds(
    odd_json,
    st.sampled_from(["0", "7", "07", "-1", "x", "", "9" * 19, "٣"]),
    st.sampled_from(["0", "3", "-5"]),
    st.sampled_from(["1", "12", "-4", "007", "1.0", "null"]),
    st.integers(0, 9),
    st.sampled_from(["", "", ',"queueOffset":"2"', ',"queueOffset": "2"', ',"opaque":"5"', ',"commitOffset":"9"']),
)
reads = st.lists(st.one_of(usual, usual, usual, unusual, odd), min_size=1, max_size=5).map(b"".join)
changes = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(TOPICS)),
    st.tuples(
        st.just("topic"),
        st.tuples(st.sampled_from(TOPICS), st.sampled_from([{"perm": 2}, {"perm": 6}, {"read_queue_nums": 1}])),
    ),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    st.tuples(st.just("group"), st.booleans()),
    st.tuples(
        st.just("beat"),
        st.tuples(st.sampled_from(["*", "*", "A"]), st.integers(0, 4), st.sampled_from(list(MessageModel))),
    ),
)


@settings(suppress_health_check=list(HealthCheck), max_examples=50, deadline=None)
@given(
    steps=st.lists(
        st.one_of(st.tuples(st.just("read"), reads), st.tuples(st.just("read"), reads), changes),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_is_asked_and_changed_is_answered_the_same(native, tmp_path_factory, steps):
    one, _ = outcome(tmp_path_factory.mktemp("compiled"), steps, compiled=True)
    other, taken = outcome(tmp_path_factory.mktemp("plain"), steps, compiled=False)
    assert taken == 0
    assert one == other


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize("flag", [0, COMMITS, SUBSCRIBES, SUBSCRIBES | COMMITS])
def test_usual_pulls_are_taken(native, tmp_path, kind, flag):
    pulls = b"".join(
        frame(number, kind=kind, opaque=number, queue_id=number % 2, sys_flag=flag, commit_offset=number)
        for number in range(16)
    )
    steps: list[tuple[str, Any]] = [("beat", ("*", 0, MessageModel.CLUSTERING)), ("read", pulls), ("read", pulls)]
    one, taken = outcome(tmp_path / "compiled", steps, compiled=True)
    assert taken == 32
    assert one == outcome(tmp_path / "plain", steps, compiled=False)[0]


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize(
    "change",
    [
        ("topic", ("orders", {"perm": 2})),
        ("topic", ("orders", {"read_queue_nums": 1})),
        ("delete", "orders"),
        ("group", False),
        ("beat", ("B", 1, MessageModel.CLUSTERING)),
        ("beat", ("*", 0, MessageModel.BROADCASTING)),
        ("config", "brokerPermission=2"),
        ("config", "slaveReadEnable=true"),
        ("leave", None),
    ],
    ids=str,
)
def test_what_changes_counts_for_the_next_pull(native, tmp_path, change, kind):
    pull = frame(0, kind=kind, queue_id=1, sys_flag=0, sub_version=0)
    setup: list[tuple[str, Any]] = [
        ("group", "broadcasts not"),
        ("beat", ("*", 0, MessageModel.CLUSTERING)),
        ("read", pull),
        ("read", pull),
    ]
    after, taken = outcome(tmp_path / "compiled", [*setup, change, ("read", pull)], compiled=True)
    assert taken >= 2
    assert after == outcome(tmp_path / "plain", [*setup, change, ("read", pull)], compiled=False)[0]
    unchanged, _ = outcome(tmp_path / "unchanged", [*setup, ("read", pull)], compiled=True)
    assert after.answers != unchanged.answers
