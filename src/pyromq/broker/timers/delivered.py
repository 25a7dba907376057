"""What the log shows to have been delivered since progress was noted, so that a crash repeats none of it.

Progress is noted about once a second, together with the end of the log at that moment. Anything delivered later lies
behind that place. After a crash that part of the log is read once, and a message that waits in its level or timer queue
is known by its copy there: the same body, birth, topic, queue and properties.
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

# So many bytes of the log may be written until the place is noted anew, also when nothing is delivered.
NOTED_EVERY = 16 * 1024**2
# A log that went on for longer is not read: a start should not take long. 100 MB of 1 KB messages take half a second.
_FARTHEST = 512 * 1024**2
_WAITING = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC))
_REAL_TOPIC = f"{props.REAL_TOPIC}\x01".encode()
# A copy may have these in addition.
_ADDED = (props.TIMER_ENQUEUE_MS, props.TIMER_DEQUEUE_MS, props.CRC32)


class Delivered:
    """Copies found in the log from `start` on. Each stands for one message that need not be delivered again."""

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
        """Whether a copy of `message` was delivered behind `since`. It counts once."""
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
        logger.warning("%d bytes of the log are not searched for delivered messages", log.end - start)
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
        # Somebody else has written the log meanwhile, or the file that says where to begin is not of this store.
        logger.warning("the log is not searched for delivered messages any further: %s", exc)
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
