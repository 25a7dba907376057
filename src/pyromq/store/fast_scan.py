"""The fast path of scanning a log: many records at once.

After a crash a gigabyte of records is read back, and nearly all look alike: version 1, IPv4 hosts, no
transaction, whole. Up to a thousand of those are tested together by numpy, which costs 0.8 µs a record where
`scan.scan` takes 1.2. All others are left to the general path, `scan`: this module knows no errors.
"""

from __future__ import annotations

from mmap import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyromq.protocol import sysflag
from pyromq.protocol.crc import crc32
from pyromq.protocol.properties import MAX_LENGTH as MAX_PROPERTIES
from pyromq.protocol.record import (
    HEAD_LAYOUTS,
    LENGTHS_SIZE_V1,
    MAGIC_V1,
    MAX_TOPIC_LENGTH,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    TOPIC_LENGTH,
)

from .format import ENTRY_LAYOUT
from .scan import ScannedRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .tags import TagsCodes

MOST = 1024  # records per batch
_FEWEST = 32  # fewer are not worth the effort
_MOST_BYTES = 16 << 20

# The fields needed from a head of version 1 with IPv4 hosts.
_HEAD = HEAD_LAYOUTS[0].dtype(
    "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "body_length"
)
_ENTRY = ENTRY_LAYOUT.dtype()
_GENERAL_ONLY = sysflag.HOSTS_MASK | sysflag.TRANSACTION_MASK
_MAX_TOPIC = MAX_TOPIC_LENGTH[MAGIC_V1]
_TOPIC_LENGTH, _PROPERTIES_LENGTH = TOPIC_LENGTH[MAGIC_V1].size, PROPERTIES_LENGTH.size


class Bulk(NamedTuple):
    """Adjacent records of the fast path, by column."""

    physical: NDArray[np.int64]
    sizes: NDArray[np.int64]
    queue_ids: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    sys_flags: NDArray[np.int64]
    stored: NDArray[np.int64]
    topics: list[str]
    properties: list[bytes]

    def __len__(self) -> int:
        return len(self.topics)

    def records(self) -> list[ScannedRecord]:
        """The same, record by record."""
        return list(map(ScannedRecord, *(column.tolist() for column in self[:6]), self.topics, self.properties))

    @property
    def end(self) -> int:
        """Where in the log the last one ends."""
        return int(self.physical[-1] + self.sizes[-1])

    @property
    def has_zeros(self) -> bool:
        """Whether some topic or property contains zeros, which do not belong there."""
        return b"\0" in b"".join(self.properties) or any("\0" in topic for topic in set(self.topics))

    @property
    def last(self) -> ScannedRecord:
        return Bulk(*(column[-1:] for column in self)).records()[0]  # type: ignore[arg-type]  # as the columns are

    def by_queue(self) -> list[Run]:
        """The records of each queue."""
        numbers = {topic: number for number, topic in enumerate(set(self.topics))}
        queues = self.queue_ids
        if len(numbers) > 1:
            queues = np.fromiter(map(numbers.__getitem__, self.topics), np.int64, len(self)) << 32 | queues & 0xFFFFFFFF
        order = queues.argsort(kind="stable")
        borders = np.diff(queues[order]).nonzero()[0] + 1
        return [Run(self, which) for which in np.split(order, borders)]

    def entries(self, tags: TagsCodes) -> NDArray[np.void]:
        """The queue entries of the records."""
        entries = np.empty(len(self), _ENTRY)
        entries["physical_offset"] = self.physical
        entries["size"] = self.sizes
        entries["tags_code"] = list(map(tags.of_tag, self.properties))
        return entries


class Run:
    """The records of one queue among many: `which` are their numbers, in log order."""

    def __init__(self, bulk: Bulk, which: NDArray[np.intp]) -> None:
        first, last = which[0], which[-1]
        offsets = bulk.queue_offsets[which]
        self.which = which
        self.topic = bulk.topics[first]
        self.queue_id = int(bulk.queue_ids[first])
        self.queue_offset = int(offsets[0])
        self.is_dense = bool((np.diff(offsets) == 1).all())  # without a hole
        self.physical = int(bulk.physical[first])
        self.end = int(bulk.physical[last] + bulk.sizes[last])


