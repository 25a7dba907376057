"""Every topic and its groups: rates, daily totals, backlog (RocketMQ's statsAll)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out
from pyromq.client.admin.progress import progress_of_groups
from pyromq.errors import ServerError

from .listing import Listing
from .topic_kinds import TopicKind, names_of_servers, topic_kind

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import BrokerStatsData

_IN, _OUT = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


@dataclass(frozen=True, slots=True)
class Traffic:
    """A topic and one of its groups, None if nobody reads it. Rates cover the last minute."""

    topic: str
    group: str | None
    lag: int | None
    in_tps: float | None
    out_tps: float | None
    in_24h: int | None
    out_24h: int | None


@dataclass(frozen=True, slots=True)
class _Counter:
    """The sum of several brokers' counters."""

    tps: float
    day: int


async def stats_all(
    admin: AdminClient, topic: str | None = None, *, active: bool = False, system: bool = False
) -> Listing[Traffic]:
    """All user topics; `system` adds RocketMQ's own, `active` keeps only those with traffic."""
    info = await admin.brokers.cluster_info()
    servers = names_of_servers(info)
    brokers = brokers_in(info)
    known = await fan_out(brokers, admin.topics.configs)
    lags = await fan_out({name: brokers[name] for name in known.some()}, admin.brokers.consume_stats)
    topics = {name: broker for broker, configs in known.results.items() for name in configs}
    if topic is not None:
        await admin.topics.route(topic)  # raises TopicNotFound
    chosen = {
        name
        for name in topics
        if (topic in (None, name)) and (system or topic is not None or topic_kind(name, servers) is TopicKind.NORMAL)
    }
    lag: dict[tuple[str, str], int] = {}
    for group, progress in progress_of_groups(lags.results.values()).items():
        for row in progress.rows:
            if row.queue.topic in chosen:
                lag[row.queue.topic, group] = lag.get((row.queue.topic, group), 0) + row.lag
    wanted = [(_IN, name) for name in chosen] + [(_OUT, f"{name}@{group}") for name, group in lag]
    counters = await _counters(admin, {name: brokers[name] for name in lags.results}, wanted)
    rows = []
    for name in sorted(chosen):
        came = counters.get((_IN, name))
        groups = sorted(group for found, group in lag if found == name)
        for each in groups or (None,):
            went = counters.get((_OUT, f"{name}@{each}")) if each else None
            rows.append(
                Traffic(
                    name,
                    each,
                    lag[name, each] if each else None,
                    came.tps if came else None,
                    went.tps if went else None,
                    came.day if came else None,
                    went.day if went else None,
                )
            )
    if active:
        rows = [row for row in rows if row.in_24h or row.out_24h]
    return Listing.make(Traffic, rows, known.missing + lags.missing)


async def _counters(
    admin: AdminClient, brokers: dict[str, str], wanted: list[tuple[str, str]]
) -> dict[tuple[str, str], _Counter]:
    """The counters of all brokers, added up. A missing counter means that nothing was counted yet."""

    async def ask(what: tuple[str, str, str]) -> BrokerStatsData | None:
        address, name, key = what
        try:
            return await admin.brokers.stats(address, name, key)
        except ServerError:
            return None

    asked = {f"{broker} {name} {key}": (brokers[broker], name, key) for broker in brokers for name, key in wanted}
    answers = await fan_out(asked, ask)
    sums: dict[tuple[str, str], _Counter] = {}
    for label, data in answers.results.items():
        _, name, key = asked[label]
        before = sums.get((name, key), _Counter(0.0, 0))
        if data is None:
            sums[name, key] = before
        else:
            sums[name, key] = _Counter(before.tps + data.stats_minute.tps, before.day + of_a_day(data))
    return sums


def of_a_day(data: BrokerStatsData) -> int:
    """Brokers know a day's sum only after the first hour, and an hour's only after some minutes."""
    return data.stats_day.sum or data.stats_hour.sum or data.stats_minute.sum
