"""Subcommands that send and print many messages."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING

from pyromq.admin.messages.ranges import TopicRanges, topic_ranges
from pyromq.admin.messages.reading import read_ranges
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from ..nouns.message.rows import body_of
from .commands import TOPIC, Opt, classic, moment
from .java_text import is_true, map_text, signed_bytes
from .queries import decoded

if TYPE_CHECKING:
    import argparse

    from pyromq.protocol.message import MessageExt

    from ..session import Session

BEGIN = Opt("b", "beginTimestamp", "ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
END = Opt("e", "endTimestamp", "ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
CHARSET = Opt("c", "charsetName", "Encoding of the bodies.")
TAGS = Opt("s", "subExpression", "TagA || TagB")

_SENT = "{:<32}  {:<4}  {:<20}    {}"
_AT_MOST = 128  # what consumeMessage reads without -c


@classic(
    "sendMessage",
    TOPIC,
    Opt("p", "body", "The body.", required=True),
    Opt("k", "key", "Its keys."),
    Opt("c", "tags", "Its tag."),
    Opt("b", "broker", "With -i: the broker name."),
    Opt("i", "qid", "With -b: the queue.", kind=int),
    Opt("m", "msgTraceEnable", "true: trace it."),
)
async def send_message(session: Session, args: argparse.Namespace) -> None:
    from pyromq.client import Producer

    if args.i is not None and not args.b:
        raise CommandFailed("-i needs the broker name, -b", Exit.USAGE)
    queue = MessageQueue(topic=args.t, broker_name=args.b, queue_id=args.i) if args.b and args.i is not None else None
    client = session.admin.client
    if is_true(args.m):
        client.trace = True
    async with Producer("pyromq_mqadmin", client=client) as producer:
        result = await producer.send(args.t, args.p.encode(), tags=args.c, keys=args.k or (), queue=queue)
    print(_SENT.format("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    print(_SENT.format(result.queue.broker_name, result.queue.queue_id, result.status.value, result.id))


@classic(
    "printMsg", TOPIC, CHARSET, TAGS, BEGIN, END, Opt("d", "printBody", "true (the default) or false."), timeout=None
)
async def print_messages(session: Session, args: argparse.Namespace) -> None:
    ranges = await topic_ranges(session.admin, args.t, begin=moment(args.b), end=moment(args.e))
    for part in ranges.queues:
        print(f"minOffset={part.begin}, maxOffset={part.end}, {part.queue}")
        async with aclosing(read_ranges(session.admin, TopicRanges(args.t, (part,)), args.s or "*")) as messages:
            async for message in messages:
                print(message_line(message, args.c or "UTF-8", with_body=is_true(args.d, default=True)))
        print("-" * 56)
    session.incomplete(ranges.missing)


@classic(
    "printMsgByQueue",
    TOPIC,
    Opt("a", "brokerName", "Broker name.", required=True),
    Opt("i", "queueId", "The queue.", required=True, kind=int),
    CHARSET,
    TAGS,
    BEGIN,
    END,
    Opt("p", "printMsg", "true or false (the default)."),
    Opt("d", "printBody", "true or false (the default)."),
    Opt("f", "calculate", "true: count by tag."),
    timeout=None,
)
async def print_messages_of_queue(session: Session, args: argparse.Namespace) -> None:
    ranges = await topic_ranges(
        session.admin, args.t, broker=args.a, queue_id=args.i, begin=moment(args.b), end=moment(args.e)
    )
    tags: Counter[str] = Counter()
    async with aclosing(read_ranges(session.admin, ranges, args.s or "*")) as messages:
        async for message in messages:
            if is_true(args.p):
                print(message_line(message, args.c or "UTF-8", with_body=is_true(args.d)))
            if message.tags:
                tags[message.tags] += 1
    if is_true(args.f):
        for tag, count in tags.most_common():
            print(f"Tag: {tag:<30} Count: {count}")


@classic(
    "consumeMessage",
    TOPIC,
    Opt("b", "brokerName", "Broker name."),
    Opt("i", "queueId", "With -b: the queue.", kind=int),
    Opt("o", "offset", "With -b and -i: the offset to start at.", kind=int),
    Opt("g", "consumerGroup", "No effect: nothing is committed."),
    Opt("s", "beginTimestamp", "ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Opt("e", "endTimestamp", "ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS."),
    Opt("c", "MessageNumber", "At most N messages.", kind=int),
    timeout=None,
)
async def consume_message(session: Session, args: argparse.Namespace) -> None:
    left = _AT_MOST if args.c is None else args.c
    if left <= 0:
        raise CommandFailed("-c must be more than 0", Exit.USAGE)
    if args.i is not None and not args.b:
        raise CommandFailed("-i needs the broker name, -b", Exit.USAGE)
    if args.o is not None and args.i is None:
        raise CommandFailed("-o needs the queue, -i", Exit.USAGE)
    ranges = await topic_ranges(
        session.admin,
        args.t,
        broker=args.b,
        queue_id=args.i,
        begin=moment(args.s),
        end=moment(args.e),
        offset=args.o,
    )
    for part in ranges.queues:
        if not part.count or not left:
            continue
        if part.count > left:
            print(f"The older {left} message of the {part.queue.queue_id} queue will be provided")
        print("Consume ok")
        async with aclosing(read_ranges(session.admin, TopicRanges(args.t, (part,)))) as messages:
            async for message in messages:
                print(message_line(message, "UTF-8", with_body=True))
                left -= 1
                if not left:
                    break


def message_line(message: MessageExt, charset: str, *, with_body: bool) -> str:
    """One message per line, as Java prints it."""
    record, body = message.record, body_of(message)
    plain = (
        f"Message{{topic='{message.topic}', flag={record.flag}, properties={map_text(message.properties)}, "
        f"body={signed_bytes(body)}, transactionId='{message.transaction_id or 'null'}'}}"
    )
    text = (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, storeSize={record.store_size}, "
        f"queueOffset={message.queue_offset}, sysFlag={record.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{':'.join(map(str, record.born_address))}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{':'.join(map(str, record.store_address))}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={record.physical_offset}, bodyCRC={record.body_crc}, "
        f"reconsumeTimes={record.reconsume_times}, "
        f"preparedTransactionOffset={record.prepared_transaction_offset}, toString()={plain}]"
    )
    return f"MSGID: {message.msg_id} {text} BODY: {decoded(body, charset) if with_body else 'NOT PRINT BODY'}"
