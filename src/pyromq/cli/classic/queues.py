"""Subcommands about the queues of a topic: order configuration, allocation, entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyromq.client.admin import order_conf
from pyromq.protocol.message_queue import MessageQueue

from ..failures import CommandFailed, Exit
from .commands import TOPIC, Opt, classic
from .java_text import bool_text

if TYPE_CHECKING:
    import argparse

    from pyromq.protocol.bodies import ConsumeQueueData

    from ..session import Session

_LINE = "=" * 38


@classic(
    "updateOrderConf",
    TOPIC,
    Opt("v", "orderConf", "With put: brokerName1:num;brokerName2:num"),
    Opt("m", "method", "put, get or delete.", required=True),
)
async def update_order_conf(session: Session, args: argparse.Namespace) -> None:
    match args.m:
        case "get":
            found = await session.admin.namesrv.get_kv(order_conf.NAMESPACE, args.t)
            print(f"get orderConf success. topic=[{args.t}], orderConf=[{found}] ")
        case "put":
            if not args.v:
                raise CommandFailed("put needs -v, as brokerName1:4;brokerName2:4", Exit.USAGE)
            await session.admin.namesrv.put_kv(order_conf.NAMESPACE, args.t, args.v)
            print(f"update orderConf success. topic=[{args.t}], orderConf=[{args.v}]")
        case "delete":
            await session.admin.topics.delete_order(args.t)
            print(f"delete orderConf success. topic=[{args.t}]")
        case _:
            raise CommandFailed(f"{args.m!r} is not a method; use put, get or delete", Exit.USAGE)


@classic("allocateMQ", TOPIC, Opt("i", "ipList", "Consumer addresses, separated by ','.", required=True))
async def allocate_mq(session: Session, args: argparse.Namespace) -> None:
    from pyromq.client.consumer.allocation import Averagely
    from pyromq.client.routes import subscribe_queues

    route = await session.admin.topics.route(args.t)
    queues = subscribe_queues(args.t, route)
    addresses = args.i.split(",")
    shares = {
        address: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in Averagely().allocate("aa", address, queues, addresses)
        ]
        for address in addresses
    }
    print(json.dumps({"result": shares}, separators=(",", ":"), ensure_ascii=False))


@classic(
    "queryCq",
    TOPIC,
    Opt("q", "queue", "The queue.", required=True, kind=int),
    Opt("i", "index", "First entry.", required=True, kind=int),
    Opt("c", "count", "Number of entries; 10 by default.", kind=int),
    Opt("b", "broker", "Broker address; the topic's first broker by default."),
    Opt("g", "consumer", "Consumer group whose subscription to show."),
)
async def query_cq(session: Session, args: argparse.Namespace) -> None:
    route = await session.admin.topics.route(args.t)
    names = [data.broker_name for data in route.broker_datas if args.b is None or args.b in data.broker_addrs.values()]
    if not names:
        raise CommandFailed(f"topic {args.t} has no queues on {args.b}", Exit.NOT_FOUND)
    queue = MessageQueue(topic=args.t, broker_name=names[0], queue_id=args.q)
    found = await session.admin.messages.consume_queue(queue, args.i, args.c or 10, args.g)
    if found.subscription_data is not None:
        subscription = json.loads(found.subscription_data.encode())
        print("Subscription data: ")
        print(json.dumps(subscription, indent="\t", separators=(",", ":"), ensure_ascii=False))
        print(_LINE)
    if found.filter_data is not None:
        print(f"Filter data: \n{found.filter_data}\n{_LINE}")
    print(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{_LINE}")
    for index, entry in enumerate(found.queue_data, start=args.i):
        print(f"idx: {index}\n{_entry_text(entry)}\n{_LINE}")


def _entry_text(entry: ConsumeQueueData) -> str:
    extend, bits, message = (
        "null" if text is None else text for text in (entry.extend_data_json, entry.bit_map, entry.msg)
    )
    return (
        f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson='{extend}', bitMap='{bits}', eval={bool_text(entry.eval)}, "
        f"msg='{message}'}}"
    )
