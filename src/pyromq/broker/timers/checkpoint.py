"""config/timercheck: how far timers were delivered, in RocketMQ's file, with details of our own.

    byte 0            8          16             24              32                64            128
         | done before | log end | queue offset | queue offset  | data version ×3 | ours: below | zeros up to 4096

RocketMQ reads the first 56 bytes: timers due before `done before` that stand in the queue before `queue offset` were
delivered. It knows the others from its timer log. So while that log is out of date (see `timer_log_files`), the
offset we show it is one before which nothing is pending at all: it may deliver some twice, but loses none.

Our part counts as long as its checksum, which covers RocketMQ's part too, shows that nobody wrote since. All of it
fits into one sector, which a disk writes as a whole.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.store.disk import Disk
from pyromq.store.format import CONFIG

if TYPE_CHECKING:
    from pathlib import Path

_FILE_SIZE = 4096
_THEIRS = struct.Struct(
    ">q"  # done before (ms)
    "q"  # end of the timer log that is on disk
    "q"  # queue offset
    "q"  # queue offset of the master, the same here
    "qqq"  # data version: state, time stamp, counter
)
_CHECKPOINT_51 = struct.Struct(">qqqq")  # theirs without a data version, as early 5.x sends it to slaves
_OURS_AT = 64
_OURS = struct.Struct(
    ">8s"  # magic: our part, and its layout
    "q"  # exact queue offset
    "q"  # first pending
    "q"  # end of the step being delivered (ms)
    "q"  # offset before which its timers were delivered
    "q"  # place in the commit log
    "8q"  # up to four pairs of an offset and a time (ms), unused ones zero
    "I"  # CRC-32 of their part and ours
)
_MOST_EARLIER = 4
_MARK = b"PyroMQ 2"


@dataclass(frozen=True, slots=True)
class TimerProgress:
    """Which entries of the timer queue are done, as of one moment.

    Entries before `queue_offset` are done if due before `done_before`, or before `step_end` if they stand before
    `step_offset`, too. Nothing before `first_pending` is pending, whenever it is due. Times are epoch milliseconds.

    After the clock was set back, entries before some offset are done up to a later time than newer ones.
    `earlier` holds such offsets and times.

    Timers that were delivered but not noted as done lie in the commit log from `log_place` on (see `delivered`); -1 if
    unknown.
    """

    done_before: int = 0
    queue_offset: int = 0
    first_pending: int = 0
    step_end: int = 0
    step_offset: int = 0
    log_place: int = field(default=0, compare=False)
    earlier: tuple[tuple[int, int], ...] = ()

    def is_done(self, out: int, offset: int) -> bool:
        if offset < self.first_pending:
            return True
        if offset >= self.queue_offset:
            return False
        if out < self.done_before or (out < self.step_end and offset < self.step_offset):
            return True
        return any(offset < before and out < end for before, end in self.earlier)


def encode_progress(progress: TimerProgress, now: int) -> bytes:
    """What slaves copy (60): RocketMQ's part of the file. They have the timers in their log, so the offset is exact."""
    return _THEIRS.pack(progress.done_before, 0, progress.queue_offset, progress.queue_offset, 0, now, 0)


def decode_progress(data: bytes, log_place: int) -> TimerProgress:
    """What a master told, while the log ended at `log_place`. RemoteProtocolError if it is too short."""
    if len(data) < _CHECKPOINT_51.size:
        raise RemoteProtocolError(f"a timer checkpoint has {_CHECKPOINT_51.size} bytes or more, not {len(data)}")
    done_before, _, _, queue_offset = _CHECKPOINT_51.unpack_from(data)
    return TimerProgress(max(done_before, 0), max(queue_offset, 0), log_place=log_place)


class TimerCheckpoint:
    """The file. One thread at a time; `save` waits for the disk."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.path = root / CONFIG / "timercheck"
        self._disk = disk or Disk()
        self._counter = 0

    def load(self) -> TimerProgress:
        """The progress in the file, also if RocketMQ wrote it. StoreError if it cannot be read."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_OURS_AT + _OURS.size)
        except FileNotFoundError:
            return TimerProgress()
        except OSError as exc:
            raise StoreError(f"cannot read {self.path}: {exc.strerror}") from exc
        if len(data) < _THEIRS.size:
            return TimerProgress()
        done_before, _, queue_offset, _, _, _, self._counter = _THEIRS.unpack_from(data)
        if len(data) >= _OURS_AT + _OURS.size:
            mark, exact, first_pending, step_end, step_offset, log_place, *pairs, crc = _OURS.unpack_from(
                data, _OURS_AT
            )
            if mark == _MARK and crc == _checksum(data):
                earlier = tuple(pair for pair in zip(pairs[::2], pairs[1::2], strict=True) if any(pair))
                return TimerProgress(done_before, exact, first_pending, step_end, step_offset, log_place, earlier)
        return TimerProgress(max(done_before, 0), max(queue_offset, 0), log_place=-1)

    def save(self, progress: TimerProgress, now: int, log_end: int | None = None) -> None:
        """Return once it is on disk. `log_end` is given if RocketMQ's timer log holds everything pending, up to there.

        OSError leaves the old content, or none that counts.
        """
        self._counter = max(self._counter, 0) + 1
        visible = progress.first_pending if log_end is None else progress.queue_offset
        theirs = _THEIRS.pack(progress.done_before, log_end or 0, visible, visible, 0, now, self._counter)
        fields = (
            progress.queue_offset,
            progress.first_pending,
            progress.step_end,
            progress.step_offset,
            progress.log_place,
            *_flat(progress.earlier),
        )
        data = theirs.ljust(_OURS_AT, b"\0") + _OURS.pack(_MARK, *fields, 0)
        data = data[:-4] + _checksum(data).to_bytes(4, "big")
        self._disk.make_folder(self.path.parent)
        is_new = not self.path.exists()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size != _FILE_SIZE:
                os.ftruncate(fd, _FILE_SIZE)
            self._disk.write(fd, data, 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)
        if is_new:
            self._disk.sync_folder(self.path.parent)


def _flat(earlier: tuple[tuple[int, int], ...]) -> list[int]:
    """The pairs as numbers; only the last ones if there are more than fit."""
    numbers = [number for pair in earlier[-_MOST_EARLIER:] for number in pair]
    return numbers + [0] * (2 * _MOST_EARLIER - len(numbers))


def _checksum(data: bytes) -> int:
    return zlib.crc32(data[: _OURS_AT + _OURS.size - 4])
