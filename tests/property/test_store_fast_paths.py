"""The short ways through the store do what the long ones do."""

from __future__ import annotations

import tempfile
import unittest.mock
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pyromq.errors import CorruptRecord
from pyromq.protocol import properties as props
from pyromq.protocol.hashing import tags_code
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MessageRecord, encode_record
from pyromq.store import MessageStore, StoreConfig
from pyromq.store import scan as scanning
from pyromq.store.fast_scan import Bulk
from pyromq.store.recovery import Dispatch
from pyromq.store.scan import ScannedRecord, _scan_one, scan, scan_many
from pyromq.store.tags import SCHEDULE_TOPIC, TagsCodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOSTS = st.sampled_from([bytes(8), bytes((10, 0, 0, 1, 0, 0, 42, 159)), bytes(range(20)), b"short"])
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "XTAGS", ""])
VALUES = st.sampled_from(["", "A", "TagB", "3", "TAGS\x01A", "é"])
PROPERTIES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
        lambda items: "\x02".join(f"{name}\x01{value}" for name, value in items).encode()
    ),
    st.binary(max_size=30),
)
TOPICS = ["T", "a-longer-topic", SCHEDULE_TOPIC, "x" * 200]

RECORDS = st.builds(
    MessageRecord,
    topic=st.just("T"),
    body=st.binary(max_size=300) | st.just(bytes(2000)),
    properties=PROPERTIES,
    flag=st.integers(-(2**31), 2**31),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, 0x10, 0x30, 0x301]),
    born_timestamp=st.integers(0, 2**40),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.integers(0, 20),
)
UNITS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), st.lists(RECORDS, min_size=1, max_size=4)))


def stored(units: Sequence[tuple[str, int, list[MessageRecord]]], *, is_plain: bool) -> tuple[object, ...]:
    """What becomes of a store in which these are put by one call."""
    with tempfile.TemporaryDirectory() as folder:
        config = StoreConfig(root=folder, commit_log_file_size=4000, consume_queue_file_size=200, max_message_size=1000)
        with MessageStore(config, clock=lambda: 1.7e9) as store:
            queues = {(topic, number): store.queue(topic, number) for topic in TOPICS for number in range(2)}
            if not is_plain:
                for queue in queues.values():
                    queue.is_plain = False
            results = store.put([(queues[topic, number], records) for topic, number, records in units])
            entries = [bytes(queue.tail) for queue in queues.values()]
            found = [store.query(topic, key, 32, 0, 2**62) for topic in TOPICS for key in ("A", "TagB")]
            places = [[bytes(record) for record in records] for records in found]
        logs = [path.read_bytes() for path in sorted(Path(folder, "commitlog").iterdir())]
    return results, entries, places, logs


@given(UNITS)
def test_a_plain_message_is_stored_as_any_other(units):
    assert stored(units, is_plain=True) == stored(units, is_plain=False)


@given(st.lists(PROPERTIES, max_size=10))
def test_tags_codes_do_not_depend_on_what_came_before(properties):
    codes = TagsCodes(())
    for raw in properties * 2:
        assert codes.of_tag(raw) == tags_code(props.decode(props.find(raw, b"TAGS") or b""))


# Scanning

GOOD = st.builds(
    MessageRecord,
    topic=st.sampled_from(["T", "", "topic-é", "x" * 127]),
    body=st.binary(max_size=40),
    properties=PROPERTIES,
    queue_id=st.integers(0, 3),
    sys_flag=st.sampled_from([0, 4, 0x301]),
    born_host=st.sampled_from([bytes(8), bytes(20)]),
    magic=st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V2]),
)
DAMAGE = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=3)


def scanned(records: Iterator[ScannedRecord]) -> tuple[list[ScannedRecord], str]:
    """What was found, and what was said to be wrong behind it."""
    found: list[ScannedRecord] = []
    try:
        found.extend(records)
    except CorruptRecord as exc:
        return found, str(exc)
    return found, ""


def scan_slowly(log: bytes, check_crc: bool, more: int) -> Iterator[ScannedRecord]:
    at = 0
    while (record := _scan_one(log, at, 0, check_crc, more)) is not None:
        yield record
        at += record.size


@given(st.lists(GOOD, max_size=4), DAMAGE, st.integers(0, 200), st.booleans(), st.sampled_from([0, 100]))
def test_a_plain_record_is_scanned_as_any_other(records, damage, zeros, check_crc, more):
    log = bytearray()
    for record in records:
        log += encode_record(replace(record, physical_offset=len(log)))
    log += bytes(zeros)
    for at, octet in damage:
        log[at : at + 1] = bytes((octet,))
    expected = scanned(scan_slowly(bytes(log), check_crc, more))
    with tempfile.TemporaryFile() as file:
        file.write(log or b"\0")
        file.flush()
        mapped = mmap(file.fileno(), 0, prot=PROT_READ)
        for view in (bytes(log), memoryview(bytes(log)), memoryview(mapped)[: len(log)]):
            assert scanned(scan(view, 0, 0, check_crc=check_crc, more=more)) == expected
        del view
        mapped.close()


