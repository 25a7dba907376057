"""Op records: which half messages are done because they were decided, renewed or given up.

    topic  RMQ_SYS_TRANS_OP_HALF_TOPIC      body  12          the offset of a half message, as text
    queue  that of the half messages, 0           12,13,17,   5.x writes several together
    tag    d

We write one record per offset, at once. Only rules; `half_queue` reads and writes.
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
    """The record that marks the half message at `offset` as done. `host` is this broker."""
    body = b"%d" % offset
    return MessageRecord(HALF_OP_TOPIC, body, _PROPERTIES, born_timestamp=now, born_host=host, store_host=host)


def offsets_in(op: MessageRecord) -> list[int]:
    """The offsets of half messages in an op record; anything that is not a number is skipped."""
    if op.find_property(props.TAGS) != _TAG:
        return []
    return [int(text) for text in op.body.split(b",") if text.isdigit() and len(text) <= _DIGITS]


class Decided:
    """Which half messages from `start` to `end` are done, by the op records read so far.

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
        """Take the next op record."""
        highest = -1
        for offset in offsets:
            highest = max(highest, offset)
            if self._start <= offset < self._end:
                self._marks[offset - self._start] = 1
        self._highest.append(min(highest, 2**63 - 1))

    def is_open(self, offset: int) -> bool:
        """Whether a half message of this range is undecided so far."""
        return self._start <= offset < self._end and not self._marks[offset - self._start]

    def next_open(self, offset: int) -> int:
        """The first half message from `offset` on that is undecided so far; the end if there is none."""
        found = self._marks.find(0, offset - self._start)
        return self._end if found < 0 else self._start + found

    def op_offset_for(self, offset: int) -> int:
        """Where to read op records again, once half messages before `offset` no longer matter."""
        behind = (number for number, highest in enumerate(self._highest) if highest >= offset)
        return self._op_start + next(behind, len(self._highest))
