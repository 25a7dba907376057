"""POP (5.x): acknowledging many messages, and which queues the members of a group pop from."""

from __future__ import annotations

from enum import Enum

import msgspec

from ..message_queue import MessageQueue  # noqa: TC001 - msgspec resolves annotations at run time
from .base import I32, I64, Body, written
from .heartbeat import MessageModel


class BatchAck(Body, frozen=True, kw_only=True):
    """Messages of one checkpoint. `bits` are base64: the offsets from `start_offset` on, the lowest bit first."""

    bits: str = msgspec.field(default="", name="b")
    consumer_group: str = written("", name="c")
    invisible_time: I64 = written(0, name="it")
    pop_time: I64 = written(0, name="pt")
    queue_id: I32 = written(0, name="q")
    mark: str = written("0", name="r")
    revive_queue: I32 = written(0, name="rq")
    start_offset: I64 = written(0, name="so")
    topic: str = written("", name="t")


class BatchAckMessageRequestBody(Body, frozen=True, kw_only=True):
    """200151"""

    acks: list[BatchAck] = written([])
    broker_name: str | None = None


class MessageRequestMode(Enum):
    PULL = "PULL"
    POP = "POP"


class SetMessageRequestModeRequestBody(Body, frozen=True, kw_only=True):
    """401: how a group consumes a topic; `pop_share_queue_num` members share what one of them would have alone."""

    consumer_group: str = written("")
    mode: MessageRequestMode = written(MessageRequestMode.PULL)
    pop_share_queue_num: I32 = written(0)
    topic: str = written("")


class MessageRequestModeTable(Body, frozen=True, kw_only=True):
    """402, and messageRequestMode.json: by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = written({})


class QueryAssignmentRequestBody(Body, frozen=True, kw_only=True):
    """400"""

    client_id: str = written("")
    consumer_group: str = written("")
    message_model: MessageModel = written(MessageModel.CLUSTERING)
    strategy_name: str | None = None
    topic: str = written("")


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """A queue, all of a broker if its id is -1, and how it is to be consumed."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue
    mode: MessageRequestMode = written(MessageRequestMode.PULL)


class QueryAssignmentResponseBody(Body, frozen=True, kw_only=True):
    """None tells a client to go on with what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class OrderInfo(Body, frozen=True, kw_only=True):
    """What a group popped in order from a queue and has not acknowledged altogether.

    Of `offsets` all but the first are distances from it; `acked` has a bit for each of them. Times are milliseconds.
    """

    attempt_id: str | None = msgspec.field(default=None, name="a")
    acked: I64 = written(0, name="cm")
    invisible_time: I64 | None = msgspec.field(default=None, name="i")
    last_consume_timestamp: I64 = written(0, name="l")
    offsets: list[I64] = written([], name="o")
    counts: dict[I64, I32] = written({}, name="oc")  # how often messages were popped before, by offset
    visible_at: dict[I64, I64] | None = msgspec.field(default=None, name="ot")  # where it was changed, by offset
    pop_time: I64 = written(0)


class ConsumerOrderInfoTable(Body, frozen=True, kw_only=True):
    """consumerOrderInfo.json: by topic@group and queue."""

    table: dict[str, dict[I32, OrderInfo]] = written({})
