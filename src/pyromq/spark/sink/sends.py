"""Sends messages to brokers: in batches, several requests at a time, each acknowledged.

Ordinary rows go to the queues in turn: they are collected for all queues of a topic and then dealt out row by row, so
that all queues are equally far, whatever the size of a request. A reader that takes a little of each queue at a
time then sees the rows about in the order in which they were written. Rows with a sharding key or a queue id go to
their queue and keep their order: its requests are sent one after the other. With `effectively-once` all rows of a task
go to one queue per topic, and those already there are left out. A failed request is sent again, as often as `retries`
says; one that a broker finds illegal is split, to find the bad row.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from pyromq.client.producer import outgoing as outgoings
from pyromq.client.producer.attempts import FAILURES
from pyromq.client.producer.outgoing import Outgoing
from pyromq.client.producer.producer_settings import ProducerSettings
from pyromq.client.producer.selectors import shard_index
from pyromq.client.producer.send_result import SendStatus
from pyromq.client.producer.sender import Sender
from pyromq.errors import (
    BrokerError,
    ConnectFailed,
    MessageIllegal,
    PyroMQError,
    SendFailed,
    ServiceNotAvailable,
    TooManyRequests,
)
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.batch import ITEM_OVERHEAD, BatchItem, encode_batch
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.names import is_retry_topic

from ..refused import ACL_EXCEPTION, is_refused, missing_right
from .messages import BadRow, OutRow
from .read_back import read_back
from .topics import BATCH_PATIENCE, STREAM_PATIENCE, find_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyromq.client.producer.attempts import Attempts
    from pyromq.client.producer.send_frames import Form
    from pyromq.client.producer.send_result import SendResult
    from pyromq.client.producer.sender import Target

    from ..blocking_client import Link
    from ..options import SinkOptions
    from .identity import Identity
    from .topics import Queues

logger = logging.getLogger(__name__)

_GROUP = "spark-rocketmq-sink"
_MOST_OPEN = 32  # batches' worth of rows that wait to be sent together, over all topics and queues
_MOST_DEALT, _SHARE = 16, 0.75  # queues that rows are collected for, and batches for each
_WORTH_A_REQUEST = 4 << 10  # bytes; fewer rows go to fewer queues
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# Nothing was sent: there is no doubt whether it was stored.
_NOT_SENT = (ConnectFailed, TooManyRequests, BrokerError)


class Place(msgspec.Struct):
    """A target topic. With `effectively-once` all rows go to `fixed`, except those whose ids are in `stored`."""

    target: Target
    fixed: Form | None = None
    stored: set[str] | None = None


class Request(msgspec.Struct):
    """Rows sent together, to the queue of `form` or to any. While it is open for any, to several: `deal`."""

    place: Place
    form: Form | None
    rows: list[OutRow] = []
    size: int = 0
    most: int = 0  # bytes that it may grow to
    first: Form | None = None  # the queue to try first, if it may be any


class Counts(msgspec.Struct):
    """What became of the rows of a task. Sent rows include dead letters."""

    sent: int = 0
    bytes: int = 0
    skipped: int = 0
    dead_letters: int = 0
    already_stored: int = 0
    unconfirmed: Counter[str] = msgspec.field(default_factory=Counter)


class Sends:
    """The sends of one task. Belongs to the loop of `link`.

    `on_bad_row` returns the message to send instead of a refused row, None for none, or raises.
    """

    def __init__(
        self,
        link: Link,
        options: SinkOptions,
        identity: Identity | None,
        queues: Mapping[str, Queues],
        on_bad_row: Callable[[BadRow], OutRow | None],
        *,
        streams: bool = False,
    ) -> None:
        self.counts = Counts()
        self._link = link
        self._options = options
        # Only effectively-once uses an identity here.
        self._identity = identity if options.is_effectively_once else None
        self._queues = queues
        self._on_bad_row = on_bad_row
        self._patience = STREAM_PATIENCE if streams else BATCH_PATIENCE
        group = link.namespace.wrap(options.producer_group or _GROUP)
        self._sender = _Sender(link, group, options)
        self._timeout = options.send_timeout_ms / 1000
        self._batch_bytes = options.batch_bytes
        self._compress_over = options.compress_over
        self._wait = f"{props.WAIT}\x01{'true' if options.wait_store else 'false'}"
        self._places: dict[str, Place] = {}
        self._open: dict[tuple[str, str], Request] = {}
        self._open_bytes = 0
        self._most_open = _MOST_OPEN * options.batch_bytes
        self._room = asyncio.Semaphore(options.in_flight)
        self._under_way: set[asyncio.Task[None]] = set()
        self._last_of: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._error: BaseException | None = None

    def take(self, row: OutRow) -> bool:
        """Put an ordinary row into a batch that has room. False, with nothing done, if it needs `add`."""
        request = self._open.get((row.topic, ""))
        if request is None or row.shard or row.queue is not None or row.is_delayed or request.place.stored is not None:
            return False
        length = len(row.body)
        size = ITEM_OVERHEAD + length + len(row.properties)
        if (
            length >= self._compress_over
            or request.size + size >= request.most
            or self._open_bytes + size > self._most_open
        ):
            return False
        request.rows.append(row)
        request.size += size
        self._open_bytes += size
        return True

    async def add(self, row: OutRow) -> None:
        """Send a row, now or together with others. Waits while the limit of concurrent sends is reached.

        Raises if an earlier row could not be sent.
        """
        place = self._places.get(row.topic) or await self._open_place(row.topic)
        if place.stored is not None:
            if row.key in place.stored:
                self.counts.already_stored += 1
                return
            place.stored.add(row.key)
        form = place.fixed
        if form is None and (row.queue is not None or row.shard):
            form = _form_of(place.target, row)
            if form is None:
                await self._refused(row, f"{row.topic} has no writable queue {row.queue}")
                return
        lane = (row.topic, "" if form is None else f"{form.broker}/{form.queue_text}")
        size = ITEM_OVERHEAD + len(row.body) + len(row.properties)
        request = self._open.get(lane)
        if row.is_delayed or len(row.body) >= self._compress_over or is_retry_topic(row.topic):
            # It cannot share a request; what it must not overtake is sent first.
            if request is not None and form is not None:
                await self._begin(lane)
            await self._start(Request(place, form, [row], size), lane)
            return
        if request is not None and request.size + size > request.most:
            await self._begin(lane)
            request = None
        if request is None:
            request = self._open[lane] = Request(place, form, most=self._batch_bytes)
            if form is None:
                # Not quite a batch for each queue: sizes differ.
                shares = min(len(place.target.forms), _MOST_DEALT) * _SHARE
                request.most = int(self._batch_bytes * max(1.0, shares))
        request.rows.append(row)
        request.size += size
        self._open_bytes += size
        if request.size >= request.most:
            await self._begin(lane)
        elif self._open_bytes > self._most_open:
            await self.send_open()

    async def finish(self) -> None:
        """Return once all are acknowledged; raises if that fails."""
        await self.send_open()
        while self._under_way:
            await asyncio.wait(self._under_way)
        self._check()

    async def give_up(self) -> None:
        """Cancel all sends; their outcome no longer matters."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    # Targets

    async def _open_place(self, topic: str) -> Place:
        queues = self._queues.get(topic)
        seen = await find_topic(self._link, self._options, topic, self._patience)
        place = Place(await self._sender.target(topic, self._timeout))
        if self._identity is not None:
            # All attempts must agree on the queue, so it comes from the route seen when the write was planned.
            chosen = (queues or seen)[self._identity.partition % len(queues or seen)]
            place.fixed = place.target.form_of(chosen)
            place.stored = await read_back(self._link, chosen, self._identity, self._options.dedup_lookback)
            if place.stored:
                logger.info("%d messages of this batch are in %s already", len(place.stored), chosen)
        return self._places.setdefault(topic, place)

    # Sending

    async def send_open(self) -> None:
        """Send what waits for more to be sent with."""
        for lane in tuple(self._open):
            await self._begin(lane)

    async def _begin(self, lane: tuple[str, str]) -> None:
        request = self._open.pop(lane)
        self._open_bytes -= request.size
        if request.form is not None:
            await self._start(request, lane)
            return
        for each in self._dealt(request):
            await self._start(each, lane)

    def _dealt(self, request: Request) -> Iterator[Request]:
        """The rows of `request` dealt out to queues, one after the other; none larger than a batch."""
        place = request.place
        worth = min(_WORTH_A_REQUEST, self._batch_bytes // 2)
        queues = max(1, min(len(place.target.forms), len(request.rows), request.size // max(1, worth)))
        for number in range(queues):
            first = self._sender.choose(place.target)
            for rows in _within(request.rows[number::queues], self._batch_bytes):
                yield Request(place, None, rows, first=first)
        for _ in range(len(request.rows) % queues):
            self._sender.choose(place.target)  # those had a row more; the next begin after them

    async def _start(self, request: Request, lane: tuple[str, str]) -> None:
        await self._room.acquire()
        self._check()
        is_ordered = request.form is not None and self._identity is None
        before = self._last_of.get(lane) if is_ordered else None
        task = asyncio.create_task(self._deliver_after(before, request), name="send")
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        if is_ordered:
            self._last_of[lane] = task
        # Let it write: otherwise nothing else runs until the window is full.
        await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled() and self._error is None:
            self._error = task.exception()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _deliver_after(self, before: asyncio.Task[None] | None, request: Request) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        if self._error is None:
            await self._deliver(request)

    async def _deliver(self, request: Request) -> None:
        """Send until acknowledged; raises after giving up."""
        outgoing = await self._outgoing(request.rows)
        failures: list[tuple[str, PyroMQError]] = []
        pause = _FIRST_PAUSE
        while True:
            target = request.place.target
            form = request.form
            if form is None and not failures:
                form = request.first
            form = form or self._sender.choose(target, failures[-1][0] if failures else None)
            try:
                result = await self._sender.send(outgoing, target, form, self._timeout)
            except MessageIllegal as exc:
                await self._take_apart(request, exc)
                return
            except FAILURES as exc:
                failures.append((form.broker, exc))
                if len(failures) > self._options.retries or _is_final(exc):
                    raise _given_up(request, failures) from exc
            else:
                self._acknowledged(request, result.status)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            await self._look_again(request, failures[-1][1])
            if not request.rows:
                return
            outgoing = await self._outgoing(request.rows)

    async def _look_again(self, request: Request, error: PyroMQError) -> None:
        """After a failure: refresh the route and, if it matters, check what was stored nevertheless."""
        place = request.place
        topic = place.target.forms[0].shown.topic
        try:
            await self._link.client.routes.refresh(place.target.topic)
            place.target = await self._sender.target(topic, self._timeout)
        except PyroMQError as exc:
            logger.warning("cannot refresh the route of %s: %s", topic, exc)
        if self._identity is not None and request.form is not None and _may_be_stored(error):
            lookback = self._options.dedup_lookback
            stored = await read_back(self._link, request.form.shown, self._identity, lookback)
            missing = [row for row in request.rows if row.key not in stored]
            self.counts.sent += len(request.rows) - len(missing)
            request.rows = missing

    def _acknowledged(self, request: Request, status: SendStatus) -> None:
        self.counts.sent += len(request.rows)
        self.counts.bytes += sum([len(row.body) for row in request.rows])
        if status is not SendStatus.SEND_OK:
            self.counts.unconfirmed[status.value] += len(request.rows)

    # Rows that brokers refuse

    async def _take_apart(self, request: Request, error: MessageIllegal) -> None:
        if len(request.rows) == 1:
            await self._refused(
                request.rows[0], f"{error.server} refuses it: {error.remark}; {_sizes(request.rows[0])}"
            )
            return
        for row in request.rows:
            await self._deliver(Request(request.place, request.form, [row]))

    async def _refused(self, row: OutRow, reason: str) -> None:
        """Handle a row that cannot be sent. Its replacement uses the same slot of the window."""
        instead = self._on_bad_row(BadRow.refused(row, reason))
        if instead is None:
            self.counts.skipped += 1
            return
        if row.topic == instead.topic:
            raise BadRow.refused(row, reason).error()
        await self.send_dead_letter(instead)

    async def send_dead_letter(self, row: OutRow) -> None:
        """Send the dead letter of a bad row, alone and at once."""
        place = self._places.get(row.topic) or await self._open_place(row.topic)
        self.counts.dead_letters += 1
        if place.stored is not None and row.key in place.stored:
            self.counts.already_stored += 1
            return
        await self._deliver(Request(place, place.fixed, [row]))

    # Bytes

    async def _outgoing(self, rows: list[OutRow]) -> Outgoing:
        if len(rows) == 1:
            row = rows[0]
            outgoing = Outgoing(row.body, row.properties, row.key, row.flag)
            if len(row.body) >= self._compress_over:
                await outgoings.compressed(outgoing, sysflag.ZLIB)
            return outgoing
        body = encode_batch([BatchItem(row.body, row.flag, row.properties.encode()) for row in rows])
        return Outgoing(body, self._wait, rows[0].key, code=RequestCode.SEND_BATCH_MESSAGE)


class _Sender(Sender):
    """The client's sender with one attempt per call, to the addresses in `brokerAddressMap`."""

    def __init__(self, link: Link, group: str, options: SinkOptions) -> None:
        settings = ProducerSettings(
            timeout=options.send_timeout_ms / 1000,
            retries=0,
            compress_over=options.compress_over,
            max_size=options.max_message_bytes,
        )
        super().__init__(link.client, group, settings)
        self._link = link

    def connection(self, form: Form) -> Any:  # a Connection, whose layer is not ours to import
        address = self._routes.master(form.broker)
        return None if address is None else self.remoting.open_connection(self._link.reached_at(address))

    def failed(
        self, attempts: Attempts, form: Form, error: PyroMQError, *, pipelined: bool = False
    ) -> SendResult | None:
        # Also where a new master is about to come: what was stored is looked up before the next attempt.
        return super().failed(attempts, form, error, pipelined=True)

    async def _address(self, form: Form, limit: float) -> str:
        return self._link.reached_at(await super()._address(form, limit))


def _may_be_stored(error: PyroMQError) -> bool:
    """Whether the rows may be stored although the send failed."""
    # A master that is replaced while it copies a message to its slaves refuses it, but the new master may have it.
    return isinstance(error, ServiceNotAvailable) or not isinstance(error, _NOT_SENT)


def _is_final(error: PyroMQError) -> bool:
    """Whether another attempt would fail alike. (If one broker takes no messages now, another may.)"""
    return isinstance(error, BrokerError) and (not error.retriable or ACL_EXCEPTION in error.remark)


def _given_up(request: Request, failures: list[tuple[str, PyroMQError]]) -> PyroMQError:
    """What a task fails with."""
    topic = request.place.target.topic
    last = failures[-1][1]
    if is_refused(last):
        return missing_right(f"writing to topic {topic}", topic, "PUB", last)
    rows = request.rows
    return SendFailed(topic, failures, f"{len(rows)} row{'s' * (len(rows) > 1)} from {rows[0].label()} on")


def _form_of(target: Target, row: OutRow) -> Form | None:
    """The queue that a row must go to; None if it does not exist."""
    if row.queue is not None:
        broker, number = row.queue
        fits = [form for form in target.forms if form.queue.queue_id == number]
        # The broker of a row read elsewhere may not have this topic.
        return next((form for form in fits if form.broker == broker), fits[0] if fits else None)
    return target.forms[shard_index(row.shard or "", len(target.forms))]


def _within(rows: list[OutRow], most: int) -> Iterator[list[OutRow]]:
    """The rows in order, in lists of at most `most` bytes, or of one row."""
    if sum([len(row.body) + len(row.properties) for row in rows]) + ITEM_OVERHEAD * len(rows) <= most:
        yield rows
        return
    begin, size = 0, 0
    for at, row in enumerate(rows):
        length = ITEM_OVERHEAD + len(row.body) + len(row.properties)
        if size + length > most and at > begin:
            yield rows[begin:at]
            begin, size = at, 0
        size += length
    yield rows[begin:]


def _sizes(row: OutRow) -> str:
    return f"its body has {len(row.body)} bytes, its properties {len(row.properties)}"
