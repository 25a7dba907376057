"""`pyromq group`: consumer groups, their lag, members and settings; `group offsets` has its own file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.groups.lag import group_lag, group_list, people_groups, with_clients
from pyromq.admin.groups.members import group_clients, group_inspect
from pyromq.admin.groups.settings import GroupSettings, group_configs, group_settings, said, update_group
from pyromq.admin.groups.trouble import Observation, observe
from pyromq.admin.listing import Listing
from pyromq.errors import ConsumerNotOnline
from pyromq.protocol.bodies import MessageRequestMode, SubscriptionGroupConfig

from ..failures import CommandFailed, Exit
from ..parameters import ClusterName, Group, Place, Topic, TopicOption
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from . import group_offsets
from .changes import Change, changes

if TYPE_CHECKING:
    from collections.abc import Awaitable

app = new_app("Show and manage consumer groups: lag, members, settings, offsets.")
app.add_typer(group_offsets.app, name="offsets")

Switch = bool | None
Size = int | None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a group; None keeps the current value, or RocketMQ's default."""

    consume: Annotated[Switch, typer.Option("--consume/--no-consume", help="Let it consume at all.")] = None
    from_min: Annotated[Switch, typer.Option("--from-min/--no-from-min", help="Let it start at the first message.")] = (
        None
    )
    broadcast: Annotated[Switch, typer.Option("--broadcast/--no-broadcast", help="Let it broadcast.")] = None
    orderly: Annotated[Switch, typer.Option("--orderly/--no-orderly", help="Consume in order (5.x).")] = None
    notify: Annotated[
        Switch, typer.Option("--notify/--no-notify", help="Notify members when others join or leave.")
    ] = None
    retry_queues: Annotated[Size, typer.Option("--retry-queues", min=0, help="Queues in its retry topic.")] = None
    retry_max: Annotated[
        Size, typer.Option("--retry-max", min=-1, help="Retries before a message becomes a dead letter.")
    ] = None
    broker_id: Annotated[Size, typer.Option("--broker-id", min=0, help="Replica to read from.")] = None
    slow_broker_id: Annotated[Size, typer.Option("--slow-broker-id", min=0, help="Replica to read from when slow.")] = (
        None
    )


def main(arguments: list[str]) -> int:
    return run_app(app, "group", arguments)


# Looking


@reading(app, "list", timeout=5.0)
async def list_groups(
    session: Session,
    cluster: ClusterName = None,
    clients: Annotated[bool, typer.Option("--clients", help="Count online members: asks about each group.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Include RocketMQ's own groups.")] = False,
) -> Listing[Any]:
    """List all groups with their lag.

    Example: pyromq group list --clients
    """
    found = await group_list(session.admin, cluster)
    if not system:
        found = found.with_rows(people_groups(found.rows))
    return await with_clients(session.admin, found) if clients else found


@reading(app, "lag")
async def lag(
    session: Session,
    group: Group,
    topic: TopicOption = None,
    clients: Annotated[
        bool, typer.Option("--clients", help="Show which member has each queue: asks every member.")
    ] = False,
) -> Listing[Any]:
    """Show the lag of a group, queue by queue.

    Example: pyromq group lag billing -t orders
    """
    return await group_lag(session.admin, group, topic, clients=clients)


@reading(app, "clients")
async def clients(session: Session, group: Group) -> Listing[Any]:
    """Show the members of a group and their subscriptions.

    Example: pyromq group clients billing
    """
    return await _online(session, group, group_clients(session.admin, group))


@reading(app, "inspect", timeout=15.0)
async def inspect(
    session: Session,
    group: Group,
    client: Annotated[str | None, typer.Option("-i", "--client", metavar="ID", help="Only this client.")] = None,
    stacks: Annotated[bool, typer.Option("-s", "--stacks", help="Show the stack of each thread.")] = False,
) -> Listing[Any]:
    """Show what the members of a group are doing, and whether their subscriptions match.

    Example: pyromq group inspect billing --stacks
    """
    found = await _online(session, group, group_inspect(session.admin, group, client, stacks=stacks))
    if client is not None and client not in {row.client for row in found.rows}:
        names = ", ".join(row.client for row in found.rows)
        raise CommandFailed(f"group {group} has no client {client}; its clients: {names}", Exit.NOT_FOUND)
    if stacks:
        for row in found.rows:
            session.text(f"{row.client}\n{row.stacks or 'no stacks'}\n")
    return found


