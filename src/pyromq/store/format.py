"""File names and layouts of a store: enough to read one without opening it.

    <root>/commitlog/<20 digits>                           every message, in the order of arrival
    <root>/consumequeue/<topic>/<queue id>/<20 digits>     where the messages of one queue lie in the commit log
    <root>/index/<17 digits>                               where the messages with a key lie in the commit log
    <root>/checkpoint, abort, lock, config/*.json

A segment file is named for the offset of its first byte and has a fixed size. The same bytes as RocketMQ 4.9 and 5.x.
Golden vectors: tests/golden/.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, NewType

from pyromq.errors import StoreError
from pyromq.protocol.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PhysicalOffset = NewType("PhysicalOffset", int)  # a byte of the commit log
QueueOffset = NewType("QueueOffset", int)  # a message of a consume queue

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
CONFIG = "config"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"

# Consume queue: entries of fixed size, entry k of a queue at byte k * ENTRY.size of its segments.
ENTRY_LAYOUT = Layout(
    physical_offset="q",  # first byte of the record in the commit log
    size="i",  # of the record in bytes
    tags_code="q",  # hash of the tag, 0 without one; delivery time while delayed; address of a unit of the ext files
)
ENTRY = ENTRY_LAYOUT.struct
# Stands for a message that is not in the queue: before the first, or in a hole.
PRE_BLANK = ENTRY.pack(0, 0x7FFFFFFF, 0)
PRE_BLANK_SIZE = 0x7FFFFFFF

# Consume queue ext: a unit of variable size, found by the address stored instead of the tags code.
EXT_UNIT = Layout(
    size="h",  # of the unit, with its bitmap
    tags_code="q",
    store_timestamp="q",
    bitmap_size="h",  # bytes of the bitmap, which follow
).struct
EXT_END = -1  # instead of a size: the rest of this file is unused
MAX_EXT_ADDRESS = -(2**31) - 1
EXT_BASE = -(2**63)

# Batch consume queue (5.x): one entry per stored batch.
BATCH_ENTRY = Layout(
    physical_offset="q",
    size="i",  # of the record
    tags_code="q",
    store_timestamp="q",
    queue_offset="q",  # of the first message of the batch
    count="h",  # messages in the batch
    compacted_offset="i",  # -1
    reserved="i",  # 0
).struct

# Index: a hash table whose chains run through the entries, newest first.
INDEX_HEADER = Layout(
    begin_time="q",  # store time of the first entry
    end_time="q",  # store time of the last entry
    begin_offset="q",  # physical offset of the first entry
    end_offset="q",  # physical offset of the last entry
    slots_used="i",
    next_entry="i",  # its number; entry 0 is never used
).struct
INDEX_SLOT_LAYOUT = Layout(newest="i")  # number of the slot's newest entry, 0 for none
INDEX_SLOT = INDEX_SLOT_LAYOUT.struct
INDEX_ENTRY_LAYOUT = Layout(
    hash="i",  # of the key
    physical_offset="q",
    seconds="i",  # from the first entry's store time to this one's
    previous="i",  # number of the slot's next older entry, 0 for none
)
INDEX_ENTRY = INDEX_ENTRY_LAYOUT.struct

CHECKPOINT_SIZE = 4096
CHECKPOINT_TIMES = Layout(
    physic="q",  # store time up to which the commit log is on disk
    logics="q",  # the same for the consume queues
    index="q",  # the same for the index
).struct
# Of RocketMQ 5.x: how much of the log a group that fails over has confirmed.
CHECKPOINT_CONFIRMED = Layout(confirmed="q").struct
CHECKPOINT_CONFIRMED_AT = 32

_SEGMENT_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_INDEX_NAME = re.compile(r"[0-9]{17}", re.ASCII)  # local time down to the millisecond


class SegmentFile(NamedTuple):
    """A segment by its name: where it begins and where it lies."""

    start: int
    path: Path


def segment_name(start: int) -> str:
    """The file name of the segment that begins at `start`."""
    return f"{start:020d}"


def is_segment_name(name: str) -> bool:
    return _SEGMENT_NAME.fullmatch(name) is not None


def is_index_name(name: str) -> bool:
    return _INDEX_NAME.fullmatch(name) is not None


def index_size(slots: int, entries: int) -> int:
    """Bytes of an index file with this geometry, which the file itself does not record."""
    return INDEX_HEADER.size + slots * INDEX_SLOT.size + entries * INDEX_ENTRY.size


def segment_files(folder: Path, size: int, *, remove_empty: Callable[[Path], None] | None = None) -> list[SegmentFile]:
    """The segments in `folder`, in order. StoreError names the path of whatever does not belong there.

    RocketMQ refuses to start on a stray file or a wrong size, so we must not hide them. As in 5.x, folders are skipped,
    and so is an empty last file, which a crash of RocketMQ leaves behind; `remove_empty` gets it.
    """
    files = []
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if path.is_dir():
            continue
        if not is_segment_name(path.name):
            raise StoreError(f"{path} is not a segment of a store; move it away")
        length = path.stat().st_size
        if length == 0 and path == paths[-1]:
            if remove_empty is not None:
                remove_empty(path)
            break
        if length != size:
            raise StoreError(f"{path} has {length} bytes where segments have {size}; was its size setting changed?")
        if int(path.name) % size:
            raise StoreError(f"{path} does not begin at a multiple of {size}; was its size setting changed?")
        files.append(SegmentFile(int(path.name), path))
    return files


def queue_folders(root: Path, kind: str = CONSUME_QUEUE) -> Iterator[tuple[str, int, Path]]:
    """Topic, queue id and folder of every queue in the store at `root`. Names that are not numbers are skipped."""
    base = root / kind
    for topic in sorted(base.iterdir()) if base.is_dir() else ():
        if not topic.is_dir():
            continue
        for queue in sorted(topic.iterdir()):
            if queue.name.isascii() and queue.name.isdecimal() and queue.is_dir():
                yield topic.name, int(queue.name), queue


def refuse_foreign_store(root: Path) -> None:
    """StoreError for kinds of stores that we cannot open."""
    if (root / CONSUME_QUEUE / "CURRENT").exists():
        raise StoreError(f"{root} keeps its queues in RocksDB, which PyroMQ does not read")
    for path in root.glob("dledger-*"):
        raise StoreError(f"{path} is a DLedger log, which PyroMQ does not read")
    for topic, _, folder in queue_folders(root, BATCH_CONSUME_QUEUE):
        if any(folder.iterdir()):
            raise StoreError(f"{folder} is a queue of batches (topic {topic}), which PyroMQ does not read")
