"""The message store: commit log, consume queues, index and checkpoint in one folder.

    with MessageStore(StoreConfig(root="data")) as store:
        queue = store.queue("orders", 0)
        (result,) = store.put([(queue, [MessageRecord("orders", b"hello")])])
        store.get(queue, 0, 32).slices

One thread uses a store; only fsync and file creation happen in others, behind the scenes. The owner calls `maintain`
and `clean` now and then, since a store has no timer of its own.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from pyromq.errors import CorruptRecord, OffsetOutOfRange, StoreError, StoreNotWritable
from pyromq.protocol.record import SIZE_AND_MAGIC, HeadKind, read_head, store_timestamp_of
from pyromq.settings import options_of

from . import failpoints
from .commit_log import CommitLog, is_head_of
from .config import StoreConfig
from .confirmed import Confirmed
from .disk import Disk
from .flush import Flusher
from .format import ABORT, CHECKPOINT, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, PhysicalOffset, refuse_foreign_store
from .index.index import IndexFiles
from .index.key_query import KeyQuery, find_by_key
from .lock import StoreLock
from .log_copy import LogCopy, whole_records
from .memory import available_memory
from .metadata.checkpoint import Checkpoint
from .metadata.deleted_topics import DeletedTopics
from .put import Appender, PutResult
from .queues import queue_ends
from .queues.consume_queue_ext import extend
from .queues.consume_queues import ConsumeQueues
from .queues.queue_ends import QUEUE_ENDS
from .read import Reader
from .recovery import Recovery, first_record
from .removal import Removal
from .retention import CleaningPlan, plan_cleaning
from .tags import TagsCodes, parse_delay_levels
from .upkeep import Mark, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from pyromq.protocol.record import MessageRecord

    from .check.findings import Finding
    from .get_result import GetResult
    from .put import Run, Unit
    from .queues.consume_queue import ConsumeQueue
    from .queues.consume_queue_ext import Bitmap, ExtUnit

logger = logging.getLogger(__name__)

_COPY = b" copy"  # stands in the abort file of a slave
_AHEAD = 24 * 3600 * 1000  # ms; no correct clock is that far behind its own earlier times

# Reasons for refusing messages.
_CLOSED = "closed"
_DISK = "disk"
_QUEUES = "queues"


class MessageStore:
    """An open store. Nothing acknowledged is buffered: `put` returns when the system has the bytes.

    After `put` a message survives a killed process; once the future of `flushed` is done, a power failure.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
        memory: int | None = None,
    ) -> None:
        self.config = config
        self.root = Path(config.root)
        self.disk = disk or Disk()
        self._clock = clock
        self._lock: StoreLock | None = None
        self._tags = TagsCodes(parse_delay_levels(config.delay_levels))
        self._checkpoint = Checkpoint(self.root / CHECKPOINT, self.disk)
        self.log = CommitLog(config.commit_log_folders, config.commit_log_file_size, self.disk)
        self.queues = ConsumeQueues(
            self.root, config.consume_queue_file_size, self.disk, ext_file_size=config.consume_queue_ext_file_size
        )
        self.index = (
            IndexFiles(self.root / INDEX, config.hash_slots, config.index_entries, self.disk, clock)
            if config.index
            else None
        )
        self.reader = Reader(self.log, config, available_memory() if memory is None else memory)
        self._appender = Appender(
            self.log,
            self._tags,
            self.index,
            clock,
            max_message_size=config.max_message_size,
            compatible_49=config.compatible_49,
        )
        self.flusher = Flusher(self.log, config)
        self._upkeep = Upkeep(self.queues, self.index, self._checkpoint, self.flusher, self.disk, config)
        self._deleted_topics = DeletedTopics(self.root, self.disk)
        self._removal = Removal(self.disk)
        self._open = False
        # Whether the last run ended without closing; known once the store is open.
        self.crashed = False
        # How much of the log `open` has read. Other threads may look at it.
        self.recovered_percent = 0
        # How many more clean-up rounds run whatever the hour.
        self._rounds_now = 0
        # With `archive_before_delete`: up to here everything is archived that anybody archives. Whoever knows sets it.
        self.archived = 0
        # Expired files that clean-up keeps for that reason.
        self.kept_for_archive = 0
        # Makes the filter bitmaps of a topic's messages; None if the topic has none.
        self.bitmaps: Callable[[str], Bitmap | None] | None = None
        # Where the newest whole record of the log began and ended when the store was opened.
        self._newest: tuple[int, int] | None = None
        self._copy: LogCopy | None = None
        self._is_marked = False  # as a copy, in the abort file
        self._confirmed = Confirmed(self.queues)
        # Why this store never takes messages: it holds a copy of another log. None if it does.
        self.read_only: str | None = None
        # Why writing is refused at present, by cause; empty if it is not.
        self.refusals: dict[str, str] = {}

    # Life

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def open(self) -> None:
        """Lock the folder, recover it, and get ready. StoreError says what is wrong."""
        began = time.monotonic()
        if _CLOSED in self.refusals:
            raise StoreError("a store can be opened only once; create a new MessageStore")
        try:
            self.disk.make_folder(self.root)
        except OSError as exc:
            raise StoreError(f"cannot create {self.root}: {exc.strerror}") from exc
        self._lock = StoreLock(self.root)
        try:
            refuse_foreign_store(self.root)
            crashed = self.crashed = (self.root / ABORT).exists()
            was_copy = crashed and (self.root / ABORT).read_bytes().endswith(_COPY)
            self.log.load()
            self.queues.load(crashed=crashed)
            self._checkpoint.load()
            self._deleted_topics.load()
            if self.index is not None:
                self.index.load(crashed, self._checkpoint.index)
            # Before anything changes: a crash during recovery counts as one, too.
            if not was_copy:  # or that would be forgotten
                (self.root / ABORT).write_text(str(os.getpid()))
            self.disk.sync_folder(self.root)
            failpoints.hit("open.marked")
            self._recover(crashed, was_copy)
            if was_copy:
                (self.root / ABORT).write_text(str(os.getpid()))
            # Nothing new to save; but better to learn now than in a minute that it cannot be written.
            self._checkpoint.save()
        except OSError as exc:
            self._close_files()
            self._unlock()
            raise StoreError(f"cannot open the store in {self.root}: {exc}") from exc
        except BaseException:
            self._close_files()
            self._unlock()
            raise
        self.flusher.start()
        self._upkeep.start(self._clock(), self.log.end)
        self._open = True
        self.recovered_percent = 100
        logger.info(
            "store open in %.3g s, %s: log %s to %s, %s queues",
            time.monotonic() - began,
            "after a crash" if crashed else "after a clean stop",
            self.log.start,
            self.log.end,
            len(self.queues),
        )

    def close(self) -> None:
        """Flush everything and close. The abort file is removed only if all went well."""
        if not self._open:
            return
        self._open = False
        self.refusals[_CLOSED] = "the store was closed"
        clean = False
        try:
            self.cut_torn_record()
            self._upkeep.finish(self._mark())
            if self.refusals.keys() == {_CLOSED}:
                queue_ends.save(self.root / QUEUE_ENDS, self.log.end, self.queues, self.disk)
                clean = True
            failpoints.hit("close.synced")
        except (OSError, StoreError) as exc:
            logger.error("store not closed cleanly: %s; the next start will recover it", exc)
        self._close_files()
        try:
            if clean:
                failpoints.hit("close.unmark")
                self.disk.delete(self.root / ABORT)
        except OSError as exc:
            logger.error("%s not deleted: %s; the next start will recover the store", self.root / ABORT, exc)
        finally:
            # Last of all: until then the abort file is ours.
            self._unlock()

    def abandon(self) -> None:
        """Drop everything as it is, like a crash; the next `open` recovers. For tests, and after failures."""
        self._open = False
        self.refusals[_CLOSED] = "the store was abandoned"
        self._close_files()
        self._unlock()

    def _close_files(self) -> None:
        self.flusher.stop()
        if self.index is not None:
            self.index.close()
        self.queues.close()
        self._removal.close()
        self.log.close()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _recover(self, crashed: bool, was_copy: bool) -> None:
        recovery = Recovery(
            self.log,
            self.queues,
            self.index,
            self._tags,
            deleted=self._deleted_topics.ends,
            check_crc=self.config.check_crc_on_recover,
            progress=self._recovered,
        )
        ends = self.root / QUEUE_ENDS
        if crashed:
            recovery.after_crash(self._safe_timestamp(), was_copy=was_copy)
        else:
            recovery.after_stop(queue_ends.load(ends))
        # The next message must not be older than the newest one, of whatever kind.
        self._appender.last_timestamp = self._believed(recovery.last_timestamp, "the newest message")
        self._newest = recovery.newest
        failpoints.hit("open.recovered")
        self._deleted_topics.fit(self.log.start, self.log.end)
        self._upkeep.write_and_sync(self.queues)
        self.disk.delete(ends)
        logger.info("commit log recovered: ends at %s, %s records dispatched", self.log.end, recovery.count)

    def _recovered(self, percent: int) -> None:
        self.recovered_percent = percent

    def _safe_timestamp(self) -> int:
        checkpoint = self._checkpoint
        safe = checkpoint.min_timestamp_index if self.config.index_safe else checkpoint.min_timestamp
        return self._believed(safe, "the checkpoint")

    def _believed(self, timestamp: int, what: str) -> int:
        """`timestamp`, or 0 if it is so far ahead that a clock was wrong, or a bit flipped, when it was written."""
        if timestamp <= self._clock() * 1000 + _AHEAD:
            return timestamp
        logger.warning("%s is from %s, far in the future; ignoring it", what, timestamp)
        return 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply the settings that may change while the store is open (`hot`); the rest stays."""
        hot = {option.name: getattr(config, option.name) for option in options_of(StoreConfig) if option.hot}
        self.config = dataclasses.replace(self.config, **hot)
        self.reader.reconfigure(self.config)
        self._appender.max_message_size = self.config.max_message_size

    # Writing

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, for writing and reading. You may keep it: the object never changes."""
        return self.queues.get(topic, queue_id)

    @property
    def earliest_timestamp(self) -> int:
        """When the oldest message was stored, in epoch milliseconds; -1 if there is none."""
        try:
            return store_timestamp_of(self.stored_at(self.log.start))
        except OffsetOutOfRange:
            return -1

    @property
    def refusal(self) -> str | None:
        """Why messages are refused at present, or None."""
        return self.failure or self.read_only

    @property
    def failure(self) -> str | None:
        """What is wrong with the store, or None."""
        if self.flusher.error is not None:
            return f"a flush failed: {self.flusher.error}; restart on a healthy disk"
        return next(iter(self.refusals.values()), None)

    def put(self, units: Sequence[Unit | Run]) -> list[PutResult]:
        """Store messages, see `Appender.put`. StoreNotWritable if the store refuses messages at present."""
        self._check_writable()
        results = self._appender.put(units)
        self._dispatched()
        return results

    def put_again(self, unit: Unit) -> list[PutResult]:
        """Store messages that were accepted before, whatever `max_message_size` is now."""
        self._check_writable()
        results = self._appender.put_again(unit)
        self._dispatched()
        return results

    def append_copy(self, offset: int, *pieces: bytes | memoryview) -> list[ConsumeQueue]:
        """Append what the log of a master has at `offset`, see `LogCopy`. Gives the queues that got messages."""
        try:
            self.keep_copy(offset, *pieces)
        finally:
            touched = self.dispatch_copy()
        return touched

    def keep_copy(self, offset: int, *pieces: bytes | memoryview) -> int:
        """As `append_copy`, but the queues get their entries by `dispatch_copy`, which whoever calls this must call.

        Gives the bytes that wait for that.
        """
        # As for messages: entries that cannot be written stay in memory, which is limited.
        if self.flusher.error is not None or _CLOSED in self.refusals or _QUEUES in self.refusals:
            raise StoreNotWritable(self.refusal or "")
        if self._copy is None or self._copy.end != self.log.end:
            self._mark_as_copy(True)
            self._copy = LogCopy(self.log, self.queues, self.index, self._tags, self._restarted, self._newest)
        self._copy.append(offset, pieces)
        return self._copy.end - self._copy.dispatched

    def dispatch_copy(self) -> list[ConsumeQueue]:
        """Give the records of a copy their entries, as far as they are whole. Gives the queues that got messages."""
        return [] if self._copy is None else self._dispatch_copy(self._copy)

    def _dispatch_copy(self, copy: LogCopy) -> list[ConsumeQueue]:
        touched = copy.dispatch()
        self._appender.last_timestamp = max(self._appender.last_timestamp, copy.last_timestamp)
        if self._confirmed.offset is not None:
            self._confirmed.written(touched, copy.dispatched)
        try:
            self._upkeep.after_put(touched)
        except (OSError, StoreError) as exc:
            self._queues_failed(exc)
        return list(touched)

    # In a group that fails over

    @property
    def lacks_confirmed(self) -> bool:
        """Whether the log ends before what the last run knew to be confirmed. To be asked before `limit_readers`."""
        return self._checkpoint.confirmed > int(self.log.end)

    @property
    def confirmed(self) -> int:
        """Where the records end that readers may see."""
        offset = self._confirmed.offset
        return int(self.log.end) if offset is None else offset

    @property
    def kept_end(self) -> int:
        """Up to where the log is there to stay: on disk, and confirmed."""
        return min(self.flusher.flushed, self.confirmed)

    @property
    def is_limited(self) -> bool:
        """Whether readers see only what is confirmed."""
        return self._confirmed.offset is not None

    @property
    def torn(self) -> int:
        """Bytes at the end of the log that are a part of a record, whose rest the master has yet to send."""
        copy = self._copy
        return 0 if copy is None or copy.end != self.log.end else copy.end - copy.dispatched

    def limit_readers(self, offset: int | None = None) -> None:
        """Let readers see no record that ends after `offset`, or after what the last run had confirmed, for now."""
        if offset is None:
            offset = self._checkpoint.confirmed
        self._confirmed.limit(min(max(offset, int(self.log.start)), int(self.log.end)), int(self.log.end))

    def confirm(self, offset: int | None) -> list[ConsumeQueue]:
        """Let readers see the log up to `offset`, or without a limit. Gives the queues that they see more of."""
        shown = self._confirmed.lift() if offset is None else self._confirmed.reach(min(offset, int(self.log.end)))
        self._checkpoint.confirmed = self.confirmed
        return shown

    def cut_torn_record(self) -> int:
        """End the log after its last whole record, if it is a copy that ends within one. Gives the bytes cut off."""
        torn = self.torn
        if torn:
            self._cut(int(self.log.end) - torn)
        self._mark_as_copy(False)
        return torn

    def truncate(self, end: int) -> None:
        """Forget all messages from `end` on, in log, queues and index. StoreError unless a record begins or ends there.

        OSError if the disk fails; the store is then of no use until it was opened anew.
        """
        if not self.log.start <= end <= self.log.end:
            raise StoreError(f"the log goes from {self.log.start} to {self.log.end} and cannot be cut at {end}")
        if end != self.log.end and not self._begins_record(end):
            raise StoreError(f"no message begins at {end}; the log cannot be cut there")
        self._cut(end)

    def wipe(self) -> None:
        """Forget everything: the log goes on, empty, wherever the next copy begins. Errors as for `truncate`."""
        self._cut(int(self.log.start))
        for queue in self.queues:
            queue.clear()
        with self.flusher.cutting():
            self.log.clear()
        self._upkeep.synced_end = 0
        if self._confirmed.offset is not None:
            self._confirmed.limit(0, 0)

    def _cut(self, end: int) -> None:
        confirmed = self._confirmed.offset
        self._confirmed.lift()
        # What comes in place of these messages may be as old as they are, and a checkpoint tells old from new by their
        # times: it must not promise that their entries are on disk. It goes back to where the last file begins.
        self._appender.last_timestamp = self._first_time_before(end)
        # Whatever is being synced belongs to the log as it was.
        self._upkeep.finish(self._mark())
        if self.index is not None and self.index.last_update[1] >= end:
            self.index.cut_back(PhysicalOffset(end))
        self.queues.truncate(end)
        with self.flusher.cutting():
            self.log.truncate(PhysicalOffset(end))
        self._deleted_topics.fit(self.log.start, self.log.end)
        self._upkeep.write_and_sync(self.queues)
        self._upkeep.synced_end = min(self._upkeep.synced_end, end)
        self._newest = self._copy = None
        if confirmed is not None:
            self._confirmed.limit(min(confirmed, end), end)

    def _first_time_before(self, end: int) -> int:
        """The store time of the first message in the last file that begins before `end`; 0 if there is none."""
        segment = next((segment for segment in reversed(self.log.segments) if segment.start < end), None)
        first = None if segment is None else first_record(segment)
        return 0 if first is None else first.store_timestamp

    def _begins_record(self, offset: int) -> bool:
        """Whether a record begins here, or a file."""
        if offset % self.log.file_size == 0:
            return True
        try:
            kind, _ = read_head(self.log.read(offset, SIZE_AND_MAGIC.size))
            if kind is HeadKind.RECORD:
                self.stored_at(offset)
        except (CorruptRecord, OffsetOutOfRange):
            return False
        return kind is not HeadKind.END

    @property
    def newest_of_copy(self) -> tuple[int, int] | None:
        """Where the newest whole record begins and ends, since `cut_unfinished`, if only `append_copy` wrote since."""
        return self._newest if self._copy is None else self._copy.newest

    def cut_unfinished(self) -> int:
        """End a copy of a log after its newest whole record; gives how many bytes were cut off.

        What follows it, a part of a record or a blank record, cannot be compared with the log of the master, which may
        have lost it meanwhile. It takes as long as the disk takes, so use a thread; nothing may be appended meanwhile.
        """
        log, newest = self.log, self._newest_record()
        if not log.segments or (newest is None and len(log.segments) > 1):
            return 0
        unfinished = int(log.end) - (int(log.start) if newest is None else newest[1])
        with self.flusher.cutting():
            if newest is None:
                log.clear()
            elif unfinished:
                log.truncate(PhysicalOffset(newest[1]))
        self._newest, self._copy = newest, None
        return unfinished

    def _newest_record(self) -> tuple[int, int] | None:
        """Where the newest whole record begins and ends, whoever wrote it."""
        log, known = self.log, []
        if self.newest_of_copy is not None:
            known.append(self.newest_of_copy)
        queue = max(self.queues, key=lambda queue: queue.max_physical, default=None)
        last = None if queue is None else queue.last_real(queue.next_offset)
        if queue is not None and last is not None and (entry := queue.entry(last)) is not None:
            known.append((entry[0], entry[0] + entry[1]))
        newest = max(known, default=None)
        start = int(log.start) if newest is None else newest[1]
        for record in whole_records(log, start):
            newest = record.physical_offset, record.physical_offset + record.size
        return newest

    def _mark_as_copy(self, is_copy: bool) -> None:
        """Have the next start know, after a crash, whether the log may end anywhere within a record."""
        if is_copy is self._is_marked:
            return
        fd = os.open(self.root / ABORT, os.O_WRONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if is_copy:
                self.disk.write(fd, _COPY, size)
            else:
                os.ftruncate(fd, size - len(_COPY))
            self.disk.sync(fd)
        finally:
            os.close(fd)
        self._copy, self._is_marked = None, is_copy

    def fits(self, queue: ConsumeQueue, record: MessageRecord) -> bool:
        """Whether `put` would accept the size of a message."""
        return self._appender.fits(queue, record)

    def _check_writable(self) -> None:
        if self.refusals or self.flusher.error is not None or self.read_only is not None:
            raise StoreNotWritable(self.refusal or "")

    def _dispatched(self) -> None:
        """After adding entries in memory: hand full pages to the system, and keys to the index."""
        touched, self._appender.touched = self._appender.touched, {}
        if self.bitmaps is not None:
            self._extend(touched, self.bitmaps)
        if self._confirmed.offset is not None:
            self._confirmed.written(touched, int(self.log.end))
        try:
            self._upkeep.after_put(touched)
        except (OSError, StoreError) as exc:
            self._queues_failed(exc)

    def _extend(self, touched: Mapping[ConsumeQueue, object], bitmaps: Callable[[str], Bitmap | None]) -> None:
        """Add bitmaps to the new entries; if a put rolled the log, to those in the new file."""
        for queue, mark in touched.items():
            # Schedule entries hold times, which have no other place.
            if not queue.is_schedule and (bitmap := bitmaps(queue.topic)) is not None:
                since, ext = cast("tuple[int, int, int]", mark), self.queues.ext_of(queue)
                extend(queue, ext, since, self.log, bitmap, self._appender.last_timestamp)

    def flushed(self, end: int | None = None) -> Future[None]:
        """A future that is done once the log up to `end`, or all of it, survives a power failure."""
        return self.flusher.wait_for(int(self.log.end) if end is None else end)

    # Reading

    def get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        tags: Callable[[int], bool] | None = None,
        match: Callable[[memoryview], bool] | None = None,
        units: Callable[[ExtUnit], bool] | None = None,
        *,
        joined: bool = False,
    ) -> GetResult:
        """Messages of a queue, see `Reader.get`. StoreError if its files cannot be read, or the store is closed."""
        if not self._open:
            raise StoreError("the store is closed")
        return self.reader.get(queue, offset, max_count, tags, match, units, joined=joined)

    def message_at(self, physical_offset: int) -> memoryview:
        """The record that begins at `physical_offset`. OffsetOutOfRange if none does that readers may see."""
        record = self.stored_at(physical_offset)
        if self._confirmed.offset is not None and physical_offset + len(record) > self._confirmed.offset:
            raise OffsetOutOfRange(f"the message at {physical_offset} is not confirmed yet")
        return record

    def stored_at(self, physical_offset: int) -> memoryview:
        """As `message_at`, for whoever must find what readers may not see yet."""
        try:
            kind, size = read_head(self.log.read(physical_offset, SIZE_AND_MAGIC.size))
            record = self.log.read(physical_offset, size)
        except CorruptRecord:
            raise OffsetOutOfRange(f"no message begins at {physical_offset}") from None
        if kind is not HeadKind.RECORD or not is_head_of(record, physical_offset):
            raise OffsetOutOfRange(f"no message begins at {physical_offset}")
        return record

    def query(self, topic: str, key: str, max_count: int, begin: int, end: int) -> list[memoryview]:
        """The newest messages of `topic` with `key`, stored from `begin` to `end` (ms), oldest first."""
        if self.index is None:
            return []
        limit = min(max_count, self.config.max_query)
        return find_by_key(self.index, self.message_at, KeyQuery(topic, key, begin, end), limit)

    # Upkeep

    def check(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Finding]:
        """Write everything out, then report every inconsistency in the files; see `check_store`."""
        from .check.store_check import check_store  # large, and not needed for serving

        self._upkeep.finish(self._mark())
        return check_store(self.root, self.config, progress)

    def maintain(self) -> None:
        """Write out queues and index, and advance the checkpoint. Call it about ten times a second."""
        try:
            self._upkeep.step(self._clock(), self._mark())
        except (OSError, StoreError) as exc:
            self._queues_failed(exc)
        else:
            self.refusals.pop(_QUEUES, None)

    @property
    def newest_timestamp(self) -> int:
        """When the newest message was stored, in epoch milliseconds; 0 if there never was one."""
        return self._appender.last_timestamp

    def _mark(self) -> Mark:
        return Mark(self._appender.last_timestamp, self.log.end)

    def delete_topic(self, topic: str) -> int:
        """Delete the queues of a topic and return how many there were. Its messages stay in the log until they expire.

        OSError if the disk fails. These queues must not be used any more; `queue` gives new ones.
        """
        if any(queue.next_offset for queue in self.queues.of_topic(topic)):
            self._deleted_topics.add(topic, self.log.end)
        self._delete_waiting(topic)
        return self.queues.delete_topic(topic)

    @property
    def deleted_topics(self) -> Mapping[str, int]:
        """Topics that were deleted, each with the end of the log at that time."""
        return self._deleted_topics.ends

    def delete_topics_before(self, ends: Mapping[str, int]) -> None:
        """Of a copy: empty the queues of these topics whose messages all lie before the given place in the log.

        There the master deleted the topic. Where the log has not arrived yet, nothing is done. A queue that the master
        used since has been emptied already, when its first new message came. OSError if the disk fails.
        """
        old: dict[str, list[ConsumeQueue]] = {}
        for queue in self.queues:
            if queue.max_offset and queue.max_physical <= ends.get(queue.topic, -1) <= self.log.end:
                old.setdefault(queue.topic, []).append(queue)
        for topic, queues in old.items():
            if self._deleted_topics.ends.get(topic, 0) < ends[topic]:
                self._deleted_topics.add(topic, ends[topic])
            for queue in queues:
                self._delete_waiting(topic, str(queue.queue_id))
                queue.delete()
            logger.info("emptied %d queues of topic %s: its master deleted it", len(queues), topic)

    def _restarted(self, queue: ConsumeQueue) -> None:
        # The topic was deleted after this queue's last message, so older messages in its other queues are gone as well.
        self.delete_topics_before({queue.topic: queue.max_physical})

    def _delete_waiting(self, *folder: str) -> None:
        """Delete files of queues that wait for that now: they must not share their names with new ones."""
        for kind in (CONSUME_QUEUE, CONSUME_QUEUE_EXT):
            for path in self._removal.take(self.root.joinpath(kind, *folder)):
                self.disk.delete(path)

    def clean_now(self, rounds: int = 20) -> None:
        """Let the next clean-up rounds delete expired files whatever the hour, at an operator's request."""
        self._rounds_now = rounds

    def clean(self) -> list[Path]:
        """Delete expired files, earlier if the disk is full; returns what goes. Call it every `clean_interval`.

        Also decides whether the disk is too full for messages. A thread deletes log files, one by one.
        """
        log_used = [self.disk.used_ratio(folder) for folder in self.config.commit_log_folders]
        root_used = self.disk.used_ratio(self.root)
        plan = plan_cleaning(
            self.config,
            log_used,
            root_used,
            self.log.segments,
            self._clock(),
            by_operator=self._rounds_now > 0,
            archived=self.archived if self.config.archive_before_delete else None,
        )
        self._rounds_now = max(0, self._rounds_now - 1)
        if plan.disk_full:
            percent = 100 * max(*log_used, root_used)
            if _DISK not in self.refusals:
                logger.error("disk %d %% full; taking no more messages until there is room", percent)
            self.refusals[_DISK] = f"the disk is nearly full ({percent:.0f} %)"
        elif plan.disk_recovered and _DISK in self.refusals:
            del self.refusals[_DISK]
            logger.warning("disk has room again; taking messages")
        going = self._drop_log_files(plan.delete)
        self._keep_for_archive(plan, len(going))
        if going:
            logger.info("deleting %s commit log files, up to %s: %s", len(going), self.log.start, plan.reason)
            self._removal.add(going, self.config.delete_interval / 1000)
            beside = [path for queue in self.queues for path in queue.expire(self.log.start)]
            if self.index is not None:
                beside += self.index.expire(self.log.start)
            self._removal.add(beside, self.config.delete_queue_interval / 1000)
            going += beside
        self._removal.run()
        return going

    def _keep_for_archive(self, plan: CleaningPlan, gone: int) -> None:
        """Say what is kept, or lost, because it is not archived."""
        lost = plan.unarchived - (plan.delete - gone) if not plan.disk_recovered else 0
        kept = plan.unarchived if plan.disk_recovered else 0
        if lost > 0:
            logger.error("deleting %d commit log files that are not archived: %s", lost, plan.reason)
        if bool(kept) != bool(self.kept_for_archive):
            if kept:
                logger.warning("keeping %d expired commit log files: not archived from %d on", kept, self.archived)
            else:
                logger.info("no expired commit log file waits for its archive any more")
        self.kept_for_archive = kept

    def _drop_log_files(self, count: int) -> list[Path]:
        """Take up to `count` of the oldest files out of the log."""
        going: list[Path] = []
        # If one cannot be deleted, dropping more makes no room.
        if not self._removal:
            for segment in self.log.segments[:count]:
                if segment.end > self.flusher.flushed:
                    break  # the flush thread may be using it
                if segment.end > self._upkeep.synced_end and _QUEUES not in self.refusals:
                    # If a crash took the entries too, a queue would no longer know how many messages it had. But
                    # if entries cannot be written for lack of space, making room comes first.
                    self._upkeep.hurry()
                    break
                self.log.drop_oldest()
                segment.close()
                going.append(segment.path)
        return going

    def _queues_failed(self, exc: Exception) -> None:
        # The messages are stored; their entries are in memory and could be rebuilt. But memory is limited.
        if _QUEUES not in self.refusals:
            logger.error("cannot write queues or index: %s; taking no more messages until that works", exc)
        self.refusals[_QUEUES] = f"consume queues or index cannot be written: {exc}"
