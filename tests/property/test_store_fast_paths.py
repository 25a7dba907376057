"""The fast paths through the store do what the general ones do, for messages of every kind, and really are taken."""

from __future__ import annotations

import tempfile
import unittest.mock
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.message_kinds import KINDS, UNITS

from pyromq.errors import CorruptRecord
from pyromq.protocol import properties as props
from pyromq.protocol.hashing import tags_code
from pyromq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MessageRecord, encode_record, stored_properties
from pyromq.store import GetResult, GetStatus, MessageStore, PropertiesTest, PutResult, PutStatus, StoreConfig
from pyromq.store import scan as scanning
from pyromq.store.dispatch import Dispatch
from pyromq.store.fast_scan import Bulk
from pyromq.store.format import ENTRY, PRE_BLANK
from pyromq.store.scan import ScannedRecord, _scan_general, scan, scan_many
from pyromq.store.tags import TagsCodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyromq.store.queues.consume_queue import ConsumeQueue
    from pyromq.store.record_table import PropertiesTable

HOSTS = st.sampled_from([bytes(8), bytes((10, 0, 0, 1, 0, 0, 42, 159)), bytes(range(20)), b"short"])
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "XTAGS", ""])
VALUES = st.sampled_from(["", "A", "TagB", "3", "TAGS\x01A", "é"])
PROPERTIES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
        lambda items: "\x02".join(f"{name}\x01{value}" for name, value in items).encode()
    ),
    st.binary(max_size=30),
)
TOPICS = ["T", "a-longer-topic", SCHEDULE_TOPIC, TIMER_TOPIC, "x" * 200]

# Anything, also what is refused, in small files.
RECORDS = st.builds(
    MessageRecord,
    topic=st.just("T"),
    body=st.binary(max_size=300) | st.just(bytes(2000)),
    properties=PROPERTIES,
    flag=st.integers(-(2**31), 2**31),
    sys_flag=st.sampled_from([0, 1, 2, 4, 8, 12, 0x10, 0x30, 0xC0, 0x301]),
    born_timestamp=st.integers(0, 2**40),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.integers(0, 20),
)
ODD_UNITS = st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1), st.lists(RECORDS, min_size=1, max_size=4)))

# Putting


def config(folder: object, **settings: int) -> StoreConfig:
    return StoreConfig(root=str(folder), **settings)  # type: ignore[arg-type]  # all of them are numbers


class Stored(NamedTuple):
    """What becomes of a store."""

    results: list[PutResult]
    entries: list[bytes]
    found: list[list[bytes]]
    logs: list[bytes]


def stored(units: Sequence[tuple[str, int, list[MessageRecord]]], *, fast: bool, **settings: int) -> tuple[Stored, int]:
    """What becomes of a store in which these are put by one call, and how many took the general path."""
    with tempfile.TemporaryDirectory() as folder:
        with MessageStore(config(folder, **settings), clock=lambda: 1.7e9) as store:
            queues = {(topic, number): store.queue(topic, number) for topic, number, _ in units}
            if not fast:
                for queue in queues.values():
                    queue.has_fast_path = False
            # The first message of a file takes the general path, which makes it.
            store.put([(store.queue("first", 0), [MessageRecord("first", b"", born_host=bytes(8))])])
            before = store._appender.general_puts
            results = store.put([(queues[topic, number], records) for topic, number, records in units])
            entries = [bytes(queue.tail) for queue in queues.values()]
            found = [store.query(topic, key, 32, 0, 2**62) for topic, _, _ in units for key in ("A", "TagB", "k2")]
            places = [[bytes(record) for record in records] for records in found]
            general = store._appender.general_puts - before
        logs = [path.read_bytes() for path in sorted(Path(folder, "commitlog").iterdir())]
    return Stored(results, entries, places, logs), general


SMALL = {"commit_log_file_size": 4000, "consume_queue_file_size": 200, "max_message_size": 1000}
ROOMY = {"commit_log_file_size": 1 << 20, "consume_queue_file_size": 2000}


