"""Watch a whole cluster with a number of requests that grows with its brokers only.

    lookout = Lookout(admin)
    while True:
        snapshot = await lookout.look()

A look asks a name server for the brokers (106), each broker for its figures (28), and the serving broker of each name
for its topics (21), its groups (201) and the progress of all groups at once (317). Topics that no group reads are not
in that answer: of these some are asked for at each look (202), in turn. What a broker said last stays, with its age,
while it is silent; a broker that disappears stays in the list and says since when it is gone.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pyromq.client.admin.addresses import MASTER, brokers_in, replicas
from pyromq.client.admin.fan_out import Missing, fan_out
from pyromq.client.admin.progress import progress_of_groups
from pyromq.client.admin.times import to_millis
from pyromq.errors import PyroMQError
from pyromq.protocol.names import DLQ_PREFIX, is_dlq_topic, is_retry_topic, is_system_group

from .cluster.brokers import BrokerRow, broker_row
from .topic_kinds import TopicKind, names_of_servers, topic_kind
from .topics import perm_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.addresses import Replica
    from pyromq.client.admin.progress import GroupProgress
    from pyromq.protocol.bodies import ClusterInfo, ConsumeStatsList, SubscriptionGroupConfig, TopicConfig

T = TypeVar("T")

# Topics without readers that are asked for at each look.
IN_TURN = 32
# Seconds over which a lag grows or shrinks; over less it jumps with every commit.
_TREND = 60.0
# A broker that is gone for so long is not coming back: it is no longer listed.
_FORGET = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker. `silent_since` is when it stopped answering, None while it answers; `why` says how that showed.

    The figures are its last ones, `age` seconds old.
    """

    row: BrokerRow
    age: float
    silent_since: float | None = None
    why: str | None = None
    registered: bool = True


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic on all its brokers. `end` is the sum of its queues' ends: how many messages it ever got.

    `messages`, `end` and `in_tps` are None while nobody has asked yet.
    """

    topic: str
    kind: TopicKind
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    type: str
    groups: int
    end: int | None
    messages: int | None
    in_tps: float | None


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group on all its brokers. `lag` is None if it has no offset anywhere.

    `seconds` is the age of the last message it consumed, in the queue where that is oldest and others wait; 0 without
    a lag. `growth` is how many messages a second its lag grows.
    """

    group: str
    system: bool
    topics: tuple[str, ...]
    lag: int | None
    retry_lag: int
    seconds: float | None
    out_tps: float | None
    growth: float | None
    dead: int | None
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment, in seconds since 1970. `missing` are the servers that did not answer this time."""

    at: float
    clusters: tuple[str, ...]
    brokers: tuple[BrokerSeen, ...]
    topics: Mapping[str, TopicSeen]
    groups: Mapping[str, GroupSeen]
    missing: tuple[Missing, ...] = ()
    name_server_silent_since: float | None = None
    in_tps: float | None = None
    out_tps: float | None = None

    @property
    def lag(self) -> int:
        """Of all groups of users."""
        return sum(group.lag or 0 for group in self.groups.values() if not group.system)

    @property
    def dead(self) -> int:
        return sum(group.dead or 0 for group in self.groups.values())

    @property
    def silent(self) -> tuple[BrokerSeen, ...]:
        return tuple(broker for broker in self.brokers if broker.silent_since is not None)


@dataclass(slots=True)
class _Kept(Generic[T]):
    """What a server said last, and when."""

    at: float
    value: T


@dataclass(slots=True)
class _Broker:
    replica: Replica
    runtime: _Kept[dict[str, str]] | None = None
    silent_since: float | None = None
    why: str | None = None
    registered: bool = True


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the queues of a topic begin and end, added up."""

    at: float
    begin: int
    end: int


