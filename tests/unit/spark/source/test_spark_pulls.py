"""Pulling a range of a queue: every message once and in order, whatever brokers give at a time, and what is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import CorruptRecord, OffsetOutOfRange, RemoteProtocolError, TopicNotFound
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessageReply
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord, encode_record
from pyromq.spark import options as known
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.source.planning import QueueRange
from pyromq.spark.source.pulls import QueuePulls, Rows, Span

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
RECORD = 8  # bytes that stand for a record here: its offset


class Broker:
    """A queue from `minimum` to `maximum` whose broker gives as many messages at a time as `cap` says."""

    def __init__(self, minimum: int, maximum: int, cap: Callable[[int], int] = lambda offset: 32) -> None:
        self.minimum, self.maximum, self._cap = minimum, maximum, cap
        self.is_filtered = False
        self.wants: Callable[[int], bool] = lambda offset: True
        self.asked: list[tuple[int, int]] = []
        self.under_way = self.most_under_way = 0

    async def pull(self, queue: MessageQueue, offset: int, count: int) -> tuple[int, PullMessageReply, bytes]:
        self.asked.append((offset, count))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if not self.minimum <= offset < self.maximum:
            near = min(max(offset, self.minimum), self.maximum)
            return self._reply(ResponseCode.PULL_OFFSET_MOVED, near, b"")
        end = min(offset + max(1, min(count, self._cap(offset))), self.maximum)
        found = [at for at in range(offset, end) if self.wants(at)]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._reply(code, end, b"".join(at.to_bytes(RECORD) for at in found))

    def _reply(self, code: int, following: int, body: bytes) -> tuple[int, PullMessageReply, bytes]:
        return code, PullMessageReply(0, following, self.minimum, self.maximum), body


def pulled(broker: Broker, start: int, end: int, **options: str) -> list[int]:
    """The offsets that came, checked to lie in the spans that they came with."""
    given = known.parse(known.SourceOptions, {"namesrv": "here:1", "subscribe": "orders", **options})

    async def work() -> list[int]:
        pulls = QueuePulls(broker, QueueRange(QUEUE, start, end), given)  # type: ignore[arg-type]  # asks as the real one
        found: list[int] = []
        reached = start
        pulls.begin()
        while (span := await pulls.span()) is not None:
            buffer = span.buffer
            offsets = [int.from_bytes(buffer[at : at + RECORD]) for at in range(0, len(buffer), RECORD)]
            assert span.first == reached
            assert all(span.first <= offset < span.end for offset in offsets)
            if not broker.is_filtered:
                assert len(offsets) + span.known_lost == span.end - span.first
            reached = span.end
            found += offsets
        assert reached == end
        return found

    return asyncio.run(work())


@given(
    st.integers(0, 50),
    st.integers(1, 300),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(1, 50),
)
def test_every_message_comes_once_and_in_order_whatever_a_broker_gives_at_a_time(start, length, caps, depth, most):
    broker = Broker(0, start + length + 10, lambda offset: caps[offset % len(caps)])
    options = {"pull.pipeline": str(depth), "pull.batchSize": str(most)}
    assert pulled(broker, start, start + length, **options) == list(range(start, start + length))
    assert broker.most_under_way <= depth + 1  # what is left of a short answer is asked for besides


def test_pulls_run_ahead_in_steps_that_the_broker_can_take():
    broker = Broker(0, 10_000)
    pulled(broker, 0, 10_000)
    assert broker.most_under_way == 4
    assert len(broker.asked) < 10_000 / 32 * 1.1


def test_with_a_filter_pulls_follow_one_another_to_the_end_of_the_range():
    broker = Broker(0, 1000, lambda offset: 7)
    broker.is_filtered = True
    broker.wants = lambda offset: offset % 50 == 3
    assert pulled(broker, 100, 300) == [103, 153, 203, 253]
    assert broker.most_under_way == 1


@pytest.mark.scenario("spark 18")
def test_messages_that_aged_out_are_an_error_that_says_how_many():
    with pytest.raises(
        OffsetOutOfRange, match="queue 0 of orders on broker-a: offset 5 was wanted, but the first is 40; 35"
    ):
        pulled(Broker(40, 100), 5, 100)


@pytest.mark.scenario("spark 18")
def test_messages_that_aged_out_are_passed_over_at_once_if_that_is_allowed(caplog):
    broker = Broker(500_000, 500_100)
    assert pulled(broker, 5, 500_050, failOnDataLoss="false") == list(range(500_000, 500_050))
    assert len(broker.asked) < 10
    assert "499995 messages are lost" in caplog.text


def test_a_queue_that_ends_before_the_range_is_loss(caplog):
    with pytest.raises(OffsetOutOfRange, match="the queue ends at 10"):
        pulled(Broker(0, 10), 20, 30)
    assert pulled(Broker(0, 25), 20, 30, failOnDataLoss="false") == list(range(20, 25))
    assert "5 messages are lost" in caplog.text


def test_a_deleted_topic_is_an_error_or_nothing_at_all():
    class Gone(Broker):
        async def pull(self, *asked: Any) -> tuple[int, PullMessageReply, bytes]:
            raise TopicNotFound("no such topic")

    with pytest.raises(TopicNotFound):
        pulled(Gone(0, 0), 0, 10)
    assert pulled(Gone(0, 0), 0, 10, failOnDataLoss="false") == []


def test_an_answer_that_leads_nowhere_is_an_error_and_no_endless_loop():
    class Stuck(Broker):
        async def pull(self, queue: MessageQueue, offset: int, count: int) -> tuple[int, PullMessageReply, bytes]:
            return self._reply(ResponseCode.SUCCESS, offset, b"")

    with pytest.raises(RemoteProtocolError, match="a pull at 3 leads back to 3"):
        pulled(Stuck(0, 10), 3, 10)


def rows(offsets: list[int], first: int, end: int, lost: int = 0, **options: Any) -> list[int]:
    """The offsets of the rows that a span with these messages gives."""
    is_filtered = options.pop("is_filtered", False)
    given = known.parse(known.SourceOptions, {"namesrv": "here:1", "subscribe": "orders", **options})
    schema = pa.schema([ARROW_SCHEMA.field("queueOffset"), ARROW_SCHEMA.field("topic")])
    stored = b"".join(encode_record(MessageRecord("orders", b"x", queue_offset=offset)) for offset in offsets)
    batches = Rows(given, schema, is_filtered=is_filtered).of(QUEUE, Span(stored, first, end, lost))
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def test_a_hole_in_what_should_be_dense_is_loss_unless_a_filter_made_it(caplog):
    assert rows([3, 4, 5], 3, 6) == [3, 4, 5]
    assert rows([5], 3, 6, lost=2) == [5]
    assert rows([3, 5], 3, 6, is_filtered=True) == [3, 5]
    with pytest.raises(
        OffsetOutOfRange, match="queue 0 of orders on broker-a: offsets 3 to 5 have holes; 1 message is lost"
    ):
        rows([3, 5], 3, 6)
    assert rows([3, 5], 3, 6, failOnDataLoss="false") == [3, 5]
    assert "1 message is lost" in caplog.text


def test_messages_outside_of_the_range_are_not_rows():
    assert rows([1, 2, 3, 4, 5, 6], 3, 5) == [3, 4]


def test_a_damaged_record_is_named_by_its_queue():
    given = known.parse(known.SourceOptions, {"namesrv": "here:1", "subscribe": "orders"})
    with pytest.raises(CorruptRecord, match="queue 0 of orders on broker-a, between offsets 3 and 5"):
        next(Rows(given, ARROW_SCHEMA).of(QUEUE, Span(bytes(200), 3, 5)))
