"""Delay levels: how a delayed message is parked and restored (docs/spec/broker.md 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.protocol import properties as props
from pyromq.protocol.header import parse_int
from pyromq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

from ..topics import can_be_topic

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord

# Messages parked in these topics are not delayed ones, and would never leave.
_NEVER = frozenset((HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC))


def parked(record: MessageRecord, properties: dict[str, str], level: int, highest: int) -> MessageRecord:
    """`record`, whose properties are `properties`, as it is stored while it is delayed by `level`.

    It keeps its real topic and queue among its properties; its queue in the schedule topic is its level.
    """
    level = min(level, highest)
    kept = properties | {
        props.DELAY: str(level),
        props.REAL_TOPIC: record.topic,
        props.REAL_QID: str(record.queue_id),
    }
    return replace(record, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=props.encode(props.render(kept)))


def delay_level(properties: dict[str, str]) -> int:
    """The level that a message asks for, 0 for none. ValueError if it is not a number."""
    text = properties.get(props.DELAY)
    return 0 if text is None else parse_int(32, text)


def restored(record: MessageRecord) -> MessageRecord | None:
    """A parked message with its real topic and queue; None if it cannot be delivered there."""
    topic, queue_id = record.find_property(props.REAL_TOPIC), record.find_property(props.REAL_QID)
    if not topic or not can_be_topic(topic) or topic in _NEVER or not _is_queue_id(queue_id):
        return None
    return replace(record, topic=topic, queue_id=int(queue_id or 0))


def _is_queue_id(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdecimal() and len(text) < 10
