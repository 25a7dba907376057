"""Subcommands about groups and their members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pyromq.admin.groups.members import connections
from pyromq.client.admin.addresses import replicas
from pyromq.client.admin.fan_out import fan_out, partly
from pyromq.client.admin.times import to_millis
from pyromq.errors import ConsumerNotOnline, PyroMQError
from pyromq.protocol.bodies import ConsumeType, GroupRetryPolicy, SubscriptionGroupConfig
from pyromq.protocol.names import RETRY_PREFIX, is_retry_topic
from pyromq.protocol.versions import version_name

from ..failures import CommandFailed, Exit
from .commands import BROKER_ADDR, CLUSTER, CONFIG_FILE, Opt, classic, place_of, read_configs
from .java_text import bool_text, front, is_true, map_text, seconds_text
from .topics import attributes_of

if TYPE_CHECKING:
    import argparse

    from pyromq.protocol.bodies import ConsumerConnection

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
    Opt("r", "retryMaxTimes", "Number of retries of a message.", kind=int),
    Opt("p", "groupRetryPolicy", "Retry policy, as JSON."),
    Opt("i", "brokerId", "Broker id to consume from.", kind=int),
    Opt("w", "whichBrokerWhenConsumeSlowly", "Broker id for slow consumers.", kind=int),
    Opt("a", "notifyConsumerIdsChanged", "true or false."),
    Opt("attributes", "attributes", "+a=b,+c=d,-e"),
)
async def update_sub_group(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
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
    for address in await session.admin.groups.create(config, **place):
        print(f"create subscription group to {address} success.")
    print(config_text(config))


@classic("updateSubGroupList", BROKER_ADDR, CLUSTER, CONFIG_FILE, timeout=60.0)
async def update_sub_group_list(session: Session, args: argparse.Namespace) -> None:
    place = place_of(args)
    addresses: list[str] = []
    for config in read_configs(args.f, SubscriptionGroupConfig):
        addresses = await session.admin.groups.create(config, **place)
    kind = "group" if args.b else "subscription group"
    for address in addresses:
        print(f"submit batch of {kind} config to {address} success, please check the result later.")


def _policy(text: str | None) -> GroupRetryPolicy | None:
    if text is None:
        return None
    try:
        return GroupRetryPolicy.decode(text.encode())
    except PyroMQError as exc:
        raise CommandFailed(f"-p is not a retry policy: {exc}", Exit.USAGE) from exc


def _wire_fields(config: SubscriptionGroupConfig) -> dict[str, object]:
    """All settings by their wire names, including those that are not sent."""
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
    place = place_of(args)
    info = await session.admin.brokers.cluster_info()
    await session.admin.groups.delete(args.g, remove_offsets=is_true(args.r), **place)
    if args.b:
        print(f"delete subscription group [{args.g}] from broker [{args.b}] success.")
        return
    for broker in sorted(info.cluster_addr_table.get(args.c, ())):
        address = info.broker_addr_table[broker].broker_addrs.get(0, broker)
        print(f"delete subscription group [{args.g}] from broker [{address}] in cluster [{args.c}] success.")


@classic("getConsumerConfig", GROUP_NAME)
async def get_consumer_config(session: Session, args: argparse.Namespace) -> None:
    info = await session.admin.brokers.cluster_info()
    found = await session.admin.groups.config(args.g)
    for each in replicas(info):
        if config := found.get(each.address):
            print(f"============================={each.cluster}:{each.broker}=============================")
            for name, value in _wire_fields(config).items():
                print(f"{name:<40}=  {'' if value is None else _value_text(value)}")


@classic(
    "consumerProgress",
    Opt("g", "groupName", "The consumer group; all if omitted."),
    Opt("t", "topicName", "Only this topic."),
    Opt("s", "showClientIP", "true: show which member has each queue."),
    Opt("c", "cluster", "A cluster."),
    timeout=30.0,
)
async def consumer_progress(session: Session, args: argparse.Namespace) -> None:
    if args.g:
        await _progress_of(session, args.g, args.t, clients=is_true(args.s))
    else:
        await _progress_of_all(session)


async def _progress_of(session: Session, group: str, topic: str | None, *, clients: bool) -> None:
    progress, missing = await partly(session.admin.groups.progress(group, topic, clients=clients))
    start = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    if clients:
        print(_WITH_CLIENTS_HEADINGS.format(*start, "#Client IP", "#Diff", "#Inflight", "#LastTime"))
    else:
        print(_PROGRESS_HEADINGS.format(*start, "#Diff", "#Inflight", "#LastTime"))
    for row in progress.rows:
        queue = (front(row.queue.topic, 64), front(row.queue.broker_name, 32), row.queue.queue_id)
        figures = (row.lag, row.in_flight, seconds_text(to_millis(row.last_time)) if row.last_time else "N/A")
        if clients:
            client = (row.client_id or "N/A").split("@")[0]
            print(_WITH_CLIENTS.format(*queue, row.broker_offset, row.consumer_offset, client, *figures))
        else:
            print(_PROGRESS.format(*queue, row.broker_offset, row.consumer_offset, *figures))
    print(f"\nConsume TPS: {progress.tps:.2f}")
    print(f"Consume Diff Total: {progress.lag}")
    print(f"Consume Inflight Total: {sum(row.in_flight for row in progress.rows)}")
    session.incomplete(missing)


async def _progress_of_all(session: Session) -> None:
    admin = session.admin
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in await admin.topics.names() if is_retry_topic(topic)]

    async def ask(group: str) -> tuple[ConsumerConnection | None, float, int]:
        async def behind() -> tuple[float, int]:
            try:
                progress = await admin.groups.progress(group)
            except ConsumerNotOnline:
                return 0.0, 0
            return progress.tps, progress.lag

        members, (tps, lag) = await asyncio.gather(connections(admin, group), behind())
        return members, tps, lag

    answers = await fan_out(groups, ask)
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
    session.incomplete(answers.missing)


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


@classic("producer", Opt("b", "broker", "Broker address.", required=True))
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
    Opt("t", "topic", "A topic it sends to.", required=True),
)
async def producer_connection(session: Session, args: argparse.Namespace) -> None:
    for number, member in enumerate(await session.admin.groups.producers(args.g, args.t), start=1):
        version = version_name(member.version)
        print(f"{number:04d}  {member.client_id:<32} {member.client_addr:<22} {member.language:<8} {version}")