@given(ODD_UNITS)
def test_whatever_is_put_becomes_the_same_by_both_paths(units):
    assert stored(units, fast=True, **SMALL)[0] == stored(units, fast=False, **SMALL)[0]


@settings(max_examples=50)
@given(st.lists(UNITS, min_size=1, max_size=12))
def test_messages_of_every_kind_are_put_by_the_path_that_is_theirs(units):
    given = [(kind.topic, 0, records) for kind, records in units]
    one, took_general = stored(given, fast=True, **ROOMY)
    other, all_took = stored(given, fast=False, **ROOMY)
    assert one == other
    assert {result.status for result in one.results} == {PutStatus.PUT_OK}
    assert took_general == sum(kind.messages for kind, _ in units if not kind.put_fast)
    assert all_took == sum(kind.messages for kind, _ in units)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_put_by_the_path_that_is_its_own(name):
    kind = KINDS[name]
    given = [(kind.topic, number % 2, kind.records(b"%d" % number)) for number in range(4)]
    one, took_general = stored(given, fast=True, **ROOMY)
    assert one == stored(given, fast=False, **ROOMY)[0]
    assert took_general == (0 if kind.put_fast else 4 * kind.messages)


# Reading


class Marked(PropertiesTest):
    """Selects messages with a mark."""

    def __call__(self, record: memoryview) -> bool:
        return b"w\x01yes" in stored_properties(record)

    def of_many(self, properties: PropertiesTable) -> list[bool]:
        return [b"w\x01yes" in properties.of(number) for number in range(len(properties))]

    def expected(self, wanted: int) -> int:
        return wanted + 2


def read(store: MessageStore, queue: ConsumeQueue, offset: int, count: int, match: PropertiesTest | None) -> GetResult:
    """What a read gives, after it was compared with what the general path gives."""
    general = store.reader.general(queue, offset, count, match=match)
    assert not general.is_fast
    found = store.get(queue, offset, count, match=match)
    joined = store.get(queue, offset, count, match=match, joined=True)
    assert replace(found, is_fast=False) == general
    assert replace(joined, is_fast=False, slices=[]) == replace(general, slices=[])
    assert b"".join(joined.slices) == b"".join(general.slices)
    assert joined.is_fast == found.is_fast
    return found


@settings(max_examples=50)
@given(
    st.lists(UNITS, min_size=1, max_size=8),
    st.integers(1, 4),
    st.sampled_from([1, 3, 40, 200]),
    st.sampled_from([300, 1000, 1 << 20]),
    st.sampled_from([0, 1500, 1 << 30]),
)
def test_queues_of_every_kind_are_read_the_same_by_both_paths(units, times, count, max_bytes, memory):
    with tempfile.TemporaryDirectory() as folder:
        settings = {**ROOMY, "max_bytes_in_memory": max_bytes, "max_bytes_on_disk": 500, "max_count_in_memory": 500}
        with MessageStore(config(folder, **settings), memory=memory) as store:
            for _ in range(times):
                store.put([(store.queue(kind.topic, 0), records) for kind, records in units])
            for queue in store.queues:
                for offset in range(int(queue.max_offset)):
                    for match in (None, Marked()):
                        read(store, queue, offset, count, match)


