"""Reads the heads of many records at once: which are whole, and where their parts lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyromq.protocol import sysflag
from pyromq.protocol.properties import MAX_LENGTH as MAX_PROPERTIES
from pyromq.protocol.record import (
    HEAD_LAYOUTS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH,
)

from .gather import MAX_SPAN, gathered, pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyromq.protocol.record import Buffer

    from .gather import Int64s

# Indexed by the two host bits of SYSFLAG, shifted down.
_HEAD_TYPES = tuple(layout.dtype() for layout in HEAD_LAYOUTS)
_HEAD_SIZES = np.array([layout.size for layout in HEAD_LAYOUTS])
# Fields that move when a host before them is longer.
_MOVED = ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_length")
_BORN_HOST_AT = HEAD_LAYOUTS[0].positions["born_host"]
_STORE_HOST_AT = np.array([layout.positions["store_host"] for layout in HEAD_LAYOUTS])
_TOPIC_LENGTH, _PROPERTIES_LENGTH = TOPIC_LENGTH[MAGIC_V1].size, PROPERTIES_LENGTH.size
_LONGER_IN_V2 = TOPIC_LENGTH[MAGIC_V2].size - TOPIC_LENGTH[MAGIC_V1].size


class Records:
    """Whole records by column. `head` has the fields by name; the other arrays are places in the buffer."""

    __slots__ = (
        "_data",
        "body_at",
        "body_end",
        "end",
        "head",
        "properties_at",
        "raw",
        "start",
        "sys_flag",
        "topic_at",
        "topic_end",
    )
    _BY_RECORD = ("head", "sys_flag", "start", "body_at", "body_end", "topic_at", "topic_end", "properties_at", "end")
    _PLACES = _BY_RECORD[2:]

    raw: NDArray[np.uint8]
    head: NDArray[np.void]
    sys_flag: NDArray[np.int32]
    start: Int64s
    body_at: Int64s
    body_end: Int64s
    topic_at: Int64s
    topic_end: Int64s
    properties_at: Int64s
    end: Int64s
    _data: pa.Buffer

    def __init__(self, buffer: Buffer, starts: Int64s, origin: int | None) -> None:
        """The records that begin at `starts`, up to the first that is damaged or belongs elsewhere."""
        self.raw = raw = np.frombuffer(buffer, np.uint8)
        self._data = pa.py_buffer(buffer)
        is_inside = (starts >= 0) & (starts <= len(raw) - MIN_RECORD_SIZE)
        if not is_inside.all():
            starts = starts[: _first(~is_inside)]
        self.start = starts
        self.head = gathered(raw, starts, _HEAD_TYPES[0])
        self.sys_flag = self.field("sys_flag", np.int32)
        self.end = starts + self.field("total_size", np.int32)
        magic = self.field("magic", np.int32)
        is_v2 = magic == MAGIC_V2
        is_whole = ((magic == MAGIC_V1) | is_v2) & (self.end <= len(raw))
        head_size: Any = _HEAD_SIZES[0]
        if self.has_long_hosts:
            head_size = _HEAD_SIZES[self._host_bits]
            is_long_enough = starts + head_size <= self.end
            self._correct_heads(is_whole & is_long_enough)
            is_whole &= is_long_enough
        body_length = self.field("body_length", np.int32)
        self.body_at = starts + head_size
        self.body_end = self.body_at + body_length
        self.topic_at = self.body_end + _TOPIC_LENGTH + is_v2 * _LONGER_IN_V2
        is_v2 = is_v2[: self._keep(is_whole & (body_length >= 0) & (self.topic_at <= self.end))]

        topic_length = raw[self.topic_at - 1].astype(np.int64)
        limit: Any = MAX_TOPIC_LENGTH[MAGIC_V1]  # a length with its highest bit set is negative
        if is_v2.any():
            topic_length += np.where(is_v2, raw[self.topic_at - 2].astype(np.int64) << 8, 0)
            limit = np.where(is_v2, MAX_TOPIC_LENGTH[MAGIC_V2], limit)
        self.topic_end = self.topic_at + topic_length
        self.properties_at = self.topic_end + _PROPERTIES_LENGTH
        self._keep((topic_length <= limit) & (self.properties_at <= self.end))

        length = raw[self.topic_end].astype(np.int64) << 8 | raw[self.topic_end + 1]
        is_whole = (length <= MAX_PROPERTIES) & (self.properties_at + length == self.end)
        if origin is not None:
            is_whole &= self.field("physical_offset", np.int64) == origin + self.start
        self._keep(is_whole)
        self._put_in_order(buffer)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Any) -> None:
        """Keep only these: a slice, a mask or ascending indexes."""
        for name in self._BY_RECORD:
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[rows])

    def field(self, name: str, kind: Any) -> NDArray[Any]:
        """A fixed field of all records, in native byte order."""
        return self.head[name].astype(kind)

    @property
    def base(self) -> int:
        """Where the first record begins: Arrow counts from here."""
        return int(self.start[0]) if len(self.start) else 0

    @property
    def data(self) -> pa.Buffer:
        """The buffer from `base` to the end of the last record."""
        return self._data.slice(self.base, int(self.end[-1]) - self.base) if len(self.end) else self._data.slice(0, 0)

    def pieces(self, starts: Int64s, ends: Int64s) -> pa.Array:
        """A part of each record as binary."""
        base = self.base
        return pieces(self.data, starts - base, ends - base, pa.binary())

    def topics(self) -> pa.Array:
        """The topics as binary."""
        return self.pieces(self.topic_at, self.topic_end)

    def topic_beginnings(self) -> NDArray[np.uint32]:
        """The first four bytes of each topic as a number; undefined for shorter topics."""
        # At least the two bytes of PROPLEN follow a topic, so only a single-letter topic can be too near the end.
        starts = np.minimum(self.topic_at, len(self.raw) - 4)
        return gathered(self.raw, starts, np.dtype("V4")).view(np.uint32)

    @property
    def has_long_hosts(self) -> bool:
        return bool((self.sys_flag & sysflag.HOSTS_MASK).any())

    def born_hosts(self, rows: Any, length: int) -> NDArray[np.void]:
        """The hosts of these rows, all of this length."""
        if length == sysflag.HOST_V4_LENGTH:
            return np.ascontiguousarray(self.head["born_host"][rows])
        return gathered(self.raw, self.start[rows] + _BORN_HOST_AT, np.dtype(f"V{length}"))

    def store_hosts(self, rows: Any, length: int) -> NDArray[np.void]:
        if length == sysflag.HOST_V4_LENGTH and not self.has_long_hosts:
            return np.ascontiguousarray(self.head["store_host"][rows])
        return gathered(self.raw, self.start[rows] + _STORE_HOST_AT[self._host_bits[rows]], np.dtype(f"V{length}"))

    @property
    def _host_bits(self) -> NDArray[np.int32]:
        return self.sys_flag >> sysflag.HOSTS_SHIFT & 3

    def _correct_heads(self, which: NDArray[np.bool_]) -> None:
        """Read the fields after IPv6 hosts from their real places."""
        for bits, head_type in enumerate(_HEAD_TYPES[1:], 1):
            rows = np.flatnonzero((self._host_bits == bits) & which)
            if len(rows):
                theirs = gathered(self.raw, self.start[rows], head_type)
                for name in _MOVED:
                    self.head[name][rows] = theirs[name]

    def _keep(self, is_whole: NDArray[np.bool_]) -> int:
        """Drop the first that is not whole and all after it. Returns how many are left."""
        if not is_whole.all():
            self.take(slice(_first(~is_whole)))
        return len(self)

    def _put_in_order(self, buffer: Buffer) -> None:
        """Copy the records into a new buffer if they are out of order or too far apart for Arrow."""
        if not len(self) or ((self.start[1:] >= self.end[:-1]).all() and self.end[-1] - self.start[0] <= MAX_SPAN):
            return
        sizes = self.end - self.start
        moved = np.concatenate(([0], np.cumsum(sizes)[:-1])) - self.start
        view = memoryview(buffer)
        own = b"".join([view[start:end] for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True)])
        self.raw = np.frombuffer(own, np.uint8)
        self._data = pa.py_buffer(own)
        for name in self._PLACES:
            setattr(self, name, getattr(self, name) + moved)


def _first(mask: NDArray[np.bool_]) -> int:
    return int(mask.argmax())
