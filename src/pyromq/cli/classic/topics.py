"""Subcommands about topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyromq.admin.topic_kinds import TopicKind, topic_kind
from pyromq.admin.traffic import stats_all
from pyromq.client.admin import order_conf
from pyromq.client.admin.fan_out import fan_out, partly
from pyromq.protocol.bodies import TopicConfig
from pyromq.protocol.message_queue import MessageQueue  # noqa: TC001 - a key of tables
from pyromq.protocol.permissions import perm_text

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, CONFIG_FILE, TOPIC, Opt, classic, place_of, read_configs
from .java_text import bool_text, front, is_true, map_text, millis_text

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
    place = place_of(args)
    config = TopicConfig(
        topic_name=args.t,
        read_queue_nums=8 if args.r is None else args.r,
        write_queue_nums=8 if args.w is None else args.w,
        perm=6 if args.p is None else args.p,
        topic_sys_flag=is_true(args.u) + 2 * is_true(args.s),
        order=is_true(args.o),
        attributes=attributes_of(args.a),
    )
    for address in await session.admin.topics.put(config, **place):
        print(f"create topic to {address} success.")
    if config.order:
        text = order_conf.render(await session.admin.topics.order(args.t))
        print(f"set {'broker' if args.b else 'cluster'} orderConf. isOrder=true, orderConf=[{text}]")
    print(config_text(config))


@classic("updateTopicList", BROKER_ADDR, CLUSTER, CONFIG_FILE, timeout=60.0)
async def update_topic_list(session: Session, args: argparse.Namespace) -> None:
    """One request per topic, because 4.9 brokers do not know the batch request."""
    place = place_of(args)
    addresses: list[str] = []
    for config in read_configs(args.f, TopicConfig):
        addresses = await session.admin.topics.put(config, **place)
    for address in addresses:
        print(f"submit batch of topic config to {address} success, please check the result later.")


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


@classic("deleteTopic", TOPIC, Opt("c", "clusterName", "A cluster.", required=True))
async def delete_topic(session: Session, args: argparse.Namespace) -> None:
    await session.admin.topics.delete(args.t, cluster=args.c)
    print(f"delete topic [{args.t}] from cluster [{args.c}] success.")
    print(f"delete topic [{args.t}] from NameServer success.")


@classic("updateTopicPerm", BROKER_ADDR, CLUSTER, TOPIC, Opt("p", "perm", "2, 4 or 6.", required=True, kind=int))
async def update_topic_perm(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    route = await session.admin.topics.route(args.t)
    before = {data.broker_name: data.perm for data in route.queue_datas}
    names = {address: data.broker_name for data in route.broker_datas for address in data.broker_addrs.values()}
    for address in await session.admin.topics.update(args.t, perm=args.p, **place):
        old = before.get(names.get(address, ""), "-")
        print(f"update topic perm from {old} to {args.p} in {address} success.")


@classic("topicList", Opt("c", "clusterModel", "Show clusters and groups.", value=False))
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

    answers = await fan_out(people, ask)
    print("{:<20}  {:<48}  {:<48}".format("#Cluster Name", "#Topic", "#Consumer Group"))
    for topic in people:
        cluster, groups = answers.results.get(topic, ("-", ["-"]))
        for group in groups or [""]:
            print(_CLUSTERS.format(front(cluster, 20), front(topic, 64), front(group, 64)))
    session.incomplete(answers.missing)


@classic("topicRoute", TOPIC, Opt("l", "list", "As a list.", value=False))
async def topic_route(session: Session, args: argparse.Namespace) -> None:
    route = await session.admin.topics.route(args.t)
    if not args.l:
        shown = json.loads(route.encode())
        for data in shown["brokerDatas"]:
            data.setdefault("enableActingMaster", False)  # mqadmin always prints it
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
    session.incomplete(missing)


async def _put_tps(session: Session, topic: str) -> float:
    """Messages a second on all brokers in the last minute. A broker without the counter took none."""
    brokers = await session.admin.brokers.of_topic(topic)
    answers = await fan_out(brokers, lambda address: session.admin.brokers.stats(address, "TOPIC_PUT_NUMS", topic))
    return sum((data.stats_minute.tps for data in answers.results.values()), 0.0)


@classic("topicClusterList", TOPIC)
async def topic_cluster_list(session: Session, args: argparse.Namespace) -> None:
    for cluster in await session.admin.topics.clusters(args.t):
        print(cluster)


@classic(
    "statsAll",
    Opt("a", "activeTopic", "Only topics with traffic.", value=False),
    Opt("t", "topic", "Only this topic."),
    timeout=30.0,
)
async def stats_of_all(session: Session, args: argparse.Namespace) -> None:
    found = await stats_all(session.admin, args.t or None, active=args.a, system=True)
    figures = ("#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    print(_STATS.format("#Topic", "#Consumer Group", *figures))
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
    session.incomplete(found.missing)
