"""Consume queue ext: what a queue entry has no room for, kept beside the queue by brokers that filter with bitmaps.

An entry whose tags code is at most MAX_EXT_ADDRESS holds the address of a unit instead (format.EXT_UNIT), and the unit
the real tags code. We never write such units; a queue that RocketMQ wrote with them is read through this module.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from .format import EXT_BASE, EXT_UNIT, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from .open_files import OpenFiles

_USUAL_BITMAP = 64  # bytes; with RocketMQ's defaults it is 14


class ExtUnit(NamedTuple):
    """What a unit says of a message: its tags code, when it was stored (ms), and whose filters match it."""

    tags_code: int
    store_time: int
    bitmap: bytes


class ConsumeQueueExt:
    """The units of one queue, in files of fixed size that are named for the position of their first byte."""

    __slots__ = ("_file_size", "_files", "_folder")

    def __init__(self, folder: Path, file_size: int, files: OpenFiles) -> None:
        self._folder = folder
        self._file_size = file_size
        self._files = files

    def tags_code(self, address: int) -> int | None:
        """The tags code of the unit at `address`; None if there is no such unit: then nobody knows the tag."""
        unit = self.unit(address)
        return None if unit is None else unit.tags_code

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at `address`, or None if there is none."""
        position = address - EXT_BASE
        start = position - position % self._file_size
        at = position - start
        try:
            fd = self._files.get(self._folder / segment_name(start))
            data = os.pread(fd, EXT_UNIT.size + _USUAL_BITMAP, at)
            if len(data) < EXT_UNIT.size:
                return None
            size, tags_code, store_time, bitmap_size = EXT_UNIT.unpack_from(data)
            if bitmap_size < 0 or size != EXT_UNIT.size + bitmap_size or at + size > self._file_size:
                return None
            if size > len(data):
                data = os.pread(fd, size, at)
        except OSError:
            return None
        if len(data) < size:
            return None
        return ExtUnit(tags_code, store_time, data[EXT_UNIT.size : size])

    def delete(self) -> None:
        """Remove the units with their files: the queue is gone. What cannot be removed is in nobody's way."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                self._files.forget(path)
            shutil.rmtree(self._folder)
