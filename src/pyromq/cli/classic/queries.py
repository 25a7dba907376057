"""Subcommands that look for single messages."""

from __future__ import annotations

import re
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.admin.messages.dead_letters import redrive
from pyromq.admin.messages.traces import trace_of
from pyromq.client.admin.fan_out import partly
from pyromq.client.admin.times import EPOCH
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import TRACE_TOPIC

from ..failures import CommandFailed, Exit
from ..nouns.message.rows import body_of, host
from .commands import TOPIC, Opt, classic, write_file
from .java_text import bool_text, is_true, map_text, millis_text, seconds_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from pyromq.admin.messages.traces import TraceEvent
    from pyromq.protocol.bodies import ConsumeMessageDirectlyResult
    from pyromq.protocol.message import MessageExt

    from ..session import Session

_LAST_MOMENT = 253_402_300_799_000  # the year 9999
_FIELD = "{:<20} {}"
_BY_KEY = "{:<50} {:>4} {:>40} {:<200}"
_HOUR = 3_600_000
_TRACE = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"

ID = Opt("i", "msgId", "The id of the message.", required=True)
GROUP = Opt("g", "consumerGroup", "With -d: make a consumer of this group handle the message.")
CLIENT = Opt("d", "clientId", "With -g: the consumer to use.")
BODY = Opt("f", "bodyFormat", "Print the body in this encoding.")
PLACE = Opt("c", "cluster", "A cluster, or the topic to find brokers by.")
BEGIN = Opt("b", "beginTimestamp", "Stored since, in ms.", kind=int)
END = Opt("e", "endTimestamp", "Stored until, in ms.", kind=int)


@classic(
    "queryMsgById",
    TOPIC,
    ID,
    GROUP,
    CLIENT,
    Opt("s", "sendMessage", "true: send it again."),
    Opt("u", "unitName", "Unit name to send it with."),
    BODY,
    PLACE,
    timeout=30.0,
)
async def query_by_id(session: Session, args: argparse.Namespace) -> None:
    for name in filter(None, (part.strip() for part in args.i.split(","))):
        message = await session.admin.messages.get(args.t, name)
        if args.g and args.d:
            result = await session.admin.messages.consume_directly(args.g, message, args.d)
            print(_direct_text(result))
        elif is_true(args.s):
            await _send_again(session, message)
        else:
            await print_message(session, message, args.f, offset_id=True)


async def _send_again(session: Session, message: MessageExt) -> None:
    async def only() -> AsyncIterator[MessageExt]:
        yield message

    async for sent in redrive(session.admin, only(), to=message.topic):
        if sent.error is not None:
            raise CommandFailed(sent.error)
        print(f"prepare resend msg. originalMsgId={sent.id}")
        print(f"SendResult [sendStatus=SEND_OK, msgId={sent.new_id}, messageQueue={sent.at}]")


@classic(
    "queryMsgByUniqueKey",
    ID,
    TOPIC,
    GROUP,
    CLIENT,
    Opt("a", "showAll", "All copies; there is only one.", value=False),
    PLACE,
    timeout=30.0,
)
async def query_by_unique_key(session: Session, args: argparse.Namespace) -> None:
    message = await session.admin.messages.by_uniq_key(args.t, args.i)
    if args.g and args.d:
        print(_direct_text(await session.admin.messages.consume_directly(args.g, message, args.d)))
        return
    await print_message(session, message, None, offset_id=False)


@classic(
    "queryMsgByKey",
    TOPIC,
    Opt("k", "msgKey", "A key of the message.", required=True),
    BEGIN,
    END,
    Opt("m", "maxNum", "At most N messages.", kind=int),
    PLACE,
)
async def query_by_key(session: Session, args: argparse.Namespace) -> None:
    found, missing = await partly(
        session.admin.messages.by_key(args.t, args.k, limit=args.m or 64, begin=_when(args.b), end=_when(args.e))
    )
    print(_BY_KEY.format("#Message ID", "#QID", "#Offset", "#IndexKey"))
    for message in found:
        # The key under which the RocksDB index of 5.5 would have it.
        hour = message.store_timestamp // _HOUR * _HOUR
        index_key = f"{hour}@{args.t}@K@{args.k}@{message.msg_id}@{message.record.physical_offset}"
        print(_BY_KEY.format(message.msg_id, message.queue_id, message.queue_offset, index_key))
    session.incomplete(missing)


