"""The epochs of a log: which part of it was written under which master (docs/spec/controller.md 5).

    number of entries | line feed | CRC-32 of the lines that follow, without its top bit | line feed
    epoch-start | line feed
    ...

In a group that fails over, each new master begins an epoch where its log ends. Two logs are equal up to the end of the
newest epoch that both have with the same start, as far as both have it; whatever one has beyond that is not in the
other. `<file>.bak` is what the file was before; it counts if the file itself is missing or damaged.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import os
import shutil
import zlib
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.protocol.auto_switch import Epoch, show

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..disk import Disk

logger = logging.getLogger(__name__)

EPOCH_FILE = "epochFileCheckpoint"

_CRC_BITS = 0x7FFFFFFF
_LARGEST = 1 << 63


class EpochTable:
    """Epochs in their order, each from its start up to the start of the next, the last without an end.

    Changes are made here and last once `save` has returned; until then they are `unsaved`.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[Epoch] = []
        self.unsaved = False
        self._is_sound = False  # the file was read or written as a whole

    def __repr__(self) -> str:
        return f"<EpochTable {show(self.entries)}>"

    @property
    def entries(self) -> tuple[Epoch, ...]:
        return tuple(self._entries)

    @property
    def last(self) -> Epoch | None:
        return self._entries[-1] if self._entries else None

    @property
    def last_epoch(self) -> int:
        """-1 if there is none."""
        return self._entries[-1].epoch if self._entries else -1

    # What it tells

    def entry_of(self, offset: int) -> Epoch | None:
        """The epoch to which the byte at `offset` belongs."""
        at = self._after(offset)
        return self._entries[at - 1] if at else None

    def end_of(self, offset: int, log_end: int) -> int:
        """Where the epoch of `offset` ends, the end of the log being `log_end`."""
        at = self._after(offset)
        return self._entries[at].start if at < len(self._entries) else log_end

    def _after(self, offset: int) -> int:
        """Which is the first that begins after `offset`."""
        return bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start)

    def common_end(self, log_end: int, other: tuple[Epoch, ...], other_end: int) -> int | None:
        """Up to where this log, which ends at `log_end`, is equal to another one. None if they have no epoch in common.

        As far as the epochs tell: there may be more that is equal.
        """
        return common_end(self.entries, log_end, other, other_end)

    # What changes it

    def append(self, entry: Epoch) -> None:
        """Begin an epoch. Those in which nothing was written before it are forgotten. StoreError if it is not newer.

        Unlike RocketMQ, which keeps them and refuses the new one: two masters would then share an epoch.
        """
        last = self.last_epoch
        if entry.epoch <= last:
            raise StoreError(f"epoch {entry.epoch} cannot follow epoch {last}")
        self._entries = [each for each in self._entries if each.start < entry.start]
        self._entries.append(entry)
        self.unsaved = True

    def cut(self, end: int) -> None:
        """The log was cut off at `end`: forget the epochs from there on."""
        self._keep([entry for entry in self._entries if entry.start < end])

    def drop_before(self, log_start: int) -> None:
        """The log begins at `log_start` now: forget the epochs that ended before it."""
        ends = [*(entry.start for entry in self._entries[1:]), _LARGEST]
        self._keep([entry for entry, end in zip(self._entries, ends, strict=False) if end > log_start - 1])

    def clear(self) -> None:
        """The log is gone."""
        self._keep([])

    def _keep(self, entries: list[Epoch]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.unsaved = True

    # Its file

    def load(self) -> None:
        """Read the file, or its `.bak`. StoreError if there are only damaged ones: a guess could cost messages."""
        problems = []
        for path in (self.path, _backup(self.path)):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise StoreError(f"cannot read {path}: {exc.strerror}") from exc
            try:
                self._entries = _decode(text)
            except ValueError as exc:
                problems.append(f"{path}: {exc}")
            else:
                self._is_sound = path == self.path
                if problems:
                    logger.error("%s; %s is taken instead", problems[0], path)
                return
        if problems:
            raise StoreError("; ".join(problems))

    def save(self) -> None:
        """Return once the table survives a power failure. OSError leaves the file as it was.

        May run in a thread, while nobody changes the table.
        """
        entries = self.entries
        if entries:
            self._write(_encode(entries))
        else:
            # A file without entries would be none: RocketMQ takes it for damaged.
            self._disk.delete(_backup(self.path))
            self._disk.delete(self.path)
            self._disk.sync_folder(self.path.parent)
            self._is_sound = False
        if entries == self.entries:
            self.unsaved = False

    def _write(self, text: bytes) -> None:
        new = self.path.with_name(self.path.name + ".tmp")
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                self._disk.write(fd, text, 0)
                self._disk.sync(fd)
            finally:
                os.close(fd)
            self._back_up()
            new.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        self._is_sound = True
        self._disk.sync_folder(self.path.parent)

    def _back_up(self) -> None:
        """Link the file as `.bak`, unless it is damaged: then the old `.bak` is all there is."""
        if not self._is_sound:
            return
        backup = _backup(self.path)
        backup.unlink(missing_ok=True)
        try:
            os.link(self.path, backup)
        except OSError:  # a file system without links
            shutil.copyfile(self.path, backup)


def common_end(own: tuple[Epoch, ...], own_end: int, other: tuple[Epoch, ...], other_end: int) -> int | None:
    """Up to where two logs are equal, by their epochs. None if they have none in common."""
    others = dict(other)
    for entry in reversed(own):
        if others.get(entry.epoch) == entry.start:
            return min(_end(own, entry, own_end), _end(other, entry, other_end))
    return None


def _end(entries: Iterable[Epoch], entry: Epoch, log_end: int) -> int:
    following = next((each.start for each in entries if each.epoch > entry.epoch), log_end)
    return min(following, log_end)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _encode(entries: Iterable[Epoch]) -> bytes:
    lines = [b"%d-%d\n" % entry for entry in entries]
    return b"%d\n%d\n%b" % (len(lines), zlib.crc32(b"".join(lines)) & _CRC_BITS, b"".join(lines))


def _decode(text: bytes) -> list[Epoch]:
    """ValueError says what is wrong."""
    lines = text.split(b"\n", 2)
    if len(lines) < 3:
        raise ValueError("the file is not whole")
    try:
        count, crc = int(lines[0]), int(lines[1])
        entries = [Epoch(*map(int, line.split(b"-", 1))) for line in lines[2].splitlines()]
    except (ValueError, TypeError):
        raise ValueError("it is no table of epochs") from None
    if count != len(entries) or count < 1:
        raise ValueError(f"it has {len(entries)} epochs instead of {count}")
    if crc and crc != zlib.crc32(lines[2]) & _CRC_BITS:
        raise ValueError("its checksum is wrong")
    for entry, following in itertools.pairwise(entries):
        if following.epoch <= entry.epoch or following.start < entry.start:
            raise ValueError(f"epoch {following.epoch} follows epoch {entry.epoch}")
    if any(min(entry) < 0 or max(entry) >= _LARGEST for entry in entries):
        raise ValueError("it has impossible epochs")
    return entries
