"""Pulls ranges of queues and decodes them into Arrow batches: what a reading task does.

A pull's answer is a run of records as they lie in the commit log. Answers are collected until they make a batch worth
decoding, then decoded at once. Brokers cap an answer (Apache's at 32 messages, or 8 from disk), so the speed of a
backfill depends on concurrent pulls: without a filter the next offsets are known in advance, and `pull.pipeline`
of them are requested at a time. How many messages fit into an answer is learnt from the answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyromq.client.consumer.subscriptions import SQL92, TAG, subscription_data
from pyromq.errors import (
    ConnectFailed,
    CorruptRecord,
    OffsetOutOfRange,
    PyroMQError,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
    ServerError,
    TopicNotFound,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessage, PullMessageReply
from pyromq.protocol.sysflag import PULL_SUBSCRIPTION

from ..blocking_client import Link
from ..decode.columns import MAX_BYTES, MAX_ROWS, decode
from ..decode.selection import Selection
from ..refused import is_refused, missing_right
from ..schema import column_name
from .offsets import place
from .read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SourceOptions
    from .planning import QueueRange

logger = logging.getLogger(__name__)

_RANGES_AT_ONCE = 4  # ranges whose first pulls are open while another range is read
# After this many full answers the next pulls ask for more; the number doubles each time that was too much.
_FULL_BEFORE_MORE, _MOST_BEFORE_MORE = 32, 4096
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_MASTER, _A_SLAVE = 0, 1
# Another broker might answer differently, but a queue is on one broker only.
_FINAL = (TopicNotFound,)
_SERVER_ERROR_FOR = 1.0  # seconds during which an error without a specific code counts as temporary


@dataclass(frozen=True)
class PullPart(InputPartition):
    """What a task reads. `addresses` (broker name, id) saves asking a name server; `patience` is in seconds."""

    ranges: tuple[QueueRange, ...]
    addresses: dict[str, dict[int, str]]
    tags: frozenset[str] | None = None  # from a filter, in addition to those of the options
    patience: float = 1.0


def tags_of(options: SourceOptions) -> frozenset[str] | None:
    """The tags that the options ask for; None for all."""
    return frozenset(subscription_data("", options.tags, 0).tags_set) or None


def read(part: PullPart, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a part, queue by queue in offset order.

    Raises OffsetOutOfRange for lost messages, unless `failOnDataLoss` is false, and errors of brokers.
    """
    with Link(options) as link:
        asking = _Asking(link, part, options)
        rows = Rows(options, schema, tags=asking.tags, is_filtered=asking.is_filtered)
        pulls = [QueuePulls(asking, each, options) for each in part.ranges]
        with ReadAhead(_spans(link, pulls), link.interrupt) as ahead:
            for queue, span in ahead:
                yield from rows.of(queue, span)


def _spans(link: Link, pulls: list[QueuePulls]) -> Iterator[tuple[MessageQueue, Span]]:
    waiting = deque(pulls)
    while waiting:
        ahead = [waiting[number] for number in range(min(len(waiting), _RANGES_AT_ONCE))]
        span = link.run(_next(ahead))
        if span is None:
            waiting.popleft()
        else:
            yield waiting[0].range.queue, span


async def _next(ahead: list[QueuePulls]) -> Span | None:
    for pulls in ahead:
        pulls.begin()
    return await ahead[0].span()


@dataclass(frozen=True, slots=True)
class Span:
    """Raw records of the offsets from `first` to `end`, `known_lost` of which are known to be missing."""

    buffer: bytes
    first: int
    end: int
    known_lost: int = 0


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    first: int
    end: int  # how far it got
    lost: int = 0  # how many of these offsets are known to be empty


