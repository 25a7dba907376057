"""Subcommands about brokers and clusters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.admin.cluster.brokers import measured, number, out_tps
from pyromq.client.admin.addresses import MASTER, addresses_in, replicas
from pyromq.client.admin.progress import progress_of_groups
from pyromq.client.admin.times import to_millis

from .commands import BROKER_ADDR, CLUSTER, Opt, classic, place_of
from .java_text import front, is_true, millis_text, seconds_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pyromq.protocol.bodies import HAClientInfo, HARuntimeInfo

    from ..session import Session

ANY_CLUSTER = Opt("c", "cluster", "Cluster; all clusters without -c and -b.")

_BASE = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:>10}"
_BASE_HEADINGS = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:<11}  {:<12}  {:<8}  {:<10}"
_MORE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"
_SLAVE = "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}"
_SLAVE_HEADINGS = (
    "#SlaveAddr",
    "#SlaveAckOffset",
    "#Diff",
    "#TransferSpeed(KB/s)",
    "#Status",
    "#TransferFromWhere",
)
_LAG = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"
_MEASURED_HEADINGS = (
    "#Version",
    "#InTPS(LOAD)",
    "#OutTPS(LOAD)",
    "#Timer(Progress)",
    "#PCWait(ms)",
    "#Hour",
    "#SPACE",
    "#ACTIVATED",
)
_TOTALS_HEADINGS = ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
_UNKNOWN = "-"


@classic(
    "clusterList",
    Opt("m", "moreStats", "Totals of today and yesterday.", value=False),
    Opt("i", "interval", "Repeat, with this many seconds between rounds.", kind=float),
    CLUSTER,
)
async def cluster_list(session: Session, args: argparse.Namespace) -> None:
    found = await measured(session.admin, args.c)
    if args.m:
        print(_MORE.format("#Cluster Name", "#Broker Name", *_TOTALS_HEADINGS))
    else:
        print(_BASE_HEADINGS.format("#Cluster Name", "#Broker Name", "#BID", "#Addr", *_MEASURED_HEADINGS))
    for row in found.rows:
        broker = row.broker
        if args.m:
            print(_MORE.format(broker.cluster, broker.broker, *_totals(row.runtime)))
        else:
            print(_BASE.format(broker.cluster, broker.broker, broker.id, broker.address, *_measured(row.runtime)))
    session.incomplete(found.missing)


def _measured(runtime: Mapping[str, str] | None) -> list[str]:
    if runtime is None:
        return [_UNKNOWN] * 8
    earliest = number(runtime, "earliestMessageTimeStamp")
    hours = (time.time() * 1000 - earliest) / 3_600_000 if earliest is not None else 0.0
    sends = f"{runtime.get('sendThreadPoolQueueSize')},{runtime.get('sendThreadPoolQueueHeadWaitTimeMills')}ms"
    pulls = f"{runtime.get('pullThreadPoolQueueSize')},{runtime.get('pullThreadPoolQueueHeadWaitTimeMills')}ms"
    acks = f"{runtime.get('ackThreadPoolQueueSize', 'N')},{runtime.get('ackThreadPoolQueueHeadWaitTimeMills', 'N')}ms"
    return [
        runtime.get("brokerVersionDesc", ""),
        f"{_first(runtime, 'putTps'):9.2f}({sends})",
        f"{out_tps(runtime) or 0.0:9.2f}({pulls}|{acks})",
        _timers(runtime),
        runtime.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}",
        f"{_first(runtime, 'commitLogDiskRatio'):.4f}",
        "true" if runtime.get("brokerActive", "").lower() == "true" else "false",
    ]


def _timers(runtime: Mapping[str, str]) -> str:
    read, behind = _first(runtime, "timerReadBehind"), _first(runtime, "timerOffsetBehind")
    waiting = _first(runtime, "timerCongestNum") / 10_000
    enqueued, dequeued = _first(runtime, "timerEnqueueTps"), _first(runtime, "timerDequeueTps")
    return f"{read:.0f}-{behind:.0f}({waiting:.1f}w, {enqueued:.1f}, {dequeued:.1f})"


def _totals(runtime: Mapping[str, str] | None) -> list[str]:
    if runtime is None:
        return [_UNKNOWN] * 4
    return [
        f"{_first(runtime, kind + later) - _first(runtime, kind + earlier):.0f}"
        for later, earlier in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning"))
        for kind in ("msgPutTotal", "msgGetTotal")
    ]


def _first(runtime: Mapping[str, str], key: str) -> float:
    """0 for a figure that a broker of another version does not report."""
    return number(runtime, key) or 0.0


@classic("brokerStatus", BROKER_ADDR, CLUSTER)
async def broker_status(session: Session, args: argparse.Namespace) -> None:
    for address in await _addresses(session, args):
        runtime = await session.admin.brokers.runtime(address)
        for key, value in sorted(runtime.items()):
            print(f"{key:<32}: {value}" if args.b else f"{address:<24} {key:<32}: {value}")


@classic(
    "haStatus",
    Opt("c", "clusterName", "A cluster: all of its masters."),
    BROKER_ADDR,
    Opt("i", "interval", "Again and again, with so many seconds between.", kind=float),
)
async def ha_status(session: Session, args: argparse.Namespace) -> None:
    for address in await _addresses(session, args, masters_only=True):
        info = await session.admin.brokers.ha_status(address)
        print()
        if info.master:
            _print_slaves(address, info)
        else:
            _print_following(info.ha_client_runtime_info)


def _print_slaves(address: str, info: HARuntimeInfo) -> None:
    print(f"#MasterAddr\t{address}")
    print(f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}")
    print(f"#SlaveNum\t{len(info.ha_connection_info)}")
    print(f"#InSyncSlaveNum\t{info.in_sync_slave_nums}")
    print(_SLAVE.format(*_SLAVE_HEADINGS))
    for each in info.ha_connection_info:
        speed = f"{each.transferred_byte_in_second / 1024:.2f}"
        status = "OK" if each.in_sync else "Fall Behind"
        print(_SLAVE.format(each.addr, each.slave_ack_offset, each.diff, speed, status, each.transfer_from_where))


def _print_following(slave: HAClientInfo) -> None:
    print(f"#MasterAddr\t{slave.master_addr or 'null'}")
    print(f"#CommitLogMaxOffset\t{slave.max_offset}")
    print(f"#TransferSpeed(KB/s)\t{slave.transferred_byte_in_second / 1024:.2f}")
    print(f"#LastReadTime\t{millis_text(slave.last_read_timestamp)}")
    print(f"#LastWriteTime\t{millis_text(slave.last_write_timestamp)}")
    print(f"#MasterFlushOffset\t{slave.master_flush_offset}")


@classic("getBrokerConfig", BROKER_ADDR, CLUSTER)
async def get_broker_config(session: Session, args: argparse.Namespace) -> None:
    if args.b:
        await _print_config(session, f"============{args.b}============", args.b)
        return
    found = replicas(await session.admin.brokers.cluster_info(), place_of(args)["cluster"])
    masters = {each.broker: each.address for each in found if each.id == MASTER}
    for each in found:
        master = masters.get(each.broker, "NO_MASTER")
        title = f"Master: {master}" if each.id == MASTER else f"My Master: {master}=====Slave: {each.address}"
        await _print_config(session, f"============{title}============", each.address)


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
    Opt("a", "updateAllBroker", "Include slaves."),
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
    Opt("b", "brokerAddr", "Broker address.", required=True),
    Opt("t", "timeoutMillis", "Timeout of the request, in ms.", kind=int),
    Opt("l", "level", "Only queues where a group lags at least this far behind.", kind=int),
    Opt("o", "order", "Only ordered topics."),
    timeout=60.0,
)
async def broker_consume_stats(session: Session, args: argparse.Namespace) -> None:
    found = await session.admin.brokers.consume_stats(args.b, ordered=is_true(args.o))
    offsets = ("#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    print(_LAG.format("#Topic", "#Group", "#Broker Name", "#QID", *offsets))
    for group, progress in progress_of_groups([found]).items():
        for row in progress.rows:
            if row.lag >= (args.l or 0) and row.last_time is not None:
                queue = (front(row.queue.topic, 64), group, front(row.queue.broker_name, 32), row.queue.queue_id)
                when = seconds_text(to_millis(row.last_time))
                print(_LAG.format(*queue, row.broker_offset, row.consumer_offset, row.lag, when))
    print(f"\nDiff Total: {found.total_diff}")


@classic("wipeWritePerm", Opt("b", "brokerName", "Broker name.", required=True))
async def wipe_write_perm(session: Session, args: argparse.Namespace) -> None:
    for address, topics in (await session.admin.brokers.wipe_write_perm(args.b)).items():
        print(f"wipe write perm of broker[{args.b}] in name server[{address}] OK, {topics}")


@classic("addWritePerm", Opt("b", "brokerName", "Broker name.", required=True))
async def add_write_perm(session: Session, args: argparse.Namespace) -> None:
    for address, topics in (await session.admin.brokers.add_write_perm(args.b)).items():
        print(f"add write perm of broker[{args.b}] in name server[{address}] OK, {topics}")


async def _addresses(session: Session, args: argparse.Namespace, *, masters_only: bool = False) -> list[str]:
    cluster = place_of(args)["cluster"]
    if args.b:
        return [args.b]
    return addresses_in(await session.admin.brokers.cluster_info(), cluster, everyone=not masters_only)


# Cleaning: delete unneeded files now instead of at night


@classic("cleanExpiredCQ", BROKER_ADDR, ANY_CLUSTER, timeout=60.0)
async def clean_expired_cq(session: Session, args: argparse.Namespace) -> None:
    await session.admin.brokers.clean_queues(**place_of(args, anywhere=True))
    print("success")


@classic("cleanUnusedTopic", BROKER_ADDR, ANY_CLUSTER, timeout=60.0)
async def clean_unused_topic(session: Session, args: argparse.Namespace) -> None:
    await session.admin.brokers.clean_topics(**place_of(args, anywhere=True))
    print("success")


@classic("deleteExpiredCommitLog", BROKER_ADDR, ANY_CLUSTER, timeout=60.0)
async def delete_expired_commit_log(session: Session, args: argparse.Namespace) -> None:
    await session.admin.brokers.clean_log(**place_of(args, anywhere=True))
    print("success")
