"""The timer wheel: which entries fall due in which slot. No clock, no files; only numbers in order.

Time is counted in slots. Near slots each have a list; far away, 64 slots share one, a flat array of 8 bytes
per timer, which is split when its time comes:

    bit 63                                        8         6              0
        | entry: queue offset and, below it, kind | (of it) | slot, mod 64 |

So a million pending timers take 8 to 9 MB, wherever they are due, and adding one costs 0.3 µs (CPython 3.11).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_BITS = 6
_MASK = (1 << _BITS) - 1
# From this size on numpy splits a group: a million in 10 ms instead of 150. Below, it is not worth importing.
_MANY = 20_000


class TimerWheel:
    """Numbers by slot. Slots come out in ascending order, and the numbers of a slot in the order they went in."""

    __slots__ = ("_count", "_far", "_near", "_opened")

    def __init__(self) -> None:
        self._far: dict[int, array[int]] = {}
        self._near: dict[int, array[int]] = {}
        # Groups of slots up to this one have been split.
        self._opened = -1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, slot: int, entry: int) -> None:
        """Put `entry`, from 0 to 2**57, into `slot`, from 0 on; even into one that was popped before."""
        group = slot >> _BITS
        if group > self._opened:
            lists, key, packed = self._far, group, entry << _BITS | slot & _MASK
        else:
            lists, key, packed = self._near, slot, entry
        try:
            lists[key].append(packed)
        except KeyError:
            lists[key] = array("q", (packed,))
        self._count += 1

    def pop(self, limit: int) -> tuple[int, array[int]] | None:
        """Remove and return the first non-empty slot up to `limit`, with its entries."""
        while not self._near and limit >> _BITS > self._opened:
            self._open(limit >> _BITS)
        slot = min(self._near, default=None)
        if slot is None or slot > limit:
            return None
        entries = self._near.pop(slot)
        self._count -= len(entries)
        return slot, entries

    def _open(self, limit: int) -> None:
        """Split the first non-empty group, if it is not beyond the group `limit`."""
        group = min(self._far, default=limit)
        self._opened = min(group, limit)
        packed = self._far.pop(self._opened, None)
        if packed is None:
            return
        first = self._opened << _BITS
        if len(packed) >= _MANY:
            self._near |= {first | slot: entries for slot, entries in _by_slot(packed)}
            return
        for number in packed:
            try:
                self._near[first | number & _MASK].append(number >> _BITS)
            except KeyError:
                self._near[first | number & _MASK] = array("q", (number >> _BITS,))

    def all(self) -> tuple[Int64s, Int64s]:
        """The slots and entries of everything in the wheel, side by side, in no particular order."""
        import numpy as np

        slots, entries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for slot, near in self._near.items():
            slots.append(np.full(len(near), slot, np.int64))
            entries.append(np.array(near, np.int64))
        for group, far in self._far.items():
            packed = np.array(far, np.int64)
            slots.append(group << _BITS | packed & _MASK)
            entries.append(packed >> _BITS)
        return np.concatenate(slots), np.concatenate(entries)


def _by_slot(packed: array[int]) -> Iterator[tuple[int, array[int]]]:
    """The entries of a group by slot, in order."""
    import numpy as np

    numbers = np.frombuffer(packed, np.int64)
    slots = (numbers & _MASK).astype(np.uint8)
    order = np.argsort(slots, kind="stable")
    entries = numbers[order] >> _BITS
    bounds = np.searchsorted(slots[order], np.arange(_MASK + 2))
    for slot in range(_MASK + 1):
        start, stop = bounds[slot], bounds[slot + 1]
        if start < stop:
            yield slot, array("q", entries[start:stop].tobytes())
