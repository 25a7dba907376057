"""A disk that can lose power, and a process that can die, in the middle of a test.

    disk = RecordingDisk(root)
    store = MessageStore(StoreConfig(root=str(root)), disk=disk)
    ...                                     # open it, use it
    disk.note(offset)                       # from here on this must survive; see `notes`
    abandon(store)                          # as `kill -9`: nothing is flushed, written or tidied up
    disk.lose_power(elsewhere, Random(7))   # now, or at any earlier moment: what the disk may hold afterwards

A killed process leaves the page cache behind, so everything it wrote is there. A power failure loses the page cache:
unsynced data may be there or not, page by page and in any order; pages may be torn between sectors; names created or
removed may be so or not, until their folder was synced. We assume one thing, as every journaling file system does: a
new file does not get its name before it gets the size it was made with.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyromq.errors import StoreNotWritable
from pyromq.store.disk import Disk

if TYPE_CHECKING:
    from random import Random

    from pyromq.store import MessageStore

PAGE = 4096
SECTOR = 512

_GONE = 0  # in place of the number of a file


def abandon(store: MessageStore) -> None:
    """Drop an open store, or one that failed to open, as if its process had been killed.

    Its threads end and its lock and descriptors are freed. Everything only in memory is lost, nothing more is synced,
    and its files stay: those about to be deleted, the one made in advance, the abort file.
    """
    store.flusher.error = StoreNotWritable("killed")  # so that its thread flushes no more
    store._removal.take(store.root)
    log = store.log
    log._allocator.shutdown(wait=True)
    spare, log._spare = log._spare, None
    store.abandon()
    if spare is not None and spare.exception() is None:
        spare.result().close()


class Made(NamedTuple):
    """A file got a name. `content` is what it held then."""

    path: Path
    file: int
    content: bytes


class Wrote(NamedTuple):
    file: int
    at: int
    data: bytes


class Synced(NamedTuple):
    file: int


class FolderSynced(NamedTuple):
    path: Path
    folders: frozenset[str]  # those in it


class Deleted(NamedTuple):
    path: Path


class Noted(NamedTuple):
    value: Any


Event: TypeAlias = Made | Wrote | Synced | FolderSynced | Deleted | Noted


class RecordingDisk(Disk):
    """The real disk, recording every change under `root` in order.

    Files that exist when it is made count as safe. Several stores may use it one after the other: the next one finds
    what a killed one left. Any thread may use it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.events: list[Event] = []
        self._lock = threading.RLock()
        self._numbers: dict[tuple[int, int], int] = {}  # of live files, by device and inode
        self._next = 0
        self._known: dict[Path, tuple[int, int]] = {}  # files by their name, with device and inode
        folders = [self.root]
        while folders:
            folder = folders.pop()
            folders += self._look(folder)
            self.sync_folder(folder)

    def note(self, value: Any) -> None:
        """Record `value` among the changes: all before it were made, none after it."""
        with self._lock:
            self.events.append(Noted(value))

    def notes(self, at: int | None = None) -> list[Any]:
        """The values noted among the first `at` events, or all."""
        return [event.value for event in self.events[:at] if isinstance(event, Noted)]

    def lose_power(self, into: Path, random: Random, at: int | None = None) -> None:
        """Write to the folder `into` what the disk may hold if power fails after the first `at` events, or now."""
        with self._lock:
            events = self.events[:at]
        state = _State(self.root)
        for event in events:
            state.apply(event)
        state.write(into, random)

    # What the store does

    def write(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        with self._lock:
            number = self._number(fd)
            super().write(fd, data, at)
            self.events.append(Wrote(number, at, bytes(data)))

    def zero(self, fd: int, start: int, end: int) -> None:
        with self._lock:
            number = self._number(fd)
            before = len(self.events)
            super().zero(fd, start, end)
            del self.events[before:]  # it may have been done by writing
            if start < end:
                self.events.append(Wrote(number, start, bytes(end - start)))

    def sync(self, fd: int) -> None:
        # Not asked of the real disk: nobody pulls that plug, and tests are faster without.
        with self._lock:
            self.events.append(Synced(self._number(fd)))

    def sync_file_system(self, folder: Path) -> bool:
        return False  # what it forgets, it forgets file by file

    def sync_folder(self, folder: Path) -> None:
        folder = folder.resolve()
        with self._lock:
            self.events.append(FolderSynced(folder, frozenset(path.name for path in self._look(folder))))

    def create(self, path: Path, size: int, *, reserve: bool = True) -> int:
        with self._lock:
            fd = super().create(path, size, reserve=reserve)
            self._made(path.resolve(), os.fstat(fd), bytes(size))
            return fd

    def delete(self, path: Path) -> None:
        path = path.resolve()
        with self._lock:
            try:
                stat = path.stat()
            except FileNotFoundError:
                return
            super().delete(path)
            self._numbers.pop((stat.st_dev, stat.st_ino), None)
            self._known.pop(path, None)
            self.events.append(Deleted(path))

    def _number(self, fd: int) -> int:
        """The number of an open file. Files created without us become known here."""
        stat = os.fstat(fd)
        number = self._numbers.get((stat.st_dev, stat.st_ino))
        # A file system gives the inode of a file that went without us to the next one; that one is empty at first.
        if number is None or stat.st_size == 0:
            number = self._made(Path(f"/proc/self/fd/{fd}").resolve(), stat, b"")
        return number

    def _made(self, path: Path, stat: os.stat_result, content: bytes) -> int:
        number = self._next = self._next + 1
        self._numbers[stat.st_dev, stat.st_ino] = number
        self._known[path] = stat.st_dev, stat.st_ino
        self.events.append(Made(path, number, content))
        return number

    def _look(self, folder: Path) -> list[Path]:
        """Record files in `folder` that were created, replaced or removed without us. Returns the folders in it."""
        here = list(folder.iterdir())
        for path in here:
            with contextlib.suppress(FileNotFoundError):  # somebody else removes or renames it meanwhile
                stat = path.stat()
                if S_ISREG(stat.st_mode) and self._known.get(path) != (stat.st_dev, stat.st_ino):
                    self._made(path, stat, path.read_bytes())
        for path in [path for path in self._known if path.parent == folder and path not in here]:
            del self._known[path]
            self.events.append(Deleted(path))
        return [path for path in here if path.is_dir()]


@dataclass(slots=True)
class _File:
    """What the disk certainly holds, and the writes since."""

    content: bytearray
    pending: list[Wrote] = field(default_factory=list)


class _State:
    """What a disk holds after some events, as far as that is certain."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, _File] = {}
        # Files by folder and name, as they are now, and what each folder held when it was synced; None is a folder.
        self._now: dict[Path, dict[str, int | None]] = {}
        self._safe: dict[Path, dict[str, int | None]] = {}

    def apply(self, event: Event) -> None:
        match event:
            case Made(path, file, content):
                self._files[file] = _File(bytearray(content))
                self._now.setdefault(path.parent, {})[path.name] = file
            case Wrote(file):
                self._files[file].pending.append(event)
            case Synced(file):
                for write in self._files[file].pending:
                    _overwrite(self._files[file].content, write, 0, write.at + len(write.data))
                self._files[file].pending.clear()
            case FolderSynced(folder, folders):
                self._safe[folder] = self._now.get(folder, {}) | dict.fromkeys(folders)
            case Deleted(path):
                self._now.get(path.parent, {}).pop(path.name, None)

    def write(self, into: Path, random: Random) -> None:
        """Write what may be left, chosen by `random`, into the folder `into`."""
        # Nothing that was not synced is left, or all of it, or anything in between.
        likely = random.choice((0.0, 0.1, 0.5, 0.9, 1.0, 1.0))
        likely_data = random.choice((likely, random.random()))
        self._write_folder(self._root, into, random, likely, likely_data)

    def _write_folder(self, folder: Path, into: Path, random: Random, likely: float, likely_data: float) -> None:
        into.mkdir(exist_ok=True)
        inside = [other.relative_to(folder) for other, names in self._now.items() if names and folder in other.parents]
        now = self._now.get(folder, {}) | {path.parts[0]: None for path in inside}
        safe = self._safe.get(folder, {})
        for name in sorted({*now, *safe}):
            old, new = safe.get(name, _GONE), now.get(name, _GONE)
            if old != new and random.random() >= likely:
                # A name that was removed and created again may only have been removed.
                new = _GONE if _GONE not in (old, new) and random.random() < 0.3 else old
            if new is None:
                self._write_folder(folder / name, into / name, random, likely, likely_data)
            elif new != _GONE:
                (into / name).write_bytes(_after_power_loss(self._files[new], random, likely_data))


def _overwrite(content: bytearray, write: Wrote, start: int, end: int) -> None:
    """Do as much of the write as lies in [start, end)."""
    start, end = max(start, write.at), min(end, write.at + len(write.data))
    if start < end:
        if len(content) < start:
            content += bytes(start - len(content))
        content[start:end] = write.data[start - write.at : end - write.at]


def _after_power_loss(file: _File, random: Random, likely: float) -> bytes:
    """The content of a file if each page got a random number of its pending writes."""
    content = bytearray(file.content)
    pages: dict[int, list[Wrote]] = {}
    for write in file.pending:
        for page in range(write.at // PAGE, (write.at + len(write.data) - 1) // PAGE + 1):
            pages.setdefault(page, []).append(write)
    for page, writes in sorted(pages.items()):
        done = len(writes) if random.random() < likely else random.choice((0, random.randint(0, len(writes) - 1)))
        torn = random.random() < 0.25
        for at in range(page * PAGE, (page + 1) * PAGE, SECTOR):
            for write in writes[: random.randint(0, done) if torn else done]:
                _overwrite(content, write, at, at + SECTOR)
    return bytes(content)
