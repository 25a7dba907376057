"""The op queue: which half messages need no more attention, because they were decided, renewed or given up.

    topic  RMQ_SYS_TRANS_OP_HALF_TOPIC      body  12          the offset of a half message, as text
    queue  that of the half messages, 0           12,13,17,   5.x writes several together
    tag    d

We write one record for each offset, at once. Only rules; what is read and written when is in `half_queue`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from pyromq.protocol import properties as props
from pyromq.protocol.names import HALF_OP_TOPIC
from pyromq.protocol.record import MessageRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAG = "d"
_PROPERTIES = props.encode(props.render({props.TAGS: _TAG, props.WAIT: "true"}))
_DIGITS = 19  # of the largest offset


def op_record(offset: int, now: int, host: bytes) -> MessageRecord:
    """The record that says: the half message at `offset` is done with. `host` is this broker."""
    body = b"%d" % offset
    return MessageRecord(HALF_OP_TOPIC, body, _PROPERTIES, born_timestamp=now, born_host=host, store_host=host)


def offsets_in(op: MessageRecord) -> list[int]:
    """The offsets of half messages that an op record names; what is no number is passed over."""
    if op.find_property(props.TAGS) != _TAG:
        return []
    return [int(text) for text in op.body.split(b",") if text.isdigit() and len(text) <= _DIGITS]


class Decided:
    """What op records, read one after the other from `op_offset` on, say of the half messages in `start` to `end`.

    A byte for each half message, and eight for each op record: a round over a million of them takes 9 MB.
    """

    def __init__(self, start: int, end: int, op_offset: int) -> None:
        self._start = start
        self._end = end
        self._op_start = op_offset
        self._marks = bytearray(end - start)
        self._highest = array("q")

    @property
    def op_offset(self) -> int:
        """The op record to read next."""
        return self._op_start + len(self._highest)

    def read(self, offsets: Iterable[int]) -> None:
        """Take what the next op record says."""
        highest = -1
        for offset in offsets:
            highest = max(highest, offset)
            if self._start <= offset < self._end:
                self._marks[offset - self._start] = 1
        self._highest.append(min(highest, 2**63 - 1))

    def is_open(self, offset: int) -> bool:
        """Whether a half message of this range is not decided, as far as was read."""
        return self._start <= offset < self._end and not self._marks[offset - self._start]

    def next_open(self, offset: int) -> int:
        """The first half message from `offset` on that is not decided, as far as was read; the end if all are."""
        found = self._marks.find(0, offset - self._start)
        return self._end if found < 0 else self._start + found

    def op_offset_for(self, offset: int) -> int:
        """From where op records have to be read again, when half messages before `offset` do not matter any more."""
        behind = (number for number, highest in enumerate(self._highest) if highest >= offset)
        return self._op_start + next(behind, len(self._highest))
