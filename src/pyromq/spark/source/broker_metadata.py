"""The driver's view of a cluster: its queues, where they begin and end, offsets by time and by group.

An idle streaming query asks for the latest offsets ninety times a second, so answers are cached for a while
(`offsets.refreshMs`), and longer if asking takes many requests: the budget is ten a second per broker. One request
covers all queues of a topic on a broker. Any error that leaves a streaming reader ends its query, so requests are
repeated here, and a broker that stays unreachable is not an error but a fact (`Sight.failures`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pyromq.client import AdminClient
from pyromq.errors import ConfigError, NoPermission, PyroMQError, RemoteProtocolError, RouteNotFound
from pyromq.protocol.bodies import TopicStatsTable
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetTopicStatsInfo, PullMessage, PullMessageReply
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from pyromq.protocol.record import decode_record
from pyromq.protocol.sysflag import PULL_SUBSCRIPTION

from ..refused import is_refused, missing_right
from .offsets import place
from .time_search import first_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..blocking_client import Reach
    from ..options import SourceOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ROUTES_FOR = 5.0  # seconds that routes are cached
_BUDGET = 10.0  # requests a second to one broker
_AT_ONCE = 16
_SAMPLE = 32  # messages sampled for their size


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen at one moment. `bounds` has the minimum and maximum of each queue whose broker answered."""

    bounds: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    queues: frozenset[MessageQueue] = frozenset()  # those in the routes
    absent: frozenset[str] = frozenset()  # topics without a route
    brokers: frozenset[str] = frozenset()  # all brokers that name servers know; only asked when a topic is absent
    failures: dict[str, PyroMQError] = field(default_factory=dict)  # why brokers, by name, did not answer


