"""RocketMQ's files of pending timers, `timerlog` and `timerwheel`, written at a stop so that RocketMQ can take over.

    timerlog/<20 digits>      units of 52 bytes, and 16 that end a file
        | 52 | unit before in its slot | magic | written at | delay | record's offset | its size | hash | reserved |
    timerwheel                two weeks of slots of 32 bytes, slot n at n mod their number
        | slot | first unit | last unit | timers, less recalls | 0 |

The same bytes as RocketMQ 5.5 (TimerLog.java, TimerWheel.java). We never read them: the timer queue and `timercheck`
say the same (docs/decisions/0005-timers-live-in-their-queue.md). All numbers are big-endian.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from pyromq.protocol.layout import Layout
from pyromq.store.disk import Disk
from pyromq.store.format import ENTRY_LAYOUT, segment_name
from pyromq.store.tags import TimerKind

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from pyromq.store.queues.consume_queue import ConsumeQueue

    Int64s = npt.NDArray[np.int64]

TIMER_LOG = "timerlog"
TIMER_WHEEL = "timerwheel"

_UNIT = Layout(
    unit_size="i",
    previous="q",  # position of the previous unit in its slot, -1 for none
    magic="i",
    written="q",  # ms
    delay="i",  # ms from there to its slot
    physical_offset="q",
    size="i",
    topic_hash="i",  # only for counts by topic; 0 counts for none
    reserved="q",
).dtype()
_SLOT = Layout(
    number="q",
    first="q",  # position of its oldest unit
    last="q",  # and of its newest
    timers="i",  # messages minus recalled ones
    magic="i",  # 0
).dtype()
_ENTRY = ENTRY_LAYOUT.dtype()
_BLANK = Layout(
    left="i",  # bytes of the file, these included
    previous="q",  # 0
    magic="i",
).struct
_BLANK_MAGIC = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)

_WEEK = 7 * 86_400  # slots, whatever the precision
_WHEEL_SLOTS = 2 * _WEEK
_BLANK_SLOTS = 60
_DEFAULT, _ROLL, _DELETE = 1, 2, 4  # bits of a unit's magic
_CHUNK = 8192


def write_timer_files(
    root: Path,
    queue: ConsumeQueue,
    waiting: Int64s,
    followed: int,
    now: int,
    *,
    precision: int,
    roll_window: int,
    file_size: int,
    disk: Disk | None = None,
) -> int:
    """Write both files from `waiting`, in queue order: offset, kind, start of the step in which it falls due.

    The queue was read up to `followed`. Returns the end of the timer log, once it is on disk; 0 if
    nothing waits, and then there are no files. OSError may leave parts of them.
    """
    disk = disk or Disk()
    log, wheel = root / TIMER_LOG, root / TIMER_WHEEL
    if log.exists():
        shutil.rmtree(log)
    for path in (wheel, *root.glob(f"{TIMER_WHEEL}.*")):  # other files are older states
        disk.delete(path)
    disk.sync_folder(root)
    if not len(waiting):
        return 0
    now -= now % precision
    offsets, kinds, outs = waiting[:, 0], waiting[:, 1], waiting[:, 2]
    dues, rolls = _when(outs, now, precision, roll_window)
    magics = _DEFAULT | np.where(rolls, _ROLL, 0) | np.where(kinds == TimerKind.RECALL, _DELETE, 0)
    if offsets[-1] < followed - 1:
        # RocketMQ continues in the queue after the last unit. This one is in a slot it has already passed.
        past = min(int(outs.min()), now) - precision
        offsets, dues, magics = np.append(offsets, followed - 1), np.append(dues, past), np.append(magics, _DEFAULT)
        kinds = np.append(kinds, TimerKind.MESSAGE)
    units = np.zeros(len(offsets), _UNIT)
    units["unit_size"] = _UNIT.itemsize
    units["magic"] = magics
    units["written"] = now
    units["delay"] = dues - now
    units["physical_offset"], units["size"] = _places(queue, offsets)
    positions = _positions(len(units), file_size)
    slots = _link(units, positions, dues // precision, kinds)
    end = _write_log(log, units, file_size, disk)
    _write_wheel(wheel, slots, disk)
    disk.sync_folder(root)
    return end


def _when(outs: Int64s, now: int, precision: int, window: int) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The start of each entry's slot, and whether it is only rolled there, by RocketMQ's rule."""
    window = window if 2 <= window <= _WEEK - _BLANK_SLOTS else _WEEK - _BLANK_SLOTS
    left = outs - now
    rolls = left >= window * precision
    # Those that would soon be rolled again wait half as long.
    soon = left - window * precision < window // 3 * precision
    rolled_at = now + np.where(soon, window // 2 * precision, window * precision)
    return np.where(rolls, rolled_at, outs), rolls


def _places(queue: ConsumeQueue, offsets: Int64s) -> tuple[Int64s, Int64s]:
    """Where the records of ascending `offsets` lie, and how long they are."""
    physical, sizes = np.full(len(offsets), -1, np.int64), np.zeros(len(offsets), np.int64)
    at = 0
    while at < len(offsets):
        first = int(offsets[at])
        entries = np.frombuffer(queue.entries(first, _CHUNK), _ENTRY)
        stop = int(np.searchsorted(offsets, first + len(entries)))
        if stop == at:  # its file is missing, and with it the message
            at += 1
            continue
        chosen = entries[offsets[at:stop] - first]
        physical[at:stop], sizes[at:stop] = chosen["physical_offset"], chosen["size"]
        at = stop
    return physical, sizes


def _per_file(file_size: int) -> int:
    return (file_size - _BLANK.size) // _UNIT.itemsize


def _positions(count: int, file_size: int) -> Int64s:
    numbers = np.arange(count, dtype=np.int64)
    per_file = _per_file(file_size)
    return numbers // per_file * file_size + numbers % per_file * _UNIT.itemsize


def _link(units: Any, positions: Int64s, numbers: Int64s, kinds: Int64s) -> Any:
    """Chain the units of each slot, and give the slots of the wheel, in ascending order."""
    order = np.argsort(numbers, kind="stable")
    ordered, places = numbers[order], positions[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    units["previous"][order] = np.where(is_first, -1, np.append(-1, places[:-1]))
    starts = np.flatnonzero(is_first)
    slots = np.zeros(len(starts), _SLOT)
    slots["number"] = ordered[starts]
    slots["first"] = places[starts]
    slots["last"] = places[np.append(starts[1:], len(ordered)) - 1]
    slots["timers"] = np.add.reduceat(np.where(kinds[order] == TimerKind.RECALL, -1, 1), starts)
    return slots


def _write_log(folder: Path, units: Any, file_size: int, disk: Disk) -> int:
    disk.make_folder(folder)
    per_file = _per_file(file_size)
    end = 0
    for start in range(0, len(units), per_file):
        data = units[start : start + per_file].tobytes()
        base = start // per_file * file_size
        end = base + len(data)
        if start + per_file < len(units):
            data += _BLANK.pack(file_size - len(data), 0, _BLANK_MAGIC)
        fd = disk.create(folder / segment_name(base), file_size, reserve=False)
        with contextlib.closing(os.fdopen(fd, "r+b", buffering=0)):
            disk.write(fd, data, 0)
            disk.sync(fd)
    disk.sync_folder(folder)
    return end


def _write_wheel(path: Path, slots: Any, disk: Disk) -> None:
    fd = disk.create(path, _WHEEL_SLOTS * _SLOT.itemsize, reserve=False)
    with contextlib.closing(os.fdopen(fd, "r+b", buffering=0)):
        places = slots["number"].astype(np.int64) % _WHEEL_SLOTS
        # Adjacent slots are written together.
        for run in np.split(np.arange(len(slots)), np.flatnonzero(np.diff(places) != 1) + 1):
            disk.write(fd, slots[run].tobytes(), int(places[run[0]]) * _SLOT.itemsize)
        disk.sync(fd)
