"""`pyromq topic`: list, inspect, create, change and delete topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.topic_kinds import TopicKind
from pyromq.admin.topics import topic_details, topic_list, topic_route, topic_settings, topic_stats
from pyromq.admin.traffic import stats_all
from pyromq.errors import ConfigError, QueryNotFound

from ..failures import CommandFailed, Exit
from ..parameters import ClusterName, Place, Topic, perm_of
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, changes

app = new_app("List, inspect, create, change and delete topics.")

ReadQueues = Annotated[int | None, typer.Option("-r", "--read-queues", min=0, max=65535, help="Queues to read from.")]
WriteQueues = Annotated[int | None, typer.Option("-w", "--write-queues", min=0, max=65535, help="Queues to send to.")]
BothQueues = Annotated[int | None, typer.Option("-q", "--queues", min=1, max=65535, help="Read and write queues.")]
Perm = Annotated[str | None, typer.Option("-p", "--perm", metavar="rw", help="r, w or rw (4, 2, 6).")]
OptionalTopic = Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic.", show_default=False)]


def main(arguments: list[str]) -> int:
    return run_app(app, "topic", arguments)


# Looking


@reading(app, "list")
async def list_topics(
    session: Session,
    cluster: ClusterName = None,
    long: Annotated[bool, typer.Option("-l", "--long", help="Show brokers, queues and permission.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Include retry, dead-letter and system topics.")] = False,
) -> Listing[Any]:
    """List topics.

    Example: pyromq topic list --long
    """
    found: Listing[Any] = await (topic_details if long else topic_list)(session.admin, cluster)
    return found if system else found.with_rows(row for row in found.rows if row.kind is TopicKind.NORMAL)


@reading(app, "route")
async def route(session: Session, topic: Topic) -> Listing[Any]:
    """Show the route of a topic: the brokers and queues that name servers send clients to.

    Example: pyromq topic route orders
    """
    return await topic_route(session.admin, topic)


@reading(app, "describe")
async def describe(session: Session, topic: Topic) -> Listing[Any]:
    """Show the settings of a topic on each broker, its clusters and its groups.

    Example: pyromq topic describe orders
    """
    found = await topic_settings(session.admin, topic)
    clusters, groups = await session.admin.topics.clusters(topic), await session.admin.topics.groups(topic)
    summary = f"clusters: {', '.join(clusters)}; groups: {', '.join(groups) or 'none'}"
    return Listing.make(found.of, found.rows, found.missing, summary)


@reading(app, "stats", timeout=5.0)
async def stats(
    session: Session,
    topic: OptionalTopic = None,
    every: Annotated[
        bool, typer.Option("--all", help="All topics with their groups: rates, daily totals, lag.")
    ] = False,
    active: Annotated[bool, typer.Option("--active", "-a", help="With --all: only topics with traffic.")] = False,
) -> Listing[Any]:
    """Show the offsets of a topic's queues, or with --all the traffic of every topic.

    Example: pyromq topic stats orders --watch 2
    """
    if every:
        return await stats_all(session.admin, topic, active=active)
    if topic is None:
        raise CommandFailed("name a topic, or use --all", Exit.USAGE)
    return await topic_stats(session.admin, topic)


@dataclass(frozen=True, slots=True)
class GroupName:
    group: str


@reading(app, "groups")
async def groups(session: Session, topic: Topic) -> Listing[GroupName]:
    """List the groups that consume a topic.

    Example: pyromq topic groups orders
    """
    return Listing.make(GroupName, map(GroupName, await session.admin.topics.groups(topic)))


@dataclass(frozen=True, slots=True)
class Assignment:
    """The queues a client would get."""

    client: str
    queues: tuple[str, ...]
    count: int


@reading(app, "assign")
async def assign(
    session: Session,
    topic: Topic,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Client ids, or any names.")],
    simulate: Annotated[bool, typer.Option("--simulate", help="No effect: this verb only simulates.")] = True,
) -> Listing[Assignment]:
    """Show how these clients would share the queues of a topic under RocketMQ's default strategy.

    Example: pyromq topic assign orders worker-1 worker-2 worker-3
    """
    from pyromq.client.consumer.allocation import Averagely
    from pyromq.client.routes import subscribe_queues

    queues = subscribe_queues(topic, await session.admin.topics.route(topic))
    members = sorted(set(clients))
    shares = {member: Averagely().allocate("group", member, queues, members) for member in members}
    rows = [
        Assignment(member, tuple(f"{queue.broker_name}:{queue.queue_id}" for queue in share), len(share))
        for member, share in shares.items()
    ]
    return Listing.make(Assignment, rows)


# Changing


@changing(app, "create")
async def create(
    session: Session,
    topic: Topic,
    place: Place,
    *,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    queues: BothQueues = None,
    perm: Perm = None,
    order: Annotated[
        bool, typer.Option("--order", help="Producers keep to its queues even if a broker is down.")
    ] = False,
    attributes: Annotated[
        list[str] | None, typer.Option("-a", "--attribute", metavar="KEY=VALUE", help="Attribute, for 5.x brokers.")
    ] = None,
) -> Listing[Change] | None:
    """Create a topic on all brokers, or on some. If it exists, all its settings are replaced.

    Example: pyromq topic create orders --queues 8
    """
    write = write_queues if write_queues is not None else queues or 8
    read = read_queues if read_queues is not None else queues or write
    what = f"create topic {topic} with {read} queues to read and {write} to write on {place}"
    if not session.agreed(what):
        return None
    addresses = await session.admin.topics.create(
        topic,
        read_queues=read,
        write_queues=write,
        perm=perm_of(perm) if perm else 6,
        order=order,
        attributes=dict(_attribute(text) for text in attributes or ()),
        **place.chosen,
    )
    return changes(topic, "created", addresses)


@changing(app, "update")
async def update(
    session: Session,
    topic: Topic,
    place: Place,
    *,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    queues: BothQueues = None,
    perm: Perm = None,
) -> Listing[Change] | None:
    """Change some settings of a topic and keep the others.

    Example: pyromq topic update orders --queues 16
    """
    read_queues = queues if read_queues is None else read_queues
    write_queues = queues if write_queues is None else write_queues
    given = {"read queues": read_queues, "write queues": write_queues, "permission": perm}
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        raise CommandFailed("nothing to change; use --queues, --read-queues, --write-queues or --perm", Exit.USAGE)
    bits = perm_of(perm) if perm else None
    known = await topic_settings(session.admin, topic)
    fewer = write_queues is not None and any(row.write_queues > write_queues for row in known.rows)
    fewer |= read_queues is not None and any(row.read_queues > read_queues for row in known.rows)
    what = f"set {', '.join(f'{name} {value}' for name, value in said.items())} of topic {topic}"
    if fewer:
        what += " (messages in removed queues become unreadable)"
    if not session.agreed(what, dangerous=fewer):
        return None
    addresses = await session.admin.topics.update(
        topic, read_queues=read_queues, write_queues=write_queues, perm=bits, **place.chosen
    )
    return changes(topic, "updated", addresses)


@changing(app, "perm")
async def perm(
    session: Session,
    topic: Topic,
    permission: Annotated[str, typer.Argument(metavar="PERM", help="r, w or rw (4, 2, 6).")],
    place: Place,
) -> Listing[Change] | None:
    """Allow or forbid reading and writing a topic.

    Example: pyromq topic perm orders r
    """
    bits = perm_of(permission)
    if not session.agreed(f"set permission {permission} of topic {topic}"):
        return None
    addresses = await session.admin.topics.update(topic, perm=bits, **place.chosen)
    return changes(topic, f"permission {permission}", addresses)


@changing(app, "delete")
async def delete(session: Session, topic: Topic, place: Place) -> Listing[Change] | None:
    """Delete a topic with all its messages.

    Example: pyromq topic delete orders --yes
    """
    found = await topic_route(session.admin, topic)  # raises TopicNotFound
    places = place.brokers or [row.broker for row in found.rows if place.cluster in (None, row.cluster)]
    if not session.agreed(f"delete topic {topic} and its messages on {', '.join(places)}", dangerous=True):
        return None
    await session.admin.topics.delete(topic, **place.chosen)
    return changes(topic, "deleted", places)


@dataclass(frozen=True, slots=True)
class OrderRow:
    broker: str
    queues: int


@changing(app, "order")
async def order(
    session: Session,
    topic: Topic,
    setting: Annotated[
        str | None, typer.Option("--set", metavar="BROKER:N;...", help="Queues that producers keep to.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Make it an ordinary topic again.")] = False,
) -> Listing[Any] | None:
    """Show or change the queues that producers of an ordered topic keep to.

    Example: pyromq topic order orders --set 'broker-a:4;broker-b:4'
    """
    from pyromq.client.admin.order_conf import parse
    from pyromq.errors import RemoteProtocolError

    if remove:
        if session.agreed(f"make topic {topic} unordered"):
            await session.admin.topics.delete_order(topic)
            return changes(topic, "unordered", session.target.addresses)
        return None
    if setting is not None:
        try:
            queues = parse(setting)
        except RemoteProtocolError as exc:
            raise ConfigError(f"{exc}; use broker-a:4;broker-b:4") from exc
        if session.agreed(f"set the order of topic {topic} to {setting}"):
            await session.admin.topics.set_order(topic, queues)
            return changes(topic, f"ordered {setting}", session.target.addresses)
        return None
    try:
        found = await session.admin.topics.order(topic)
    except QueryNotFound:
        await session.admin.topics.route(topic)  # raises TopicNotFound
        raise CommandFailed(f"topic {topic} is not ordered; --set makes it so", Exit.NOT_FOUND) from None
    return Listing.make(OrderRow, (OrderRow(broker, queues) for broker, queues in found.items()))


def _attribute(text: str) -> tuple[str, str]:
    key, equals, value = text.lstrip("+").partition("=")
    if not equals or not key:
        raise CommandFailed(f"{text!r} is not KEY=VALUE", Exit.USAGE)
    return key, value
