"""Sending: codes 10, 310 and 320, from the request to the store and back (docs/spec/broker.md 3).

Nearly every send is a message to a known topic with a one-letter header. It takes the fast path, `_fast`, which reads
the few fields it needs from the text map and parses properties only for messages that take a detour, such as delayed
ones. All others, and everything malformed, take the general path, `_general`, which reads like the
specification. The two store the same message and give the same answer.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import (
    BrokerError,
    CorruptRecord,
    LocalProtocolError,
    MessageIllegal,
    NoPermission,
    PyroMQError,
    ServerError,
    SubscriptionGroupNotExist,
    SystemBusy,
    TopicNotFound,
)
from pyromq.protocol import batch, sysflag
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.register import TopicFilterType
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import ONEWAY
from pyromq.protocol.frame import SMALL_BODY
from pyromq.protocol.headers import SendMessage, SendMessageV2
from pyromq.protocol.ids import encode_host, encode_offset_message_ids
from pyromq.protocol.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMED_TOPICS
from pyromq.protocol.permissions import PERM_WRITE, perm_text
from pyromq.protocol.record import MessageRecord
from pyromq.remoting import BodyLimit, split_address
from pyromq.store import PutStatus

from .send_replies import SendReplies
from .stats.incoming import DELAY, FIFO, LARGE, NORMAL, SMALL, TRANSACTION, Incoming, bucket_of
from .timers.delay_levels import delay_level, parked
from .timers.parking import ASKED, TimerParking, is_timer, recall_handle
from .transactions.half_messages import is_half, prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyromq.protocol.bodies.register import TopicConfig
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import PutResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .appends import Stored
    from .config import BrokerConfig
    from .context import Context, Tables
    from .stats.incoming import IncomingCounts

logger = logging.getLogger(__name__)

V3_4_9 = 121  # from here on clients mean it when they send maxReconsumeTimes

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
_WAIT = f"{props.WAIT}{props.NAME_VALUE_SEPARATOR}"
_UNIQUE_KEY = f"{props.UNIQ_KEY}{props.NAME_VALUE_SEPARATOR}"
_NEXT_UNIQUE_KEY = f"{props.ITEM_SEPARATOR}{_UNIQUE_KEY}"
_SHARDING_KEY = f"{props.SHARDING_KEY}{props.NAME_VALUE_SEPARATOR}"
_WAIT_TRUE = f"{props.ITEM_SEPARATOR}{_WAIT}true"
_SMALL = {str(number): number for number in range(1024)}
_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}
_OK = PutStatus.PUT_OK
_STORED_CODES = frozenset(_CODES.values())
_OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_NOT_AVAILABLE = "service not available now."
_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {limit}B, msg properties length limit 32KB."
)
_NO_HOST = bytes(8)


def born_host(connection: Connection) -> bytes:
    """The peer's host as its records store it. The connection caches these bytes."""
    host = connection.context
    if host is None:
        try:
            host = encode_host(*split_address(connection.peer))
        except (ValueError, LocalProtocolError):  # a peer without an IP address: a local socket
            host = _NO_HOST
        connection.context = host
    known: bytes = host
    return known


def message_limit(size: int) -> BodyLimit:
    """The size from which a message is refused unread. One slightly too large gets its usual answer."""
    return BodyLimit(size + SMALL_BODY, "maxMessageSize", ResponseCode.MESSAGE_ILLEGAL, _ILLEGAL.format(limit=size))


