"""Checks the consume queues against the log: entry k of a queue must belong to its message with queue offset k.

Records come in log order, so a queue is read once, from its first entry to its last. A fault of many
consecutive entries is reported once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.names import SCHEDULE_TOPIC, TIMED_TOPICS, TIMER_TOPIC

from ..disk import Disk
from ..format import CONSUME_QUEUE_EXT, ENTRY, MAX_EXT_ADDRESS, PRE_BLANK_SIZE, queue_folders
from ..metadata.deleted_topics import DeletedTopics
from ..open_files import OpenFiles
from ..queues import queue_ends
from ..queues.consume_queue_ext import ConsumeQueueExt
from .files import find_segments
from .findings import Severity
from .pages import EntryPages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ..scan import ScannedRecord
    from ..tags import TagsCodes
    from .context import Surroundings

_SIZE = ENTRY.size
_MULTI_DISPATCH = props.INNER_MULTI_DISPATCH.encode()
_MULTI_OFFSET = props.INNER_MULTI_QUEUE_OFFSET.encode()
_LIGHT_QUEUE = b"%LMQ%"
_LONGEST_DELAY = 366 * 86_400_000  # plausible for a level
_LARGEST_HASH = 2**31  # bytes of a tag


class _Fault(Enum):
    """Faults of an entry."""

    MISSING = auto()  # the message has none
    ELSEWHERE = auto()  # it belongs to another message
    DIFFERENT = auto()  # its size or tags code differs from its message's
    ORPHAN = auto()  # it has no message
    LOST = auto()  # it is a filler, and its message is not in the log
    BEYOND = auto()  # it points beyond the end of the log
    HOLLOW = auto()  # it was never written, but later ones were


@dataclass(slots=True)
class _Run:
    """Consecutive entries with the same fault. `physical` and `what` describe the first."""

    fault: _Fault
    first: int
    last: int
    physical: int
    what: str


class QueueCheck:
    """Compares one queue with its messages. `due` is the queue offset expected of the next message."""

    __slots__ = (
        "_began",
        "_entries",
        "_ext",
        "_has_matched",
        "_held",
        "_is_calm",
        "_is_deleted",
        "_last",
        "_name",
        "_passed",
        "_run",
        "_shift",
        "_store",
        "_topic",
        "due",
    )

    def __init__(
        self, topic: str, queue_id: int, entries: EntryPages, ext: ConsumeQueueExt, store: Surroundings
    ) -> None:
        self._topic = topic
        self._name = f"{topic}/{queue_id}"
        self._entries = entries
        self._ext = ext
        self._store = store
        self.due = entries.first
        self._began = 0  # queue offset of the first message
        self._last = -1  # physical offset of the last message
        self._passed = 0  # entries before this one were checked
        self._run: _Run | None = None
        # Until an entry matches, the queue may have been recreated; then older messages have no entries.
        self._has_matched = False
        self._held: list[_Run] = []
        self._is_calm = False  # an entry has matched, and no run is open
        # For delayed messages: how much the delay of this level differs from the default.
        self._shift = 0
        self._is_deleted = entries.end == 0 and store.is_deleted(topic)

    def place(self, offset: int, physical: int, size: int, tags_code: int) -> None:
        """The next message of this queue in the log."""
        entries = self._entries
        at = (offset - entries.page_first) * _SIZE
        if offset == self.due and entries.page[at : at + _SIZE] == ENTRY.pack(physical, size, tags_code):
            self.due = offset + 1
            self._last = physical
            if not self._is_calm:
                self._match()
        else:
            self._place(offset, physical, size, tags_code)

    def _place(self, offset: int, physical: int, size: int, tags_code: int) -> None:
        """The same for anything but the next entry of the page."""
        if offset < 0:
            self._store.report.error(self._name, f"the record at {physical} has the queue offset {offset}")
            return
        if self._last < 0:
            self._begin(offset)
        elif offset != self.due:
            offset = self._renumbered(offset, physical)
        self.due = offset + 1
        self._last = physical
        entry = self._entries.entry(offset)
        if entry is None:  # its file cannot be read
            self._end_run()
            return
        entry_physical, entry_size, entry_code = ENTRY.unpack(entry)
        if is_free(entry):
            self._fault(_Fault.MISSING, offset, physical, f"the message at {physical} has no entry")
        elif entry_size == PRE_BLANK_SIZE:
            self._fault(_Fault.ELSEWHERE, offset, physical, f"the message at {physical} has only a filler for an entry")
        elif entry_physical != physical:
            what = f"the entry points to {entry_physical}, but its message is at {physical}"
            self._fault(_Fault.ELSEWHERE, offset, physical, what)
        elif entry_size == size and self._is_code(entry_code, tags_code):
            self._match()
        else:
            what = f"the entry has size {entry_size} and tags code {entry_code}, its message {size} and {tags_code}"
            if self._topic == SCHEDULE_TOPIC and entry_size == size:
                what += "; was messageDelayLevel changed?"
            self._fault(_Fault.DIFFERENT, offset, physical, what)

    def _begin(self, offset: int) -> None:
        """Before the first message, only messages no longer in the log may have entries."""
        if not self._store.is_quick:
            self._pass(offset)
        self._began = self._passed = offset

    def _renumbered(self, offset: int, physical: int) -> int:
        """The number of the entry to compare for a message with an unexpected queue offset."""
        report = self._store.report
        due = self.due
        entry = self._entries.entry(due)
        if entry is not None and not is_free(entry) and ENTRY.unpack(entry)[0] == physical:
            report.error(f"{self._name}/{due}", f"the record at {physical} says that its queue offset is {offset}")
            return due
        if offset > due:
            if not self._pass(offset) and not self._store.damage.begins_between(self._last, physical):
                report.error(
                    f"{self._name}/{due}", f"the log has no message with this queue offset; it continues with {offset}"
                )
            return offset
        self._passed = max(self._passed, due)
        first = self._entries.entry(0)
        is_first = first is None or is_free(first) or ENTRY.unpack(first)[0] == physical
        if offset == 0 and not self._has_matched and is_first:
            report.note(
                self._name,
                f"was deleted and created again: {due - self._began} older messages of the log have no entry",
            )
            self._run = None
            self._held.clear()
        else:
            report.error(f"{self._name}/{offset}", f"the record at {physical} repeats this queue offset; {due} was due")
        return offset

    def _pass(self, until: int) -> bool:
        """Check the entries before `until`, for which the log has no message. Returns whether they explain why."""
        store = self._store
        told = False
        for number, entry in self._entries.between(max(self.due, self._passed), until):
            physical, size, _ = ENTRY.unpack(entry)
            if self._last < 0:
                if is_free(entry):
                    self._fault(_Fault.HOLLOW, number, physical, "nothing was written here, but entries follow")
                    continue
                if size == PRE_BLANK_SIZE:
                    continue  # older messages are gone
            elif size == PRE_BLANK_SIZE:
                self._lost(number)
                told = True
                continue
            if not is_free(entry) and physical >= store.log_start and not store.damage.covers(physical):
                self._fault(
                    _Fault.ORPHAN, number, physical, f"the entry points to {physical}, where there is no such message"
                )
                told = True
        return told

    def _lost(self, number: int) -> None:
        self._fault(_Fault.LOST, number, 0, "a message was lost; a filler keeps its place")

    def finish(self, log_end: int) -> None:
        """After the last message: check the remaining entries, and what follows them."""
        store = self._store
        entries = self._entries
        self._end_run()
        if self._last < 0 and store.is_quick:
            self.due = max(entries.first, entries.used(is_free) - 1)
        end = self.due = max(self.due, self._passed)
        for number, entry in entries.between(self.due, entries.end):
            physical, size, _ = ENTRY.unpack(entry)
            if is_free(entry):
                break
            end = number + 1
            if size == PRE_BLANK_SIZE:
                if self._last >= 0:
                    self._lost(number)
            elif store.damage.covers(physical):
                continue
            elif physical >= log_end:
                what = f"the entry points to {physical}, but the log ends at {log_end}"
                self._fault(_Fault.BEYOND, number, physical, what)
            elif physical >= store.log_start:
                self._fault(
                    _Fault.ORPHAN, number, physical, f"the entry points to {physical}, where there is no such message"
                )
        self._end_run()
        self._report_held()
        self.due = end
        written = entries.first_written(end)
        if written is not None:
            severity = Severity.NOTE if store.is_crashed else Severity.WARNING
            what = f"the entry is not zero, although the queue ends at {end}"
            store.report.add(severity, f"{self._name}/{written}", what)

    def was_deleted(self) -> None:
        """Whether the queue was deleted: messages without entries are fine if there are no entries at all."""
        self._is_deleted = self._entries.end == 0

    def _is_code(self, found: int, tags_code: int) -> bool:
        """Whether an entry has the tags code of its message, here or in the ext files."""
        if self._topic == TIMER_TOPIC and abs(found) <= _LARGEST_HASH:
            return True  # RocketMQ writes the hash of the tag where we write the time
        if self._topic != SCHEDULE_TOPIC:
            return (self._ext.tags_code(found) if found <= MAX_EXT_ADDRESS else found) == tags_code
        shift = found - tags_code
        is_learnt = self._has_matched or not self._store.learns_delays
        if shift and not is_learnt and abs(shift) < _LONGEST_DELAY and shift % 1000 == 0:
            self._store.report.note(
                self._name,
                f"the delay of this level is {shift // 1000:+d} s off the default, as messageDelayLevel says",
            )
            self._shift = shift
        return shift == self._shift

    # Runs

    def _match(self) -> None:
        self._has_matched = True
        self._end_run()
        self._report_held()
        self._is_calm = True

    def _fault(self, fault: _Fault, number: int, physical: int, what: str) -> None:
        run = self._run
        if run is not None and run.fault is fault and run.last + 1 == number:
            run.last = number
            return
        self._end_run()
        self._run = _Run(fault, number, number, physical, what)
        self._is_calm = False

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._held.append(run)
            # A few are enough: a recreated queue has one or two.
            if self._has_matched or len(self._held) > 10:
                self._report_held()

    def _report_held(self) -> None:
        for run in self._held:
            what = run.what if run.first == run.last else f"{run.what}; the same up to offset {run.last}"
            if run.fault is not _Fault.MISSING or not self._is_deleted:
                self._store.report.add(self._severity(run), f"{self._name}/{run.first}", what)
        self._held.clear()

    def _severity(self, run: _Run) -> Severity:
        store = self._store
        if run.fault is _Fault.LOST:
            return Severity.WARNING
        is_redone = run.fault is _Fault.MISSING and run.physical >= store.redone_from
        is_dropped = run.fault is _Fault.BEYOND and store.is_crashed
        return Severity.NOTE if is_redone or is_dropped else Severity.ERROR


def is_free(entry: bytes) -> bool:
    """Whether an entry was never written, by RocketMQ's rule."""
    physical, size, _ = ENTRY.unpack(entry)
    return bool(physical < 0 or size <= 0)


