"""Cuts pieces of a buffer into an Arrow column, in one pass of C++ and without an index per byte.

An Arrow binary array is a buffer and a list of offsets: slot i lies between offsets i and i + 1. Laid over a buffer
that also holds other data, with the offsets "piece begins, piece ends" in turn, its even slots are the
pieces and its odd ones the gaps between them. Taking every second slot copies just the pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s: TypeAlias = NDArray[np.int64]

MAX_SPAN = 2**31 - 1  # offsets of Arrow's binary, which is what Spark takes, have 32 bits


def pieces(data: pa.Buffer, starts: NDArray[np.integer], ends: NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """The pieces of `data` from starts[i] to ends[i] as an array of binary or string.

    They must be in order, without overlap, and end before MAX_SPAN. Strings are not checked for UTF-8.
    """
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    return pieces_between(data, bounds, kind)


def pieces_between(data: pa.Buffer, bounds: NDArray[np.int32], kind: pa.DataType) -> pa.Array:
    """As `pieces`, for starts and ends in turn."""
    if not len(bounds):
        return pa.array([], kind)
    slots = pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), data], 0)
    return slots.take(_even(len(bounds) // 2))


_EVEN = pa.array(np.arange(0, 1 << 17, 2, dtype=np.int32))


def _even(count: int) -> pa.Array:
    """0, 2, 4 …"""
    return _EVEN[:count] if count <= len(_EVEN) else pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))


def text(pieces_: pa.Array) -> pa.Array:
    """Bytes as text. Invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return pieces_.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in pieces_.to_pylist()])


def merged(first: pa.Array, second: pa.Array, is_second: NDArray[np.bool_]) -> pa.Array:
    """One array whose i-th value is the next one of `second` where is_second[i], else the next one of `first`."""
    order = np.empty(len(is_second), np.int64)
    order[~is_second] = np.arange(len(first))
    order[is_second] = np.arange(len(first), len(is_second))
    return pa.concat_arrays([first, second]).take(pa.array(order))


def gathered(raw: NDArray[np.uint8], starts: Int64s, kind: np.dtype[np.void]) -> NDArray[np.void]:
    """The structs that begin at `starts`, copied into one array.

    Indexing an array of plain bytes of that length costs 6 ns a record, an array of the struct itself 150 (numpy 2.4).
    """
    if not len(starts):
        return np.empty(0, kind)
    plain = np.dtype(f"V{kind.itemsize}")
    windows: NDArray[np.void] = np.ndarray((len(raw) - kind.itemsize + 1,), plain, raw, 0, (1,))
    return windows[starts].view(kind)
