"""Extracts a few properties of many records, without parsing the others.

    U+0002 name U+0001 value U+0002 name U+0001 value …

With a U+0002 before each record's properties, a property is wherever U+0002, its name and U+0001 stand one
after the other, and it ends at the next U+0002: the rest does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .gather import gathered, pieces, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from .gather import Int64s

_NAME_VALUE, _ITEM = b"\x01", b"\x02"
_SAMPLE = 4096  # bytes
_WORD = np.dtype("V8")
_ITEMS, _ONES, _HIGHEST = (np.frombuffer(byte * 8, "<u8") for byte in (_ITEM, b"\x01", b"\x80"))
_ONE = np.uint64(1)


def single_properties(data: pa.Buffer, starts: Int64s, ends: Int64s, names: Iterable[str]) -> dict[str, pa.Array]:
    """Each of these properties by its name, null where a record has none.

    The properties of the records lie in `data` from starts[i] to ends[i].
    """
    if not len(starts):
        return {name: pa.array([], pa.string()) for name in names}
    # From one byte earlier, the second one of PROPLEN: in our copy it becomes the separator.
    copied = pieces(data, starts - 1, ends, pa.binary())
    offsets = np.frombuffer(copied.buffers()[1], np.int32)[: len(starts) + 1]
    raw = np.frombuffer(copied.buffers()[2], np.uint8)[: offsets[-1]]
    if not raw.flags.writeable:
        raw = raw.copy()
    raw[offsets[:-1]] = _ITEM[0]
    return {name: _values(raw, offsets[:-1], name.encode()) for name in names}


def _values(raw: NDArray[np.uint8], rows: NDArray[np.int32], name: bytes) -> pa.Array:
    """The last non-empty value of each row; rows begin at `rows`."""
    begins = _behind(raw, _ITEM + name + _NAME_VALUE)
    lengths = _lengths(raw, begins)
    if not lengths.all():
        begins, lengths = begins[lengths > 0], lengths[lengths > 0]
    values = text(pieces(pa.py_buffer(raw), begins, begins + lengths, pa.binary()))
    if len(begins) == len(rows) and (begins > rows).all() and (begins[:-1] < rows[1:]).all():
        return values
    places = np.zeros(len(rows), np.int64)
    is_missing = np.ones(len(rows), np.bool_)
    having = np.searchsorted(rows, begins, "right") - 1
    places[having] = np.arange(len(begins))  # of several the last one stays
    is_missing[having] = False
    return values.take(pa.array(places, mask=is_missing))


def _behind(raw: NDArray[np.uint8], wanted: bytes) -> Int64s:
    """The places after each `wanted`, found by its rarest byte."""
    sample = raw[:_SAMPLE].tobytes()
    at = min(range(len(wanted)), key=lambda index: sample.count(wanted[index : index + 1]))
    starts = np.flatnonzero(raw == wanted[at]) - at
    low, high = np.searchsorted(starts, (0, len(raw) - len(wanted) + 1))
    starts = starts[low:high]
    pattern = np.frombuffer(wanted, f"V{len(wanted)}")
    is_it = gathered(raw, starts, pattern.dtype) == pattern
    return (starts if is_it.all() else starts[is_it]) + len(wanted)


def _lengths(raw: NDArray[np.uint8], begins: Int64s) -> Int64s:
    """The distance from each place to the next U+0002, or to the end."""
    last = len(raw) - _WORD.itemsize
    if last < 0:
        return _any_lengths(raw, begins)
    words = gathered(raw, np.minimum(begins, last), _WORD).view("<u8") ^ _ITEMS
    # The lowest set bit belongs to the first zero byte, which U+0002 is now.
    zeros = (words - _ONES) & ~words & _HIGHEST
    lengths: Int64s = (np.bitwise_count((zeros & -zeros) - _ONE) >> 3).astype(np.int64)
    is_further = (zeros == 0) | (begins > last)
    if is_further.any():
        lengths[is_further] = _any_lengths(raw, begins[is_further])
    return lengths


def _any_lengths(raw: NDArray[np.uint8], begins: Int64s) -> Int64s:
    items = np.append(np.flatnonzero(raw == _ITEM[0]), len(raw))
    lengths: Int64s = items[np.searchsorted(items, begins)] - begins
    return lengths
