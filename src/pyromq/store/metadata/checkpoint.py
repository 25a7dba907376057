"""The checkpoint: up to which store time the log, the queues and the index are certainly on disk.

After a crash, recovery begins with the last file that began before these times; what came later is replayed.

    i64 commit log | i64 consume queues | i64 index | i64 of RocketMQ 5.x, kept | i64 confirm offset | up to 4096, kept

The confirm offset belongs to groups that fail over (docs/spec/controller.md 7); it is 0 in all others.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from pyromq.errors import StoreError

from .. import failpoints
from ..format import CHECKPOINT_CONFIRMED, CHECKPOINT_CONFIRMED_AT, CHECKPOINT_SIZE, CHECKPOINT_TIMES

if TYPE_CHECKING:
    from pathlib import Path

    from ..disk import Disk

logger = logging.getLogger(__name__)

# The store times of a message and its entries may differ by this much: clocks are not exact.
_MARGIN = 3000


class Checkpoint:
    """Store times in milliseconds, 0 for never; set after each flush, written by `save`."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._data = bytearray(CHECKPOINT_SIZE)
        self.physic = 0
        self.logics = 0
        self.index = 0
        self.confirmed = 0

    def __repr__(self) -> str:
        return f"<Checkpoint physic={self.physic} logics={self.logics} index={self.index}>"

    @property
    def min_timestamp(self) -> int:
        """Everything stored before this time is on disk in the log and in the queues."""
        return max(0, min(self.physic, self.logics) - _MARGIN)

    @property
    def min_timestamp_index(self) -> int:
        """The same, for the index as well."""
        return min(self.min_timestamp, self.index)

    def load(self) -> None:
        """Load the file. A missing or short file, or an impossible time, counts as 0: recover more.

        StoreError if the file cannot be read.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StoreError(f"cannot read {self._path}: {exc.strerror}") from exc
        if len(data) < CHECKPOINT_SIZE:
            logger.warning("%s has %d bytes of %d; what is missing counts as 0", self._path, len(data), CHECKPOINT_SIZE)
        data = data[:CHECKPOINT_SIZE].ljust(CHECKPOINT_SIZE, b"\0")
        self.physic, self.logics, self.index = (max(0, time) for time in CHECKPOINT_TIMES.unpack_from(data))
        (self.confirmed,) = CHECKPOINT_CONFIRMED.unpack_from(data, CHECKPOINT_CONFIRMED_AT)
        self._data[:] = data

    def save(self) -> None:
        """Return once the times are on disk. OSError if that failed; the file may then hold old times or new ones."""
        data = self._data
        CHECKPOINT_TIMES.pack_into(data, 0, self.physic, self.logics, self.index)
        CHECKPOINT_CONFIRMED.pack_into(data, CHECKPOINT_CONFIRMED_AT, self.confirmed)
        is_new = not self._path.exists()
        # One page, written in place as RocketMQ does: no reader ever sees half of it.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._disk.write(fd, bytes(data), 0)
            failpoints.hit("checkpoint.written")
            self._disk.sync(fd)
        finally:
            os.close(fd)
        if is_new:
            self._disk.sync_folder(self._path.parent)
