"""Reads the entries of a queue that is not open, a page at a time."""

from __future__ import annotations

import bisect
import contextlib
import os
from typing import TYPE_CHECKING

from .files import first_nonzero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .files import FoundSegment
    from .findings import Report

_PAGE = 200  # entries read at once; there may be ten thousand queues


class EntryPages:
    """The entries of one queue by number. Holds one page and no descriptor."""

    __slots__ = ("_entry_size", "_file_size", "_files", "_report", "_starts", "page", "page_first")

    def __init__(self, files: list[FoundSegment], file_size: int, entry_size: int, report: Report) -> None:
        self._files = files
        self._starts = [file.start for file in files]
        self._file_size = file_size
        self._entry_size = entry_size
        self._report = report
        self.page = b""
        self.page_first = 0  # number of the first entry in the page

    @property
    def first(self) -> int:
        """The number of the first entry in the files."""
        return self._starts[0] // self._entry_size if self._starts else 0

    @property
    def end(self) -> int:
        """The number after the last entry in the files."""
        return (self._starts[-1] + self._file_size) // self._entry_size if self._starts else 0

    def entry(self, number: int) -> bytes | None:
        """An entry; zeros if it has no file; None if it cannot be read, which was reported."""
        at = (number - self.page_first) * self._entry_size
        if not 0 <= at < len(self.page):
            if not self.first <= number < self.end:
                return bytes(self._entry_size)
            self._read(number)
            at = 0
        return self.page[at : at + self._entry_size] or None

    def between(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        """All readable entries from `low` on, before `high`, with their numbers."""
        size = self._entry_size
        for file in self._files:
            number = max(low, file.start // size)
            end = min(high, (file.start + file.length) // size)
            while number < end and self.entry(number) is not None:
                page, first = self.page, self.page_first
                stop = min(end, first + len(page) // size)
                for at in range((number - first) * size, (stop - first) * size, size):
                    yield first + at // size, page[at : at + size]
                number = stop

    def first_written(self, number: int) -> int | None:
        """The first entry from `number` on with a non-zero byte."""
        for index, file in enumerate(self._files):
            with self._opened(index) as fd:
                written = first_nonzero(fd, max(0, number * self._entry_size - file.start), file.length)
                if written is not None:
                    return (file.start + written) // self._entry_size
        return None

    def used(self, is_free: Callable[[bytes], bool]) -> int:
        """The number after the last entry, found by bisecting the last file."""
        if not self._starts:
            return 0
        numbers = range(self._starts[-1] // self._entry_size, self.end)
        nothing = bytes(self._entry_size)
        return numbers.start + bisect.bisect_left(
            numbers, True, key=lambda number: is_free(self.entry(number) or nothing)
        )

    def _read(self, number: int) -> None:
        """Load the page that begins with an entry; empty if it cannot be read."""
        position = number * self._entry_size
        index = bisect.bisect_right(self._starts, position) - 1
        file = self._files[index]
        at = position - file.start
        size = min(_PAGE, (file.length - at) // self._entry_size) * self._entry_size
        self.page, self.page_first = b"", number
        if size > 0:
            with self._opened(index) as fd:
                data = os.pread(fd, size, at)
                self.page = data[: len(data) // self._entry_size * self._entry_size]

    @contextlib.contextmanager
    def _opened(self, index: int) -> Iterator[int]:
        """A descriptor of a file. A system error is reported once and ends the block."""
        file = self._files[index]
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield fd
            finally:
                os.close(fd)
        except OSError as exc:
            if file.length:
                self._report.error(file.path, f"cannot be read: {exc.strerror}")
            self._files[index] = file._replace(length=0)
