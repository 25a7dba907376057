"""Records of the revive topic: checkpoints of popped messages, and acks of consumed ones.

    topic  rmq_sys_REVIVE_LOG_<cluster>, queue by turns      bodies are JSON, with short names

    tag ck     so start offset  pt pop time  it invisible time  n messages  d their distances from so  bm bits of acked
               t topic  q queue  c group  bn broker  ro offset in the revive queue  rp how often it was put again
               sp (5.5) coming back does not count as another try
    tag ack    so, pt, t, q, c, bn of the checkpoint, ao the offset that is acknowledged
    tag bAck   the same with aol, a list, instead of ao

RocketMQ 5's own records (PopCheckPoint, AckMsg, BatchAckMsg). Only values; `log` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyromq.errors import CorruptRecord, RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.base import I32, I64, Body, written

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord

CHECKPOINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"

# A checkpoint arrives a second before its first possible ack.
ACK_INTERVAL_MS = 1000

_MOST = 127  # messages of a checkpoint: n is a byte in Java


class Key(NamedTuple):
    """Identifies a checkpoint: no group pops the same offset of a queue twice at the same time."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int


class Checkpoint(Body, frozen=True, kw_only=True):
    """Messages that a group holds until `revive_time`. Times are milliseconds."""

    acked: I32 = written(0, name="bm")
    broker_name: str | None = msgspec.field(default=None, name="bn")
    group: str = written("", name="c")
    distances: list[I32] = written([], name="d")
    invisible_time: I64 = written(0, name="it")
    count: I32 = written(0, name="n")
    pop_time: I64 = written(0, name="pt")
    queue_id: I32 = written(0, name="q")
    revive_offset: I64 = written(0, name="ro")
    put_again: str | None = msgspec.field(default=None, name="rp")
    start_offset: I64 = written(0, name="so")
    suspended: bool = msgspec.field(default=False, name="sp")
    topic: str = written("", name="t")

    @property
    def key(self) -> Key:
        return Key(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_time

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages. Old versions wrote no distances: then the offsets are consecutive."""
        return [self.start_offset + distance for distance in self.distances or range(self.count)]

    @property
    def unacked(self) -> set[int]:
        return {offset for number, offset in enumerate(self.offsets) if not self.acked >> number & 1}


class Ack(Body, frozen=True, kw_only=True):
    """Messages of a checkpoint that were consumed: one, or several."""

    offset: I64 = written(-1, name="ao")
    offsets: list[I64] | None = msgspec.field(default=None, name="aol")
    broker_name: str | None = msgspec.field(default=None, name="bn")
    group: str = written("", name="c")
    pop_time: I64 = written(0, name="pt")
    queue_id: I32 = written(0, name="q")
    start_offset: I64 = written(0, name="so")
    topic: str = written("", name="t")

    @classmethod
    def of(cls, key: Key, offsets: list[int], broker_name: str) -> Ack:
        single = len(offsets) == 1
        return cls(
            offset=offsets[0] if single else -1,
            offsets=None if single else offsets,
            broker_name=broker_name,
            group=key.group,
            pop_time=key.pop_time,
            queue_id=key.queue_id,
            start_offset=key.start_offset,
            topic=key.topic,
        )

    @property
    def key(self) -> Key:
        return Key(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def all_offsets(self) -> list[int]:
        return [self.offset] if self.offsets is None else self.offsets


def checkpoint_properties(checkpoint: Checkpoint) -> dict[str, str]:
    key = checkpoint.key
    name = "@".join(map(str, (key.topic, key.queue_id, key.start_offset, key.group, key.pop_time)))
    return {
        props.TAGS: CHECKPOINT_TAG,
        props.UNIQ_KEY: f"{name}@{checkpoint.broker_name}@{CHECKPOINT_TAG}",
        props.TIMER_DELIVER_MS: str(checkpoint.revive_time - ACK_INTERVAL_MS),
    }


def ack_properties(ack: Ack, revive_time: int) -> dict[str, str]:
    tag = ACK_TAG if ack.offsets is None else BATCH_ACK_TAG
    # Java writes lists with blanks, and so do we.
    what = ack.offset if ack.offsets is None else list(ack.offsets)
    name = "@".join(map(str, (ack.topic, ack.queue_id, what, ack.group, ack.pop_time)))
    return {
        props.TAGS: tag,
        props.UNIQ_KEY: f"{name}@{ack.broker_name}@{tag}" if tag == ACK_TAG else f"{name}@{tag}",
        props.TIMER_DELIVER_MS: str(revive_time),
    }


def read_record(record: MessageRecord) -> Checkpoint | Ack | None:
    """The checkpoint or ack in a record of the revive topic; None for other records, CorruptRecord if malformed."""
    tag = record.find_property(props.TAGS)
    try:
        if tag == CHECKPOINT_TAG:
            return _checked(Checkpoint.decode(record.body))
        if tag in (ACK_TAG, BATCH_ACK_TAG):
            return Ack.decode(record.body)
    except (RemoteProtocolError, ValueError) as exc:
        raise CorruptRecord(f"not a {tag} record: {exc}", record.physical_offset) from exc
    return None


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    distances = checkpoint.distances
    if not 0 <= checkpoint.count <= _MOST or (distances and len(distances) != checkpoint.count):
        raise ValueError(f"{checkpoint.count} messages, {len(distances)} distances")
    if checkpoint.start_offset < 0 or checkpoint.queue_id < 0 or min(distances, default=0) < 0:
        raise ValueError("negative offsets")
    if not checkpoint.topic or not checkpoint.group:
        raise ValueError("no topic or no group")
    if not f"{checkpoint.topic}{checkpoint.group}{checkpoint.broker_name}".isprintable():
        raise ValueError("names with invalid characters")
    return checkpoint