@pytest.mark.parametrize("count", [1, 32, 150])
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_read_by_the_path_that_is_its_own(tmp_path, name, count):
    kind = KINDS[name]
    settings = {**ROOMY, "commit_log_file_size": 16 << 20, "max_count_in_memory": 500, "max_bytes_in_memory": 16 << 20}
    with MessageStore(config(tmp_path, **settings)) as store:
        queue = store.queue(kind.topic, 0)
        for number in range(160 // kind.messages):
            store.put([(queue, kind.records(b"", b"w\x01yes" if number % 2 else b""))])
        if kind.has_entry:
            assert read(store, queue, 0, count, None).is_fast == kind.read_fast
            assert read(store, queue, 0, count, Marked()).is_fast == kind.filtered_fast
        else:
            assert store.get(queue, 0, count).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_what_is_old_damaged_or_a_filler_is_read_by_the_general_path(tmp_path):
    kind = KINDS["tagged"]
    with MessageStore(config(tmp_path, **ROOMY), memory=10_000) as store:
        queue = store.queue("T", 0)
        for _ in range(90):
            store.put([(queue, kind.records())])
        recent = 90 - int(10_000 * 0.4) // len(store.get(queue, 0, 1).slices[0])
        assert [read(store, queue, offset, 32, None).is_fast for offset in (0, recent - 1, recent)] == [
            False,
            False,
            True,
        ]
        good = bytes(queue.tail)
        filler = 85 * ENTRY.size - (90 * ENTRY.size - len(good))
        for wrong in (PRE_BLANK, ENTRY.pack(-(2**63), 200, 0), ENTRY.pack(7, 200, 0), ENTRY.pack(2**62, 200, 0)):
            queue.tail[filler : filler + ENTRY.size] = wrong
            assert not read(store, queue, 80, 32, None).is_fast
            assert not read(store, queue, 80, 150, None).is_fast
            # What comes behind a full answer does not matter, unless it is passed over.
            read(store, queue, 80, 5, None)
            read(store, queue, 80, 5, Marked())
            assert read(store, queue, 80, 4, None).is_fast
            assert not read(store, queue, 80, 32, Marked()).is_fast
        queue.tail[:] = good


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


def scan_generally(log: bytes, check_crc: bool, more: int) -> Iterator[ScannedRecord]:
    at = 0
    while (record := _scan_general(log, at, 0, check_crc, more)) is not None:
        yield record
        at += record.size


@given(st.lists(GOOD, max_size=4), DAMAGE, st.integers(0, 200), st.booleans(), st.sampled_from([0, 100]))
def test_records_are_scanned_the_same_by_both_paths(records, damage, zeros, check_crc, more):
    log = bytearray()
    for record in records:
        log += encode_record(replace(record, physical_offset=len(log)))
    log += bytes(zeros)
    for at, octet in damage:
        log[at : at + 1] = bytes((octet,))
    expected = scanned(scan_generally(bytes(log), check_crc, more))
    with tempfile.TemporaryFile() as file:
        file.write(log or b"\0")
        file.flush()
        mapped = mmap(file.fileno(), 0, prot=PROT_READ)
        for view in (bytes(log), memoryview(bytes(log)), memoryview(mapped)[: len(log)]):
            assert scanned(scan(view, 0, 0, check_crc=check_crc, more=more)) == expected
        del view
        mapped.close()


# Many at a time, with some in between that are for the general path.

COMMON = st.builds(
    MessageRecord,
    topic=st.sampled_from(["T", "T", "T", "topic-é", "other"]),
    body=st.binary(max_size=20),
    properties=PROPERTIES,
    queue_id=st.integers(-1, 2),
    born_host=st.just(bytes(8)),
)
PARTS = st.lists(st.tuples(st.lists(COMMON, min_size=1, max_size=3), st.integers(1, 60)) | GOOD, max_size=6)


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


def test_records_are_recovered_by_the_fast_path():
    common = [MessageRecord("T", b"body", b"KEYS\x01A", queue_id=number, born_host=bytes(8)) for number in range(3)]
    log = bytes(log_of([(common, 1000)])) + bytes(1000)
    parts = list(scan_many(memoryview(log), 0, check_crc=True))
    assert [type(part) for part in parts] == [list, Bulk]
    with tempfile.TemporaryDirectory() as folder, MessageStore(config(folder, **ROOMY)) as store:
        dispatch = Dispatch(store.queues, store.index, store._tags, {})
        for part in parts:
            if isinstance(part, Bulk):
                dispatch.bulk(part)
            else:
                dispatch.all(part)
        assert dispatch.count == 3000
        assert dispatch.fast_count == len(parts[1])
        store.abandon()
