"""The result of a pull: the broker's answer as messages (docs/spec/client.md 3.7)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.batch import unwrap
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessageReply
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import decode_records

if TYPE_CHECKING:
    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.protocol.message_queue import MessageQueue
    from pyromq.protocol.record import MessageRecord

# Seconds that a pull waits at a slave whose master is away: the sooner it ends, the sooner the master is seen again.
STAND_IN_SUSPEND = 1.0

_INNER_BATCH = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP
_TAGS = props.TAGS.encode()


class PullStatus(Enum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"  # there were some, but none that we want
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"  # outside the queue; `next_offset` is inside


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct, frozen=True):
    """The result of one pull. The next one starts at `next_offset`, at the broker with id `suggested_broker_id`.

    `messages` may be empty although the status is FOUND: the broker selects by hashes of tags, we by the tags.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    messages: list[MessageExt]


class PulledMessage(MessageExt):
    """A message and the bounds of its queue when it was pulled; also in its properties, as in Java."""

    __slots__ = ("_bounds",)

    def __init__(self, record: MessageRecord, broker_name: str, bounds: tuple[int, int]) -> None:
        self.record = record
        self.broker_name = broker_name
        self._body = None
        self._properties = None
        self._bounds = bounds

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            parsed = self._properties = props.parse(props.decode(self.record.properties))
            first, end = self._bounds
            parsed[props.MIN_OFFSET] = str(first)
            parsed[props.MAX_OFFSET] = str(end)
        return self._properties


def decode_pull(reply: Command, queue: MessageQueue, subscription: SubscriptionData | None) -> PullResult:
    """The answer to a pull of `queue`; without a subscription every message counts.

    Body CRCs are not checked, as in Java: the broker does so during recovery and on request, and a consumer that
    refused a damaged body could never get past it. Raises RemoteProtocolError and CorruptRecord.

    32 messages of 1 KB: 60 µs, with tags to look at 83 µs (CPython 3.11).
    """
    status = _STATUS.get(reply.code)
    if status is None:
        raise RemoteProtocolError(f"code {reply.code} is not an answer to a pull")
    header = reply.header(PullMessageReply)
    bounds = header.min_offset, header.max_offset
    messages: list[MessageExt] = []
    if status is PullStatus.FOUND:
        broker = queue.broker_name
        records = decode_records(reply.body_bytes, check_crc=False)
        for record in records:
            if record.sys_flag & _INNER_BATCH == _INNER_BATCH:
                records = [single for each in records for single in unwrap(each)]
                break
        if subscription is not None and (wanted := subscription.tags_set):
            records = [record for record in records if (tag := _tag(record)) is not None and tag in wanted]
        messages = [PulledMessage(record, broker, bounds) for record in records]
    return PullResult(status, header.next_begin_offset, *bounds, header.suggest_which_broker_id, messages)


def _tag(record: MessageRecord) -> str | None:
    raw = props.find(record.properties, _TAGS)
    return None if raw is None else props.decode(raw)
