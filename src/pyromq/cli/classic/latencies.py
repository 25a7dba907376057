"""Subcommands that send messages to measure latency. Every broker has a topic of its own name for that."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from pyromq.client.routes import publish_info
from pyromq.errors import PyroMQError

from ..failures import CommandFailed, Exit
from .commands import TOPIC, Opt, classic
from .java_text import bool_text, is_true

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyromq.client import Producer, SendResult
    from pyromq.protocol.message_queue import MessageQueue

    from ..session import Session

AMOUNT = Opt("a", "amount", "Number of messages; 100 by default.", kind=int)
SIZE = Opt("s", "size", "Body size in bytes; 128 by default.", kind=int)

_SENT = "{:<32}  {:<4}  {:<20}    {}"
_CLUSTER_HEADINGS = "{:<24}  {:<24}  {:<4}  {:<8}  {:<8}"
_CLUSTER = "{:<24}  {:<24}  {:<8}  {:<16}  {:<16}"
_GREETING = b"hello jodie"  # what RocketMQ fills its bodies with
_WHERE_LOGS_ARE_READ = timezone(timedelta(hours=8))


@classic("checkMsgSendRT", TOPIC, AMOUNT, SIZE, timeout=None)
async def check_msg_send_rt(session: Session, args: argparse.Namespace) -> None:
    amount, body = _amount(args), b"a" * _size(args)
    route = await session.admin.topics.route(args.t)
    queues = sorted(publish_info(args.t, route).queues)
    if not queues:
        raise CommandFailed(f"topic {args.t} has no writable queue", Exit.REFUSED)
    print(_SENT.format("#Broker Name", "#QID", "#Send Result", "#RT"))
    times = []
    async with _producer(session) as producer:
        for number in range(amount):
            queue = queues[number % len(queues)]
            began = time.perf_counter()
            result = await _sent(producer, args.t, body, queue)
            times.append(round((time.perf_counter() - began) * 1000))
            print(_SENT.format(queue.broker_name, queue.queue_id, bool_text(result is not None), times[-1]))
            if result is None:
                session.exit_code = Exit.REFUSED
    print(f"Avg RT: {_mean(times):.2f}")


@classic(
    "sendMsgStatus",
    Opt("b", "brokerName", "Broker name.", required=True),
    Opt("s", "messageSize", "Body size in bytes; 128 by default.", kind=int),
    Opt("c", "count", "Number of messages; 50 by default.", kind=int),
    timeout=None,
)
async def send_msg_status(session: Session, args: argparse.Namespace) -> None:
    body = _GREETING * -(-_size(args) // len(_GREETING))
    await session.admin.topics.route(args.b)  # else a misspelt name would become a topic
    async with _producer(session) as producer:
        await producer.send(args.b, _GREETING * 2)  # which connects
        for _ in range(50 if args.c is None else args.c):
            began = time.perf_counter()
            result = await producer.send(args.b, body)
            print(f"rt={round((time.perf_counter() - began) * 1000)}ms, SendResult={_result_text(result)}")


def _result_text(result: SendResult) -> str:
    return (
        f"SendResult [sendStatus={result.status.value}, msgId={result.id}, offsetMsgId={result.offset_id}, "
        f"messageQueue={result.queue}, queueOffset={result.offset}, recallHandle={result.recall_handle or 'null'}]"
    )


@classic(
    "clusterRT",
    AMOUNT,
    SIZE,
    Opt("c", "cluster", "Only this cluster."),
    Opt("p", "print log", "true: print log lines instead of a table."),
    Opt("m", "machine room", "With -p: a name for each line; noname by default."),
    Opt("i", "interval", "Seconds between rounds; 10 by default.", kind=int),
    timeout=None,
)
async def cluster_rt(session: Session, args: argparse.Namespace) -> None:
    if not is_true(args.p):
        print(_CLUSTER_HEADINGS.format("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))
    while True:
        await cluster_round(session, args)
        sys.stdout.flush()  # whoever reads through a pipe sees each round as it ends
        await asyncio.sleep(10 if args.i is None else args.i)


async def cluster_round(session: Session, args: argparse.Namespace, say: Callable[[str], None] = print) -> None:
    """Send one round to every broker."""
    amount, body = _amount(args), b"a" * _size(args)
    table = (await session.admin.brokers.cluster_info()).cluster_addr_table
    if args.c and args.c not in table:
        raise CommandFailed(f"cluster [{args.c}] not exist", Exit.NOT_FOUND)
    async with _producer(session) as producer:
        for cluster in [args.c] if args.c else sorted(table):
            for broker in sorted(table[cluster]):
                times, good = [], 0
                for _ in range(amount):
                    began = time.perf_counter()
                    good += await _sent(producer, broker, body) is not None
                    times.append(round((time.perf_counter() - began) * 1000))
                mean = _mean(times)
                if is_true(args.p):
                    when = datetime.now(_WHERE_LOGS_ARE_READ).strftime("%Y-%m-%d %H:%M:%S")
                    say(f"{when}|{args.m or 'noname'}|{cluster}|{broker}|{mean:.0f}")
                else:
                    say(_CLUSTER.format(cluster, broker, f"{mean:.2f}", good, amount - good))


async def _sent(producer: Producer, topic: str, body: bytes, queue: MessageQueue | None = None) -> SendResult | None:
    """None if a message could not be sent; it counts as a failure, and the next one is tried."""
    try:
        return await producer.send(topic, body, queue=queue)
    except PyroMQError:
        return None


def _producer(session: Session) -> Producer:
    from pyromq.client import Producer

    return Producer("pyromq_mqadmin", client=session.admin.client)


def _mean(times: list[int]) -> float:
    """Leaves out the first send, which also connects."""
    return sum(times[1:]) / max(len(times) - 1, 1)


def _amount(args: argparse.Namespace) -> int:
    amount = 100 if args.a is None else args.a
    if amount < 1:
        raise CommandFailed("-a must be more than 0", Exit.USAGE)
    return int(amount)


def _size(args: argparse.Namespace) -> int:
    size = 128 if args.s is None else args.s
    if size < 1:
        raise CommandFailed("-s must be more than 0", Exit.USAGE)
    return int(size)
