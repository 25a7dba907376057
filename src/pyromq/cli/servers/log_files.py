"""Log files: `broker.log` is the newest; older ones carry their time in the name and go when space runs out.

broker.20260131T000000-018224.log       all of the 30th of January
broker.20260131T101502-507313.log       the 31st until the file was full
broker.log                              since then
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from pyromq.settings import GiB, MiB

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE = 64 * MiB
MAX_TOTAL = 1 * GiB


class LogFile(logging.Handler):
    """Writes lines to `<folder>/<name>.log` and starts a new file each day and after `max_file` bytes.

    All files of that name together take at most `max_total` bytes; the oldest go first. Only one process per name and
    folder: a second one would keep writing to a renamed file. A line that cannot be written goes to stderr.
    OSError if the file cannot be opened.
    """

    def __init__(self, folder: Path, name: str, *, max_file: int = MAX_FILE, max_total: int = MAX_TOTAL) -> None:
        super().__init__()
        self._folder = folder
        self._name = name
        self._max_file = max_file
        self._max_total = max_total
        self.path = folder / f"{name}.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._open()

    def _open(self) -> None:
        # Unbuffered: once logged, a line is in the file even if the process dies.
        self._file: BinaryIO = self.path.open("ab", buffering=0)
        stat = self.path.stat()
        self._size = stat.st_size
        self._day = _day(stat.st_mtime if stat.st_size else time.time())

    def emit(self, record: logging.LogRecord) -> None:
        line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
        try:
            if self._size and (self._size + len(line) > self._max_file or _day(record.created) != self._day):
                self._rotate(record.created)
            self._file.write(line)
        except OSError:
            sys.stderr.write(line.decode())
        else:
            self._size += len(line)

    def reopen(self) -> None:
        """Continue in a new file of the same name, after someone renamed or removed the open one."""
        self.acquire()
        try:
            self._file.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open()
        finally:
            self.release()

    def close(self) -> None:
        self.acquire()
        try:
            self._file.close()
        finally:
            self.release()
        super().close()

    def _rotate(self, now: float) -> None:
        self._file.close()
        self.path.replace(self._free_name(now))
        self._open()
        self._day = _day(now)
        left = self._max_total - self._max_file
        for path in self.old_files():
            left -= path.stat().st_size
            if left < 0:
                path.unlink()

    def old_files(self) -> list[Path]:
        """The files before this one, newest first."""
        return sorted(self._folder.glob(f"{self._name}.*.log"), key=lambda path: path.name, reverse=True)

    def _free_name(self, now: float) -> Path:
        microseconds = int(now * 1_000_000)
        while True:
            seconds, rest = divmod(microseconds, 1_000_000)
            moment = time.strftime("%Y%m%dT%H%M%S", time.localtime(seconds))
            path = self._folder / f"{self._name}.{moment}-{rest:06d}.log"
            if not path.exists():
                return path
            microseconds += 1


def _day(moment: float) -> tuple[int, ...]:
    return time.localtime(moment)[:3]