class QueuePulls:
    """One range of a queue, pulled in order. `begin` and `span` need the loop to run."""

    def __init__(self, asking: _Asking, each: QueueRange, options: SourceOptions) -> None:
        self.range = each
        self._asking = asking
        self._fail_on_loss = options.fail_on_data_loss
        self._most = options.pull_batch_size
        # With a filter, it is not known in advance where the next pull begins.
        self._depth = 1 if asking.is_filtered else options.pull_pipeline
        self._stride = self._most
        self._full = 0
        self._before_more = _FULL_BEFORE_MORE
        self._next = each.start
        self._under_way: deque[tuple[int, int, asyncio.Task[_Answer]]] = deque()
        self._is_first = True

    def begin(self) -> None:
        """Start as many pulls as allowed; only one before the first answer."""
        depth = 1 if self._is_first else self._depth
        while len(self._under_way) < depth and self._next < self.range.end:
            end = min(self._next + self._stride, self.range.end)
            self._under_way.append(self._start(self._next, end))
            self._next = end

    async def span(self) -> Span | None:
        """The next messages, enough for a batch if possible; None at the end of the range."""
        bodies: list[bytes] = []
        size = lost = 0
        first = end = None
        while self._under_way:
            task = self._under_way[0][2]
            if bodies and not task.done() and size >= MAX_BYTES:
                break
            answer = await task
            if bodies and (size + len(answer.body) > MAX_BYTES or answer.first - (first or 0) >= MAX_ROWS):
                break
            self._take_in(answer)
            first = answer.first if first is None else first
            end = answer.end
            lost += answer.lost
            if answer.body:
                bodies.append(answer.body)
                size += len(answer.body)
        if first is None or end is None:
            return None
        return Span(bodies[0] if len(bodies) == 1 else b"".join(bodies), first, end, lost)

    def _start(self, first: int, end: int) -> tuple[int, int, asyncio.Task[_Answer]]:
        pull = asyncio.create_task(self._pull(first, end), name="pull")
        # If an earlier pull fails, the outcome of this one is never read.
        pull.add_done_callback(lambda task: task.cancelled() or task.exception())
        return first, end, pull

    def _take_in(self, answer: _Answer) -> None:
        """The first answer was used: prepare the next pulls."""
        _, asked_to, _ = self._under_way.popleft()
        self._is_first = False
        if self._depth == 1:
            self._next = answer.end
        elif answer.end > asked_to:
            # The loss reaches beyond what was asked for; later pulls would only learn the same.
            self._drop_all()
            self._next = answer.end
        elif answer.end < asked_to:
            self._under_way.appendleft(self._start(answer.end, asked_to))
            self._stride, self._full = max(1, answer.end - answer.first), 0
            self._before_more = min(2 * self._before_more, _MOST_BEFORE_MORE)
        else:
            self._full += 1
            if self._full >= self._before_more and self._stride < self._most:
                self._stride, self._full = min(self._most, self._stride + max(1, self._stride // 8)), 0
        self.begin()

    def _drop_all(self) -> None:
        for _, _, task in self._under_way:
            task.cancel()
        self._under_way.clear()

    async def _pull(self, first: int, end: int) -> _Answer:
        queue = self.range.queue
        wanted = self._most if self._asking.is_filtered else min(end - first, self._most)
        try:
            code, header, body = await self._asking.pull(queue, first, wanted)
        except TopicNotFound as exc:
            if self._fail_on_loss:
                raise
            logger.warning("%s: %s; its messages are lost", place(queue), exc)
            return self._gone(first, self.range.end)
        reached = header.next_begin_offset
        # With a filter the broker may get further than asked: fine up to the end of the range.
        limit = self.range.end if self._asking.is_filtered else end
        if code == ResponseCode.SUCCESS or (code == ResponseCode.PULL_RETRY_IMMEDIATELY and reached > first):
            if reached <= first:
                raise RemoteProtocolError(f"{place(queue)}: a pull at {first} leads back to {reached}")
            return _Answer(body, first, min(reached, limit))
        minimum, maximum = header.min_offset, header.max_offset
        if first < minimum:
            gone = self._gone(first, min(minimum, self.range.end))
            what = f"{place(queue)}: offset {first} was wanted, but the first is {minimum}"
            report_loss(what, gone.lost, self._fail_on_loss)
            return gone
        if first >= maximum:
            gone = self._gone(first, self.range.end)
            what = f"{place(queue)}: offset {first} was wanted, but the queue ends at {maximum}"
            report_loss(what, gone.lost, self._fail_on_loss)
            return gone
        if reached > first:
            return _Answer(b"", first, min(reached, limit))
        raise RemoteProtocolError(f"{place(queue)}: no answer to a pull at {first}, within {minimum} to {maximum}")

    @staticmethod
    def _gone(first: int, end: int) -> _Answer:
        return _Answer(b"", first, end, end - first)


def report_loss(what: str, count: int | None, fail: bool) -> None:
    """Messages are lost, `count` of them if known: raise, or log it and continue."""
    said = what if count is None else f"{what}; {count} message{'s are' if count != 1 else ' is'} lost"
    if fail:
        raise OffsetOutOfRange(f"{said}; failOnDataLoss=false continues without")
    logger.warning("%s", said)


class _Asking:
    """How to pull: from which broker, under which group, with which filter, and how often."""

    def __init__(self, link: Link, part: PullPart, options: SourceOptions) -> None:
        self._link = link
        self._options = options
        self._patience = part.patience
        self._addresses = part.addresses
        self._group = link.namespace.wrap(options.consumer_group or options.group_id_prefix)
        # For each queue, the id of the broker to ask; and addresses that could not be reached.
        self._replicas: dict[MessageQueue, int] = {}
        self._unreachable: set[str] = set()
        given = tags_of(options)
        both = [tags for tags in (given, part.tags) if tags is not None]
        self.tags = frozenset.intersection(*both) if both else None
        self.is_filtered = self.tags is not None or options.sql is not None
        if options.sql is not None:
            self._expression, self._kind = options.sql, SQL92
        else:
            self._expression, self._kind = "*" if self.tags is None else " || ".join(sorted(self.tags)), TAG

    async def pull(self, queue: MessageQueue, offset: int, count: int) -> tuple[int, PullMessageReply, bytes]:
        """The code, header and records of the answer. Retries while brokers are unreachable."""
        wire = self._link.on_wire(queue)
        header = PullMessage(
            consumer_group=self._group,
            topic=wire.topic,
            queue_id=wire.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=self._expression,
            expression_type=self._kind,
        )
        began = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            address = None
            try:
                address, is_slave = self._address(queue)
                reply = await self._link.client.calls.pull(address, header, self._options.pull_timeout_ms / 1000)
            except PyroMQError as exc:
                if not self._may_pass(exc, time.monotonic() - began):
                    doing = f"reading topic {queue.topic} as group {self._group}"
                    raise missing_right(doing, queue.topic, "SUB", exc) from None
                logger.warning("%s: pull at %d failed: %s; trying again in %g s", place(queue), offset, exc, pause)
                if address is not None and isinstance(exc, (ConnectFailed, RequestTimeout)):
                    self._unreachable.add(address)
            else:
                self._unreachable.discard(address)
                answer = reply.header(PullMessageReply)
                if self._options.read_from == "auto":
                    self._replicas[queue] = answer.suggest_which_broker_id
                if not is_slave or answer.min_offset <= offset < answer.max_offset:
                    return reply.code, answer, reply.body_bytes
                # A slave that has not got so far yet, or began later than its master. The master has it, or nobody.
                if self._can_ask_master(queue):
                    self._replicas[queue] = _MASTER
                    continue
                if offset < answer.min_offset or time.monotonic() - began >= self._patience:
                    return reply.code, answer, reply.body_bytes
                logger.warning(
                    "%s: its slave has not got to %d yet, and its master is away; trying again in %g s",
                    place(queue),
                    offset,
                    pause,
                )
                self._unreachable.clear()  # it may be back
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            await self._find_again(wire)

    def _may_pass(self, exc: PyroMQError, waited: float) -> bool:
        """Whether a retry may help. An unreachable broker may come back; an error rarely passes."""
        if not exc.retriable or isinstance(exc, _FINAL) or is_refused(exc):
            return False
        return waited < (min(self._patience, _SERVER_ERROR_FOR) if isinstance(exc, ServerError) else self._patience)

    def _replica(self, queue: MessageQueue) -> int:
        first = _A_SLAVE if self._options.read_from == "slave" else _MASTER
        return self._replicas.get(queue, first)

    def _can_ask_master(self, queue: MessageQueue) -> bool:
        master = self._addresses.get(queue.broker_name, {}).get(_MASTER)
        return master is not None and self._link.reached_at(master) not in self._unreachable

    def _address(self, queue: MessageQueue) -> tuple[str, bool]:
        """Where to pull, and whether that is a slave. One that could not be reached is the last choice."""
        known = self._addresses.get(queue.broker_name, {})
        replica = self._replica(queue)
        order = [replica] if replica in known else []
        if replica != _MASTER or self._options.read_from != "master":
            order += [number for number in sorted(known) if number != replica]
        if not order:
            error = RouteNotFound(f"no address is known for broker {queue.broker_name}, which has {place(queue)}")
            error.retriable = True
            raise error
        addresses = [(self._link.reached_at(known[number]), number != _MASTER) for number in order]
        return next((each for each in addresses if each[0] not in self._unreachable), addresses[0])

    async def _find_again(self, wire: MessageQueue) -> None:
        """Refresh the route: brokers may have moved."""
        try:
            await self._link.client.routes.refresh(wire.topic)
        except PyroMQError as exc:
            logger.warning("cannot refresh the route of %s: %s", wire.topic, exc)
        self._addresses = {**self._addresses, **self._link.broker_addresses(wire.topic)}


class Rows:
    """Turns spans into batches of rows. `tags` are compared as text: brokers compare only hashes."""

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        *,
        tags: frozenset[str] | None = None,
        is_filtered: bool = False,
    ) -> None:
        self._options = options
        self._schema = schema
        self._tags = tags
        self._is_filtered = is_filtered
        # Records have the topic's name with its namespace.
        names = [column_name(field.name) for field in schema]
        self._topic_column = names.index("topic") if options.namespace and "topic" in names else None

    def of(self, queue: MessageQueue, span: Span) -> Iterator[pa.RecordBatch]:
        """The rows of a span. Raises OffsetOutOfRange with `failOnDataLoss` if messages are missing."""
        rows = pos = 0
        while pos < len(span.buffer):
            batch, pos = self._decode(queue, span, pos)
            rows += batch.num_rows
            if batch.num_rows:
                yield batch
        missing = span.end - span.first - span.known_lost - rows
        if missing > 0 and not self._is_filtered:
            what = f"{place(queue)}: offsets {span.first} to {span.end - 1} have holes"
            report_loss(what, missing, self._options.fail_on_data_loss)

    def _decode(self, queue: MessageQueue, span: Span, pos: int) -> tuple[pa.RecordBatch, int]:
        try:
            found = decode(
                span.buffer,
                self._schema,
                broker_name=queue.broker_name,
                start=pos,
                include_properties=self._options.include_properties,
                decompress=self._options.decompress,
                verify_crc=self._options.verify_crc,
                # An undivided batch of a 5.x broker, and a pull with a filter, may reach beyond the range.
                selection=Selection(tags=self._tags, first_offset=span.first, end_offset=span.end),
            )
        except CorruptRecord as exc:
            where = f"{place(queue)}, between offsets {span.first} and {span.end}"
            raise CorruptRecord(f"{where}: {exc.reason}", exc.offset) from exc
        batch = found.batch
        if self._topic_column is not None:
            names = pa.repeat(pa.scalar(queue.topic, pa.string()), batch.num_rows)
            batch = batch.set_column(self._topic_column, self._schema.field(self._topic_column), names)
        return batch, found.end
