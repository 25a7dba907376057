"""Subcommands about brokers, clusters and name servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.admin import brokers_in, fan_out

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, Opt, classic
from .java_text import front, is_true, seconds_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from pyromq.protocol.bodies import ClusterInfo

    from ..session import Session

_BASE = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:>10}"
_BASE_HEADINGS = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:<11}  {:<12}  {:<8}  {:<10}"
_MORE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"
_LAG = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"
_UNKNOWN = "-"


@classic(
    "clusterList",
    Opt("m", "moreStats", "Totals of today and yesterday.", value=False),
    Opt("i", "interval", "Again and again, with so many seconds between.", kind=float),
    CLUSTER,
)
async def cluster_list(session: Session, args: argparse.Namespace) -> None:
    info = await session.admin.brokers.cluster_info()
    brokers_in(info, args.c)  # raises for an unknown cluster
    found = list(_brokers(info, args.c))
    answers = await fan_out({address: address for *_, address in found}, session.admin.brokers.runtime)
    if args.m:
        print(_MORE.format("#Cluster Name", "#Broker Name", *_totals_headings()))
    else:
        headings = [
            "#Version",
            "#InTPS(LOAD)",
            "#OutTPS(LOAD)",
            "#Timer(Progress)",
            "#PCWait(ms)",
            "#Hour",
            "#SPACE",
            "#ACTIVATED",
        ]
        print(_BASE_HEADINGS.format("#Cluster Name", "#Broker Name", "#BID", "#Addr", *headings))
    for cluster, broker, broker_id, address in found:
        runtime = answers.results.get(address)
        if args.m:
            print(_MORE.format(cluster, broker, *_totals(runtime)))
        else:
            print(_BASE.format(cluster, broker, broker_id, address, *_measured(runtime)))
    for each in answers.missing:
        session.note(f"incomplete: {each}")
        session.exit_code = Exit.REFUSED


def _brokers(info: ClusterInfo, cluster: str | None) -> Iterator[tuple[str, str, int, str]]:
    for name, brokers in info.cluster_addr_table.items():
        if cluster in (None, name):
            for broker in sorted(brokers):
                if data := info.broker_addr_table.get(broker):
                    for broker_id, address in data.broker_addrs.items():
                        yield name, broker, broker_id, address


def _measured(runtime: Mapping[str, str] | None) -> list[str]:
    if runtime is None:
        return [_UNKNOWN] * 8
    earliest, disk = runtime.get("earliestMessageTimeStamp", ""), runtime.get("commitLogDiskRatio", "")
    hours = (time.time() * 1000 - float(earliest)) / 3_600_000 if _is_number(earliest) else 0.0
    sends = f"{runtime.get('sendThreadPoolQueueSize')},{runtime.get('sendThreadPoolQueueHeadWaitTimeMills')}ms"
    pulls = f"{runtime.get('pullThreadPoolQueueSize')},{runtime.get('pullThreadPoolQueueHeadWaitTimeMills')}ms"
    acks = f"{runtime.get('ackThreadPoolQueueSize', 'N')},{runtime.get('ackThreadPoolQueueHeadWaitTimeMills', 'N')}ms"
    return [
        runtime.get("brokerVersionDesc", ""),
        f"{_first(runtime, 'putTps'):9.2f}({sends})",
        f"{_first(runtime, 'getTransferredTps'):9.2f}({pulls}|{acks})",
        _timers(runtime),
        runtime.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}",
        f"{float(disk) if _is_number(disk) else 0.0:.4f}",
        "true" if runtime.get("brokerActive", "").lower() == "true" else "false",
    ]


def _timers(runtime: Mapping[str, str]) -> str:
    read, behind = _first(runtime, "timerReadBehind"), _first(runtime, "timerOffsetBehind")
    waiting = _first(runtime, "timerCongestNum") / 10_000
    enqueued, dequeued = _first(runtime, "timerEnqueueTps"), _first(runtime, "timerDequeueTps")
    return f"{read:.0f}-{behind:.0f}({waiting:.1f}w, {enqueued:.1f}, {dequeued:.1f})"


def _totals_headings() -> list[str]:
    return ["#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday"]


def _totals(runtime: Mapping[str, str] | None) -> list[str]:
    if runtime is None:
        return [_UNKNOWN] * 4
    return [
        f"{_first(runtime, kind + later) - _first(runtime, kind + earlier):.0f}"
        for later, earlier in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning"))
        for kind in ("msgPutTotal", "msgGetTotal")
    ]


def _first(runtime: Mapping[str, str], key: str) -> float:
    """Of several figures in a row the first; 0 for what a broker of another version does not say."""
    words = runtime.get(key, "").split()
    return float(words[0]) if words and _is_number(words[0]) else 0.0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@classic("brokerStatus", BROKER_ADDR, CLUSTER)
async def broker_status(session: Session, args: argparse.Namespace) -> None:
    for address in await _addresses(session, args):
        runtime = await session.admin.brokers.runtime(address)
        for key, value in sorted(runtime.items()):
            print(f"{key:<32}: {value}" if args.b else f"{address:<24} {key:<32}: {value}")


@classic("getBrokerConfig", BROKER_ADDR, CLUSTER)
async def get_broker_config(session: Session, args: argparse.Namespace) -> None:
    if args.b:
        await _print_config(session, f"============{args.b}============", args.b)
        return
    info = await session.admin.brokers.cluster_info()
    brokers_in(info, _cluster(args))
    for broker in sorted(info.cluster_addr_table[args.c]):
        addresses = info.broker_addr_table[broker].broker_addrs
        master = addresses.get(0, "NO_MASTER")
        if 0 in addresses:
            await _print_config(session, f"============Master: {master}============", master)
        for broker_id, address in sorted(addresses.items()):
            if broker_id:
                line = f"============My Master: {master}=====Slave: {address}============"
                await _print_config(session, line, address)


async def _print_config(session: Session, line: str, address: str) -> None:
    config = await session.admin.brokers.config(address)
    print(line)
    for key, value in config.items():
        print(f"{key:<50}=  {value}")
    print()


@classic(
    "updateBrokerConfig",
    BROKER_ADDR,
    CLUSTER,
    Opt("a", "updateAllBroker", "Slaves, too."),
    Opt("k", "key", "The setting.", required=True),
    Opt("v", "value", "Its value.", required=True),
)
async def update_broker_config(session: Session, args: argparse.Namespace) -> None:
    addresses = await _addresses(session, args, masters_only=args.a is None)
    for address in addresses:
        await session.admin.brokers.set_config({args.k: args.v}, brokers=[address])
        print(f"update broker config success, {address}")


@classic(
    "brokerConsumeStats",
    Opt("b", "brokerAddr", "Address of a broker.", required=True),
    Opt("t", "timeoutMillis", "For the request.", kind=int),
    Opt("l", "level", "Only queues where a group is at least so far behind.", kind=int),
    Opt("o", "order", "Only ordered topics."),
    timeout=60.0,
)
async def broker_consume_stats(session: Session, args: argparse.Namespace) -> None:
    level = args.l or 0
    found = await session.admin.brokers.consume_stats(args.b, ordered=is_true(args.o))
    print(
        _LAG.format(
            "#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"
        )
    )
    for table in found.consume_stats_list:
        for group, several in table.items():
            for stats in several:
                for queue in sorted(stats.offset_table, key=lambda queue: (queue.topic, queue)):
                    offsets = stats.offset_table[queue]
                    behind = offsets.broker_offset - offsets.consumer_offset
                    if behind >= level and offsets.last_timestamp > 0:
                        print(
                            _LAG.format(
                                front(queue.topic, 64),
                                group,
                                front(queue.broker_name, 32),
                                queue.queue_id,
                                offsets.broker_offset,
                                offsets.consumer_offset,
                                behind,
                                seconds_text(offsets.last_timestamp),
                            )
                        )
    print(f"\nDiff Total: {found.total_diff}")


@classic("wipeWritePerm", Opt("b", "brokerName", "The name of a broker.", required=True))
async def wipe_write_perm(session: Session, args: argparse.Namespace) -> None:
    for address, topics in (await session.admin.brokers.wipe_write_perm(args.b)).items():
        print(f"wipe write perm of broker[{args.b}] in name server[{address}] OK, {topics}")


@classic("addWritePerm", Opt("b", "brokerName", "The name of a broker.", required=True))
async def add_write_perm(session: Session, args: argparse.Namespace) -> None:
    for address, topics in (await session.admin.brokers.add_write_perm(args.b)).items():
        print(f"add write perm of broker[{args.b}] in name server[{address}] OK, {topics}")


@classic("getNamesrvConfig")
async def get_namesrv_config(session: Session, args: argparse.Namespace) -> None:
    for address, config in (await session.admin.namesrv.config()).items():
        print(f"============{address}============")
        for key, value in config.items():
            print(f"{key:<50}=  {value}")


async def _addresses(session: Session, args: argparse.Namespace, *, masters_only: bool = False) -> list[str]:
    if args.b:
        return [args.b]
    info = await session.admin.brokers.cluster_info()
    brokers_in(info, _cluster(args))
    return [
        address
        for broker in sorted(info.cluster_addr_table[args.c])
        for broker_id, address in sorted(info.broker_addr_table[broker].broker_addrs.items())
        if not broker_id or not masters_only
    ]


def _cluster(args: argparse.Namespace) -> str:
    if not args.c:
        raise CommandFailed("say a broker with -b or a cluster with -c", Exit.USAGE)
    cluster: str = args.c
    return cluster
