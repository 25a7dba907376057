"""After a crash: finds in the log what was delivered since progress was noted, so that none of it repeats.

Progress is noted about once a second, with the end of the log at that moment. Anything delivered later lies
after that place. After a crash that part of the log is read once, and a message that waits in its level or timer queue
is recognised by its copy there: the same body, birth, topic, queue and properties.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING

from pyromq.errors import CorruptRecord
from pyromq.protocol import properties as props
from pyromq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyromq.protocol.record import decode_record
from pyromq.store.scan import scan

if TYPE_CHECKING:
    from pyromq.protocol.record import MessageRecord
    from pyromq.store import MessageStore

    Identity = tuple[object, ...]

logger = logging.getLogger(__name__)

# After this many bytes of log the place is noted again, even if nothing was delivered.
NOTED_EVERY = 16 * 1024**2
# A longer stretch is not read, to keep a start short. 100 MB of 1 KB messages take half a second.
_FARTHEST = 512 * 1024**2
_WAITING = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC))
_REAL_TOPIC = f"{props.REAL_TOPIC}\x01".encode()
# Properties that a copy may have in addition.
_ADDED = (props.TIMER_ENQUEUE_MS, props.TIMER_DEQUEUE_MS, props.CRC32)


class Delivered:
    """Copies found in the log from `start` on. Each saves one message from being delivered again."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.until = 0  # when the last of them was stored (epoch ms)
        self._places: dict[Identity, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, copy: MessageRecord) -> None:
        self._places.setdefault(_identity(copy), []).append(copy.physical_offset)
        self.until = max(self.until, copy.store_timestamp)

    def take(self, message: MessageRecord, since: int = 0) -> bool:
        """Whether a copy of `message` was delivered after `since`. Each copy counts once."""
        identity = _identity(message)
        for place in self._places.get(identity, ()):
            if place >= since:
                self._places[identity].remove(place)
                if not self._places[identity]:
                    del self._places[identity]
                return True
        return False


def delivered_since(store: MessageStore, noted: int) -> Delivered:
    """Read the log from the place `noted`, where a record begins."""
    log = store.log
    start = max(noted, int(log.start))
    found = Delivered(start)
    if log.end - start > _FARTHEST:
        logger.warning(
            "not searching %d bytes of the log for delivered messages; some may be delivered again", log.end - start
        )
        return found
    try:
        for segment in log.segments:
            if segment.end <= start:
                continue
            at = max(start - segment.start, 0)
            for each in scan(segment.view, at, segment.start, check_crc=False):
                if _REAL_TOPIC in each.properties and each.topic not in _WAITING:
                    found.add(decode_record(log.read(each.physical_offset, each.size)))
    except CorruptRecord as exc:
        # The log was rewritten meanwhile, or the file with the place belongs to another store.
        logger.warning("stopped searching the log for delivered messages: %s; some may be delivered again", exc)
    return found


def _identity(record: MessageRecord) -> Identity:
    properties = props.parse(props.decode(record.properties))
    for name in _ADDED:
        properties.pop(name, None)
    return (
        record.topic,
        record.queue_id,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        len(record.body),
        zlib.crc32(record.body),
        frozenset(properties.items()),
    )
