"""Offset tables: what slaves copy (43, 45), is reset (220, 222), consumers report (221, 223), and 308 compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fastjson import ObjectKey, dumps
from ..message_queue import MessageQueue  # noqa: TC001 - msgspec resolves annotations at run time
from .base import I32, I64, Body, written
from .register import DataVersion  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUEUE_MEMBERS = ("brokerName", "queueId", "topic")


class ConsumerOffsetTable(Body, frozen=True, kw_only=True):
    """43, and consumerOffset.json: `topic@group`, queue id, the next offset to consume."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[I32, I64]] = written({})


class DelayOffsetTable(Body, frozen=True, kw_only=True):
    """45, and delayOffset.json: delay level, the next offset to deliver.

    `log_table` is ours: by level, a place in the commit log before which nothing from that offset on was delivered.
    """

    data_version: DataVersion | None = None
    log_table: dict[I32, I64] | None = None
    offset_table: dict[I32, I64] = written({})


class ResetOffsetBody(Body, frozen=True):
    """220, and the answer to 222: where consumers continue. C++ cannot read object keys and takes a list."""

    offset_table: dict[MessageQueue, I64] = written({})

    def encode_for_cpp(self) -> bytes:
        entries = [
            {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
            for queue, offset in self.offset_table.items()
        ]
        return dumps({"offsetTable": entries})

    @staticmethod
    def normalised(members: Mapping[Any, object]) -> Mapping[Any, object]:
        """The list form as a map."""
        entries = members.get("offsetTable")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            return members
        return {"offsetTable": {_queue_key(entry): entry.get("offset") for entry in entries}}


class GetConsumerStatusBody(Body, frozen=True, kw_only=True):
    """221: the offsets of one consumer; 223: those of many, by client id."""

    consumer_table: dict[str, dict[MessageQueue, I64]] = written({})
    message_queue_table: dict[MessageQueue, I64] = written({})


class QueryCorrectionOffsetBody(Body, frozen=True):
    """308: queue id, the smallest offset that other groups have committed."""

    correction_offsets: dict[I32, I64] = written({})


def _queue_key(entry: dict[Any, object]) -> ObjectKey:
    return ObjectKey((name, entry[name]) for name in _QUEUE_MEMBERS if isinstance(entry.get(name), str | int))


class OffsetMovedEvent(Body, frozen=True, kw_only=True):
    """The body of a message in OFFSET_MOVED_EVENT: a pull was outside its queue."""

    consumer_group: str
    message_queue: MessageQueue
    offset_new: I64 = written(0)
    offset_request: I64 = written(0)