@dataclass(slots=True)
class _Rates:
    """How fast numbers grow, over the last `window` seconds; at least between the last two looks."""

    window: float = 0.0
    table: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def see(self, name: str, at: float, value: int) -> float | None:
        """The rate, None at the first sight."""
        seen = self.table.setdefault(name, deque())
        if not seen or at > seen[-1][0]:
            seen.append((at, value))
        while len(seen) > 2 and seen[1][0] <= at - self.window:
            seen.popleft()
        (began, first), (ended, last) = seen[0], seen[-1]
        return (last - first) / (ended - began) if ended > began else None

    def keep(self, names: Iterable[str]) -> None:
        wanted = set(names)
        self.table = {name: seen for name, seen in self.table.items() if name in wanted}


class Lookout:
    """Remembers what it saw; see the top of this file. `clock` tells seconds since 1970."""

    def __init__(self, admin: AdminClient, *, in_turn: int = IN_TURN, clock: Callable[[], float] = time.time) -> None:
        self._admin = admin
        self._in_turn = in_turn
        self._clock = clock
        self._info: ClusterInfo | None = None
        self._name_server_silent_since: float | None = None
        self._brokers: dict[str, _Broker] = {}
        self._configs: dict[str, _Kept[dict[str, TopicConfig]]] = {}
        self._groups: dict[str, _Kept[dict[str, SubscriptionGroupConfig]]] = {}
        self._stats: dict[str, _Kept[ConsumeStatsList]] = {}
        self._ends: dict[str, _Ends] = {}
        self._turn: deque[str] = deque()
        self._came, self._went, self._lags = _Rates(), _Rates(), _Rates(_TREND)

    async def look(self) -> Snapshot:
        """Ask everyone. Never fails because of a server: those that do not answer are in `missing`."""
        now = self._clock()
        missing: dict[str, Missing] = {}
        await self._ask_name_server(now, missing)
        info = self._info
        if info is None:
            return Snapshot(now, (), (), {}, {}, tuple(missing.values()), self._name_server_silent_since)
        await self._ask_brokers(info, now, missing)
        progress = progress_of_groups(kept.value for kept in self._stats.values())
        topics = self._topic_configs()
        await self._ask_in_turn(topics, progress, missing)
        return self._snapshot(info, now, topics, progress, tuple(missing.values()))

    # Asking

    async def _ask_name_server(self, now: float, missing: dict[str, Missing]) -> None:
        try:
            self._info = await self._admin.brokers.cluster_info()
            self._name_server_silent_since = None
        except (PyroMQError, TimeoutError) as exc:
            error = exc if isinstance(exc, PyroMQError) else PyroMQError("no answer in time")
            missing["name server"] = Missing("name server", error)
            self._name_server_silent_since = self._name_server_silent_since or now

    async def _ask_brokers(self, info: ClusterInfo, now: float, missing: dict[str, Missing]) -> None:
        registered = {each.address: each for each in replicas(info)}
        for address, each in registered.items():
            self._brokers.setdefault(address, _Broker(each)).replica = each
        for address, broker in self._brokers.items():
            broker.registered = address in registered
        figures = await fan_out(list(self._brokers), self._admin.brokers.runtime)
        for address, broker in list(self._brokers.items()):
            if address in figures.results:
                broker.runtime = _Kept(now, figures.results[address])
                broker.silent_since = broker.why = None
                if not broker.registered:
                    broker.silent_since, broker.why = now, "it answers, but no name server knows it"
            else:
                error = figures.failures[address]
                broker.silent_since, broker.why = broker.silent_since or now, str(error)
                missing[address] = Missing(broker.replica.broker, error)
                if not broker.registered and now - broker.silent_since > _FORGET:
                    del self._brokers[address]
        serving = {name: address for name, address in brokers_in(info).items() if address in figures.results}
        await self._keep(self._configs, serving, self._admin.topics.configs, now, missing)
        await self._keep(self._groups, serving, self._admin.groups.configs, now, missing)
        await self._keep(self._stats, serving, self._admin.brokers.consume_stats, now, missing)

    async def _keep(
        self,
        table: dict[str, _Kept[T]],
        serving: Mapping[str, str],
        ask: Callable[..., object],
        now: float,
        missing: dict[str, Missing],
    ) -> None:
        answers = await fan_out(serving, ask)  # type: ignore[arg-type,var-annotated]  # one of three methods
        for name, value in answers.results.items():
            table[name] = _Kept(now, value)
        for each in answers.missing:
            missing.setdefault(serving[each.server], each)
        known = {each.replica.broker for each in self._brokers.values()}
        for name in [name for name in table if name not in known]:
            del table[name]

    async def _ask_in_turn(
        self,
        topics: Mapping[str, Mapping[str, TopicConfig]],
        progress: Mapping[str, GroupProgress],
        missing: dict[str, Missing],
    ) -> None:
        """Some of the topics that no group reads, those with dead letters first."""
        if self._name_server_silent_since is not None:
            return  # routes come from there
        read = {row.queue.topic for each in progress.values() for row in each.rows}
        unread = {topic for topic in topics if topic not in read and not is_retry_topic(topic)}
        self._ends = {topic: ends for topic, ends in self._ends.items() if topic in topics}
        self._turn = deque(topic for topic in self._turn if topic in unread)
        waiting = set(self._turn)
        fresh = [topic for topic in unread if topic not in waiting]
        self._turn.extendleft(sorted((topic for topic in fresh if not is_dlq_topic(topic)), reverse=True))
        self._turn.extendleft(sorted((topic for topic in fresh if is_dlq_topic(topic)), reverse=True))
        chosen = [self._turn.popleft() for _ in range(min(self._in_turn, len(self._turn)))]
        self._turn.extend(chosen)
        answers = await fan_out(chosen, self._admin.topics.stats)
        now = self._clock()
        for topic, queues in answers.results.items():
            begin = sum(ends.min_offset for ends in queues.values())
            self._ends[topic] = _Ends(now, begin, sum(ends.max_offset for ends in queues.values()))
        down = {each.replica.broker for each in self._brokers.values() if each.silent_since is not None}
        for each in answers.missing:
            if not down:  # otherwise the reason is known
                missing.setdefault(each.server, each)

    # Adding up

    def _topic_configs(self) -> dict[str, dict[str, TopicConfig]]:
        found: dict[str, dict[str, TopicConfig]] = {}
        for broker, kept in self._configs.items():
            for topic, config in kept.value.items():
                found.setdefault(topic, {})[broker] = config
        return found

    def _snapshot(
        self,
        info: ClusterInfo,
        now: float,
        topics: Mapping[str, Mapping[str, TopicConfig]],
        progress: Mapping[str, GroupProgress],
        missing: tuple[Missing, ...],
    ) -> Snapshot:
        brokers = self._broker_rows(now)
        # A silent broker's offsets stand still, and so do the rates of what it alone has.
        heard = max((kept.at for kept in self._stats.values()), default=now)
        seen = self._topics(info, topics, progress, heard)
        groups = self._group_rows(progress, seen, heard, now)
        masters = [each for each in brokers if each.row.id == MASTER and each.silent_since is None]
        came = [each.row.in_tps for each in masters if each.row.in_tps is not None]
        went = [each.row.out_tps for each in masters if each.row.out_tps is not None]
        return Snapshot(
            now,
            tuple(sorted(info.cluster_addr_table)),
            brokers,
            seen,
            groups,
            missing,
            self._name_server_silent_since,
            sum(came) if came else None,
            sum(went) if went else None,
        )

    def _broker_rows(self, now: float) -> tuple[BrokerSeen, ...]:
        rows = []
        for broker in self._brokers.values():
            kept = broker.runtime
            row = broker_row(broker.replica, kept.value if kept else None, now * 1000)
            rows.append(
                BrokerSeen(row, now - kept.at if kept else 0.0, broker.silent_since, broker.why, broker.registered)
            )
        return tuple(sorted(rows, key=lambda each: (each.row.cluster, each.row.broker, each.row.id)))

    def _topics(
        self,
        info: ClusterInfo,
        topics: Mapping[str, Mapping[str, TopicConfig]],
        progress: Mapping[str, GroupProgress],
        heard: float,
    ) -> dict[str, TopicSeen]:
        ends: dict[str, dict[object, int]] = {}
        readers: dict[str, set[str]] = {}
        for group, each in progress.items():
            for row in each.rows:
                queues = ends.setdefault(row.queue.topic, {})
                queues[row.queue] = max(row.broker_offset, queues.get(row.queue, 0))
                if not is_system_group(group):
                    readers.setdefault(row.queue.topic, set()).add(group)
        servers = names_of_servers(info)
        found = {}
        for topic, places in sorted(topics.items()):
            known = self._ends.get(topic)
            end = sum(ends[topic].values()) if topic in ends else known.end if known else None
            at = heard if topic in ends else known.at if known else heard
            rate = None if end is None else self._came.see(topic, at, end)
            found[topic] = TopicSeen(
                topic,
                topic_kind(topic, servers),
                tuple(sorted(places)),
                sum(config.read_queue_nums for config in places.values()),
                sum(config.write_queue_nums for config in places.values()),
                "/".join(sorted({perm_text(config.perm) for config in places.values()})),
                any(config.order for config in places.values()),
                next(
                    (
                        config.attributes["message.type"]
                        for config in places.values()
                        if "message.type" in config.attributes
                    ),
                    "",
                ),
                len(readers.get(topic, ())),
                end,
                known.end - known.begin if known and topic not in ends else None,
                None if rate is None else max(rate, 0.0),
            )
        self._came.keep(found)
        return found

    def _group_rows(
        self, progress: Mapping[str, GroupProgress], topics: Mapping[str, TopicSeen], heard: float, now: float
    ) -> dict[str, GroupSeen]:
        where: dict[str, list[str]] = {}
        for broker, kept in self._groups.items():
            for name in kept.value:
                where.setdefault(name, []).append(broker)
        found = {}
        for name in sorted({*where, *progress}):
            dead = topics.get(f"{DLQ_PREFIX}{name}")
            brokers = tuple(sorted(where.get(name, ())))
            group = GroupSeen(name, is_system_group(name), (), None, 0, None, None, None, _count(dead), brokers)
            each = progress.get(name)
            found[name] = group if each is None or not each.rows else self._behind(group, each, heard, now)
        self._went.keep(found)
        self._lags.keep(found)
        return found

    def _behind(self, group: GroupSeen, progress: GroupProgress, heard: float, now: float) -> GroupSeen:
        lag = sum(max(row.lag, 0) for row in progress.rows)
        retry = sum(max(row.lag, 0) for row in progress.rows if is_retry_topic(row.queue.topic))
        late = [
            now - to_millis(row.last_time) / 1000
            for row in progress.rows
            if row.lag > 0 and row.last_time is not None and not is_retry_topic(row.queue.topic)
        ]
        done = sum(row.consumer_offset for row in progress.rows)
        went = self._went.see(group.group, heard, done)
        return replace(
            group,
            topics=tuple(sorted({row.queue.topic for row in progress.rows if not is_retry_topic(row.queue.topic)})),
            lag=lag,
            retry_lag=retry,
            seconds=max(max(late), 0.0) if late else 0.0 if lag == 0 else None,
            out_tps=None if went is None else max(went, 0.0),
            growth=self._lags.see(group.group, heard, lag),
        )


def _count(topic: TopicSeen | None) -> int | None:
    """The dead letters of a group: 0 without such a topic, None if it was not asked for yet."""
    if topic is None:
        return 0
    return topic.messages if topic.messages is not None else topic.end
