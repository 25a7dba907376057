"""Subcommands about groups and their members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pyromq.admin import brokers_of_group, brokers_of_topic, fan_out
from pyromq.errors import ConsumerNotOnline, PyroMQError
from pyromq.protocol.bodies import ConsumeType, GroupRetryPolicy, SubscriptionGroupConfig
from pyromq.protocol.names import RETRY_PREFIX, is_retry_topic
from pyromq.protocol.versions import version_name

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, Opt, classic
from .java_text import bool_text, front, is_true, map_text, seconds_text
from .topics import attributes_of

if TYPE_CHECKING:
    import argparse

    from pyromq.protocol.bodies import ConsumerConnection, OffsetWrapper
    from pyromq.protocol.message_queue import MessageQueue

    from ..session import Session

GROUP_NAME = Opt("g", "groupName", "The consumer group.", required=True)

_PROGRESS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20} {}"
_PROGRESS_HEADINGS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20}{}"
_WITH_CLIENTS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20} {:<20} {}"
_WITH_CLIENTS_HEADINGS = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20} {:<20}{}"
_GROUPS = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}"
_CLIENT = "{:<36} {:<22} {:<10} {}"


@classic(
    "updateSubGroup",
    BROKER_ADDR,
    CLUSTER,
    GROUP_NAME,
    Opt("s", "consumeEnable", "true or false."),
    Opt("m", "consumeFromMinEnable", "true or false."),
    Opt("d", "consumeBroadcastEnable", "true or false."),
    Opt("o", "consumeMessageOrderly", "true or false."),
    Opt("q", "retryQueueNums", "Queues of the retry topic.", kind=int),
    Opt("r", "retryMaxTimes", "How often a message is tried.", kind=int),
    Opt("p", "groupRetryPolicy", "When it is tried again, as JSON."),
    Opt("i", "brokerId", "The broker id to consume from.", kind=int),
    Opt("w", "whichBrokerWhenConsumeSlowly", "The broker id for who is slow.", kind=int),
    Opt("a", "notifyConsumerIdsChanged", "true or false."),
    Opt("attributes", "attributes", "+a=b,+c=d,-e"),
)
async def update_sub_group(session: Session, args: argparse.Namespace) -> None:
    _check_place(args)
    config = SubscriptionGroupConfig(group_name=args.g, consume_broadcast_enable=False, consume_from_min_enable=False)
    fields: dict[str, object] = {
        "consume_enable": None if args.s is None else is_true(args.s),
        "consume_from_min_enable": None if args.m is None else is_true(args.m),
        "consume_broadcast_enable": None if args.d is None else is_true(args.d),
        "consume_message_orderly": None if args.o is None else is_true(args.o),
        "notify_consumer_ids_changed_enable": None if args.a is None else is_true(args.a),
        "retry_queue_nums": args.q,
        "retry_max_times": args.r,
        "group_retry_policy": _policy(args.p),
        "broker_id": args.i,
        "which_broker_when_consume_slowly": args.w,
        "attributes": attributes_of(args.attributes) or None,
    }
    config = msgspec.structs.replace(config, **{name: value for name, value in fields.items() if value is not None})
    for address in await session.admin.groups.create(config, cluster=None if args.b else args.c, brokers=args.b):
        print(f"create subscription group to {address} success.")
    print(config_text(config))


def _policy(text: str | None) -> GroupRetryPolicy | None:
    if text is None:
        return None
    try:
        return GroupRetryPolicy.decode(text.encode())
    except PyroMQError as exc:
        raise CommandFailed(f"-p is no retry policy: {exc}", Exit.USAGE) from exc


def _wire_fields(config: SubscriptionGroupConfig) -> dict[str, object]:
    """All settings by their names on the wire, those that are not sent too."""
    names = {each.name: each.encode_name for each in msgspec.structs.fields(SubscriptionGroupConfig)}
    return {wire: getattr(config, name) for name, wire in names.items()}


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return bool_text(value)
    if isinstance(value, dict):
        return map_text(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value).decode()
    return "null" if value is None else str(value)


def config_text(config: SubscriptionGroupConfig) -> str:
    fields = ", ".join(f"{name}={_value_text(value)}" for name, value in _wire_fields(config).items())
    return f"SubscriptionGroupConfig{{{fields}}}"


@classic("deleteSubGroup", BROKER_ADDR, CLUSTER, GROUP_NAME, Opt("r", "removeOffset", "true or false."))
async def delete_sub_group(session: Session, args: argparse.Namespace) -> None:
    _check_place(args)
    info = await session.admin.brokers.cluster_info()
    await session.admin.groups.delete(
        args.g, cluster=None if args.b else args.c, brokers=args.b, remove_offsets=is_true(args.r)
    )
    if args.b:
        print(f"delete subscription group [{args.g}] from broker [{args.b}] success.")
        return
    for broker in sorted(info.cluster_addr_table.get(args.c, ())):
        address = info.broker_addr_table[broker].broker_addrs.get(0, broker)
        print(f"delete subscription group [{args.g}] from broker [{address}] in cluster [{args.c}] success.")


def _check_place(args: argparse.Namespace) -> None:
    if not args.b and not args.c:
        raise CommandFailed("say a broker with -b or a cluster with -c", Exit.USAGE)


@classic("getConsumerConfig", GROUP_NAME)
async def get_consumer_config(session: Session, args: argparse.Namespace) -> None:
    info = await session.admin.brokers.cluster_info()
    found = await session.admin.groups.config(args.g)
    for data in sorted(info.broker_addr_table.values(), key=lambda data: data.broker_name):
        for address in data.broker_addrs.values():
            if config := found.get(address):
                print(f"============================={data.cluster}:{data.broker_name}=============================")
                for name, value in _wire_fields(config).items():
                    print(f"{name:<40}=  {'' if value is None else _value_text(value)}")


@classic(
    "consumerProgress",
    Opt("g", "groupName", "The consumer group; without it all."),
    Opt("t", "topicName", "Only this topic."),
    Opt("s", "showClientIP", "true: who has each queue."),
    Opt("c", "cluster", "A cluster."),
    timeout=30.0,
)
async def consumer_progress(session: Session, args: argparse.Namespace) -> None:
    if args.g:
        await _progress_of(session, args.g, args.t, clients=is_true(args.s))
    else:
        await _progress_of_all(session)


async def _progress_of(session: Session, group: str, topic: str | None, *, clients: bool) -> None:
    admin = session.admin
    brokers = await (brokers_of_topic(admin, topic) if topic else brokers_of_group(admin, group))
    answers = await fan_out(brokers, lambda address: admin.groups.stats_at(address, group, topic))
    stats = answers.some()
    table: dict[MessageQueue, OffsetWrapper] = {}
    for each in stats.values():
        table |= each.offset_table
    if not table:
        raise ConsumerNotOnline(f"group {group} has no offset on any broker")
    owners = await _owners(session, group) if clients else {}
    start = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    if clients:
        print(_WITH_CLIENTS_HEADINGS.format(*start, "#Client IP", "#Diff", "#Inflight", "#LastTime"))
    else:
        print(_PROGRESS_HEADINGS.format(*start, "#Diff", "#Inflight", "#LastTime"))
    behind = under_way = 0
    for queue in sorted(table, key=lambda queue: (queue.topic, queue)):
        offsets = table[queue]
        diff = offsets.broker_offset - offsets.consumer_offset
        inflight = offsets.pull_offset - offsets.consumer_offset
        behind, under_way = behind + diff, under_way + inflight
        last = seconds_text(offsets.last_timestamp) if offsets.last_timestamp > 0 else "N/A"
        names = (front(queue.topic, 64), front(queue.broker_name, 32), queue.queue_id)
        places = (offsets.broker_offset, offsets.consumer_offset)
        if clients:
            print(_WITH_CLIENTS.format(*names, *places, owners.get(queue, "N/A"), diff, inflight, last))
        else:
            print(_PROGRESS.format(*names, *places, diff, inflight, last))
    print(f"\nConsume TPS: {sum(each.consume_tps for each in stats.values()):.2f}")
    print(f"Consume Diff Total: {behind}")
    print(f"Consume Inflight Total: {under_way}")
    for each_missing in answers.missing:
        session.note(f"incomplete: {each_missing}")
        session.exit_code = Exit.REFUSED


async def _owners(session: Session, group: str) -> dict[MessageQueue, str]:
    try:
        members = [member.client_id for member in (await session.admin.groups.connections(group)).connection_set]
    except ConsumerNotOnline:
        return {}
    infos = await fan_out(
        {name: name for name in members}, lambda name: session.admin.clients.running_info(group, name)
    )
    return {queue: name.split("@")[0] for name, info in infos.results.items() for queue in info.mq_table}


async def _progress_of_all(session: Session) -> None:
    admin = session.admin
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in await admin.topics.names() if is_retry_topic(topic)]

    async def ask(group: str) -> tuple[ConsumerConnection | None, float, int]:
        async def connections() -> ConsumerConnection | None:
            try:
                return await admin.groups.connections(group)
            except ConsumerNotOnline:
                return None

        async def behind() -> tuple[float, int]:
            try:
                progress = await admin.groups.progress(group)
            except ConsumerNotOnline:
                return 0.0, 0
            return progress.tps, progress.lag

        members, (tps, lag) = await asyncio.gather(connections(), behind())
        return members, tps, lag

    answers = await fan_out({group: group for group in groups}, ask)
    print(_GROUPS.format("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    for group in groups:
        if group not in answers.results:
            print(_GROUPS.format(front(group, 64), *"------"))
            continue
        members, tps, lag = answers.results[group]
        online = members.connection_set if members else []
        passive = members is not None and members.consume_type is ConsumeType.CONSUME_PASSIVELY
        print(
            _GROUPS.format(
                front(group, 64),
                len(online),
                version_name(min(member.version for member in online)) if online else "OFFLINE",
                ("PUSH" if passive else "PULL") if online else "",
                members.message_model.value if members and passive and members.message_model else "",
                int(tps),
                lag,
            )
        )
    for each in answers.missing:
        session.note(f"incomplete: {each}")
        session.exit_code = Exit.REFUSED


@classic("consumerConnection", Opt("g", "consumerGroup", "The consumer group.", required=True), BROKER_ADDR)
async def consumer_connection(session: Session, args: argparse.Namespace) -> None:
    found = await session.admin.groups.connections(args.g)
    print(_CLIENT.format("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for member in found.connection_set:
        print(_CLIENT.format(member.client_id, member.client_addr, member.language, version_name(member.version)))
    print("\nBelow is subscription:")
    print(f"{'#Topic':<20} #SubExpression")
    for topic, subscription in found.subscription_table.items():
        print(f"{topic:<20} {subscription.sub_string}")
    print()
    print(f"ConsumeType: {found.consume_type.value if found.consume_type else 'null'}")
    print(f"MessageModel: {found.message_model.value if found.message_model else 'null'}")
    print(f"ConsumeFromWhere: {found.consume_from_where.value if found.consume_from_where else 'null'}")


@classic("producer", Opt("b", "broker", "Address of a broker.", required=True))
async def producers(session: Session, args: argparse.Namespace) -> None:
    for group, members in (await session.admin.groups.all_producers(args.b)).items():
        if not members:
            print(f"producer group ({group}) instances are empty")
        for member in members:
            print(
                f"producer group ({group}) instance : clientId={member.client_id},remoteIP={member.remote_ip}, "
                f"language={member.language}, version={member.version}, "
                f"lastUpdateTimestamp={member.last_update_timestamp}"
            )


@classic(
    "producerConnection",
    Opt("g", "producerGroup", "The producer group.", required=True),
    Opt("t", "topic", "A topic that it sends to.", required=True),
)
async def producer_connection(session: Session, args: argparse.Namespace) -> None:
    for number, member in enumerate(await session.admin.groups.producers(args.g, args.t), start=1):
        version = version_name(member.version)
        print(f"{number:04d}  {member.client_id:<32} {member.client_addr:<22} {member.language:<8} {version}")
