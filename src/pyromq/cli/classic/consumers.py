"""Subcommands about what consumers are doing, and how they get messages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.admin.groups.trouble import Sign, backlogs, online_infos, stuck_queues
from pyromq.client.admin.addresses import brokers_in
from pyromq.client.admin.fan_out import fan_out
from pyromq.protocol.bodies import ConsumeType, MessageRequestMode
from pyromq.protocol.names import is_system_group
from pyromq.protocol.versions import version_name

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, Opt, classic, place_of
from .java_text import bool_text, compact_time

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from pyromq.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo

    from ..session import Session

_CLIENTS = "{:<10} {:<40} {:<20} {}"
_QUEUE = "{:<64}  {:<32}  {:<4}  {:<20}"
_OFFSET = "{:<32}  {:<32}  {:<4}  {:<20}"
_POP_HEADINGS = _OFFSET
_RATES_HEADINGS = "{:<64}  {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}"
_RATES = "{:<32}  {:>14.2f} {:>14.2f} {:>14.2f} {:>14.2f} {:>18.2f} {:>25}"
_SETTLED_MS = 120_000  # a consumer that started later may not have all subscriptions yet
_ROUND = 60.0


@classic(
    "consumerStatus",
    Opt("g", "consumerGroup", "The consumer group.", required=True),
    Opt("i", "clientId", "Only this member; prints it instead of writing a file."),
    BROKER_ADDR,
    Opt("s", "jstack", "Include the stacks of its threads.", value=False),
    timeout=30.0,
)
async def consumer_status(session: Session, args: argparse.Namespace) -> None:
    if args.i:
        print(running_text(await session.admin.clients.running_info(args.g, args.i, stacks=args.s)), end="")
        return
    members = (await session.admin.groups.connections(args.g)).connection_set
    versions = {member.client_id: version_name(member.version) for member in members}
    answers = await fan_out(
        list(versions), lambda client: session.admin.clients.running_info(args.g, client, stacks=args.s)
    )
    now = int(time.time() * 1000)
    infos = dict(sorted(answers.results.items()))
    print(_CLIENTS.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    for number, client in enumerate((each for each in versions if each in infos), start=1):
        print(_CLIENTS.format(number, client, versions[client], _kept(now, client, running_text(infos[client]))))
    if infos and subscribe_the_same(infos, now):
        print("\n\nSame subscription in the same group of consumer\n\nRebalance OK")
        for client, info in infos.items():
            for line in trouble_lines(client, info, now):
                print(line)
    elif infos:
        print("\n\nWARN: Different subscription in the same group of consumer!!!")
    session.incomplete(answers.missing)


def _kept(now: int, client: str, text: str) -> Path:
    """Where mqadmin keeps it: in a folder named after this moment. A hostile id must not escape from it."""
    path = Path(str(now)) / client.replace("/", "_").replace("\0", "_")
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as exc:
        raise CommandFailed(f"{path} cannot be written: {exc.strerror}", Exit.USAGE) from exc
    return path


def subscribe_the_same(infos: Mapping[str, ConsumerRunningInfo], now: int) -> bool:
    """Whether all members subscribe alike; assumed until the first has run for two minutes."""
    first = next(iter(infos.values()))
    started = first.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    age = now - int(started) if started.isdecimal() else 0
    if first.properties.get("PROP_CONSUME_TYPE") != ConsumeType.CONSUME_PASSIVELY.value or age <= _SETTLED_MS:
        return True
    forms = {
        tuple(sorted((each.topic, each.sub_string, each.expression_type) for each in info.subscription_set))
        for info in infos.values()
    }
    return len(forms) == 1


def trouble_lines(client: str, info: ConsumerRunningInfo, now: int) -> Iterator[str]:
    for each in stuck_queues(info, now):
        match each.sign:
            case Sign.NOT_LOCKED:
                yield f"{client} {each.queue} can't lock for a while, {each.millis}ms"
            case Sign.NOT_UNLOCKED:
                yield f"{client} {each.queue} unlock {each.tries} times, still failed"
            case _:
                yield f"{client} {each.queue} can't consume for a while, maybe blocked, {each.millis}ms"


def running_text(info: ConsumerRunningInfo) -> str:
    """Everything a consumer reports about itself, as mqadmin writes it."""
    return "".join(f"{line}\n" for line in _running_lines(info))


def _running_lines(info: ConsumerRunningInfo) -> Iterator[str]:
    queues = sorted(info.mq_table.items())
    yield "#Consumer Properties#"
    for key, value in info.properties.items():
        yield f"{key:<40}: {value}"
    yield from ("", "", "#Consumer Subscription#")
    for number, each in enumerate(sorted(info.subscription_set, key=lambda each: each.topic), start=1):
        mode = bool_text(each.class_filter_mode)
        yield f"{number:03d} Topic: {each.topic:<40} ClassFilter: {mode:<8} SubExpression: {each.sub_string}"
    yield from ("", "", "#Consumer Offset#")
    yield _QUEUE.format("#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    for queue, held in queues:
        yield _OFFSET.format(queue.topic, queue.broker_name, queue.queue_id, held.commit_offset)
    yield from ("", "", "#Consumer MQ Detail#")
    yield _QUEUE.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for queue, held in queues:
        yield _QUEUE.format(queue.topic, queue.broker_name, queue.queue_id, _held_text(held))
    yield from ("", "", "#Consumer Pop Detail#")
    yield _POP_HEADINGS.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for queue, popped in sorted(info.mq_pop_table.items()):
        text = (
            f"PopProcessQueueInfo [waitAckCount:{popped.wait_ack_count}, droped:{bool_text(popped.dropped)}, "
            f"lastPopTimestamp:{popped.last_pop_timestamp}]"
        )
        yield _OFFSET.format(queue.topic, queue.broker_name, queue.queue_id, text)
    yield from ("", "", "#Consumer RT&TPS#")
    yield _RATES_HEADINGS.format(
        "#Topic",
        "#Pull RT",
        "#Pull TPS",
        "#Consume RT",
        "#ConsumeOK TPS",
        "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour",
    )
    for topic, status in sorted(info.status_table.items()):
        yield _RATES.format(
            topic,
            status.pull_rt,
            status.pull_tps,
            status.consume_rt,
            status.consume_ok_tps,
            status.consume_failed_tps,
            status.consume_failed_msgs,
        )
    yield from ("", "", "#User Consume Info#")
    for key, value in sorted(info.user_consumer_info.items()):
        yield f"{key:<40}: {value}"
    if info.jstack is not None:
        yield from ("", "", "#Consumer jstack#", info.jstack)


def _held_text(held: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={held.commit_offset}, cachedMsgMinOffset={held.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={held.cached_msg_max_offset}, cachedMsgCount={held.cached_msg_count}, "
        f"cachedMsgSizeInMiB={held.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={held.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={held.transaction_msg_max_offset}, "
        f"transactionMsgCount={held.transaction_msg_count}, locked={bool_text(held.locked)}, "
        f"tryUnlockTimes={held.try_unlock_times}, lastLockTimestamp={compact_time(held.last_lock_timestamp)}, "
        f"droped={bool_text(held.dropped)}, lastPullTimestamp={compact_time(held.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={compact_time(held.last_consume_timestamp)}]"
    )


@classic("startMonitoring", timeout=None)
async def start_monitoring(session: Session, args: argparse.Namespace) -> None:
    while True:
        await monitor_round(session)
        await asyncio.sleep(_ROUND)


async def monitor_round(session: Session) -> None:
    """Check all groups once."""
    brokers = brokers_in(await session.admin.brokers.cluster_info())
    answers = await fan_out(brokers, session.admin.brokers.consume_stats)
    groups = {group for group in await session.admin.groups.names() if not is_system_group(group)}
    now = int(time.time() * 1000)
    print(f"[MONITOR] {'=' * 41}beginRound")
    for each in backlogs(answers.some().values(), groups):
        delay = max(0, now - int(each.since.timestamp() * 1000)) if each.since else 0
        print(
            f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={each.group}, topic={each.topic}, "
            f"undoneMsgsTotal={each.messages}, undoneMsgsSingleMQ={each.worst_queue}, "
            f"undoneMsgsDelayTimeMills={delay}]"
        )
    for line in await _of_members(session, sorted(groups), now):
        print(f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: {line}")
    print(f"[MONITOR] {'=' * 41}endRound", flush=True)
    for silent in answers.missing:
        session.note(f"incomplete: {silent}")


async def _of_members(session: Session, groups: Iterable[str], now: int) -> list[str]:
    lines = []
    for group in groups:
        infos = await online_infos(session.admin, group)
        if infos and not subscribe_the_same(infos, now):
            lines.append(f"ConsumerGroup: {group}, Subscription different")
        for client, info in infos.items():
            lines += [
                f"ConsumerGroup: {group}, ClientId: {client}, {line}" for line in trouble_lines(client, info, now)
            ]
    return lines


@classic(
    "setConsumeMode",
    BROKER_ADDR,
    CLUSTER,
    Opt("t", "topicName", "The topic.", required=True),
    Opt("g", "groupName", "The consumer group.", required=True),
    Opt("m", "mode", "PULL or POP.", required=True),
    Opt("q", "popShareQueueNum", "With POP: how many others share a member's queues; 0 is all.", kind=int),
)
async def set_consume_mode(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    if args.m not in MessageRequestMode.__members__:
        raise CommandFailed(f"{args.m!r} is not a mode; use PULL or POP", Exit.USAGE)
    share = args.q or 0
    mode = MessageRequestMode[args.m]
    for address in await session.admin.groups.set_request_mode(args.g, args.t, mode, share_queues=share, **place):
        print(f"set consume mode to {address} success.")
    print(f"topic[{args.t}] group[{args.g}] consume mode[{args.m}] popShareQueueNum[{share}]")
