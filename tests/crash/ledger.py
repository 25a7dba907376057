"""What a store must hold after a crash, and how that is checked."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.workload import Acknowledged, Cleaning, Event, Flushed, Opened, is_whole

from pyromq.errors import OffsetOutOfRange
from pyromq.protocol import sysflag
from pyromq.protocol.record import MessageRecord, decode_record
from pyromq.store import GetStatus
from pyromq.store.scan import scan
from pyromq.store.tags import TagsCodes, parse_delay_levels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from pyromq.store import MessageStore

FOREVER = 2**62


class Lost(AssertionError):
    """The store broke its promise."""


def brief(record: MessageRecord | None) -> str:
    if record is None:
        return "nothing"
    return (
        f"{record.topic[:20]}/{record.queue_id}/{record.queue_offset} at {record.physical_offset}, {record.store_size} "
        f"bytes, kind {record.sys_flag & sysflag.TRANSACTION_MASK}, time {record.store_timestamp}, "
        f"{record.find_property('UNIQ_KEY')}"
    )


class Found(NamedTuple):
    """What a store holds: two that are equal serve the same messages."""

    log: tuple[int, int]  # start and end
    queues: tuple[tuple[str, int, int, int, int], ...]  # topic, number, first and last offset, end of the last record
    records: dict[int, MessageRecord]  # all of the log, by physical offset
    required: int  # messages that had to be there
    missing: tuple[str, ...]  # those of them that are not


class Ledger:
    """All that was acknowledged, and what of it may be gone."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}  # by physical offset
        self.flushed = 0
        self.floor = 0
        self.opened: tuple[int, int] | None = None  # start and end of the log, when it was opened last

    def learn(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Acknowledged():
                    self.acknowledged[event.physical_offset] = event
                case Flushed():
                    self.flushed = max(self.flushed, event.end)
                case Cleaning():
                    self.floor = max(self.floor, event.start)
                case Opened():
                    self.opened = event.start, event.end

    def forget_lost(self, found: Found) -> None:
        """After a power failure: only what is there must be there from now on."""
        self.acknowledged = {at: ack for at, ack in self.acknowledged.items() if at in found.records}
        self.flushed = 0

    def verify(self, store: MessageStore, random: Random, *, power_lost: bool = False) -> Found:
        """Read all of the store in every way. Lost says what is wrong, `missing` of what is found what is not there."""
        required = [
            ack
            for ack in self.acknowledged.values()
            if ack.physical_offset >= self.floor and (not power_lost or ack.physical_offset + ack.size <= self.flushed)
        ]
        records = self._read_log(store)
        queues = _read_queues(store, records, self.floor)
        missing = []
        for ack in required:
            record = records.get(ack.physical_offset)
            if record is None or record.find_property("UNIQ_KEY") != ack.unique:
                missing.append(f"log: {ack}, but there is {brief(record)}; {store.log.start}..{store.log.end}")
            elif ack.queue_offset >= 0 and queues.get((ack.topic, ack.queue_id), {}).get(ack.queue_offset) != record:
                missing.append(f"queue {store.queue(ack.topic, ack.queue_id)}: {ack}")
        self._look_up_keys(store, records, random)
        _look_up_times(store, queues, random)
        ends = tuple(
            (queue.topic, queue.queue_id, int(queue.min_offset), int(queue.max_offset), queue.max_physical)
            for queue in sorted(store.queues, key=lambda queue: (queue.topic, queue.queue_id))
            if queue.max_offset
        )
        return Found((int(store.log.start), int(store.log.end)), ends, records, len(required), tuple(missing))

    def _read_log(self, store: MessageStore) -> dict[int, MessageRecord]:
        records: dict[int, MessageRecord] = {}
        newest = 0
        end = int(store.log.start)
        for segment in store.log.segments:
            for scanned in scan(segment.view, 0, segment.start, check_crc=True):
                record = decode_record(store.message_at(scanned.physical_offset))
                if not is_whole(record):
                    raise Lost(f"half a message is served: {brief(record)}, {record.topic!r} {record.properties!r}")
                if record.store_timestamp < newest:
                    raise Lost(f"store time goes back from {newest} to {record.store_timestamp}: {brief(record)}")
                ack = self.acknowledged.get(record.physical_offset)
                if ack is not None and ack.unique != record.find_property("UNIQ_KEY"):
                    raise Lost(f"another message lies where one was acknowledged: {ack}, {brief(record)}")
                newest = record.store_timestamp
                records[record.physical_offset] = record
                end = record.physical_offset + scanned.size
        if not end <= store.log.end <= end + store.log.file_size:
            raise Lost(f"the records end at {end}, the log at {store.log.end}")
        return records

    def _look_up_keys(self, store: MessageStore, records: dict[int, MessageRecord], random: Random) -> None:
        """All newest messages and some of the others are found by their unique keys; so is one key that many have."""
        indexed = [
            record
            for record in records.values()
            if record.sys_flag & sysflag.TRANSACTION_MASK != sysflag.ROLLBACK and record.physical_offset >= self.floor
        ]
        for record in {*indexed[-40:], *random.sample(indexed, min(len(indexed), 40))} if indexed else ():
            unique = record.find_property("UNIQ_KEY") or ""
            if [decode_record(view) for view in store.query(record.topic, unique, 32, 0, FOREVER)] != [record]:
                raise Lost(f"index: {unique} is not found; {brief(record)}")
        for record in indexed[-3:]:
            for key in (record.find_property("KEYS") or "").split():
                same = [
                    other.physical_offset
                    for other in indexed
                    if other.topic == record.topic and key in (other.find_property("KEYS") or "").split()
                ]
                offsets = [
                    decode_record(view).physical_offset for view in store.query(record.topic, key, 64, 0, FOREVER)
                ]
                found = [offset for offset in offsets if offset >= self.floor]
                # Of other keys with the same hash some may have been among the newest 64.
                if found != same[len(same) - len(found) :] or (len(found) < min(len(same), 30)):
                    raise Lost(f"index: {key} is found at {found}, but is at {same}")


def _read_queues(
    store: MessageStore, records: dict[int, MessageRecord], floor: int
) -> dict[tuple[str, int], dict[int, MessageRecord]]:
    """All queues, which must hold all messages of the log from `floor` on and no others, without gaps."""
    tags = TagsCodes(parse_delay_levels(store.config.delay_levels))
    queues: dict[tuple[str, int], dict[int, MessageRecord]] = {}
    for queue in store.queues:
        messages = queues[queue.topic, queue.queue_id] = {}
        offset = int(queue.min_offset)
        while offset < queue.max_offset:
            found = store.get(queue, offset, 32)
            if found.status is not GetStatus.FOUND:
                raise Lost(f"{queue} at {offset}: {found}")
            for view in found.slices:
                record = decode_record(view)
                if (record.topic, record.queue_id, record.queue_offset) != (queue.topic, queue.queue_id, offset):
                    raise Lost(f"{queue} serves {brief(record)} at {offset}")
                if records.get(record.physical_offset) != record:
                    raise Lost(f"{queue} serves at {offset} what is not in the log: {brief(record)}")
                entry = queue.entry(offset)
                code = tags.of(record.topic, record.properties, record.store_timestamp)
                if entry != (record.physical_offset, len(view), code):
                    raise Lost(f"{queue} has the entry {entry} at {offset}, not {code}, {len(view)}: {brief(record)}")
                messages[offset] = record
                offset += 1
            if found.next_offset != offset:
                raise Lost(f"{queue} goes on at {found.next_offset} and not at {offset}")
    in_queues = {record.physical_offset for messages in queues.values() for record in messages.values()}
    for at, record in records.items():
        if record.sys_flag & sysflag.PREPARED == 0 and at >= floor and at not in in_queues:
            raise Lost(f"not in {store.queues.find(record.topic, record.queue_id)}: {brief(record)}")
    return queues


def _look_up_times(
    store: MessageStore, queues: dict[tuple[str, int], dict[int, MessageRecord]], random: Random
) -> None:
    for (topic, queue_id), messages in queues.items():
        if messages:
            queue = store.queue(topic, queue_id)
            times = [record.store_timestamp for record in messages.values()]
            wanted = random.choice(times) + random.choice((-1, 0, 1))
            expected = min(messages) + bisect.bisect_left(times, wanted)
            if store.reader.offset_by_time(queue, wanted) != expected:
                raise Lost(f"{queue}: {wanted} is at {expected}")
    try:
        store.message_at(int(store.log.end))
    except OffsetOutOfRange:
        return
    raise Lost("there is a message behind the end of the log")
