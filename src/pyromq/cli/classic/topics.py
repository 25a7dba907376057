"""Subcommands about topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyromq.admin import TopicKind, brokers_of_topic, fan_out, partly, stats_all, topic_kind
from pyromq.protocol.bodies import TopicConfig
from pyromq.protocol.message_queue import MessageQueue  # noqa: TC001 - a key of tables

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, TOPIC, Opt, classic
from .java_text import bool_text, front, is_true, map_text, millis_text, perm_text

if TYPE_CHECKING:
    import argparse

    from ..session import Session

_CLUSTERS = "{:<20}  {:<64}  {:<64}"
_STATUS = "{:<32}  {:<4}  {:<20}  {:<20}    {}"
_ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"
_STATS = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}"


@classic(
    "updateTopic",
    BROKER_ADDR,
    CLUSTER,
    TOPIC,
    Opt("r", "readQueueNums", "Queues to read from.", kind=int),
    Opt("w", "writeQueueNums", "Queues to send to.", kind=int),
    Opt("p", "perm", "2 is W, 4 is R, 6 is RW.", kind=int),
    Opt("o", "order", "true or false."),
    Opt("u", "unit", "true or false."),
    Opt("s", "hasUnitSub", "true or false."),
    Opt("a", "attributes", "+a=b,+c=d,-e"),
)
async def update_topic(session: Session, args: argparse.Namespace) -> None:
    _check_place(args)
    order = is_true(args.o)
    sys_flag = is_true(args.u) + 2 * is_true(args.s)
    attributes = attributes_of(args.a)
    config = TopicConfig(
        topic_name=args.t,
        read_queue_nums=8 if args.r is None else args.r,
        write_queue_nums=8 if args.w is None else args.w,
        perm=6 if args.p is None else args.p,
        topic_sys_flag=sys_flag,
        order=order,
        attributes=attributes,
    )
    addresses = await session.admin.topics.create(
        args.t,
        cluster=None if args.b else args.c,
        brokers=args.b,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        sys_flag=sys_flag,
        order=order,
        attributes=attributes,
    )
    for address in addresses:
        print(f"create topic to {address} success.")
    if order:
        queues = await session.admin.topics.order(args.t)
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        print(f"set {'broker' if args.b else 'cluster'} orderConf. isOrder=true, orderConf=[{text}]")
    print(config_text(config))


def config_text(config: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type.value}, topicSysFlag={config.topic_sys_flag}, "
        f"order={bool_text(config.order)}, attributes={map_text(config.attributes)}]"
    )


def attributes_of(text: str | None) -> dict[str, str]:
    table = {}
    for word in filter(None, (text or "").split(",")):
        key, equals, value = word.partition("=")
        if word[0] not in "+-" or (word[0] == "+") != bool(equals):
            raise CommandFailed(f"{word!r} is neither +key=value nor -key", Exit.USAGE)
        table[key] = value
    return table


def _check_place(args: argparse.Namespace) -> None:
    if not args.b and not args.c:
        raise CommandFailed("say a broker with -b or a cluster with -c", Exit.USAGE)


@classic("deleteTopic", TOPIC, Opt("c", "clusterName", "A cluster.", required=True))
async def delete_topic(session: Session, args: argparse.Namespace) -> None:
    await session.admin.topics.delete(args.t, cluster=args.c)
    print(f"delete topic [{args.t}] from cluster [{args.c}] success.")
    print(f"delete topic [{args.t}] from NameServer success.")


@classic("updateTopicPerm", BROKER_ADDR, CLUSTER, TOPIC, Opt("p", "perm", "2, 4 or 6.", required=True, kind=int))
async def update_topic_perm(session: Session, args: argparse.Namespace) -> None:
    _check_place(args)
    route = await session.admin.topics.route(args.t)
    before = {data.broker_name: data.perm for data in route.queue_datas}
    names = {address: data.broker_name for data in route.broker_datas for address in data.broker_addrs.values()}
    for address in await session.admin.topics.update(
        args.t, cluster=None if args.b else args.c, brokers=args.b, perm=args.p
    ):
        old = before.get(names.get(address, ""), "-")
        print(f"update topic perm from {old} to {args.p} in {address} success.")


@classic("topicList", Opt("c", "clusterModel", "With clusters and groups.", value=False))
async def topic_list(session: Session, args: argparse.Namespace) -> None:
    topics = await session.admin.topics.names()
    if not args.c:
        for topic in topics:
            print(topic)
        return
    people = [topic for topic in topics if topic_kind(topic) not in (TopicKind.RETRY, TopicKind.DLQ)]

    async def ask(topic: str) -> tuple[str, list[str]]:
        clusters = await session.admin.topics.clusters(topic)
        return clusters[0] if clusters else "", await session.admin.topics.groups(topic)

    answers = await fan_out({topic: topic for topic in people}, ask)
    print("{:<20}  {:<48}  {:<48}".format("#Cluster Name", "#Topic", "#Consumer Group"))
    for topic in people:
        cluster, groups = answers.results.get(topic, ("-", ["-"]))
        for group in groups or [""]:
            print(_CLUSTERS.format(front(cluster, 20), front(topic, 64), front(group, 64)))
    for each in answers.missing:
        session.note(f"incomplete: {each}")
        session.exit_code = Exit.REFUSED


@classic("topicRoute", TOPIC, Opt("l", "list", "As a list.", value=False))
async def topic_route(session: Session, args: argparse.Namespace) -> None:
    route = await session.admin.topics.route(args.t)
    if not args.l:
        shown = json.loads(route.encode())
        for data in shown["brokerDatas"]:
            data.setdefault("enableActingMaster", False)  # which mqadmin says in any case
        print(json.dumps(shown, indent="\t", separators=(",", ":"), ensure_ascii=False))
        return
    queues = {data.broker_name: data for data in route.queue_datas}
    print(_ROUTE.format("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
        if queue := queues.get(broker.broker_name):
            addresses = map_text({str(key): value for key, value in broker.broker_addrs.items()})
            counts = (queue.read_queue_nums, queue.write_queue_nums, queue.perm)
            print(_ROUTE.format(broker.cluster, broker.broker_name, addresses, *counts))
    print("-" * 158)
    reads, writes = (
        sum(data.read_queue_nums for data in queues.values()),
        sum(data.write_queue_nums for data in queues.values()),
    )
    print(_ROUTE.format("Total:", len(queues), "", reads, writes, ""))


@classic("topicStatus", TOPIC, Opt("c", "cluster", "A cluster, or the topic to find brokers by."))
async def topic_status(session: Session, args: argparse.Namespace) -> None:
    table, missing = await partly(session.admin.topics.stats(args.t))
    print(_STATUS.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))
    queue: MessageQueue
    for queue in sorted(table):
        ends = table[queue]
        when = millis_text(ends.last_update_timestamp) if ends.last_update_timestamp > 0 else ""
        print(_STATUS.format(front(queue.broker_name, 32), queue.queue_id, ends.min_offset, ends.max_offset, when))
    print(f"\nTopic Put TPS: {await _put_tps(session, args.t)}")
    for each in missing:
        session.note(f"incomplete: {each}")
        session.exit_code = Exit.REFUSED


async def _put_tps(session: Session, topic: str) -> float:
    """How many messages a second all brokers took in the last minute. One that has no counter took none."""
    brokers = await brokers_of_topic(session.admin, topic)
    answers = await fan_out(brokers, lambda address: session.admin.brokers.stats(address, "TOPIC_PUT_NUMS", topic))
    return sum((data.stats_minute.tps for data in answers.results.values()), 0.0)


@classic("topicClusterList", TOPIC)
async def topic_cluster_list(session: Session, args: argparse.Namespace) -> None:
    for cluster in await session.admin.topics.clusters(args.t):
        print(cluster)


@classic(
    "statsAll",
    Opt("a", "activeTopic", "Only where something moves.", value=False),
    Opt("t", "topic", "Only this topic."),
    timeout=30.0,
)
async def stats_of_all(session: Session, args: argparse.Namespace) -> None:
    found = await stats_all(session.admin, args.t or None, active=args.a, system=True)
    print(
        _STATS.format(
            "#Topic",
            "#Consumer Group",
            "#Accumulation",
            "#InTPS",
            "#OutTPS",
            "#InMsg24Hour",
            "#OutMsg24Hour",
        )
    )
    for row in found.rows:
        if topic_kind(row.topic) in (TopicKind.RETRY, TopicKind.DLQ):
            continue
        came = (f"{row.in_tps:.2f}" if row.in_tps is not None else "-", "-" if row.in_24h is None else row.in_24h)
        if row.group is None:
            print(_STATS.format(front(row.topic, 64), "", 0, came[0], "", came[1], "NO_CONSUMER"))
            continue
        went = (f"{row.out_tps:.2f}" if row.out_tps is not None else "-", "-" if row.out_24h is None else row.out_24h)
        lag = "-" if row.lag is None else max(row.lag, 0)
        print(_STATS.format(front(row.topic, 64), front(row.group, 64), lag, came[0], went[0], came[1], went[1]))
    for each in found.missing:
        session.note(f"incomplete: {each}")
        session.exit_code = Exit.REFUSED
