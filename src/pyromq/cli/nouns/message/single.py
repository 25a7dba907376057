"""`pyromq message get|find|direct`: single messages, by id, key or place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.ranges import parse_place
from pyromq.client.admin.fan_out import partly
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.message_queue import MessageQueue

from ...failures import CommandFailed, Exit
from ...output import Output
from ...parameters import Topic, TopicOption
from ...session import Session
from ...verbs import changing, reading
from .options import Begin, End, app, moment
from .rows import MessageRow, body_of, details, encoded, message_row, shown_alone

if TYPE_CHECKING:
    from pyromq.protocol.message import MessageExt

ItsTopic = Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Its topic.")]


@dataclass(frozen=True, slots=True)
class TrackRow:
    """What a group did with a message."""

    group: str
    state: str
    reason: str


@reading(app, "get", timeout=10.0)
async def get(
    session: Session,
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="Either of its ids.")] = None,
    topic: ItsTopic = None,
    at: Annotated[str | None, typer.Option("--at", metavar="BROKER:QUEUE:OFFSET", help="Its place.")] = None,
    track: Annotated[bool, typer.Option("--track", help="Show what each group has done with it.")] = False,
    body: Annotated[bool, typer.Option("--body", help="Print only its raw body.")] = False,
) -> None:
    """Show everything about one message.

    Find it by id and topic, by offset id alone, or by place.

    Example: pyromq message get C0A8011500002A9F0000000000003E6A
    """
    message = await _found(session, message_id, topic, at)
    if body:
        sys.stdout.flush()
        sys.stdout.buffer.write(body_of(message))
        sys.stdout.buffer.flush()
        return
    tracks = [
        TrackRow(each.group, each.state.value, each.reason)
        for each in (await session.admin.messages.track(message) if track else ())
    ]
    fields: dict[str, Any] = details(message)
    if session.printer.output is Output.table:
        properties = fields.pop("properties")
        fields |= {f"properties.{name}": value for name, value in properties.items()}
        session.printer.record(fields)
        session.text(f"\n{shown_alone(body_of(message))}")
        if track:
            session.text("")
            session.show(Listing.make(TrackRow, tracks))
        return
    fields["body"], fields["encoding"] = encoded(body_of(message))
    if track:
        fields["tracks"] = tracks
    session.printer.record(fields)


async def _found(session: Session, message_id: str | None, topic: str | None, at: str | None) -> MessageExt:
    if (message_id is None) == (at is None):
        raise CommandFailed("give an id, or a place with --at", Exit.USAGE)
    if at is not None:
        try:
            broker, queue, offset = parse_place(at)
        except ValueError:
            offset = None
        if offset is None:
            raise CommandFailed(f"{at!r} is not a place; use BROKER:QUEUE:OFFSET", Exit.USAGE)
        if topic is None:
            raise CommandFailed("give its topic with -t", Exit.USAGE)
        return await session.admin.messages.at(MessageQueue(topic=topic, broker_name=broker, queue_id=queue), offset)
    assert message_id is not None
    if topic is not None:
        return await session.admin.messages.get(topic, message_id)
    return await _by_offset_id(session, message_id)


async def _by_offset_id(session: Session, message_id: str) -> MessageExt:
    """Only if the id holds the address of a broker: an id made by a producer may hold anything there."""
    from pyromq.client.admin.addresses import replicas
    from pyromq.client.admin.messages import place_in_id

    unclear = CommandFailed(f"{message_id} is not the offset id of a broker here; give its topic with -t", Exit.USAGE)
    try:
        address, _ = place_in_id(message_id)
    except RemoteProtocolError:
        raise unclear from None
    if address not in {each.address for each in replicas(await session.admin.brokers.cluster_info())}:
        raise unclear
    return await session.admin.messages.by_offset_id(message_id)


@reading(app, "find", timeout=10.0)
async def find(
    session: Session,
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="A key set by its producer.")],
    begin: Begin = None,
    end: End = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=64, help="At most N messages per broker.")] = 64,
) -> Listing[MessageRow]:
    """Find messages by key, using the brokers' index.

    Example: pyromq message find orders --key 4711
    """
    found, missing = await partly(
        session.admin.messages.by_key(topic, key, limit=limit, begin=moment(begin), end=moment(end))
    )
    return Listing.make(MessageRow, (message_row(message, session.printer.output) for message in found), missing)


@changing(app, "direct", timeout=20.0)
async def direct(
    session: Session,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Either of its ids.")],
    group: Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="Group whose consumer gets it.")],
    topic: TopicOption = None,
    client: Annotated[
        str | None, typer.Option("-d", "--client", metavar="ID", help="Consumer to use; any if omitted.")
    ] = None,
) -> dict[str, Any] | None:
    """Make a consumer handle a message now.

    It does so whether or not its group has consumed the message. Changes no offsets.

    Example: pyromq message direct C0A8011500002A9F0000000000003E6A -g billing -t orders --yes
    """
    message = await _found(session, message_id, topic, None)
    if not session.agreed(f"make a consumer of {group} handle message {message.msg_id}"):
        return None
    result = await session.admin.messages.consume_directly(group, message, client)
    outcome = result.consume_result.value if result.consume_result else None
    if outcome not in ("CR_SUCCESS", "CR_COMMIT"):
        session.exit_code = Exit.REFUSED
    return {
        "result": outcome,
        "spentMs": result.spent_time_mills,
        "order": result.order,
        "autoCommit": result.auto_commit,
        "remark": result.remark,
    }
