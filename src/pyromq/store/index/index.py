"""The index: where the messages with a key lie in the commit log.

Index files follow each other; the last one grows, and when it is full a new one takes over. A file is named for the
local time of its creation, and the order of the names is the order of the files.

Adding takes two steps. `add` notes a record and costs next to nothing; `drain` makes the entries of all records so
far, since hashing many keys at once is many times cheaper. Losing what was not written costs nothing but time: recovery
cuts the files back to what is certain and rebuilds the rest from the commit log.

numpy, which takes a tenth of a second to import, is needed for the first entry and not before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.protocol.hashing import index_hash
from pyromq.protocol.record import HEAD_LAYOUTS, PROPERTIES_LENGTH

from .index_file import Geometry, IndexFile, IndexHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ..disk import Disk
    from ..fast_scan import Bulk
    from .writer import GrowingIndexFile

logger = logging.getLogger(__name__)

# Best number of records per batch. With two keys each, a record takes 0.6 µs in a batch of 1024 and 0.55 µs
# in one of this size; the event loop waits a millisecond for it (CPython 3.11).
BATCH = 2048

# Pieces that a record is written in: head, body, topic, length of the properties, properties.
PIECES = 5
# The fields needed from a head with IPv4 hosts: its offset and its store time.
_HEAD = HEAD_LAYOUTS[0].only("physical_offset", "store_timestamp")
_NO_OFFSET = 2**63 - 1  # beyond every message

_NAME = re.compile(r"[0-9]{17}", re.ASCII)


class IndexFiles:
    """The index of one store, used by one thread.

    A record can be found once it was added; the system has its entry once `flush` returned, and it survives a power
    failure once the paths it returned were synced.
    """

    def __init__(self, folder: Path, slots: int, entries: int, disk: Disk, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._geometry = Geometry(slots, entries)
        self._disk = disk
        self._clock = clock
        self._files: list[IndexFile] = []
        self._growing: GrowingIndexFile | None = None  # the last of them, once something was added to it
        # For records without entries yet: heads, topics as text or with their lengths, lengths of properties,
        # and the properties, each after a separator. One buffer for all: separate objects would be cold when their
        # turn comes, and take twice the time.
        self._heads = bytearray()
        self._topics: list[str | bytes] = []
        self._sizes = bytearray()
        self._properties = bytearray()
        # Keys, with their hashes, that have no entry yet because the disk did not take them.
        self._hashed: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None
        self._unsynced: list[Path] = []
        # After a crash: files whose content is uncertain. `cut_back` checks all of their entries.
        self._unsure: set[Path] = set()

    def __repr__(self) -> str:
        return f"<IndexFiles {len(self._files)} files>"

    # Files

    def load(self, crashed: bool = False, checkpoint_time: int = 0) -> None:
        """Find the files. StoreError names the path of a stray file or one of the wrong size.

        After a crash only files that were full before `checkpoint_time` are certain; RocketMQ deletes
        the others. Here `cut_back` must follow, which repairs them.
        """
        self._files = [IndexFile.load(path, self._geometry) for path in self._paths()]
        for file in list(self._files):
            if not file.is_plausible:
                logger.warning("index file %s has a damaged header; keeping the entries that make sense", file.path)
                self._cut_back_file(file, _NO_OFFSET)
            elif crashed and (not file.is_full or file.header.end_time >= checkpoint_time):
                # Even if the header is old: slots may have been written since.
                self._unsure.add(file.path)

    def _paths(self) -> list[Path]:
        paths = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if path.is_dir():
                continue
            if not _NAME.fullmatch(path.name):
                raise StoreError(f"{path} is not an index file; move it away")
            paths.append(path)
        if paths and paths[-1].stat().st_size == 0:
            # Created just before a crash and never used.
            self._disk.delete(paths.pop())
        return paths

    def cut_back(self, offset: int) -> None:
        """Forget the entries of messages from `offset` on, because the log ends there or is replayed from there.

        Otherwise new messages at those offsets would count as indexed. After a crash, uncertain files
        keep only what makes sense. OSError leaves an unusable index.
        """
        self.drain()
        self._stop_growing()
        for file in list(self._files):
            if file.path in self._unsure or file.header.end_offset >= offset:
                self._cut_back_file(file, offset)

    def _cut_back_file(self, file: IndexFile, offset: int) -> None:
        from .writer import cut_back

        if cut_back(file, offset, self._disk):
            self._unsure.discard(file.path)
            logger.info("index file %s cut back to %d entries", file.path.name, file.header.next_entry - 1)
        else:
            self._delete(file)
            self._files.remove(file)

    def expire(self, log_start: int) -> list[Path]:
        """Give up the files whose messages all lie before `log_start`, but never the last file.

        Returns their paths, for the caller to delete once the messages are gone.
        """
        expired = []
        while len(self._files) > 1 and self._files[0].header.end_offset < log_start:
            file = self._files.pop(0)
            self._forget(file)
            expired.append(file.path)
        return expired

    def _delete(self, file: IndexFile) -> None:
        self._disk.delete(file.path)
        self._forget(file)

    def _forget(self, file: IndexFile) -> None:
        self._unsure.discard(file.path)
        if file.path in self._unsynced:
            self._unsynced.remove(file.path)

    def close(self) -> None:
        """Close all files. What was not flushed is lost."""
        if self._growing is not None:
            self._growing.close()
            self._growing = None
        self._files.clear()
        self._clear_pending()
        self._hashed = None

    def destroy(self) -> None:
        """Delete the index with all its files."""
        files = list(self._files)
        self.close()
        for file in files:
            self._delete(file)

    # Adding

    def add(self, topic: str, properties: bytes, physical_offset: int, store_timestamp: int) -> None:
        """Note a record, to be indexed under its keys. Records come in log order."""
        self._heads += head(physical_offset, store_timestamp)
        self._topics.append(topic)
        self._sizes += PROPERTIES_LENGTH.pack(len(properties))
        self._properties += b"\x02%b" % properties

    def add_written(self, pieces: list[bytes]) -> None:
        """As `add`, for records in the pieces they were written in.

        A head must have the size of one with IPv4 hosts; `head` makes one.
        """
        if len(pieces) == PIECES:
            head, _, topic, size, properties = pieces
            self._heads += head
            self._topics.append(topic)
            self._sizes += size
            self._properties += b"\x02%b" % properties
        elif pieces:
            self._heads += b"".join(pieces[0::PIECES])
            self._topics += pieces[2::PIECES]
            self._sizes += b"".join(pieces[3::PIECES])
            self._properties += b"\x02"
            self._properties += b"\x02".join(pieces[4::PIECES])

    def add_joined(self, heads: bytes, topics: list[bytes], sizes: bytes, properties: bytes) -> None:
        """As `add_written`, for pieces that are joined: of the properties each begins with a separator."""
        self._heads += heads
        self._topics += topics
        self._sizes += sizes
        self._properties += properties

    def add_bulk(self, bulk: Bulk) -> None:
        """As `add`, for many records read back; pending ones come before them."""
        from .keys import key_hashes

        self.drain()
        self._take(*key_hashes(bulk.topics, bulk.properties), bulk.physical, bulk.stored)
        self._add_hashed()

    def drain(self, least: int = 1) -> None:
        """Make the entries of all records noted so far, if there are at least this many: BATCH after an append.

        OSError if the disk does not take them; no key is lost, and the next call continues where this one stopped.
        """
        if self._hashed is not None:
            self._add_hashed()
        if len(self._topics) < max(least, 1):
            return
        self._hash_pending()
        self._clear_pending()
        self._add_hashed()

    def _hash_pending(self) -> None:
        import numpy as np

        from .keys import HEAD, joined_key_hashes

        heads = np.frombuffer(self._heads, HEAD)
        sizes = np.frombuffer(self._sizes, f">i{PROPERTIES_LENGTH.size}").astype(np.intp)
        offsets, times = heads["physical_offset"].astype(np.int64), heads["store_timestamp"].astype(np.int64)
        self._take(*joined_key_hashes(self._topics, self._properties, sizes), offsets, times)

    def _clear_pending(self) -> None:
        self._topics.clear()
        for buffer in (self._heads, self._sizes, self._properties):
            buffer.clear()

    def _take(
        self,
        hashes: NDArray[np.int64],
        numbers: NDArray[np.intp],
        offsets: NDArray[np.int64],
        times: NDArray[np.int64],
    ) -> None:
        """Keep the hashes of keys until they have entries; `numbers` says which record each belongs to."""
        import numpy as np

        key_offsets, key_times = offsets[numbers], times[numbers]
        # Everything before the newest entry is indexed already; the same offset may follow if it has several keys.
        fresh = key_offsets == np.maximum.accumulate(key_offsets)
        if self._files:
            fresh &= key_offsets >= self._files[-1].header.end_offset
        if not fresh.all():
            hashes, key_offsets, key_times = hashes[fresh], key_offsets[fresh], key_times[fresh]
        self._hashed = hashes, key_offsets, key_times

    def _add_hashed(self) -> None:
        assert self._hashed is not None
        hashes, offsets, times = self._hashed
        while len(hashes):
            growing = self._growing or self._grow()
            added = growing.add(hashes, offsets, times)
            hashes, offsets, times = self._hashed = hashes[added:], offsets[added:], times[added:]
            if growing.is_full:
                self._stop_growing()
        self._hashed = None

    def _grow(self) -> GrowingIndexFile:
        """The last file, for writing; a new one if there is none or it is full."""
        from .writer import GrowingIndexFile

        last = self._files[-1] if self._files else None
        if last is not None and not last.is_full:
            self._growing = GrowingIndexFile.continuing(last, self._disk)
            self._files[-1] = self._growing
        else:
            seed = last.header if last is not None else IndexHeader()
            self._growing = GrowingIndexFile.create(self._new_path(), self._geometry, seed, self._disk)
            self._files.append(self._growing)
            logger.info("index file %s created", self._growing.path.name)
        return self._growing

    def _new_path(self) -> Path:
        millis = int(self._clock() * 1000)
        name = f"{time.strftime('%Y%m%d%H%M%S', time.localtime(millis // 1000))}{millis % 1000:03d}"
        if self._files and name <= (last := self._files[-1].path.name):
            # The clock was set back, or summer time ended. The order of the names must be the order of the files.
            name = f"{int(last) + 1:017d}"
        return self._folder / name

    def _stop_growing(self) -> None:
        """Write out the growing file, to be synced with the next flush, and free its memory."""
        if self._growing is not None:
            self._write_out(self._growing)
            self._files[-1] = self._growing.closed()
            self._growing = None

    # Flushing

    def flush(self, sync: bool = False) -> list[Path]:
        """Hand everything to the system. Returns the files to sync; with `sync`, they are synced here.

        OSError if the disk does not take it; the next call tries again.
        """
        self.drain()
        if self._growing is not None:
            self._write_out(self._growing)
        paths = list(self._unsynced)
        if sync:
            for path in paths:
                self._sync(path)
        self._unsynced.clear()
        return [] if sync else paths

    def _write_out(self, growing: GrowingIndexFile) -> None:
        if growing.write_out() and growing.path not in self._unsynced:
            self._unsynced.append(growing.path)

    def _sync(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)

    # Reading

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and offset of the newest message with an entry; zeros if there is none."""
        header = self._files[-1].header if self._files else IndexHeader()
        return header.end_time, header.end_offset

    def find(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Up to `max_num` offsets of messages that may have this key, stored from `begin` to `end`.

        The newest come first, and one may come twice. Keys are known only by their hashes, so the caller
        must compare the key. StoreError if a file cannot be read.
        """
        with contextlib.suppress(OSError):  # the store learns of it at its next flush; search what is there
            self.drain()
        key_hash = index_hash(f"{topic}#{key}")
        found: list[int] = []
        for file in reversed(self._files):
            if len(found) >= max_num:
                break
            if file.header.next_entry == 1:
                continue
            if file.overlaps(begin, end):
                found += file.find(key_hash, max_num - len(found), begin, end)
            if file.header.begin_time < begin:
                break
        return found

    def check(self) -> Iterator[str]:
        """What is wrong with the files, a sentence each; reads all of them. Flush first."""
        from .writer import check

        before = 0
        for file in self._files:
            yield from check(file)
            if file.header.next_entry == 1:  # made just before a crash, and not written to since
                continue
            if file.header.begin_offset < before:
                yield (
                    f"{file.path}: begins at offset {file.header.begin_offset}, but the file before it ends at {before}"
                )
            before = file.header.end_offset


def head(physical_offset: int, store_timestamp: int) -> bytes:
    """What the index needs from a record's head, in the layout of most heads."""
    return _HEAD.pack(physical_offset, store_timestamp)