class SendProcessor:
    """Serves sends. `clock` gives epoch milliseconds."""

    def __init__(self, context: Context, tables: Tables, *, delay_levels: int, timers: TimerParking) -> None:
        self._store = context.store
        self._gate = context.gate
        self._appends = context.appends
        self._topics = tables.topics
        self._groups = tables.groups
        self._stats = context.stats
        self._live = context.live
        self._clock = context.clock
        self._delay_levels = delay_levels
        self._store_host = context.store_host
        self._timers = timers
        self._targets: dict[str, _Target] = {}
        self.general_sends = 0  # requests that took the general path
        # Sizes of messages parked since the last count, by topic and queue.
        self._parked_sizes: dict[tuple[str, int], list[int]] = {}
        self._config = context.live.config
        self._is_slave = self._config.is_slave

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, request: Command) -> Command | None:
        if self._gate.waiting >= self._config.send_queue_capacity:
            # The disk does not keep up, and each waiting sender keeps its message in memory.
            raise SystemBusy(_OVERLOAD)
        if self._is_slave:
            return self._refusal(
                request, ResponseCode.SERVICE_NOT_AVAILABLE, f"{_NOT_AVAILABLE} this broker is a slave"
            )
        return self._serve(connection, request)

    def _serve(self, connection: Connection, request: Command) -> Command | None:
        try:
            if request.code == RequestCode.SEND_MESSAGE_V2 and self._fast(connection, request):
                return None
            return self._general(connection, request)
        except BrokerError as exc:
            return self._refusal(request, exc.code, exc.remark)

    def _refusal(self, request: Command, code: int, remark: str | None) -> Command:
        response = request.reply(code, remark)
        response.ext = self._trace_fields()  # clients look for these fields even here
        return response

    def _hold(self, topic: str, connection: Connection, request: Command, go_on: Callable[[], Command | None]) -> None:
        """Continue once a new topic is saved; refuse the message if it cannot be."""

        def settled(error: PyroMQError | None) -> None:
            if error is None:
                try:
                    response = go_on()
                except PyroMQError as exc:
                    response = self._refusal(request, ResponseCode.SYSTEM_ERROR, str(exc))
            else:
                logger.warning("%s: message not stored: %s", connection.peer, error)
                response = self._refusal(request, ResponseCode.SYSTEM_ERROR, str(error))
            if response is not None:
                connection.reply(request, response)

        self._gate.when_settled(topic, settled)

    # The fast path

    def _fast(self, connection: Connection, request: Command) -> bool:
        """Store a message to a known topic; False, with nothing done, if it needs the general path."""
        ext = request.ext
        if ext is None:
            return False
        try:
            topic, queue_text, flags, born, flag = ext["b"], ext["e"], ext["f"], ext["g"], ext["h"]
        except KeyError:
            return False
        target = self._targets.get(topic)
        if target is None or target.config is not self._topics.get(topic) or self._config is not self._live.config:
            return False
        # Nearly always these are small numbers, and looking them up is faster than parsing them.
        queue, sys_flag, user_flag = target.queues.get(queue_text), _SMALL.get(flags), _SMALL.get(flag)
        times = _SMALL.get(ext.get("j", "0"))
        text = ext.get("i", "")
        if (
            queue is None
            or sys_flag is None
            or user_flag is None
            or times is None
            or not (born.isdigit() and born.isascii() and len(born) < 19)
            or ext.get("m", "false").lower() == "true"
            or "\0" in text
            or props.CLUSTER in text  # left from an earlier store, to be replaced by ours
        ):
            return False
        if "DELAY" in text or "TRAN_MSG" in text or "TIMER_" in text:
            is_on_detour, properties, wait = True, b"", True
        elif sys_flag & sysflag.TRANSACTION_MASK:
            return False
        else:
            is_on_detour = False
            head, found, rest = text.partition(_WAIT_TRUE)
            if found and _WAIT not in head and _WAIT not in rest and (not rest or rest[0] == "\x02"):
                stored_text, wait = (head + rest).removesuffix("\x02"), True
            else:
                stored_text, wait = strip_wait(text)
            stored_text = f"{stored_text}\x02{target.stamp}" if stored_text else target.stamp
            properties = stored_text.encode("utf-8", "replace")
        record = MessageRecord(
            topic,
            request.body or b"",  # type: ignore[arg-type]  # a received body is bytes
            properties,
            queue.queue_id,
            user_flag,
            0,
            0,
            sys_flag | target.multi_tag,
            int(born),
            connection.context or born_host(connection),
            0,
            self._store_host,
            times,
        )
        if is_on_detour:
            self._detour(connection, request, target, record, text, queue_text)
        else:
            stored = partial(self._stored, connection, request, target, queue_text)
            self._appends.put(queue, (record,), stored, wait=wait)
        return True

    def _detour(
        self, connection: Connection, request: Command, target: _Target, record: MessageRecord, text: str, queue: str
    ) -> None:
        """Store a message, still without its properties, where they may redirect it."""
        properties, wait = self._read(text)
        placed = self._prepared(record, properties) or self._delayed(record, properties)
        if placed is record:
            placed = replace(record, properties=props.encode(props.render(properties)))
        self._put(connection, request, target, placed, queue, wait)

    def _read(self, text: str) -> tuple[dict[str, str], bool]:
        """The properties as stored, and whether the sender wants to wait for the disk."""
        properties = props.parse(text)
        wait = properties.pop(props.WAIT, "true").lower() == "true"
        properties |= stamp(self._config)
        return properties, wait

    def _put(
        self, connection: Connection, request: Command, target: _Target, record: MessageRecord, queue: str, wait: bool
    ) -> None:
        """Store a message where it was placed. `queue` is the one its sender is told."""
        topic = record.topic
        if topic in TIMED_TOPICS:
            stored = partial(self._parked, connection, request, target, record, queue)
        else:
            if topic == HALF_TOPIC:
                target = self._target(self._topics.ensure(HALF_TOPIC, 1))  # it counts there
            if self._gate.holds(topic):  # half messages and dead letters may be the first of their topic
                self._hold(
                    topic, connection, request, partial(self._put, connection, request, target, record, queue, wait)
                )
                return
            stored = partial(self._stored, connection, request, target, queue)
            if topic.startswith(DLQ_PREFIX):
                stored = partial(self._died, record, stored)
        self._appends.put(self._store.queue(topic, record.queue_id), (record,), stored, wait=wait)

    def _died(self, record: MessageRecord, stored: Stored, results: Sequence[PutResult]) -> None:
        """As `stored`, for a message that was sent to the dead letters of its group."""
        if results[0].status in _CODES:
            group = record.topic.removeprefix(DLQ_PREFIX)
            self._stats.events.dead_letter(group, record.find_property(props.RETRY_TOPIC) or f"{RETRY_PREFIX}{group}")
        stored(results)

    # The general path

    def _general(self, connection: Connection, request: Command) -> Command | None:
        self.general_sends += 1
        header: SendMessage | SendMessageV2
        if request.code == RequestCode.SEND_MESSAGE:
            header = request.header(SendMessage)
        else:
            header = request.header(SendMessageV2)
        topic = self._checked_topic(header)
        if self._gate.holds(header.topic):
            self._hold(header.topic, connection, request, partial(self._serve, connection, request))
            return None
        target = self._target(topic)
        queue_id = header.queue_id
        if queue_id >= target.max_queues:
            raise ServerError(
                f"request queueId[{queue_id}] is illegal, {target.description} Producer: {connection.peer}"
            )
        if queue_id < 0:
            if target.config.write_queue_nums <= 0:
                raise ServerError(f"topic {header.topic} has no queue to write to")
            queue_id = random.randrange(target.config.write_queue_nums)
        _refuse_zeros((header.properties or "").encode("utf-8", "replace"))
        if header.batch:
            self._batch(connection, request, header, target, queue_id)
            return None
        properties, wait = self._read(header.properties or "")
        record = MessageRecord(
            header.topic,
            request.body_bytes,
            props.encode(props.render(properties)),
            queue_id,
            header.flag,
            sys_flag=header.sys_flag | target.multi_tag,
            born_timestamp=header.born_timestamp,
            born_host=born_host(connection),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times,
        )
        record = (
            self._dead_letter(record, header, request)
            or self._prepared(record, properties)
            or self._delayed(record, properties)
        )
        self._put(connection, request, target, record, str(queue_id), wait)
        return None

    def _checked_topic(self, header: SendMessage | SendMessageV2) -> TopicConfig:
        """The checks of 3.1 in their order."""
        config = self._config = self._live.config
        topic = header.topic
        now = self._clock()
        if now < config.start_accept_send:
            raise ServerError(f"broker unable to service, until {_date(config.start_accept_send)}")
        known = self._topics.get(topic)
        if not config.broker_permission & PERM_WRITE and known is not None and known.order:
            raise NoPermission(f"the broker[{config.broker_ip1}] sending message is forbidden")
        self._topics.check_name(topic)
        if not self._topics.may_send(topic):
            raise NoPermission(f"Sending message to topic[{topic}] is forbidden.")
        if known is None:
            known = self._topics.for_send(
                topic, header.default_topic, header.default_topic_queue_nums, header.unit_mode
            )
        if known is None:
            raise TopicNotFound(f"topic[{topic}] not exist, apply first please!{FAQ}")
        return known

    def ready(self, topic: str) -> _Target | None:
        """A topic whose usual messages need no more checks; None if they take the general path, at least once more."""
        target = self._targets.get(topic)
        if (
            target is None
            or not target.queues
            or target.config is not self._topics.get(topic)
            or target.made_from is not self._live.config
            or self._config is not self._live.config
        ):
            return None
        return target

    def answer(
        self, connection: Connection, request: Command, target: _Target, queue_id: int, result: PutResult
    ) -> None:
        """Tell the sender of a message to a topic that was ready what has become of it."""
        self._stored(connection, request, target, str(queue_id), [result])

    def _target(self, topic: TopicConfig) -> _Target:
        target = self._targets.get(topic.topic_name)
        if target is None or target.config is not topic or target.made_from is not self._config:
            target = self._new_target(topic)
        return target

    def _new_target(self, topic: TopicConfig) -> _Target:
        config = self._config
        replies = SendReplies(self._store_host, config.region_id, config.trace_on)
        target = _Target(topic, props.render(stamp(config)), replies)
        target.made_from = config
        # The fast path checks none of this: topics left out here take the general path and are checked there.
        is_ordinary = not topic.topic_name.startswith(RETRY_PREFIX) and self._topics.may_send(topic.topic_name)
        if is_ordinary and config.start_accept_send <= self._clock() and config.broker_permission & PERM_WRITE:
            target.queues = {
                str(queue_id): self._store.queue(topic.topic_name, queue_id) for queue_id in range(target.max_queues)
            }
        self._targets[topic.topic_name] = target
        return target

    def _dead_letter(
        self, record: MessageRecord, header: SendMessage | SendMessageV2, request: Command
    ) -> MessageRecord | None:
        """A message to a retry topic that was retried often enough goes to the dead letters instead."""
        if not record.topic.startswith(RETRY_PREFIX):
            return None
        name = record.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.get(name)
        if group is None:
            raise SubscriptionGroupNotExist(f"subscription group not exist, {name} {FAQ}")
        limit = group.retry_max_times
        if header.max_reconsume_times is not None and request.version >= V3_4_9:
            limit = header.max_reconsume_times
        if record.reconsume_times < limit:
            return None
        dead_letters = self._topics.ensure_dlq(name)
        return replace(record, topic=dead_letters.topic_name, queue_id=0)

    def _prepared(self, record: MessageRecord, properties: dict[str, str]) -> MessageRecord | None:
        """A half message as it is stored; None if it is not one. A delay begins only with its commit."""
        if not is_half(properties, record.reconsume_times):
            return None
        if self._config.reject_transaction:
            raise NoPermission(f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden")
        self._delayed(record, properties)  # refuse now what could not be delayed then
        return prepared(record, properties)

    def placed(self, record: MessageRecord, properties: dict[str, str]) -> MessageRecord:
        """A message sent by the broker itself, as it is stored: parked if it is delayed."""
        return self._delayed(record, properties)

    def _delayed(self, record: MessageRecord, properties: dict[str, str]) -> MessageRecord:
        try:
            level = delay_level(properties)
        except ValueError:
            raise ServerError(f"{props.DELAY} is not a number: {properties[props.DELAY]!r}") from None
        if level <= 0:
            return self._timers.parked(record, properties, self._clock())
        # A level wins over a time.
        kept = {name: value for name, value in properties.items() if name not in ASKED}
        return parked(record, kept, level, self._delay_levels)

    def _batch(
        self,
        connection: Connection,
        request: Command,
        header: SendMessage | SendMessageV2,
        target: _Target,
        queue_id: int,
    ) -> None:
        shared = props.parse(header.properties or "")
        limit = self._store.config.max_message_size
        delayed = shared.get(props.DELAY, "0")
        is_delayed = delayed not in ("0", "") or is_timer(shared)
        if header.sys_flag & sysflag.TRANSACTION_MASK or len(request.body_bytes) > limit or is_delayed:
            raise MessageIllegal(_ILLEGAL.format(limit=limit))
        wait = shared.get(props.WAIT, "true").lower() == "true"
        shared.pop(props.WAIT, None)
        shared |= stamp(self._config)
        whole = MessageRecord(
            header.topic,
            request.body_bytes,
            props.encode(props.render(shared)),
            queue_id,
            sys_flag=header.sys_flag | target.multi_tag,
            born_timestamp=header.born_timestamp,
            born_host=born_host(connection),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times,
        )
        try:
            records = batch.expand(whole)
        except CorruptRecord as exc:
            raise ServerError(f"cannot read the batch: {exc.reason}") from None
        _refuse_zeros(b"".join([record.properties for record in records]))
        queue = self._store.queue(header.topic, queue_id)
        stored = partial(self._stored, connection, request, target, str(queue_id))
        self._appends.put(queue, records, stored, wait=wait)

    # Answers

    def _stored(
        self,
        connection: Connection,
        request: Command,
        target: _Target,
        queue_text: str,
        results: Sequence[PutResult],
    ) -> None:
        first = results[0]
        if first.status is _OK and len(results) == 1:
            target.stored += 1
            target.stored_bytes += first.size
            if first.size > SMALL or is_fifo(request):
                target.more.note(first.size, fifo=is_fifo(request))
            if request.flag & ONEWAY:
                return
            place = first.physical_offset, queue_text.encode(), first.queue_offset
            reply = target.replies.frame(request, *place, unique_key(request))
            if connection.send_reply_frame(request, reply):
                return
        elif first.status in _CODES:
            target.stored += len(results)
            target.stored_bytes += sum([result.size for result in results])
            for result in results:
                if result.size > SMALL or is_fifo(request):
                    target.more.note(result.size, fifo=is_fifo(request))
            if request.flag & ONEWAY:
                return
        self._answer(connection, request, queue_text, results)

    def _parked(
        self,
        connection: Connection,
        request: Command,
        target: _Target,
        record: MessageRecord,
        queue_text: str,
        results: Sequence[PutResult],
    ) -> None:
        """As `_stored`, for a parked message: its real topic counts it on delivery."""
        first = results[0]
        if first.status in _CODES:
            parked = self._parked_sizes.get((record.topic, record.queue_id))
            if parked is None:
                parked = self._parked_sizes[record.topic, record.queue_id] = []
            parked.append(first.size)
            if record.topic != SCHEDULE_TOPIC:
                self._stats.events.timer_entered(target.config.topic_name)
            if request.flag & ONEWAY:
                return
        handle = recall_handle(record, self._config.broker_name)
        if first.status is _OK:
            place = first.physical_offset, queue_text.encode(), first.queue_offset
            frame = target.replies.frame(request, *place, unique_key(request), handle)
            if connection.send_reply_frame(request, frame):
                return
        self._answer(connection, request, queue_text, results, {} if handle is None else {"recallHandle": handle})

    def _answer(
        self,
        connection: Connection,
        request: Command,
        queue_text: str,
        results: Sequence[PutResult],
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        first = results[0]
        code, remark = self._outcome(first)
        if code in _STORED_CODES:
            response = request.reply(code, remark)
            response.ext = {
                "MSG_REGION": self._config.region_id,
                "TRACE_ON": "true" if self._config.trace_on else "false",
                "msgId": encode_offset_message_ids(self._store_host, [each.physical_offset for each in results]),
                "queueId": queue_text,
                "queueOffset": str(first.queue_offset),
                **more,
            }
            key = unique_key(request)
            if key is not None:
                response.ext["transactionId"] = key
        else:
            logger.warning("%s: message not stored: %s", connection.peer, first.error)
            response = self._refusal(request, code, remark)
        connection.reply(request, response)

    def _outcome(self, result: PutResult) -> tuple[ResponseCode, str | None]:
        """Code and remark for the store's result (3.4)."""
        code = _CODES.get(result.status)
        if code is not None:
            return code, result.error or None
        match result.status:
            case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
                remark = _ILLEGAL.format(limit=self._store.config.max_message_size)
                return ResponseCode.MESSAGE_ILLEGAL, remark
            case PutStatus.SERVICE_NOT_AVAILABLE:
                return ResponseCode.SERVICE_NOT_AVAILABLE, f"{_NOT_AVAILABLE} {result.error}"
            case PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
                return ResponseCode.SYSTEM_ERROR, result.error
            case PutStatus.CREATE_MAPPED_FILE_FAILED:
                return ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."
        return ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR {result.error}"

    def _trace_fields(self) -> dict[str, str]:
        config = self._live.config
        return {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}

    def forget(self, topic: str) -> None:
        """The queues of `topic` are gone."""
        self.count()
        self._targets.pop(topic, None)

    def count(self) -> None:
        """Pass counts since the last call to the statistics; counting each message there would cost more."""
        for topic, target in self._targets.items():
            if target.stored:
                stored, size = target.stored, target.stored_bytes
                target.stored = target.stored_bytes = 0
                target.more.pass_on(self._stats.incoming, topic, stored, size)
                self._stats.add("TOPIC_PUT_NUMS", topic, stored, stored)
                self._stats.add("TOPIC_PUT_SIZE", topic, size, stored)
                self._stats.add("BROKER_PUT_NUMS", self._config.cluster_name, stored, stored)
        for (topic, queue_id), sizes in self._parked_sizes.items():
            if sizes:
                self._stats.add_stored(self._config.cluster_name, topic, sizes, DELAY)
                if topic == SCHEDULE_TOPIC:
                    self._stats.add("QUEUE_PUT_NUMS", f"{topic}@{queue_id}", len(sizes), len(sizes))
                    self._stats.add("QUEUE_PUT_SIZE", f"{topic}@{queue_id}", sum(sizes), len(sizes))
                sizes.clear()


class Unusual:
    """Of the messages that a target counts, those that are large or have an order.

    They are few, and what metrics show of all the others follows from the totals.
    """

    __slots__ = ("_fifo", "_large")

    def __init__(self) -> None:
        self._fifo = Incoming()
        self._large = [0] * LARGE  # of the others

    def note(self, size: int, *, fifo: bool) -> None:
        """Count one message."""
        if fifo:
            self._fifo.note(size)
        else:
            self._large[bucket_of(size)] += 1

    def add(self, large: Sequence[int], fifo: int, fifo_size: int, fifo_large: Sequence[int]) -> None:
        """Count those of a run."""
        self._fifo.add(fifo, fifo_size, fifo_large)
        self._large = [known + more for known, more in zip(self._large, large, strict=True)]

    def pass_on(self, incoming: IncomingCounts, topic: str, stored: int, size: int) -> None:
        """Add everything to the statistics: these, and with them all `stored` messages of `size` bytes."""
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return
        fifo = self._fifo
        kind = TRANSACTION if topic == HALF_TOPIC else NORMAL
        if stored > fifo.count:
            incoming.of(topic, kind).add(stored - fifo.count, size - fifo.bytes, self._large)
        if fifo.count:
            incoming.of(topic, FIFO).add(fifo.count, fifo.bytes, fifo.large)
            fifo.clear()
        self._large = [0] * LARGE


class _Target:
    """A topic, ready for sends. `queues`, keyed by their numbers as text, is empty if sends take the general path."""

    __slots__ = (
        "config",
        "made_from",
        "max_queues",
        "more",
        "multi_tag",
        "queues",
        "replies",
        "stamp",
        "stored",
        "stored_bytes",
    )

    def __init__(self, config: TopicConfig, stamp: str, replies: SendReplies) -> None:
        self.config = config
        self.replies = replies
        self.stamp = stamp  # the properties that every message gets
        self.made_from: object = None
        self.max_queues = max(config.write_queue_nums, config.read_queue_nums)
        self.multi_tag = sysflag.MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else 0
        self.queues: dict[str, ConsumeQueue] = {}
        self.stored = 0
        self.stored_bytes = 0
        self.more = Unusual()

    @property
    def description(self) -> str:
        """The topic as RocketMQ prints it."""
        config = self.config
        return (
            f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
            f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
            f"topicFilterType={config.topic_filter_type.value}, topicSysFlag={config.topic_sys_flag}, "
            f"order={'true' if config.order else 'false'}]"
        )


def stamp(config: BrokerConfig) -> dict[str, str]:
    """The properties that a broker gives every message.

    The last two only where traces are kept: consumers of 5.x trace nothing without them. A broker of 4.9 adds them
    only with a hook, one of 5.x always; without a trace topic they are wasted bytes.
    """
    given = {props.CLUSTER: config.cluster_name}
    if config.trace_topic_enable:
        given |= {props.MSG_REGION: config.region_id, props.TRACE_ON: "true" if config.trace_on else "false"}
    return given


def is_fifo(request: Command) -> bool:
    """Whether a message belongs to others that it must stay in order with."""
    ext = request.ext
    return ext is not None and _SHARDING_KEY in (ext.get("i") or ext.get("properties") or "")


def unique_key(request: Command) -> str | None:
    """The unique key that the producer gave the message, or None."""
    ext = request.ext
    text = None if ext is None else ext.get("i") or ext.get("properties")
    if not text:
        return None
    if text.startswith(_UNIQUE_KEY):
        begin = len(_UNIQUE_KEY)
    elif (at := text.find(_NEXT_UNIQUE_KEY)) >= 0:
        begin = at + len(_NEXT_UNIQUE_KEY)
    else:
        return None
    end = text.find("\x02", begin)
    return text[begin:] if end < 0 else text[begin:end]


def strip_wait(text: str) -> tuple[str, bool]:
    """A properties string without its WAIT, and whether that asks to wait for the disk."""
    text = text.removesuffix("\x02")
    if _WAIT not in text:
        return text, True
    wait = ""
    while True:
        if (at := text.rfind(f"\x02{_WAIT}")) >= 0:
            value, separator, rest = text[at + 1 + len(_WAIT) :].partition("\x02")
            text = text[:at] + separator + rest
        elif text.startswith(_WAIT):
            value, _, text = text[len(_WAIT) :].partition("\x02")
        else:
            return text, (wait or "true").lower() == "true"
        # From the back: of several, the last one counts, and one without a value does not count.
        wait = wait or value


def _refuse_zeros(properties: bytes) -> None:
    # No checksum protects properties. A page lost in a power failure reads as zeros, and recovery ends the log there.
    if b"\0" in properties:
        raise MessageIllegal("the properties contain U+0000")


def _date(millis: int) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(millis // 1000))},{millis % 1000:03d}"
