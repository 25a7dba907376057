"""The brokers of all clusters: their figures, how fast they answer, draining them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import replicas
from pyromq.client.admin.fan_out import fan_out

from ..listing import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.addresses import Replica

_MILLIS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker. If it does not answer, all but the first four fields are None.

    `put_wait_ms` is how long writers waited for the log, `hours` the age of the oldest message, `disk` the used part of
    the log's disk, from 0 to 1.
    """

    cluster: str
    broker: str
    id: int
    address: str
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    put_wait_ms: float | None = None
    hours: float | None = None
    disk: float | None = None
    in_today: int | None = field(default=None, metadata={"hidden": True})
    out_today: int | None = field(default=None, metadata={"hidden": True})
    in_yesterday: int | None = field(default=None, metadata={"hidden": True})
    out_yesterday: int | None = field(default=None, metadata={"hidden": True})


@dataclass(frozen=True, slots=True)
class Measured:
    """A broker and its runtime figures by RocketMQ's keys; None if it does not answer."""

    broker: Replica
    runtime: dict[str, str] | None


async def measured(admin: AdminClient, cluster: str | None = None) -> Listing[Measured]:
    """All brokers of one cluster or all, slaves included; a silent broker has a row and is listed as missing."""
    found = replicas(await admin.brokers.cluster_info(), cluster)
    answers = await fan_out([each.address for each in found], admin.brokers.runtime)
    rows = [Measured(each, answers.results.get(each.address)) for each in found]
    return Listing.make(Measured, rows, answers.missing)


async def cluster_table(admin: AdminClient, cluster: str | None = None) -> Listing[BrokerRow]:
    """All brokers, slaves included; a silent broker has a row and is listed as missing."""
    found = await measured(admin, cluster)
    now = time.time() * 1000
    rows = [broker_row(each.broker, each.runtime, now) for each in found.rows]
    down = f", {len(found.missing)} of them silent" if found.missing else ""
    clusters = len({row.cluster for row in rows})
    summary = f"{_counted(len(rows), 'broker')} in {_counted(clusters, 'cluster')}{down}"
    return Listing.make(BrokerRow, rows, found.missing, summary)


@dataclass(frozen=True, slots=True)
class Ping:
    """How long a broker took to answer a small request, in milliseconds."""

    broker: str
    address: str
    count: int | None
    min_ms: float | None
    mean_ms: float | None
    max_ms: float | None


async def ping_brokers(admin: AdminClient, brokers: Mapping[str, str], count: int) -> Listing[Ping]:
    """Ask each broker `count` times, one request after the other. `brokers` maps addresses to names."""

    async def ask(address: str) -> list[float]:
        await admin.brokers.runtime(address)  # the first request also connects
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await admin.brokers.runtime(address)
            times.append((time.perf_counter() - began) * 1000)
        return times

    answers = await fan_out(list(brokers), ask)
    rows = []
    for address, name in brokers.items():
        times = answers.results.get(address)
        if times is None:
            rows.append(Ping(name, address, None, None, None, None))
        else:
            rows.append(Ping(name, address, len(times), min(times), sum(times) / len(times), max(times)))
    return Listing.make(Ping, rows, answers.missing)


def broker_row(broker: Replica, runtime: Mapping[str, str] | None, now: float) -> BrokerRow:
    if runtime is None:
        return BrokerRow(broker.cluster, broker.broker, broker.id, broker.address)
    earliest = number(runtime, "earliestMessageTimeStamp")
    in_now, in_morning = number(runtime, "msgPutTotalTodayNow"), number(runtime, "msgPutTotalTodayMorning")
    out_now, out_morning = number(runtime, "msgGetTotalTodayNow"), number(runtime, "msgGetTotalTodayMorning")
    in_before = number(runtime, "msgPutTotalYesterdayMorning")
    out_before = number(runtime, "msgGetTotalYesterdayMorning")
    return BrokerRow(
        broker.cluster,
        broker.broker,
        broker.id,
        broker.address,
        runtime.get("brokerVersionDesc"),
        number(runtime, "putTps"),
        out_tps(runtime),
        number(runtime, "pageCacheLockTimeMills"),
        (now - earliest) / _MILLIS_PER_HOUR if earliest is not None and earliest > 0 else None,
        number(runtime, "commitLogDiskRatio"),
        _difference(in_now, in_morning),
        _difference(out_now, out_morning),
        _difference(in_morning, in_before),
        _difference(out_morning, out_before),
    )


def number(runtime: Mapping[str, str], key: str) -> float | None:
    """A figure from a broker's text; the first if there are several (last 10 s, minute, ten minutes)."""
    words = runtime.get(key, "").split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


def out_tps(runtime: Mapping[str, str]) -> float | None:
    """Messages out per second; 4.9 spells the key with one r."""
    found = number(runtime, "getTransferredTps")
    return number(runtime, "getTransferedTps") if found is None else found


def _difference(after: float | None, before: float | None) -> int | None:
    return None if after is None or before is None else int(after - before)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


PERMISSION, READ_ONLY, READ_AND_WRITE = "brokerPermission", "4", "6"


@dataclass(frozen=True, slots=True)
class Drained:
    """`topics` is how many of the broker's topics a name server changed."""

    broker: str
    change: str
    name_server: str
    topics: int


async def drain_broker(admin: AdminClient, broker: str, address: str) -> Listing[Drained]:
    """Stop sends to a broker: name servers remove it from routes, and its own setting keeps it that way."""
    counts = await admin.brokers.wipe_write_perm(broker)
    await admin.brokers.set_config({PERMISSION: READ_ONLY}, brokers=address)
    return _drained(broker, "read-only", counts)


async def undrain_broker(admin: AdminClient, broker: str, address: str) -> Listing[Drained]:
    await admin.brokers.set_config({PERMISSION: READ_AND_WRITE}, brokers=address)
    return _drained(broker, "writable", await admin.brokers.add_write_perm(broker))


def _drained(broker: str, change: str, counts: dict[str, int]) -> Listing[Drained]:
    return Listing.make(Drained, (Drained(broker, change, server, topics) for server, topics in counts.items()))
