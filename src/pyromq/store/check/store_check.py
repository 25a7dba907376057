"""The store check: finds every inconsistency in the files of a store that is not open.

    for finding in check_store(Path("data")):
        print(finding)

It writes nothing and takes no lock. The log is read once, record by record, with the queues and the index beside
it; memory holds one page per queue. Consequences of a reported fault are not reported again.
1 KB bodies with two keys: 6.3 µs a record (CPython 3.11).
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import sys
from typing import TYPE_CHECKING

from pyromq.errors import StoreError
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.settings import MiB

from .. import lock
from ..config import StoreConfig
from ..disk import Disk
from ..format import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    is_index_name,
    refuse_foreign_store,
)
from ..index.index_file import Geometry
from ..metadata.checkpoint import Checkpoint
from ..metadata.deleted_topics import DELETED_TOPICS
from ..queues import queue_ends
from ..queues.consume_queues import is_folder_name
from ..tags import TagsCodes, parse_delay_levels
from .context import NEVER, Surroundings
from .files import find_segments, fitted, listed
from .findings import Finding, Report, Severity
from .log import LogCheck, first_store_time
from .metadata import Tables, check_checkpoint, check_config, check_offsets, checkpoint_times
from .queues import QueueChecks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from ..scan import ScannedRecord
    from .files import FoundSegment
    from .index import IndexCheck

__all__ = ["Finding", "Severity", "StoreCheck", "check_store"]

_QUICK_FILES = 2
_LARGEST = 64 * MiB  # no message is larger, unless the settings allow it
_OVERHEAD = 64 * 1024  # room beyond the largest body
_KEY_NAMES = (props.UNIQ_KEY.encode(), props.KEYS.encode())
# Files of the store, and RocketMQ's files that we leave alone.
_KNOWN = {
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    queue_ends.QUEUE_ENDS,
    DELETED_TOPICS,
    f"{DELETED_TOPICS}.bak",
    "abort.bak",
    "brokerBoot",
    "brokerIdentity",
    "compaction",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "rocksdbstore",
    "timerlog",
    "timerwheel",
}


def check_store(
    root: Path,
    config: StoreConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    quick: bool = False,
) -> Iterator[Finding]:
    """What is wrong with the store at `root`; see `StoreCheck`."""
    return StoreCheck(root, config, progress, quick=quick).run()


class StoreCheck:
    """One check of one store. The counts are complete once `run` is."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        quick: bool = False,
        given: Collection[str] | None = None,
    ) -> None:
        """`quick` checks only the last two files of the log and the ends of the queues.

        Sizes of files and delay levels are those of `config`, or only the fields `given` of it; without it, and for the
        other fields, they are taken from the files. `progress` gets the log bytes done and in total. StoreError if
        `root` is not a store we know, or cannot be read.
        """
        self.root = root
        self._config = dataclasses.replace(config or StoreConfig(), root=str(root))
        try:
            self._refuse_others()
            if config is None or given is not None:
                self._config = fitted(self._config, given or ())
        except OSError as exc:
            raise StoreError(f"cannot read {exc.filename or root}: {exc.strerror}") from exc
        self._progress = progress
        self._is_quick = quick
        self._learns_delays = config is None or (given is not None and "delay_levels" not in given)
        self._report = Report()
        self._tables = Tables()
        self.log_files = self.queue_files = self.index_files = 0
        self.queues = self.records = self.bytes = 0

    @property
    def config(self) -> StoreConfig:
        """The settings that the files seem to have been written with."""
        return self._config

    def _refuse_others(self) -> None:
        root = self.root
        if not root.is_dir():
            raise StoreError(f"{root} is not a folder")
        refuse_foreign_store(root)
        folders = (*self._config.commit_log_folders, root / CONSUME_QUEUE)
        if not any(folder.is_dir() for folder in folders) and not (root / CHECKPOINT).exists():
            raise StoreError(f"{root} is not a store: it has no {COMMIT_LOG} folder")

    def run(self) -> Iterator[Finding]:
        """All findings, as they are found. StoreError if a folder cannot be read."""
        try:
            yield from self._run()
        except OSError as exc:
            raise StoreError(f"cannot read {exc.filename or self.root}: {exc.strerror}") from exc

    def _run(self) -> Iterator[Finding]:
        report, config = self._report, self._config
        self._look_around()
        self._tables = check_config(self.root / CONFIG, report)
        files = find_segments(config.commit_log_folders, config.commit_log_file_size, report)
        walked = files[-_QUICK_FILES:] if self._is_quick else files
        store = Surroundings(
            report=report,
            log_start=walked[0].start if walked else 0,
            redone_from=self._redone_from(files) if (self.root / ABORT).exists() else NEVER,
            is_quick=self._is_quick,
            learns_delays=self._learns_delays,
            is_deleted=self._is_deleted,
        )
        largest = max(_LARGEST, config.max_message_size + _OVERHEAD)
        log = LogCheck(walked, config.commit_log_file_size, largest, store)
        queues = QueueChecks(
            self.root,
            config.consume_queue_file_size,
            config.consume_queue_ext_file_size,
            TagsCodes(parse_delay_levels(config.delay_levels)),
            store,
        )
        index = self._index(log.start, store)
        yield from report.take()
        yield from self._walk(log, queues, None if self._is_quick else index)
        check_checkpoint(self.root / CHECKPOINT, None if log.is_torn else log.newest, report)
        check_offsets(self.root / CONFIG, self._tables, queues.ends, report)
        self.log_files, self.queue_files, self.queues = len(walked), queues.files, len(queues)
        self.records, self.bytes = log.records, log.end - log.start
        yield from report.take()

    def _walk(self, log: LogCheck, queues: QueueChecks, index: IndexCheck | None) -> Iterator[Finding]:
        """Walk the log, with the queues and the index beside it."""
        report = self._report
        if index is not None:
            for _ in index.check_files():
                yield from report.take()
        has_keys = False
        for records in log.walk():
            queues.place(records)
            if index is not None:
                index.add(records)
            elif not has_keys:
                has_keys = any(map(_is_indexed, records))
            yield from report.take()
            if self._progress is not None:
                self._progress(log.done, log.total)
        for _ in queues.finish(log.end):
            yield from report.take()
        if index is not None:
            index.finish(log.end)
        elif has_keys and self._config.index and not self.index_files:
            report.note(self.root / INDEX, "there is no index; messages cannot be looked up by key")
        yield from report.take()
        if self._progress is not None:
            self._progress(log.total, log.total)

    # Folders and files

    def _look_around(self) -> None:
        report, root = self._report, self.root
        user = user_of(root)
        if user:
            report.note(root / LOCK, f"the store is in use by {user}; it may change while it is being checked")
        elif (root / ABORT).exists():
            report.note(root / ABORT, "the last stop was a crash; the next start recovers the store")
        for entry in listed(root, report):
            if entry.name not in _KNOWN:
                report.note(root / entry.name, "is unknown; left alone")
        for topic in listed(root / CONSUME_QUEUE, report):
            path = root / CONSUME_QUEUE / topic.name
            if not topic.is_dir():
                report.note(path, "is unknown; left alone")
                continue
            for queue in listed(path, report):
                if not (queue.name.isascii() and queue.name.isdecimal() and queue.is_dir()):
                    report.note(path / queue.name, "is not a queue; left alone")
        if not any(folder.is_dir() for folder in self._config.commit_log_folders):
            report.error(root / COMMIT_LOG, "is missing")

    def _is_deleted(self, topic: str) -> bool:
        """Whether a topic without queues was deleted, which leaves its messages in the log."""
        topics = self._tables.topics
        if topics is not None and topic not in topics.topic_config_table:
            return True
        # Our store leaves an empty folder.
        folder = self.root / CONSUME_QUEUE / topic
        return is_folder_name(topic) and folder.is_dir() and not any(folder.iterdir())

    def _redone_from(self, files: Sequence[FoundSegment]) -> int:
        """Where the next start begins to replay the log."""
        checkpoint = Checkpoint(self.root / CHECKPOINT, Disk())
        checkpoint.physic, checkpoint.logics, checkpoint.index = checkpoint_times(self.root / CHECKPOINT)
        safe = checkpoint.min_timestamp_index if self._config.index_safe else checkpoint.min_timestamp
        for file in reversed(files):
            if 0 < first_store_time(file) <= safe:
                return file.start
        return files[0].start if files else 0

    def _index(self, log_from: int, store: Surroundings) -> IndexCheck | None:
        folder = self.root / INDEX
        paths = []
        for entry in listed(folder, self._report):
            if entry.is_dir():
                self._report.note(folder / entry.name, "is unknown; left alone")
            elif is_index_name(entry.name):
                paths.append(folder / entry.name)
            else:
                self._report.error(folder / entry.name, "is not an index file; move it away, or PyroMQ will not start")
        self.index_files = len(paths)
        if not paths:
            return None
        # It needs numpy, which takes a tenth of a second to import.
        from .index import IndexCheck

        return IndexCheck(paths, Geometry(self._config.hash_slots, self._config.index_entries), log_from, store)


def _is_indexed(record: ScannedRecord) -> bool:
    """Whether the index should have entries of a message."""
    is_rolled_back = record.sys_flag & sysflag.ROLLBACK == sysflag.ROLLBACK
    return not is_rolled_back and any(props.find(record.properties, name) is not None for name in _KEY_NAMES)


def user_of(root: Path) -> str:
    """Who holds the lock of the store, "" if nobody does or it is unknown."""
    path = root.resolve() / LOCK
    # Opening and closing the file would release this process's own lock.
    if path in lock._held:
        return "this process"
    if sys.platform != "linux":
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, lock._FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        finally:
            os.close(fd)
    except OSError:
        return ""
    kind, _, _, _, pid = lock._FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return ""
    return f"process {pid}" if pid > 0 else "another process"