# Many at a time: usual records, with some in between that are not.

USUAL = st.builds(
    MessageRecord,
    topic=st.sampled_from(["T", "T", "T", "topic-é", "other"]),
    body=st.binary(max_size=20),
    properties=PROPERTIES,
    queue_id=st.integers(-1, 2),
    born_host=st.just(bytes(8)),
)
PARTS = st.lists(st.tuples(st.lists(USUAL, min_size=1, max_size=3), st.integers(1, 60)) | GOOD, max_size=6)


def log_of(parts: Sequence[tuple[list[MessageRecord], int] | MessageRecord]) -> bytearray:
    """A log of these, with the queue offsets that they would get."""
    log = bytearray()
    ends: dict[tuple[str, int], int] = {}
    for part in parts:
        records, times = part if isinstance(part, tuple) else ([part], 1)
        for record in records * times:
            queue = record.topic, record.queue_id
            ends[queue] = ends.get(queue, -1) + 1
            log += encode_record(replace(record, physical_offset=len(log), queue_offset=ends[queue]))
    return log


def one_by_one(parts: Iterator[list[ScannedRecord] | Bulk]) -> Iterator[ScannedRecord]:
    for part in parts:
        records = part.records() if isinstance(part, Bulk) else part
        if isinstance(part, Bulk):
            assert part.last == records[-1]
            assert part.end == records[-1].physical_offset + records[-1].size
            assert part.has_zeros == any("\0" in each.topic or 0 in each.properties for each in records)
        yield from records


@given(PARTS, st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=2), st.integers(0, 200), st.booleans())
def test_many_records_are_scanned_as_one_by_one(parts, damage, zeros, check_crc):
    log = log_of(parts) + bytes(zeros)
    for at, octet in damage:
        if log:
            log[min(int(at * len(log)), len(log) - 1)] = octet
    view = memoryview(bytes(log))
    with unittest.mock.patch.object(scanning, "_FIRST", 3), unittest.mock.patch.object(scanning, "_AGAIN", 3):
        found = scanned(one_by_one(scan_many(view, 0, check_crc=check_crc)))
    assert found == scanned(scan(view, 0, 0, check_crc=check_crc))


def recovered(log: bytes, *, many: bool) -> tuple[object, ...]:
    """What a store makes of this log after a crash: the end, the queues with their entries, and what keys find."""
    with tempfile.TemporaryDirectory() as folder:
        config = StoreConfig(root=folder, commit_log_file_size=1 << 20, consume_queue_file_size=2000)
        store = MessageStore(config)
        store.open()
        store.abandon()
        Path(folder, "commitlog").mkdir(exist_ok=True)
        Path(folder, "commitlog", f"{0:020d}").write_bytes(log.ljust(1 << 20, b"\0"))
        with (
            unittest.mock.patch.object(scanning, "_FIRST", 3 if many else 1 << 20),
            unittest.mock.patch.object(scanning, "_AGAIN", 3),
            MessageStore(config) as store,
        ):
            queues = {
                (queue.topic, queue.queue_id): (
                    queue.min_offset,
                    queue.max_offset,
                    queue.max_physical,
                    bytes(queue.tail),
                )
                for queue in store.queues
            }
            keys = [store.query(topic, key, 64, 0, 2**62) for topic in ("T", "other") for key in ("A", "TagB")]
            return store.log.end, queues, [[bytes(record) for record in records] for records in keys]


@given(PARTS)
@settings(max_examples=30)
def test_many_records_are_recovered_as_one_by_one(parts):
    log = bytes(log_of(parts))
    assert recovered(log, many=True) == recovered(log, many=False)


def test_usual_records_take_the_short_way_of_recovery():
    usual = [MessageRecord("T", b"body", b"KEYS\x01A", queue_id=number, born_host=bytes(8)) for number in range(3)]
    taken = []
    short = Dispatch._extend_queues

    def counting(dispatch: Dispatch, bulk: Bulk) -> bool:
        taken.append(len(bulk) if short(dispatch, bulk) else 0)
        return taken[-1] > 0

    with unittest.mock.patch.object(Dispatch, "_extend_queues", counting):
        recovered(bytes(log_of([(usual, 1000)])), many=True)
    assert sum(taken) > 2900