class _ReadOnlyFiles(OpenFiles):
    def get(self, path: Path | str) -> int:
        name = os.fspath(path)
        fd = self._open.get(name)
        return self._keep(name, lambda: os.open(name, os.O_RDONLY | os.O_CLOEXEC)) if fd is None else fd


class QueueChecks:
    """All queues of a store."""

    def __init__(self, root: Path, file_size: int, ext_file_size: int, tags: TagsCodes, store: Surroundings) -> None:
        self._root = root
        self._file_size = -(-file_size // _SIZE) * _SIZE
        self._ext_file_size = ext_file_size
        self._ext_files = _ReadOnlyFiles(Disk())
        self._tags = tags
        self._store = store
        # By topic, where the log ended when it was deleted: earlier messages are not expected in any queue.
        deleted = DeletedTopics(root, Disk())
        deleted.load()
        self._deleted = deleted.ends
        self.files = 0
        self._queues = {
            (topic, queue_id): self._make(topic, queue_id, folder) for topic, queue_id, folder in queue_folders(root)
        }

    def __len__(self) -> int:
        return len(self._queues)

    def place(self, records: Iterable[ScannedRecord]) -> None:
        """The next messages of the log. 1.7 µs a message (CPython 3.11)."""
        queues = self._queues
        tags = self._tags
        deleted = self._deleted
        for physical, size, queue_id, queue_offset, sys_flag, store_time, topic, properties in records:
            if sys_flag & sysflag.PREPARED:  # neither prepared nor rolled back messages are in queues
                continue
            if deleted and physical < deleted.get(topic, 0):
                continue
            queue = queues.get((topic, queue_id))
            if queue is None:
                queue = queues[topic, queue_id] = self._make(topic, queue_id, None)
            is_delayed = topic in TIMED_TOPICS
            tags_code = tags.of(topic, properties, store_time) if is_delayed else tags.of_tag(properties)
            queue.place(queue_offset, physical, size, tags_code)
            if _MULTI_DISPATCH in properties:
                self._place_also(physical, size, queue_id, tags_code, properties)

    def finish(self, log_end: int) -> Iterator[None]:
        """Check the ends of all queues, one queue per step."""
        ends = queue_ends.load(self._root / queue_ends.QUEUE_ENDS)
        # A queue that the store did not remember when it was closed had been deleted before.
        known = {(end.topic, end.queue_id) for end in ends.queues} if ends and ends.log_end == log_end else None
        for key, queue in self._queues.items():
            if known is not None and key not in known:
                queue.was_deleted()
            queue.finish(log_end)
            yield
        self._ext_files.close()

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """For each queue the offset after its last message."""
        return {key: queue.due for key, queue in self._queues.items()}

    def _place_also(self, physical: int, size: int, queue_id: int, tags_code: int, properties: bytes) -> None:
        """A message that is in several queues (5.x); only existing ones are checked."""
        names = (props.find(properties, _MULTI_DISPATCH) or b"").split(b",")
        offsets = (props.find(properties, _MULTI_OFFSET) or b"").split(b",")
        for name, offset in zip(names, offsets, strict=False):
            queue = self._queues.get((props.decode(name), 0 if name.startswith(_LIGHT_QUEUE) else queue_id))
            if queue is not None and offset.isdigit():
                queue.place(int(offset), physical, size, tags_code)

    def _make(self, topic: str, queue_id: int, folder: Path | None) -> QueueCheck:
        report = self._store.report
        segments = [] if folder is None else find_segments([folder], self._file_size, report)
        self.files += len(segments)
        entries = EntryPages(segments, self._file_size, _SIZE, report)
        ext_folder = self._root / CONSUME_QUEUE_EXT / topic / str(queue_id)
        ext = ConsumeQueueExt(ext_folder, self._ext_file_size, self._ext_files)
        return QueueCheck(topic, queue_id, entries, ext, self._store)