class BrokerMetadata:
    """Asks name servers and brokers for the driver. Names are the user's, without namespace."""

    def __init__(
        self,
        link: Reach,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
        *,
        admin: AdminClient | None = None,
    ) -> None:
        self.link = link
        self._options = options
        self._clock = clock
        self._sight = Sight()
        self._seen_at = float("-inf")
        self._routes_at = float("-inf")
        self._pace = options.offsets_refresh_ms / 1000
        self._topics: tuple[str, ...] = options.subscribe
        self._queues: dict[str, list[MessageQueue] | None] = {}
        self._brokers: frozenset[str] = frozenset()
        self._mean_sizes: dict[MessageQueue, float] = {}
        self._admin = admin
        # Topics whose queues have to be asked for one by one.
        self._without_stats: set[str] = set()
        self.group = link.namespace.wrap(options.consumer_group or options.group_id_prefix)

    @property
    def last(self) -> Sight:
        """The last sight, without asking any server."""
        return self._sight

    @property
    def due_in(self) -> float:
        """Seconds until `look` asks again."""
        return max(0.0, self._seen_at + self._pace - self._clock())

    async def look(self, *, afresh: bool = False) -> Sight:
        """The current sight, as fresh as the budget allows; `afresh` always asks brokers.

        Only unreachable name servers are an error, and only as long as no route was ever known.
        """
        if not afresh and self.due_in:
            return self._sight
        if self._clock() >= self._routes_at + _ROUTES_FOR or self._sight.failures:
            await self._find_queues()
        self._sight = await self._see()
        self._seen_at = self._clock()
        return self._sight

    async def look_hard(self) -> Sight:
        """Ask all servers again, for a batch, which cannot wait: a server that does not answer is an error."""
        self._routes_at = float("-inf")
        sight = await self.look(afresh=True)
        for error in sight.failures.values():
            raise error
        if sight.absent:
            topic = min(sight.absent)
            raise RouteNotFound(f"{topic}: no broker has this topic, says name server {self._options.namesrv}")
        if self._options.assign is not None and (unknown := self._options.assign - sight.queues):
            raise ConfigError(f"assign: there is no {', no '.join(sorted(map(place, unknown)))}")
        return sight

    # Queues

    async def _find_queues(self) -> None:
        try:
            self._topics = await self._subscribed()
            found: dict[str, list[MessageQueue] | None] = {}
            for topic in self._topics:
                found[topic] = await self._queues_of(topic)
            if None in found.values():
                info = await self._patient((await self.asking()).brokers.cluster_info)
                self._brokers = frozenset(name for name, data in info.broker_addr_table.items() if data.broker_addrs)
        except PyroMQError as exc:
            if not self._queues:
                raise
            logger.warning("cannot refresh routes: %s; keeping the known ones", exc)
        else:
            self._queues = found
        self._routes_at = self._clock()

    async def _subscribed(self) -> tuple[str, ...]:
        options = self._options
        if options.assign is not None:
            return tuple(sorted({queue.topic for queue in options.assign}))
        if options.subscribe_pattern is None:
            return options.subscribe
        admin = await self.asking()
        names = await self._patient(admin.topics.names)
        system = frozenset(await self._patient(admin.topics.system))
        namespace = self.link.namespace
        topics = []
        for name in names:
            topic = namespace.unwrap(name)
            is_other_tenants = bool(namespace.name) and topic == name
            if (
                is_other_tenants
                or name in system
                or is_system_topic(name)
                or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
            ):
                continue
            if options.subscribe_pattern.fullmatch(topic):
                topics.append(topic)
        return tuple(sorted(topics))

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        """The queues in the route; None without a route."""
        routes = self.link.client.routes
        wire = self.link.namespace.wrap(topic)
        if await self._patient(lambda: routes.refresh(wire)) is None:
            return None
        queues = map(self.link.for_user, routes.cached_subscribe_queues(wire) or ())
        assigned = self._options.assign
        return [queue for queue in queues if assigned is None or queue in assigned]

    async def asking(self) -> AdminClient:
        """For what only operators ask."""
        if self._admin is None:
            self._admin = await AdminClient(client=self.link.client).start()
        return self._admin

    # Bounds

    async def _see(self) -> Sight:
        queues = [queue for found in self._queues.values() for queue in found or ()]
        places = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        gate = asyncio.Semaphore(_AT_ONCE)
        bounds: dict[MessageQueue, tuple[int, int]] = {}
        failures: dict[str, PyroMQError] = {}
        requests: Counter[str] = Counter()

        async def ask(topic: str, broker: str) -> None:
            wanted = [queue for queue in queues if (queue.topic, queue.broker_name) == (topic, broker)]
            async with gate:
                try:
                    found = await self._bounds_at(topic, broker, wanted)
                except PyroMQError as exc:
                    if is_refused(exc):  # waiting would not help
                        raise _named(topic, exc) from None
                    failures[broker] = exc
                    return
            bounds.update(found)
            requests[broker] += 2 * len(wanted) if topic in self._without_stats else 1

        await asyncio.gather(*(ask(*each) for each in places))
        busiest = max(requests.values(), default=1)
        self._pace = max(self._options.offsets_refresh_ms / 1000, busiest / _BUDGET)
        return Sight(
            bounds,
            frozenset(queues),
            frozenset(topic for topic, found in self._queues.items() if found is None),
            self._brokers,
            failures,
        )

    async def _bounds_at(
        self, topic: str, broker: str, wanted: list[MessageQueue]
    ) -> dict[MessageQueue, tuple[int, int]]:
        calls = self.link.client.calls
        address = self._address(wanted[0])
        header = GetTopicStatsInfo(self.link.namespace.wrap(topic))
        table: dict[MessageQueue, tuple[int, int]] = {}
        if topic not in self._without_stats:
            request = Command.request(RequestCode.GET_TOPIC_STATS_INFO, header)
            try:
                reply = await self._patient(lambda: calls.invoke(address, request))
                table = {
                    self.link.for_user(queue): (offset.min_offset, offset.max_offset)
                    for queue, offset in TopicStatsTable.decode(reply.body_bytes).offset_table.items()
                }
            except NoPermission:
                # To users of 5.x it takes the right to get; where queues begin and end is for subscribers, too.
                self._without_stats.add(topic)
        found = {}
        for queue in wanted:
            # Queues no longer written to are not in it.
            bounds = table.get(queue)
            found[queue] = _sane(bounds if bounds is not None else await self._bounds_of(queue))
        return found

    async def _bounds_of(self, queue: MessageQueue) -> tuple[int, int]:
        calls, address, wire = self.link.client.calls, self._address(queue), self.link.on_wire(queue)
        minimum = await self._patient(lambda: calls.min_offset(address, wire))
        return minimum, await self._patient(lambda: calls.max_offset(address, wire))

    # Times, groups, sizes

    async def at_times(
        self, times: dict[MessageQueue, int], bounds: dict[MessageQueue, tuple[int, int]]
    ) -> dict[MessageQueue, int]:
        """For each queue the offset of the first message stored at this time (ms) or later; else its maximum.

        Exact with every broker: 4.9 answers with any message nearby, so its neighbours are checked.
        """

        async def search(queue: MessageQueue) -> int:
            calls, address, wire = self.link.client.calls, self._address(queue), self.link.on_wire(queue)
            minimum, maximum = bounds[queue]
            guess = await self._patient(lambda: calls.search_offset(address, wire, times[queue]))

            async def is_young(offset: int) -> bool:
                return await self._stored_at(queue, offset) >= times[queue]

            return await first_at(minimum, maximum, guess, is_young)

        return await self._each(times, search)

    async def beside(self, cuts: Mapping[MessageQueue, int]) -> dict[MessageQueue, tuple[int | None, int | None]]:
        """When the messages before and after these offsets were stored (ms); None if there is none."""

        async def ask(queue: MessageQueue) -> tuple[int | None, int | None]:
            cut = cuts[queue]
            reply = await self._patient(lambda: self._pull(queue, max(0, cut - 1), 2))
            before = after = None
            data = reply.body_bytes if reply.code == ResponseCode.SUCCESS else b""
            pos = 0
            while pos < len(data):
                record = decode_record(data, pos, check_crc=False)
                if record.queue_offset < cut:
                    before = record.store_timestamp
                elif after is None:
                    after = record.store_timestamp
                pos += record.store_size
            return before, after

        return await self._each(cuts, ask)

    async def reached(self, queues: Collection[MessageQueue], time: int) -> dict[MessageQueue, int]:
        """The broker's own answer to how far each queue was at this time (ms): not exact, unlike `at_times`."""

        async def ask(queue: MessageQueue) -> int:
            calls, address, wire = self.link.client.calls, self._address(queue), self.link.on_wire(queue)
            return await self._patient(lambda: calls.search_offset(address, wire, time))

        return await self._each(queues, ask)

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """The offset where `group` continues in each queue; None if it never read there."""

        async def ask(queue: MessageQueue) -> int | None:
            calls, address, wire = self.link.client.calls, self._address(queue), self.link.on_wire(queue)
            name = self.link.namespace.wrap(group)
            return await self._patient(lambda: calls.query_offset(address, name, wire, set_zero_if_not_found=False))

        return await self._each(queues, ask)

    async def mean_sizes(self, starts: dict[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Mean bytes per message in each queue, sampled at `starts`; asked once per queue, then cached.

        Without a sample there is no entry: an estimate is never worth an error.
        """

        async def sample(queue: MessageQueue) -> float:
            try:
                reply = await self._pull(queue, starts[queue], _SAMPLE)
            except PyroMQError as exc:
                logger.info("%s: cannot sample message sizes: %s", place(queue), exc)
                return 0.0
            count = reply.header(PullMessageReply).next_begin_offset - starts[queue]
            size = len(reply.body_bytes)
            return size / count if count > 0 and size else 0.0

        unknown = [queue for queue in starts if queue not in self._mean_sizes]
        sampled = await self._each(unknown, sample)
        self._mean_sizes.update({queue: size for queue, size in sampled.items() if size})
        return {queue: self._mean_sizes[queue] for queue in starts if queue in self._mean_sizes}

    async def stored_at(self, offsets: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """When these messages were stored, in epoch milliseconds; -1 for one that is gone."""
        return await self._each(offsets, lambda queue: self._stored_at(queue, offsets[queue]))

    async def _stored_at(self, queue: MessageQueue, offset: int) -> int:
        reply = await self._patient(lambda: self._pull(queue, offset, 1))
        if reply.code != ResponseCode.SUCCESS:
            # It expired between two requests: older than anything asked for.
            return -1
        return decode_record(reply.body_bytes, check_crc=False).store_timestamp

    async def _pull(self, queue: MessageQueue, offset: int, count: int) -> Command:
        wire = self.link.on_wire(queue)
        header = PullMessage(
            self.group, wire.topic, wire.queue_id, offset, count, PULL_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
        )
        return await self.link.client.calls.pull(self._address(queue), header)

    # Inside

    def _address(self, queue: MessageQueue) -> str:
        address = self.link.replica(queue.broker_name)
        if address is None:
            error = RouteNotFound(f"no address is known for broker {queue.broker_name}, which has {place(queue)}")
            error.retriable = True
            raise error
        return address

    async def _each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(queue: MessageQueue) -> T:
            async with gate:
                try:
                    return await ask(queue)
                except PyroMQError as exc:
                    raise _named(queue.topic, exc) from None

        wanted = list(queues)
        return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))

    async def _patient(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a few times if that may help."""
        left = self._options.offsets_num_retries
        while True:
            try:
                return await ask()
            except PyroMQError as exc:
                if not left or not exc.retriable or is_refused(exc):
                    raise
                left -= 1
            await asyncio.sleep(self._options.offsets_retry_interval_ms / 1000)


def _named(topic: str, error: PyroMQError) -> PyroMQError:
    return missing_right(f"reading topic {topic}", topic, "SUB", error)


def _sane(bounds: tuple[int, int]) -> tuple[int, int]:
    """The bounds of a queue; an unused one has -1 on some brokers."""
    minimum, maximum = bounds
    if minimum > maximum > 0:
        raise RemoteProtocolError(f"a queue cannot begin at {minimum} and end at {maximum}")
    return max(0, min(minimum, maximum)), max(0, maximum)