@classic(
    "queryMsgByOffset",
    TOPIC,
    Opt("b", "brokerName", "Broker name.", required=True),
    Opt("i", "queueId", "The queue.", required=True, kind=int),
    Opt("o", "offset", "Its offset in the queue.", required=True, kind=int),
    BODY,
)
async def query_by_offset(session: Session, args: argparse.Namespace) -> None:
    queue = MessageQueue(topic=args.t, broker_name=args.b, queue_id=args.i)
    await print_message(session, await session.admin.messages.at(queue, args.o), args.f, offset_id=True)


async def print_message(session: Session, message: MessageExt, encoding: str | None, *, offset_id: bool) -> None:
    record, body = message.record, body_of(message)
    if offset_id:
        print(_FIELD.format("OffsetID:", message.offset_msg_id))
    for name, value in (
        ("Topic:", message.topic),
        ("Tags:", f"[{_or_null(message.tags)}]"),
        ("Keys:", f"[{_or_null(' '.join(message.keys))}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", record.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", millis_text(message.born_timestamp)),
        ("Store Timestamp:", millis_text(message.store_timestamp)),
        ("Born Host:", host(record.born_address)),
        ("Store Host:", host(record.store_address)),
        ("System Flag:", record.sys_flag),
        ("Properties:", map_text(message.properties)),
        ("Message Body Path:", _kept(message.msg_id, body)),
    ):
        print(_FIELD.format(name, value))
    if encoding is not None:
        print(_FIELD.format("Message Body:", decoded(body, encoding)))
    tracks = await session.admin.messages.track(message)
    print("\n" if tracks else "\n\nWARN: No Consumer")
    for track in tracks:
        reason = track.reason or "null"
        print(f"MessageTrack [consumerGroup={track.group}, trackType={track.state.value}, exceptionDesc={reason}]")


def decoded(body: bytes, encoding: str) -> str:
    try:
        return body.decode(encoding, "replace")
    except LookupError:
        raise CommandFailed(f"there is no encoding {encoding}", Exit.USAGE) from None


def _kept(name: str, body: bytes) -> str:
    """Write the body where mqadmin writes it; returns the path, or the reason if that failed.

    Ids come from senders: only letters and digits get into the file name.
    """
    folder = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys"
    path = folder / re.sub(r"[^0-9A-Za-z]", "_", name)[:100]
    try:
        write_file(path, body, mode=0o600)
    except OSError as exc:
        return f"not written: {exc.strerror}"
    return str(path)


def _direct_text(result: ConsumeMessageDirectlyResult) -> str:
    outcome = result.consume_result.value if result.consume_result else "null"
    return (
        f"ConsumeMessageDirectlyResult [order={bool_text(result.order)}, autoCommit={bool_text(result.auto_commit)}, "
        f"consumeResult={outcome}, remark={_or_null(result.remark)}, spentTimeMills={result.spent_time_mills}]"
    )


def _or_null(text: str | None) -> str:
    return text or "null"


def _when(millis: int | None) -> datetime | None:
    if millis is None:
        return None
    return EPOCH + timedelta(milliseconds=min(max(millis, 0), _LAST_MOMENT))


@classic(
    "queryMsgTraceById",
    ID,
    Opt("t", "traceTopic", "Topic that clients write traces to."),
    BEGIN,
    END,
    Opt("c", "maxNum", "At most N messages.", kind=int),
)
async def query_trace(session: Session, args: argparse.Namespace) -> None:
    topic, limit = args.t or TRACE_TOPIC, args.c or 64
    found = await trace_of(session.admin, args.i, topic, limit=limit, begin=_when(args.b), end=_when(args.e))
    for row in found.rows:
        if row.event == "publish":
            print(_TRACE.format("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"))
            print(_trace_line("Pub", row))
            print()
    consumed = [row for row in found.rows if row.event == "consume" and row.status is not None]
    for group in dict.fromkeys(row.group for row in consumed):
        print(_TRACE.format("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"))
        for row in consumed:
            if row.group == group:
                print(_trace_line("Sub", row))
        print()
    session.incomplete(found.missing)


def _trace_line(kind: str, row: TraceEvent) -> str:
    when = seconds_text(int(row.time.timestamp() * 1000)) if row.time else ""
    cost = f"{row.cost_ms}ms" if row.cost_ms is not None else "-"
    status = "success" if row.status == "success" else "failed"
    return _TRACE.format(kind, row.group, row.client.rsplit(":", 1)[0], when, cost, status)
