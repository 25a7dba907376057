"""Finds where back-to-back records begin.

Only the size of a record tells where the next one begins, so a plain walk costs one Python step per record.
But record starts can also be guessed, by their magic, in many places of the buffer, and all walks go on in step: one
Python step then serves as many records as there were guesses. In the end a guess proves right if the
steps from the previous one lead to it.

Records of 0.3 KB, ten thousand at once: 113 ns each one by one, 30 ns in lanes.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from pyromq.protocol.record import MAGIC, MAGIC_AT, MAGIC_V1, MIN_RECORD_SIZE, TOTAL_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyromq.protocol.record import Buffer

    from .gather import Int64s

_MAGIC = MAGIC.pack(MAGIC_V1)[:3]  # of both versions, which differ in the last byte
_SAMPLE = 16  # records sampled for their size
_WORTH_LANES = 256  # records
_CHECKED_EVERY = 8  # steps


def walk(buffer: Buffer, start: int, stop: int, *, max_records: int, max_bytes: int) -> Int64s:
    """Where back-to-back records begin, by their sizes alone: nothing else is checked.

    All begin before `stop` and end within the buffer. At least one if there is any, whatever `max_bytes` says.
    """
    length = len(buffer)
    last = min(stop, length - MIN_RECORD_SIZE + 1, start + max_bytes)
    starts, pos = _one_by_one(buffer, start, last, min(max_records, _SAMPLE))
    if len(starts) == _SAMPLE:
        parts = [starts]
        left = max_records - _SAMPLE
        parallel = _in_lanes(buffer, pos, last, left, mean_size=(pos - start) // _SAMPLE)
        if len(parallel):
            parts.append(parallel)
            left -= len(parallel)
            pos = _behind(buffer, int(parallel[-1]))
        rest, pos = _one_by_one(buffer, pos, last, left)
        starts = np.concatenate([*parts, rest])
    if len(starts) and (pos > length or (pos > start + max_bytes and len(starts) > 1)):
        starts = starts[:-1]
    return starts


def _behind(buffer: Buffer, pos: int) -> int:
    return pos + int(TOTAL_SIZE.unpack_from(buffer, pos)[0])


def _one_by_one(buffer: Buffer, start: int, last: int, most: int) -> tuple[Int64s, int]:
    """At most this many that begin before `last`, and where the next one would begin."""
    unpack, smallest = TOTAL_SIZE.unpack_from, MIN_RECORD_SIZE
    starts: list[int] = []
    append = starts.append
    pos = start
    for _ in repeat(None, most):
        if pos >= last:
            break
        (size,) = unpack(buffer, pos)
        if size < smallest:
            break
        append(pos)
        pos += size
    return np.fromiter(starts, np.int64, len(starts)), pos


def _in_lanes(buffer: Buffer, start: int, last: int, most: int, *, mean_size: int) -> Int64s:
    """As `_one_by_one`, by guesses; may find fewer, and none if there are few records.

    The walk continues one by one after them: guesses are wrong if bodies contain magics, and too few
    if records differ much in size.
    """
    count = min(most, (last - start) // mean_size)
    if count < _WORTH_LANES:
        return np.empty(0, np.int64)
    raw = np.frombuffer(buffer, np.uint8)
    end = start + count * mean_size
    lanes = math.isqrt(4 * count)
    begins = _guesses(raw, start, end, lanes, near=2 * mean_size)
    if len(begins) * 4 < lanes:
        return np.empty(0, np.int64)
    ends = np.append(begins[1:], end)
    places = _steps(raw, begins, ends, 8 + 2 * count // len(begins)).T

    is_own = places < ends[:, None]
    steps = is_own.sum(1)
    # A lane that did not reach its end has an earlier place here.
    reached = places[np.arange(len(places)), np.minimum(steps, places.shape[1] - 1)]
    is_sound = np.all((np.diff(places) >= MIN_RECORD_SIZE) | ~is_own[:, :-1], axis=1)
    is_sound[:-1] &= reached[:-1] == ends[:-1]
    is_sound[-1] &= reached[-1] >= end
    sound = len(begins) if is_sound.all() else int(is_sound.argmin())
    starts: Int64s = places[:sound][is_own[:sound]]
    return starts[:most]


def _guesses(raw: NDArray[np.uint8], start: int, end: int, lanes: int, near: int) -> Int64s:
    """Where records may begin, in ascending order, the first one at `start`."""
    begins = [start]
    for cut in range(start, end, max(1, (end - start) // lanes))[1:]:
        found = raw[cut + MAGIC_AT : cut + near].tobytes().find(_MAGIC)
        if found >= 0 and begins[-1] < cut + found < end:
            begins.append(cut + found)
    return np.array(begins, np.int64)


def _steps(raw: NDArray[np.uint8], begins: Int64s, ends: Int64s, most: int) -> Int64s:
    """One row per step with the place of each lane, until all have reached their ends or taken `most` steps."""
    furthest = len(raw) - TOTAL_SIZE.size
    sizes = np.ndarray((furthest + 1,), np.dtype(f"V{TOTAL_SIZE.size}"), raw, 0, (1,))
    unsigned = f">u{TOTAL_SIZE.size}"
    places = np.empty((most + 1, len(begins)), np.int64)
    places[0] = begins
    for step in range(most):
        here, there = places[step], places[step + 1]
        np.add(here, sizes[here].view(unsigned), out=there)  # so that a wrong guess only leads ahead
        np.minimum(there, furthest, out=there)
        if step % _CHECKED_EVERY == _CHECKED_EVERY - 1 and (there >= ends).all():
            return places[: step + 2]
    return places