class FastScanner:
    """Scans one file of the log, whose first byte has the offset `start`."""

    def __init__(self, view: memoryview, start: int, *, check_crc: bool) -> None:
        self._view = view
        # Slices of a map are bytes at once; slices of a view need a second step.
        self._data: Any = view.obj if isinstance(view.obj, mmap) and len(view.obj) == len(view) else view
        self._start = start
        self._check_crc = check_crc
        self._topics: dict[bytes, str] = {}

    def read(self, at: int) -> Bulk | None:
        """The records from position `at` on; None if too few come before one that needs the general path."""
        positions = self._walk(at)
        if len(positions) <= _FEWEST:
            return None
        ends = np.array(positions[1:], np.int64)
        starts = np.array(positions[:-1], np.int64)
        # One head per position of the file, overlapping the next; only those of records are copied.
        heads = np.ndarray((len(self._view) - _HEAD.itemsize + 1,), _HEAD, self._view, 0, (1,))[starts]
        octets = np.frombuffer(self._view, np.uint8)
        body_ends = starts + _HEAD.itemsize + heads["body_length"]
        good = (heads["physical_offset"] == starts + self._start) & (heads["sys_flag"] & _GENERAL_ONLY == 0)
        good &= (heads["body_length"] >= 0) & (body_ends + LENGTHS_SIZE_V1 <= ends)
        # The rest is only valid where that holds; elsewhere it reads other bytes, to no effect.
        body_ends = np.clip(body_ends, starts + _HEAD.itemsize, ends - LENGTHS_SIZE_V1)
        topic_sizes = octets[body_ends].astype(np.int64)
        topic_ends = body_ends + _TOPIC_LENGTH + topic_sizes
        good &= (topic_sizes <= _MAX_TOPIC) & (topic_ends + _PROPERTIES_LENGTH <= ends)
        lengths_at = np.minimum(topic_ends, ends - _PROPERTIES_LENGTH)
        lengths = octets[lengths_at].astype(np.int64) << 8 | octets[lengths_at + 1]
        good &= (lengths_at + _PROPERTIES_LENGTH + lengths == ends) & (lengths <= MAX_PROPERTIES)
        count = len(good) if good.all() else int(good.argmin())
        if self._check_crc:
            count = self._count_sound(starts[:count] + _HEAD.itemsize, body_ends, heads["body_crc"])
        if count < _FEWEST:
            return None
        data, upto = self._data, slice(count)
        firsts, lasts = (lengths_at[upto] + _PROPERTIES_LENGTH).tolist(), positions[1 : count + 1]
        properties: list[Any] = [data[first:last] for first, last in zip(firsts, lasts, strict=True)]
        if isinstance(data, memoryview):
            properties = list(map(bytes, properties))
        return Bulk(
            starts[upto] + self._start,
            (ends - starts)[upto],
            heads["queue_id"][upto].astype(np.int64),
            heads["queue_offset"][upto].astype(np.int64),
            heads["sys_flag"][upto].astype(np.int64),
            heads["store_timestamp"][upto].astype(np.int64),
            self._names(octets, body_ends[upto] + _TOPIC_LENGTH, topic_sizes[upto]),
            properties,
        )

    def _walk(self, at: int) -> list[int]:
        """Where records begin, by the size each claims, and where the last one ends."""
        view, unpack = self._view, SIZE_AND_MAGIC.unpack_from
        length = len(view)
        stop = min(length - MIN_RECORD_SIZE, at + _MOST_BYTES)
        positions = [at]
        while at <= stop and len(positions) <= MOST:
            size, magic = unpack(view, at)
            at += size
            if magic != MAGIC_V1 or size < MIN_RECORD_SIZE or at > length:
                break
            positions.append(at)
        return positions

    def _count_sound(self, starts: NDArray[np.int64], ends: NDArray[np.int64], crcs: NDArray[np.int32]) -> int:
        """How many bodies, from the first on, match their CRC."""
        view = self._view
        bounds = zip(starts.tolist(), ends.tolist(), strict=False)
        found = np.fromiter((crc32(view[start:end]) for start, end in bounds), np.int64, len(starts)) & 0x7FFFFFFF
        wrong = (found != crcs[: len(found)]).nonzero()[0]
        return int(wrong[0]) if len(wrong) else len(found)

    def _names(self, octets: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[str]:
        """The topics. Mostly it is one and the same."""
        first, size = int(starts[0]), int(sizes[0])
        if size and (sizes == size).all():
            names = np.ndarray((len(octets) - size + 1,), f"V{size}", octets, 0, (1,))[starts]
            if (names == names[0]).all():
                return [self._name(first, first + size)] * len(starts)
        bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        return [self._name(start, end) for start, end in bounds]

    def _name(self, start: int, end: int) -> str:
        name = bytes(self._data[start:end])
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = name.decode("utf-8", "replace")
        return topic
