"""Compiled sends and plain ones: whatever arrives, in any pieces, both store the same bytes and answer the same."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.memory_line import MemoryLine
from tests.unit.broker.message_kit import Parts, Peer, send_request

from pyromq.protocol.bodies.register import TopicConfig, TopicFilterType
from pyromq.protocol.command import SerializeType
from pyromq.protocol.frame import encode
from pyromq.remoting.connection import Connection
from pyromq.remoting.endpoint import Endpoint
from pyromq.store.config import FlushDiskType

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "CLUSTER", "TRAN_MSG", "TIMER_DELAY_MS", "a", "XTAGS", "")
VALUES = (
    "",
    "A",
    "B C",
    "true",
    "false",
    "0",
    "1",
    "ключ",
    'say "x"',
    "C:\\x",
    "\x7f",
    "TAGS",
    "TIMER",
    "\n",
    "x" * 300,
)
NUMBERS = ("0", "1", "3", "4", "9", "01", "-1", "", "x", "1024", "1699999999000", "9" * 19, "8", "4096", "٣")


class Outcome(NamedTuple):
    answers: list[bytes]
    log: bytes
    entries: dict[str, bytes]
    keys: list[bytes]
    counts: dict[str, tuple[int, int]]


def outcome(folder: Path, reads: list[tuple[int, bytes]], *, compiled: bool, **store: Any) -> tuple[Outcome, int]:
    """What becomes of what two connections read, one piece a turn; and how many messages compiled code took."""

    async def served() -> tuple[Outcome, int]:
        parts = Parts(folder, index=True, index_entries=4000, hash_slots=100, **store)
        try:
            for name in ("orders", "t" * 127):
                parts.topics.update(TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))
                await parts.ask(Peer(), send_request(b"first", topic=name))
            parts.topics.update(TopicConfig(topic_name="multi", topic_filter_type=TopicFilterType.MULTI_TAG))
            await parts.ask(Peer(), send_request(b"first", topic="multi"))
            fast = parts.broker.fast if compiled else None
            endpoint = Endpoint(processors=parts.processors, fast=fast, holds_requests=True, follow_peer=True)
            lines = [MemoryLine(("192.168.1.10", 54321)), MemoryLine(("192.168.1.11", 54321)), MemoryLine(("::1", 5))]
            connections = [Connection(endpoint) for _ in lines]
            for connection, line in zip(connections, lines, strict=True):
                connection.connection_made(line)
            taken = 0
            for who, data in reads:
                if not connections[who].closed:
                    connections[who].data_received(data)
                    run = parts.appends.open_run
                    taken = max(taken, 0 if run is None else run.count)
                for _ in range(3):  # what makes a topic waits until that is saved
                    await parts.broker.gate.topics_settled()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                parts.now += 7
            await parts.broker.gate.finish(5.0)
            for _ in range(3):
                await asyncio.sleep(0)
            log, start = parts.store.log, int(parts.store.log.start)
            assert parts.store.index is not None
            paths = parts.store.index.flush(sync=False)
            size = log.file_size
            whole = b"".join(
                bytes(log.read(at, min(size - at % size, int(log.end) - at))) for at in range(start, int(log.end), size)
            )
            return (
                Outcome(
                    [line.sent for line in lines],
                    whole,
                    {f"{queue.topic}/{queue.queue_id}": bytes(queue.tail) for queue in parts.store.queues},
                    [path.read_bytes() for path in paths],
                    {name: (each.stored, each.stored_bytes) for name, each in parts.sends._targets.items()},
                ),
                taken,
            )
        finally:
            parts.close()

    return asyncio.run(served())


def frame(fields: dict[str, str], properties: str, *, kind: SerializeType, flag: int = 0, body: bytes = b"x") -> bytes:
    request = send_request(body, properties, topic=fields.get("b", "orders"), queue_id=1)
    request.ext = (request.ext or {}) | fields
    request.flag, request.serialize, request.opaque = flag, kind, 77
    return encode(request)


def odd_json(ext: dict[str, str], spaces: str, order: int) -> bytes:
    """A send as other writers of JSON put it."""
    fields: dict[str, object] = {
        "code": 310,
        "flag": 0,
        "language": "GO",
        "opaque": -5,
        "version": 317,
        "extFields": ext,
    }
    keys = sorted(fields, key=lambda name: hash((order, len(name), name[-1])) % 97)
    header = json.dumps({key: fields[key] for key in keys}, separators=("," + spaces, ":"), ensure_ascii=order % 2 > 0)
    data = header.encode()
    return (4 + len(data) + 1).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + b"y"


pairs = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)
texts = st.builds(
    lambda pairs, end: "\x02".join(f"{name}\x01{value}" for name, value in pairs) + end,
    pairs,
    st.sampled_from(["", "", "\x02", "\x01", "\0"]),
)
usual = st.builds(
    lambda tag, key, end: f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01{tag}{end}",
    st.sampled_from("ABC"),
    st.text("0123456789ABCDEF", min_size=4, max_size=32),
    st.sampled_from(["", "\x02", "\x02KEYS\x01k1 k2"]),
)
sends = st.builds(
    lambda fields, text, kind, flag, body: frame(fields, text, kind=kind, flag=flag, body=body),
    st.one_of(
        st.just({}),
        st.just({}),
        st.dictionaries(st.sampled_from("efghjm"), st.sampled_from(NUMBERS), max_size=2),
        st.sampled_from(
            [{"b": "multi"}, {"b": "t" * 127}, {"b": "unknown"}, {"m": "false"}, {"m": "true"}, {"k": "true"}]
        ),
    ),
    st.one_of(usual, usual, texts),
    st.sampled_from(list(SerializeType)),
    st.sampled_from([0, 0, 0, 2]),
    st.sampled_from([b"x", b"", b"\0" * 600]),
)
odd = st.builds(
    odd_json,
    st.builds(
        lambda text, more: {"a": "g", "b": "orders", "e": "1", "f": "0", "g": "5", "h": "0", "i": text} | more,
        st.one_of(usual, texts),
        st.dictionaries(st.sampled_from("ejmz"), st.sampled_from(["0", "2", "", "é"]), max_size=2),
    ),
    st.sampled_from(["", "", " "]),
    st.integers(0, 9),
)


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """What connections read: frames, mostly whole ones, cut anywhere, and now and then a byte that is wrong."""
    reads = []
    for who in range(3):
        data = b"".join(draw(st.lists(st.one_of(sends, sends, odd), max_size=6)))
        if data and draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=2)))
        reads += [(who, data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
    return draw(st.permutations(reads)) if draw(st.booleans()) else reads


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(reads=streams())
def test_whatever_arrives_is_stored_and_answered_the_same(native, tmp_path_factory, reads):
    one, _ = outcome(tmp_path_factory.mktemp("compiled"), reads, compiled=True)
    other, taken = outcome(tmp_path_factory.mktemp("plain"), reads, compiled=False)
    assert taken == 0
    assert one == other


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
@pytest.mark.parametrize("kind", list(SerializeType))
def test_usual_sends_are_taken_and_come_out_the_same(native, tmp_path, kind, flush):
    text = "UNIQ_KEY\x01AC1\x02WAIT\x01true\x02TAGS\x01A\x02KEYS\x01k1 k2"
    usual = [frame({"e": str(n % 4)}, text, kind=kind, body=b"z" * n, flag=2 * (n == 5)) for n in range(64)]
    reads = [(0, b"".join(usual[:40])), (1, b"".join(usual)), (0, b"".join(usual[40:]))]
    one, taken = outcome(tmp_path / "compiled", reads, compiled=True, flush=flush)
    assert taken == 64
    assert one == outcome(tmp_path / "plain", reads, compiled=False, flush=flush)[0]
    assert one.counts["orders"][0] == 129


def test_a_run_that_does_not_fit_into_the_file_goes_on_in_the_next(native, tmp_path):
    usual = [frame({"e": str(n % 4)}, "TAGS\x01A", kind=SerializeType.JSON, body=b"z" * 3000) for n in range(200)]
    reads = [(n % 2, b"".join(usual[n : n + 20])) for n in range(0, 200, 20)] * 3
    one, _ = outcome(tmp_path / "compiled", reads, compiled=True)
    other, _ = outcome(tmp_path / "plain", reads, compiled=False)
    assert one == other
    assert len(one.log) > 1 << 20
