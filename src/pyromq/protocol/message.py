"""The message as a producer makes it and as a consumer sees it.

How it is stored and sent is the business of record.py, where it lies that of message_queue.py. Their names are also
found here: to their users that is one subject.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyromq.errors import LocalProtocolError

from . import properties as props
from .compression import decompress
from .message_queue import MessageQueue
from .record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    HeadKind,
    MessageRecord,
    body_crc,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    patch_offsets,
    read_head,
    record_size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_TOPIC_LENGTH",
    "MIN_RECORD_SIZE",
    "PHYSICAL_OFFSET_AT",
    "QUEUE_OFFSET_AT",
    "SIZE_AND_MAGIC",
    "STORE_TIMESTAMP_AT",
    "SYS_FLAG_AT",
    "HeadKind",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessageRecord",
    "body_crc",
    "decode_record",
    "decode_records",
    "encode_blank",
    "encode_record",
    "patch_offsets",
    "read_head",
    "record_size",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True)
class Message:
    """A message to be sent. At most one of `delay_level`, `delay` and `deliver_at` says when it may be seen.

    `keys` are found by the broker's index; as a string they are separated by blanks. `properties` are the user's own.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_store: bool = True
    delay_level: int = 0
    delay: timedelta | None = None
    deliver_at: datetime | None = None
    shard_key: str | None = None

    def wire_properties(self) -> dict[str, str]:
        """All properties to be sent: the user's and those that the other fields stand for, which win."""
        wire = dict(self.properties)
        if self.tags:
            wire[props.TAGS] = self.tags
        if keys := self.keys if isinstance(self.keys, str) else props.KEY_SEPARATOR.join(self.keys):
            wire[props.KEYS] = keys
        if self.shard_key:
            wire[props.SHARDING_KEY] = self.shard_key
        wire[props.WAIT] = "true" if self.wait_store else "false"
        if (self.delay_level > 0) + (self.delay is not None) + (self.deliver_at is not None) > 1:
            raise LocalProtocolError("only one of delay_level, delay and deliver_at can be kept")
        if self.delay_level > 0:
            wire[props.DELAY] = str(self.delay_level)
        elif self.delay is not None:
            wire[props.TIMER_DELAY_MS] = str(self.delay // _MILLISECOND)
        elif self.deliver_at is not None:
            if self.deliver_at.tzinfo is None:
                raise LocalProtocolError("deliver_at needs a time zone")
            wire[props.TIMER_DELIVER_MS] = str((self.deliver_at - _EPOCH) // _MILLISECOND)
        return wire


class MessageExt:
    """A stored message as a consumer sees it: body decompressed and properties parsed when first asked for.

    `properties` is this object's own dict, to which a consumer may add what is only known on its side.
    """

    __slots__ = ("_body", "_properties", "broker_name", "record")

    def __init__(self, record: MessageRecord, broker_name: str = "") -> None:
        self.record = record
        self.broker_name = broker_name
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"<MessageExt {self.msg_id} at {self.topic}/{self.queue_id}:{self.queue_offset}>"

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises CorruptRecord if it cannot be decompressed."""
        if self._body is None:
            self._body = decompress(self.record.body, self.record.sys_flag)
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            self._properties = props.parse(props.decode(self.record.properties))
        return self._properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(props.KEYS, "").split(props.KEY_SEPARATOR) if key]

    @property
    def msg_id(self) -> str:
        """The id its producer knows it by; without one, the place where it lies."""
        return self.properties.get(props.UNIQ_KEY) or self.record.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        return self.record.offset_msg_id

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction that this message was part of, None if it was in none."""
        return self.msg_id if self.properties.get(props.TRAN_MSG) == "true" else None

    @property
    def real_topic(self) -> str:
        """The topic its producer sent it to, while it is parked in a schedule, half, retry or dead-letter topic."""
        # A delayed retry carries both: it is parked on the way to the retry topic.
        return self.properties.get(props.RETRY_TOPIC) or self.properties.get(props.REAL_TOPIC) or self.topic

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(topic=self.record.topic, broker_name=self.broker_name, queue_id=self.record.queue_id)

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def reconsume_times(self) -> int:
        return self.record.reconsume_times

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp
