"""The metrics of a broker, read from what it counts and knows anyway (docs/spec/admin.md 3.1).

Nothing here is called while messages are served. A generator yields one sample after the other, and None now and then
where it takes longer: whoever reads it lets others have their turns. So each loop goes over a copy, and what was there
a moment ago may be gone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyromq.metrics import broker_metrics as m
from pyromq.metrics.model import Distribution, Metric, Sample, truth
from pyromq.metrics.requests import request_samples
from pyromq.metrics.server_metrics import CONNECTIONS
from pyromq.protocol.bodies.heartbeat import ConsumeType, MessageModel
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from pyromq.protocol.versions import version_name

from ..transactions.half_messages import as_sent
from ..transactions.op_records import Decided
from .statistics import GROUP_GET_NUMS, GROUP_GET_SIZE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyromq.protocol.bodies import HARuntimeInfo

    from ..context import Context, Tables
    from ..held_pulls import HeldPulls
    from ..offsets.pulled import PulledOffsets
    from ..registration import Registration
    from ..timers.delivery import TimerService
    from ..timers.topic_counts import TopicCounts
    from ..transactions.half_queue import HalfQueue

_REMOTING = "remoting"
_STORAGE = ("local", "disk")
_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
    None: "unknown",
}
# Requests that may be answered later, by what RocketMQ calls the pool that would serve them.
_PROCESSORS = {
    RequestCode.SEND_MESSAGE: "send",
    RequestCode.SEND_MESSAGE_V2: "send",
    RequestCode.SEND_BATCH_MESSAGE: "send",
    RequestCode.CONSUMER_SEND_MSG_BACK: "send",
    RequestCode.PULL_MESSAGE: "pull",
    RequestCode.POP_MESSAGE: "pull",
    RequestCode.LITE_PULL_MESSAGE: "lite_pull",
    RequestCode.ACK_MESSAGE: "ack",
    RequestCode.QUERY_MESSAGE: "query_message",
    RequestCode.VIEW_MESSAGE_BY_ID: "query_message",
    RequestCode.UNREGISTER_CLIENT: "client_manager",
    RequestCode.HEART_BEAT: "heartbeat",
    RequestCode.END_TRANSACTION: "transaction",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "consumer_manager",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumer_manager",
    RequestCode.QUERY_CONSUMER_OFFSET: "consumer_manager",
    RequestCode.SEND_REPLY_MESSAGE: "reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "reply",
}
_NAMES = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager"),
    *("heartbeat", "lite_pull", "transaction", "consumer_manager", "admin", "reply"),
)
_TIMER_BOUNDS = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
# Half messages whose topics are looked up; where more wait, something is wrong that the sum shows as well.
_MOST_HALVES = 2000
_REST = "(more)"
_AT_ONCE = 64


class BrokerMetrics:
    """Yields the samples of one broker, in its present role."""

    def __init__(
        self,
        context: Context,
        tables: Tables,
        *,
        registration: Registration,
        held: HeldPulls,
        pulled: PulledOffsets,
        halves: HalfQueue,
        timers: TimerService | None,
        timer_counts: TopicCounts | None,
        replication: Callable[[], HARuntimeInfo],
        running: Callable[[], Iterable[asyncio.Task[None]]] = tuple,
        connections: Callable[[], int] = lambda: 0,
    ) -> None:
        """`running` gives the tasks of requests that are being answered."""
        self._context = context
        self._store = context.store
        self._stats = context.stats
        self._tables = tables
        self._registration = registration
        self._held = held
        self._pulled = pulled
        self._halves = halves
        self._timers = timers
        self._timer_counts = timer_counts
        self._timing: Mapping[str, int] = {}
        self._replication = replication
        self.running = running
        self.connections = connections

    async def refresh(self) -> None:
        """Look at what cannot be read in one go."""
        if self._timer_counts is not None and self._timers is not None:
            self._timing = {}
            if self._timers.pending:
                table = await self._timer_counts.table()
                self._timing = {topic: metric.count for topic, metric in table.timing_count.items()}

    def samples(self) -> Iterator[Sample | None]:
        self._stats.collect()
        yield from self._messages()
        yield from self._lag()
        yield from self._clients()
        yield from self._broker()
        yield from self._storage()
        yield from self._events()
        if self._context.latencies is not None:
            yield from request_samples(self._context.latencies)
        yield from self._half_messages()
        if self._timers is not None:
            yield from self._delayed(self._timers)
        yield from self._copies()

    # Messages

    def _messages(self) -> Iterator[Sample]:
        topics, groups = self._tables.topics, self._tables.groups
        for topic, kind, incoming in self._stats.incoming:
            if topic not in topics:
                continue
            labels = (topic, kind, truth(is_system_topic(topic)))
            yield Sample(m.MESSAGES_IN, labels, incoming.count)
            yield Sample(m.THROUGHPUT_IN, labels, incoming.bytes)
            sizes = Distribution(m.MESSAGE_SIZE.buckets)
            sizes.counts, sizes.sum = incoming.buckets, incoming.bytes
            yield Sample(m.MESSAGE_SIZE, labels[:2], sizes)
        for item, metric in ((GROUP_GET_NUMS, m.MESSAGES_OUT), (GROUP_GET_SIZE, m.THROUGHPUT_OUT)):
            for key, value in self._stats.totals(item):
                topic, _, group = key.partition("@")
                if topic in topics and group in groups and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    yield Sample(metric, (topic, group, _is_system(topic, group)), value)

    # Groups

    def _lag(self) -> Iterator[Sample | None]:
        tables, now = self._tables, self._context.clock()
        for group in [config.group_name for config in tables.groups]:
            online = tables.clients.consumer_group(group)
            if online is not None and online.message_model is MessageModel.BROADCASTING:
                continue  # each member keeps its own offsets
            subscribed = () if online is None else online.subscriptions
            for topic in dict.fromkeys([*tables.offsets.topics_of(group), *subscribed]):
                if topic in tables.topics:
                    yield from self._lag_in(group, topic, now)
            yield None

    def _lag_in(self, group: str, topic: str, now: int) -> Iterator[Sample]:
        committed = self._tables.offsets.of(group, topic)
        behind = ready = 0
        oldest = queued = now
        for queue in self._store.queues.of_topic(topic):
            queue_id, end, first = queue.queue_id, int(queue.max_offset), int(queue.min_offset)
            # A group that has not begun here may begin anywhere: what waits for it is not known.
            offset = max(committed.get(queue_id, end), first)
            pulled = max(self._pulled.get(group, topic, queue_id, offset), first)
            behind += max(end - offset, 0)
            ready += max(end - pulled, 0)
            if offset < end:
                oldest = min(oldest, self._stored_at(topic, queue_id, offset, now))
            if pulled < end:
                queued = min(queued, self._stored_at(topic, queue_id, pulled, now))
        labels = (group, topic, truth(topic.startswith(RETRY_PREFIX)), _is_system(topic, group))
        values = (behind, now - oldest, behind - ready, ready, now - queued)
        for metric, value in zip(m.GROUPS, values, strict=True):
            yield Sample(metric, labels, max(value, 0))

    def _stored_at(self, topic: str, queue_id: int, offset: int, now: int) -> int:
        queue = self._store.queues.find(topic, queue_id)
        time = -1 if queue is None else self._store.reader.store_time(queue, offset)
        return time if time >= 0 else now

    # Clients

    def _clients(self) -> Iterator[Sample]:
        clients = self._tables.clients
        producers = Counter(
            (str(info.language), version_name(info.version).lower(), _REMOTING)
            for members in list(clients.producers.values())
            for info in members.values()
        )
        for labels, count in producers.items():
            yield Sample(m.PRODUCERS, labels, count)
        for group in clients.consumer_groups():
            mode = _MODES[group.consume_type]
            members = Counter(
                (str(info.language), version_name(info.version).lower()) for info in group.connections.values()
            )
            for (language, version), count in members.items():
                system = truth(is_system_group(group.name))
                yield Sample(m.CONSUMERS, (group.name, language, version, mode, _REMOTING, system), count)

    # The broker and its store

    def _broker(self) -> Iterator[Sample]:
        running = Counter(_processor_of(task.get_name()) for task in self.running())
        running["send"] += self._context.gate.waiting
        for name in _NAMES:
            yield Sample(m.WATERMARK, (name,), running[name])
        yield Sample(m.PERMISSION, (), self._context.live.config.broker_permission)
        yield Sample(m.TOPIC_NUMBER, (), len(self._tables.topics))
        yield Sample(m.GROUP_NUMBER, (), len(self._tables.groups))
        yield Sample(m.HELD_PULLS, (), len(self._held))
        yield Sample(CONNECTIONS, (), self.connections())
        yield Sample(m.REGISTERED, (), self._registration.registered_count)

    def _storage(self) -> Iterator[Sample]:
        store, log = self._store, self._store.log
        throughput = self._stats.throughput
        segments = log.segments
        kept = sum(segment.size for segment in segments[:-1]) + (int(log.end) - segments[-1].start if segments else 0)
        yield Sample(m.STORAGE_SIZE, _STORAGE, kept)
        yield Sample(m.FLUSH_BEHIND, _STORAGE, max(int(log.end) - store.flusher.flushed, 0))
        yield Sample(m.DISPATCH_BEHIND, _STORAGE, 0)
        if (earliest := store.earliest_timestamp) > 0:
            yield Sample(m.RESERVE_TIME, _STORAGE, max(self._context.clock() - earliest, 0))
        yield Sample(m.STORE_WRITABLE, (), int(store.refusal is None))
        yield Sample(m.STORE_DISK_RATIO, (), max(map(store.disk.used_ratio, store.config.commit_log_folders)))
        yield Sample(m.STORE_LOG_START, (), int(log.start))
        yield Sample(m.STORE_LOG_END, (), int(log.end))
        yield Sample(m.STORE_QUEUES, (), len(store.queues))
        yield Sample(m.STORE_PUTS, (), throughput.puts)
        yield Sample(m.STORE_PUT_FAILURES, (), throughput.put_failures)
        yield Sample(m.STORE_PULLS, ("true",), throughput.found)
        yield Sample(m.STORE_PULLS, ("false",), throughput.missed)

    def _copies(self) -> Iterator[Sample]:
        info = self._replication()
        if not info.master:
            if info.ha_client_runtime_info.is_activated:
                behind = info.ha_client_runtime_info.master_flush_offset - info.ha_client_runtime_info.max_offset
                yield Sample(m.REPLICATION_BEHIND, ("self",), max(behind, 0))
            return
        yield Sample(m.REPLICAS, (), len(info.ha_connection_info))
        for link in info.ha_connection_info:
            yield Sample(m.REPLICATION_BEHIND, (link.addr,), max(link.diff, 0))

    # Dead letters, transactions, delays

    def _events(self) -> Iterator[Sample]:
        events, topics = self._stats.events, self._tables.topics
        for (group, topic), count in list(events.dead_letters.items()):
            if group in self._tables.groups:
                yield Sample(m.DEAD_LETTERS, (group, topic, _is_system(topic, group)), count)
        tables: tuple[tuple[Metric, Mapping[str, float | Distribution]], ...] = (
            (m.COMMITS, events.commits),
            (m.ROLLBACKS, events.rollbacks),
            (m.FINISH_LATENCY, events.finishes),
            (m.TIMER_ENQUEUED, events.timers_in),
            (m.TIMER_DEQUEUED, events.timers_out),
            (m.DELAY_LATENCY, events.delays),
        )
        for metric, table in tables:
            for topic, value in list(table.items()):
                if topic in topics:
                    yield Sample(metric, (topic,), value)

    def _half_messages(self) -> Iterator[Sample | None]:
        """Those between the first that is not done and the end, without the ones that are decided."""
        halves = self._halves
        (start, op_start), end = halves.position(), halves.end
        if start >= end:
            return
        decided = Decided(start, end, op_start)
        while halves.read_ops(decided, _AT_ONCE):
            yield None
        found: Counter[str] = Counter()
        looked_at = 0
        for offset in range(start, end):
            if not decided.is_open(offset):
                continue
            looked_at += 1
            if looked_at > _MOST_HALVES:
                found[_REST] += 1
                continue
            half = halves.at(offset)
            if half is not None:
                found[as_sent(half).topic] += 1
            yield None
        for topic, count in found.items():
            yield Sample(m.HALF_MESSAGES, (topic,), count)

    def _delayed(self, timers: TimerService) -> Iterator[Sample]:
        late, unread = timers.behind
        for topic, count in self._timing.items():
            yield Sample(m.TIMING_MESSAGES, (topic,), count)
        yield Sample(m.TIMER_ENQUEUE_LAG, (), unread)
        age = 0
        if unread:
            stored = self._store.reader.store_time(timers.queue, timers.followed)
            age = self._context.clock() - stored if stored >= 0 else 0
        yield Sample(m.TIMER_ENQUEUE_LATENCY, (), max(age, 0))
        yield Sample(m.TIMER_DEQUEUE_LAG, (), timers.overdue)
        yield Sample(m.TIMER_DEQUEUE_LATENCY, (), late if timers.overdue else 0)
        before = 0
        for bound, within in zip(_TIMER_BOUNDS, timers.due_within(_TIMER_BOUNDS), strict=True):
            yield Sample(m.TIMER_SNAPSHOT, (str(bound),), within - before)
            before = within


def _is_system(topic: str, group: str) -> str:
    return truth(is_system_topic(topic) or is_system_group(group))


def _processor_of(task: str) -> str:
    """Whose a task is that answers a request later; its name has the request's code."""
    code = task.removeprefix("request ")
    return _PROCESSORS.get(RequestCode(int(code)), "admin") if code.isdigit() and int(code) in _CODES else "admin"


_CODES = frozenset(map(int, RequestCode))
