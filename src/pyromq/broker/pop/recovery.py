"""After a crash: recovers how far groups had popped, since the offsets file lags by seconds.

Every pop left a checkpoint, in the timer topic or, if it was due at once, in the revive topic. Those written since the
offsets were saved are read, and the offsets advance past them (`offsets.caught_up`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord, OffsetOutOfRange
from pyromq.protocol import properties as props
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.record import decode_record
from pyromq.store.format import ENTRY, PRE_BLANK_SIZE
from pyromq.store.metadata.json_files import consumer_offsets_file

from .offsets import caught_up
from .records import Checkpoint, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..offsets.consumer_offsets import ConsumerOffsets

logger = logging.getLogger(__name__)

# Saved offsets may be this much older than their file: they wait for the disk first.
_OLDER_MS = 10_000
_CHUNK = 1024
# Read at most this many records, the newest: a second or two.
_MOST = 500_000


def follow_checkpoints(store: MessageStore, revive_topic: str, offsets: ConsumerOffsets) -> None:
    """Advance `offsets`, as loaded from their file, past the checkpoints that a killed broker wrote later."""
    if not store.crashed:
        return
    try:
        saved_at = int(consumer_offsets_file(store.root).path.stat().st_mtime * 1000)
    except OSError:
        saved_at = 0
    queues = [store.queues.find(TIMER_TOPIC, 0), *store.queues.of_topic(revive_topic)]
    found = [
        checkpoint
        for queue in queues
        if queue is not None
        for checkpoint in _checkpoints(store, queue, revive_topic, saved_at - _OLDER_MS)
    ]
    # A checkpoint may be in both topics, and then after others that were written later.
    found.sort(key=lambda checkpoint: (checkpoint.pop_time, checkpoint.start_offset))
    followed = caught_up(offsets, found, saved_at)
    if followed:
        logger.info("advanced pop offsets past %d checkpoints newer than their file", followed)


def _checkpoints(store: MessageStore, queue: ConsumeQueue, revive_topic: str, since: int) -> Iterator[Checkpoint]:
    offset = max(int(store.reader.offset_by_time(queue, since)), int(queue.max_offset) - _MOST)
    while entries := queue.entries(offset, _CHUNK):
        for physical, size, _ in ENTRY.iter_unpack(entries):
            if size == PRE_BLANK_SIZE:
                continue
            try:
                record = decode_record(store.log.read(physical, size), check_crc=False)
                if record.topic == revive_topic or record.find_property(props.REAL_TOPIC) == revive_topic:
                    said = read_record(record)
                    if isinstance(said, Checkpoint):
                        yield said
            except (OffsetOutOfRange, CorruptRecord):
                continue  # a reader that needs it will report it
        offset += len(entries) // ENTRY.size
