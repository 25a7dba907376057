"""What a group has done with a message, judging by its members and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyromq.protocol.bodies import ConsumeType, MessageModel

if TYPE_CHECKING:
    from pyromq.protocol.bodies import ConsumerConnection
    from pyromq.protocol.message import MessageExt

    from .progress import GroupProgress

_EVERYTHING = "*"


class TrackState(Enum):
    """RocketMQ's words."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # skipped: the group does not want its tag
    PULL = "PULL"  # the group pulls, so brokers cannot tell
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """What one group did with a message. `reason` says why that is unknown, or that no one is online."""

    group: str
    state: TrackState
    reason: str = ""


def track_of(
    group: str,
    message: MessageExt,
    broker: str,
    connections: ConsumerConnection,
    progress: GroupProgress | None,
) -> MessageTrack:
    """The state of a message on `broker` for an online group; `progress` None if it has no offsets."""
    if connections.message_model is MessageModel.BROADCASTING:
        return MessageTrack(group, TrackState.UNKNOWN, "a broadcast group: every member keeps its own offsets")
    match connections.consume_type:
        case ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackState.PULL)
        case ConsumeType.CONSUME_PASSIVELY:
            pass
        case other:
            return MessageTrack(group, TrackState.UNKNOWN, f"consumes by {other.value if other else 'unknown means'}")
    if not _is_behind(message, broker, progress):
        return MessageTrack(group, TrackState.NOT_CONSUME_YET)
    wanted = _wants(message, connections)
    return MessageTrack(group, TrackState.CONSUMED if wanted else TrackState.CONSUMED_BUT_FILTERED)


def _is_behind(message: MessageExt, broker: str, progress: GroupProgress | None) -> bool:
    """Whether the group's offset is past the message."""
    return progress is not None and any(
        row.queue.topic == message.topic
        and row.queue.broker_name == broker
        and row.queue.queue_id == message.queue_id
        and row.consumer_offset > message.queue_offset
        for row in progress.rows
    )


def _wants(message: MessageExt, connections: ConsumerConnection) -> bool:
    subscription = connections.subscription_table.get(message.topic)
    if subscription is None or subscription.expression_type not in ("", "TAG"):
        return True
    tags = subscription.tags_set
    return not tags or _EVERYTHING in tags or message.tags in tags