@reading(app, "watch", timeout=None)
async def watch(
    session: Session,
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Only these groups.")] = None,
    every: Annotated[float, typer.Option("--every", metavar="SEC", min=0.1, help="Seconds between checks.")] = 60.0,
    min_lag: Annotated[int, typer.Option("-l", "--min-lag", metavar="N", min=1, help="Ignore smaller lags.")] = 1,
    looks: Annotated[int, typer.Option("--looks", metavar="N", min=0, help="Stop after N checks; 0 is never.")] = 0,
) -> AsyncIterator[Observation]:
    """Report trouble as it appears: lag, stuck members, differing subscriptions. Runs until Ctrl-C.

    Example: pyromq group watch billing --every 10 --min-lag 1000
    """
    done = 0
    while True:
        found = await observe(session.admin, groups or (), min_lag=min_lag)
        for row in found.rows:
            yield row
        for each in found.missing:
            session.note(f"incomplete: {each}")
        done += 1
        if done == looks:
            break
        await asyncio.sleep(every)


@reading(app, "describe")
async def describe(session: Session, group: Group, cluster: ClusterName = None) -> Listing[GroupSettings]:
    """Show the settings of a group on every broker.

    Example: pyromq group describe billing
    """
    return await group_settings(session.admin, group, cluster)


# Changing


@changing(app, "create")
async def create(session: Session, group: Group, place: Place, settings: Settings) -> Listing[Change] | None:
    """Create a group on all brokers, or on some. If it exists, all its settings are replaced.

    Example: pyromq group create billing --retry-max 5
    """
    if not session.agreed(f"create group {group}"):
        return None
    config = SubscriptionGroupConfig(group_name=group, **said(settings))
    addresses = await session.admin.groups.create(config, **place.chosen)
    return changes(group, "created", addresses)


@changing(app, "update")
async def update(session: Session, group: Group, place: Place, settings: Settings) -> Listing[Change] | None:
    """Change some settings of a group and keep the others.

    Example: pyromq group update billing --no-consume
    """
    fields = said(settings)
    if not fields:
        raise CommandFailed("nothing to change; use --consume, --retry-max, …", Exit.USAGE)
    known = await group_configs(session.admin, group, **place.chosen)
    what = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())
    if not session.agreed(f"set {what} of group {group} on {', '.join(known)}"):
        return None
    await update_group(session.admin, known, fields)
    return changes(group, "updated", known)


@changing(app, "delete")
async def delete(
    session: Session,
    group: Group,
    place: Place,
    offsets: Annotated[bool, typer.Option("-r", "--offsets", help="Delete its offsets too.")] = False,
) -> Listing[Change] | None:
    """Delete a group with its retry and dead-letter topics; on chosen brokers, only the group.

    Example: pyromq group delete billing --offsets --yes
    """
    known = await session.admin.groups.config(group, place.cluster)  # raises SubscriptionGroupNotExist
    places = list(place.brokers or known)
    parts = [f"group {group}"]
    if not place.brokers:
        parts.append("its retry and dead-letter topics")
    if offsets:
        parts.append("its offsets")
    if not session.agreed(f"delete {' and '.join(parts)} on {', '.join(places)}", dangerous=True):
        return None
    await session.admin.groups.delete(group, remove_offsets=offsets, **place.chosen)
    if group in await session.admin.groups.names():
        session.note(f"group {group} is back: brokers create groups automatically (autoCreateSubscriptionGroup)")
    return changes(group, "deleted", places)


class Mode(StrEnum):
    pull = "pull"
    pop = "pop"


@changing(app, "mode")
async def mode(
    session: Session,
    group: Group,
    topic: Topic,
    to: Annotated[Mode, typer.Argument(metavar="MODE", help="How members get messages: pull or pop.")],
    place: Place,
    share: Annotated[
        int,
        typer.Option(
            "--share", metavar="N", min=0, help="With pop: how many others share a member's queues; 0 is all."
        ),
    ] = 0,
) -> Listing[Change] | None:
    """Choose whether a group pulls or pops a topic; affects members that leave it to the broker, as 5.x clients may.

    Example: pyromq group mode billing orders pop --share 2
    """
    await session.admin.topics.route(topic)  # raises TopicNotFound
    if not session.agreed(f"let group {group} {to} topic {topic}"):
        return None
    wanted = MessageRequestMode(to.name.upper())
    addresses = await session.admin.groups.set_request_mode(group, topic, wanted, share_queues=share, **place.chosen)
    return changes(group, f"{to} {topic}", addresses)


async def _online(session: Session, group: str, question: Awaitable[Listing[Any]]) -> Listing[Any]:
    """The members' reports. Tells a group without members from one that does not exist."""
    try:
        return await question
    except ConsumerNotOnline:
        if group not in await session.admin.groups.names():
            raise
        raise CommandFailed(f"group {group} has no members online", Exit.NOT_FOUND) from None
