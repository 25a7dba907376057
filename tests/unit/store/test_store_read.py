"""Reading: by queue, by time, by place, by key (docs/spec/store.md 9)."""

from __future__ import annotations

import os
import struct

import pytest
from msgspec.structs import replace
from tests.unit.store.kit import FOREVER, T0, bodies, message, numbered, put, records

from pyromq.errors import OffsetOutOfRange, StoreError
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import MessageRecord, decode_records, encode_record
from pyromq.store import GetStatus
from pyromq.store.fast_read import limits_of
from pyromq.store.format import ENTRY

KB = 1024


def pull(store, offset, count=32, **filters):
    """What `get` gives. By the fast path it must give what the general one does, joined in fewer slices or as many."""
    queue = store.queue("T", 0)
    found = store.get(queue, offset, count, **filters)
    if found.is_fast:
        assert replace(found, is_fast=False) == store.reader.general(queue, offset, count, **filters)
    joined = store.get(queue, offset, count, **filters, joined=True)
    assert b"".join(joined.slices) == b"".join(found.slices)
    assert replace(joined, slices=[]) == replace(found, slices=[])
    assert len(joined.slices) <= len(found.slices)
    return found


def large(stores, **changes):
    """A store whose files hold many large messages."""
    return stores.open(**{"commit_log_file_size": 16 * KB * KB, "consume_queue_file_size": 20_000, **changes})


# The table of 9.1, row by row


def test_an_empty_queue_has_no_message(store):
    for offset in (0, 5, -1):
        result = pull(store, offset)
        assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert (result.min_offset, result.max_offset, result.slices) == (0, 0, [])


@pytest.mark.scenario("store 20")
def test_an_offset_outside_of_the_queue_is_told_where_to_go_on(stores, store):
    put(store, *numbered(0, 200))
    stores.drop_oldest_files(store)
    queue = store.queue("T", 0)
    low, high = queue.min_offset, queue.max_offset
    assert 0 < low < high == 200
    expected = {
        -1: (GetStatus.OFFSET_TOO_SMALL, low),
        0: (GetStatus.OFFSET_TOO_SMALL, low),
        low - 1: (GetStatus.OFFSET_TOO_SMALL, low),
        high: (GetStatus.OFFSET_OVERFLOW_ONE, high),
        high + 1: (GetStatus.OFFSET_OVERFLOW_BADLY, high),
        2**62: (GetStatus.OFFSET_OVERFLOW_BADLY, high),
    }
    found = {offset: pull(store, offset) for offset in expected}
    assert {offset: (result.status, result.next_offset) for offset, result in found.items()} == expected
    assert {(result.min_offset, result.max_offset) for result in found.values()} == {(low, high)}


@pytest.mark.scenario("store 20")
def test_a_queue_with_ten_messages_ends_at_ten(store):
    put(store, *numbered(0, 10))
    assert (pull(store, 10).status, pull(store, 10).next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 10)
    assert (pull(store, 11).status, pull(store, 11).next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 10)
    assert (pull(store, -1).status, pull(store, -1).next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)


def test_an_offset_whose_file_is_missing_goes_on_with_the_next_file(stores, store):
    put(store, *numbered(0, 100))
    store.queue("T", 0).write_out()
    store.queue("T", 0)._segments.remove(200)
    result = pull(store, 12)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 20)


def test_what_was_found_is_given_as_slices_of_the_log(store):
    results = put(store, *numbered(0, 5))
    result = pull(store, 1, 3)
    assert (result.status, result.next_offset, result.count) == (GetStatus.FOUND, 4, 3)
    assert result.size == sum(map(len, result.slices)) == 3 * results[0].size
    found = records(result.slices)
    assert [record.body for record in found] == numbered(1, 4)
    assert [record.physical_offset for record in found] == [item.physical_offset for item in results[1:4]]


def test_messages_that_do_not_match_are_passed_over_and_counted(store):
    for number in range(10):
        put(store, b"m%d" % number, tags="A" if number % 3 == 0 else "B")
    code = java_hash("A")
    result = pull(store, 1, tags=lambda tags_code: tags_code == code)
    assert [record.body for record in records(result.slices)] == [b"m3", b"m6", b"m9"]
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 10)
    result = pull(store, 1, 2, tags=lambda tags_code: tags_code == code)
    assert (result.count, result.next_offset) == (2, 7)


def test_a_filter_can_look_at_the_record_itself(store):
    put(store, *numbered(0, 10))
    result = pull(store, 0, match=lambda record: bytes(record).find(b"m7") >= 0)
    assert ([record.body for record in records(result.slices)], result.next_offset) == ([b"m7"], 10)
    result = pull(store, 0, match=lambda record: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


@pytest.mark.scenario("store 22")
def test_a_pull_looks_at_800_entries_and_no_more(stores):
    store = large(stores)
    queue = store.queue("T", 0)
    store.put([(queue, [message(b"x", tags="A")]) for _ in range(1000)])
    result = pull(store, 50, tags=lambda tags_code: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 850)
    result = pull(store, 850, tags=lambda tags_code: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 1000)
    # Whoever asks for more messages than that lets it look at as many.
    assert pull(store, 50, 900, tags=lambda tags_code: False).next_offset == 950


def test_a_pull_ends_with_its_queue_file(store):
    put(store, *numbered(0, 25))
    for written in (False, True):
        if written:
            store.queue("T", 0).write_out()
        assert [(pull(store, offset).count, pull(store, offset).next_offset) for offset in (0, 7, 10, 20)] == [
            (10, 10),
            (3, 10),
            (10, 20),
            (5, 25),
        ]


def test_fillers_are_passed_over(stores, store):
    put(store, *numbered(0, 3))
    queue = store.queue("T", 0)
    queue.fill_up_to(6)
    queue.gap = None
    put(store, b"m6")
    result = pull(store, 0)
    assert ([record.body for record in records(result.slices)], result.next_offset) == ([b"m0", b"m1", b"m2", b"m6"], 7)
    result = pull(store, 3, 1)
    assert (result.status, result.next_offset, result.count) == (GetStatus.FOUND, 7, 1)
    assert not result.suggest_slave
    result = store.get(queue, 4, 1, tags=lambda code: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 7)
    stores.is_damaged()


def test_messages_of_a_removed_file_are_passed_over_up_to_the_next_one(stores, store):
    put(store, *numbered(0, 200))
    queue = store.queue("T", 0)
    looked_for = []
    real = store.log.segment_at

    def counted(offset):
        looked_for.append(offset)
        return real(offset)

    store.log.drop_oldest().close()
    store.log.segment_at = counted
    first = next(offset for offset in range(200) if queue.entry(offset)[0] >= 4096)
    # Its minimum is not corrected yet, as in the moment of a clean-up.
    result = store.reader.general(queue, 0, 32)
    assert (result.status, result.next_offset, result.count) == (GetStatus.MESSAGE_WAS_REMOVING, 10, 0)
    assert len(looked_for) == 1
    assert store.get(queue, 0, 32) == result
    start = first - first % 10
    result = pull(store, start)
    assert (result.status, result.next_offset) == (GetStatus.FOUND, start + 10)
    assert [record.queue_offset for record in records(result.slices)] == list(range(first, start + 10))


@pytest.mark.parametrize(
    "entry",
    [(50, 94, 0), (0, 93, 0), (0, 0, 0), (-5, 94, 0), (94, -1, 0), (2**62, 94, 0), (0, 20, 0), (0, 2 * 94, 0)],
)
def test_an_entry_that_points_to_no_record_serves_nothing_and_hides_nothing(stores, store, entry, caplog):
    put(store, *numbered(0, 5))
    store.queue("T", 0).tail[40:60] = ENTRY.pack(*entry)
    result = pull(store, 0)
    assert [record.body for record in records(result.slices)] == [b"m0", b"m1", b"m3", b"m4"]
    result = pull(store, 2, 1)
    assert (result.next_offset, result.count) == (4, 1)
    stores.is_damaged()


@pytest.mark.parametrize("size", [1, 16 * KB])
def test_thousands_at_a_time_are_the_same_messages(stores, size):
    store = large(stores, max_count_in_memory=2000, max_bytes_in_memory=size * KB, commit_log_file_size=256 * KB)
    for number in range(1500):
        put(store, b"%d" % number * (number % 7))
        if number % 3 == 0:
            put(store, b"between them", topic="other")
    at = 0
    while at < 1500:
        found = pull(store, at, 1000)
        assert found.count
        at = int(found.next_offset)
    assert pull(store, 700, 1).count == 1


def test_thousands_at_a_time_with_a_damaged_one_are_those_that_are_left(stores):
    store = large(stores, max_count_in_memory=2000)
    put(store, *numbered(0, 300))
    physical, size, _ = ENTRY.unpack_from(store.queue("T", 0).tail, 200 * ENTRY.size)
    for wrong in ((physical + 1, size, 0), (physical, size + 1, 0), (physical - size, size, 0), (-1, size, 0)):
        ENTRY.pack_into(store.queue("T", 0).tail, 200 * ENTRY.size, *wrong)
        expected = 300 if wrong[0] == physical - size else 299  # that one is a message, if not this one
        assert pull(store, 0, 1000).count == expected
    stores.is_damaged()


# Limits


@pytest.mark.scenario("store 21")
@pytest.mark.parametrize(
    ("size", "stored", "expected"), [(KB, 40, 32), (10 * KB, 40, 25), (300 * KB, 3, 1)], ids=["1 KiB", "10 KiB", "300"]
)
def test_a_pull_is_limited_in_count_and_bytes(stores, size, stored, expected):
    store = large(stores)
    put(store, *[bytes(size - 92)] * stored)
    assert pull(store, 0, 100).count == expected
    assert pull(store, 0, 100).next_offset == expected
    assert pull(store, 0, 1).count == 1


def test_messages_that_are_not_in_memory_are_given_out_less_generously(stores):
    store = large(stores, memory_ratio=50)
    put(store, *[bytes(KB - 92)] * 100)
    store.reader.limits = limits_of(store.config, 2 * 20 * KB)  # the last twenty are in memory
    assert pull(store, 0, 100).count == 8
    assert pull(store, 0, 100).suggest_slave
    # The limits are those of the message that would come next: ten old ones are in, and new ones may follow.
    assert pull(store, 80, 100).count == 20
    assert not pull(store, 80, 100).suggest_slave
    assert pull(store, 76, 100).count == 24
    store.reader.limits = limits_of(store.config, 0)
    assert pull(store, 80, 100).count == 8


def test_old_messages_are_limited_in_bytes_too(stores):
    store = stores.start(stores.config(commit_log_file_size=16 * KB * KB, consume_queue_file_size=20_000), memory=0)
    put(store, *[bytes(20 * KB - 92)] * 10)
    assert pull(store, 0, 100).count == 3
    assert pull(store, 0, 100).suggest_slave
    put(store, bytes(100 * KB))
    assert pull(store, 10, 100).count == 1


def test_limits_are_those_of_the_settings(stores):
    store = stores.open(max_count_in_memory=3, max_bytes_in_memory=200)
    put(store, *numbered(0, 10))
    assert pull(store, 0).count == 2
    store = stores.start(stores.config(root=stores.folder / "other", max_count_in_memory=3))
    put(store, *numbered(0, 10))
    assert pull(store, 0).count == 3


# Slices


def test_messages_that_lie_side_by_side_are_sent_on_as_one(stores):
    store = large(stores)
    put(store, *numbered(0, 10))
    put(store, b"another queue", queue_id=1)
    put(store, *numbered(10, 12))
    runs = store.get(store.queue("T", 0), 3, 32, joined=True)
    assert [len(list(decode_records(piece))) for piece in runs.slices] == [7, 2]


def test_slices_stay_valid_when_their_file_is_deleted_and_the_store_closed(stores, store):
    put(store, *numbered(0, 100))
    result = pull(store, 0, 5)
    stores.drop_oldest_files(store)
    assert not (stores.root / "commitlog" / f"{0:020d}").exists()
    assert [record.body for record in records(result.slices)] == numbered(0, 5)
    stores.close(store)
    assert [record.body for record in records(result.slices)] == numbered(0, 5)


def test_a_closed_store_serves_nothing(stores, store):
    put(store, b"a")
    queue = store.queue("T", 0)
    stores.close(store)
    with pytest.raises(StoreError, match="closed"):
        store.get(queue, 0, 32)
    with pytest.raises(OffsetOutOfRange):
        store.message_at(0)
    assert store.query("T", "k", 32, 0, FOREVER) == []


def test_a_queue_file_that_cannot_be_read_is_a_store_error(stores, store):
    put(store, *numbered(0, 200))
    queue = store.queue("T", 0)
    queue.write_out()
    os.truncate(stores.root / "consumequeue" / "T" / "0" / f"{0:020d}", 30)
    with pytest.raises(StoreError, match="ends before"):
        pull(store, 0)
    stores.is_damaged()


# By time


@pytest.mark.scenario("store 23")
def test_an_offset_is_found_by_time(stores, store, clock):
    for seconds in (1, 1, 1, 3, 3):
        clock.set_millis(T0 + seconds * 1000)
        put(store, b"x")
    queue = store.queue("T", 0)

    def search(seconds, **how):
        return store.reader.offset_by_time(queue, T0 + seconds * 1000, **how)

    assert [search(2), search(2, upper=True), search(1), search(9)] == [3, 2, 0, 5]
    assert [search(seconds) for seconds in (0, 1, 3, 4)] == [0, 0, 3, 5]
    assert [search(seconds, upper=True) for seconds in (0, 1, 3, 9)] == [0, 2, 4, 4]


def test_an_offset_by_time_of_an_empty_queue_is_its_beginning(store):
    queue = store.queue("T", 0)
    for upper in (False, True):
        assert store.reader.offset_by_time(queue, T0, upper=upper) == 0


def test_an_offset_by_time_lies_between_the_ends_of_the_queue(stores, clock):
    store = stores.open(delete_batch=2)
    for number in range(200):
        put(store, b"m%d" % number)
        clock.advance(1)
    stores.drop_oldest_files(store)
    queue = store.queue("T", 0)
    low = int(queue.min_offset)
    search = store.reader.offset_by_time
    assert low > 0
    assert [search(queue, 0), search(queue, 0, upper=True), search(queue, T0, upper=True)] == [low, low, low]
    assert search(queue, T0 + 150_000) == search(queue, T0 + 150_000, upper=True) == 150
    assert search(queue, T0 + 150_500) == 151
    assert search(queue, T0 + 150_500, upper=True) == 150
    assert (search(queue, FOREVER), search(queue, FOREVER, upper=True)) == (200, 199)
    stores.close(store)
    again = stores.start(store.config)
    assert again.reader.offset_by_time(again.queue("T", 0), T0 + 150_500) == 151


def test_fillers_have_no_time(stores, store, clock):
    queue = store.queue("T", 0)
    put(store, b"m0", b"m1")
    queue.fill_up_to(8)
    queue.gap = None
    clock.advance(1)
    put(store, b"m8")
    found = {offset: store.reader.offset_by_time(queue, T0 + offset) for offset in (-1, 0, 1, 1000, 1001)}
    assert found == {-1: 0, 0: 0, 1: 8, 1000: 8, 1001: 9}
    found = {offset: store.reader.offset_by_time(queue, T0 + offset, upper=True) for offset in (-1, 0, 1, 1000, 1001)}
    assert found == {-1: 0, 0: 1, 1: 1, 1000: 8, 1001: 8}
    assert [store.reader.store_time(queue, offset) for offset in (0, 5, 8, 9, -1)] == [T0, -1, T0 + 1000, -1, -1]
    stores.is_damaged()


def test_the_store_time_is_found_behind_a_host_of_any_length(store):
    put(store, b"a", born_host=encode_host("2001:db8::1", 1), store_host=encode_host("2001:db8::2", 2))
    assert store.reader.store_time(store.queue("T", 0), 0) == T0


# By place


def test_a_message_is_found_where_it_begins_and_nowhere_else(store):
    results = put(store, *numbered(0, 100))
    begins = {result.physical_offset for result in results}
    for result in results:
        assert records([store.message_at(result.physical_offset)])[0].queue_offset == result.queue_offset
    blank = store.log.segments[0].end - 20
    for offset in (1, 93, blank, -1, -4096, int(store.log.end), int(store.log.end) - 3, 2**62, -(2**62)):
        assert offset not in begins
        with pytest.raises(OffsetOutOfRange):
            store.message_at(offset)


def test_bytes_that_only_look_like_a_message_are_none(store):
    put(store, b"a")
    fake = encode_record(MessageRecord("T", b"fake", physical_offset=12345))
    (result,) = put(store, fake)
    with pytest.raises(OffsetOutOfRange):
        store.message_at(result.physical_offset + 88)
    put(store, struct.pack(">ii", 93, -626843481))
    with pytest.raises(OffsetOutOfRange):
        store.message_at(int(store.log.end) - 12)


# By key


def found(store, key, count=32, begin=0, end=FOREVER, topic="T"):
    return [record.body for record in records(store.query(topic, key, count, begin, end))]


def test_messages_are_found_by_each_of_their_keys_and_by_their_unique_key(store):
    put(store, b"a", properties=b"KEYS\x01k1 k2\x02UNIQ_KEY\x01U1")
    put(store, b"b", properties=b"KEYS\x01k2\x02UNIQ_KEY\x01U2")
    assert found(store, "k1") == [b"a"]
    assert found(store, "k2") == [b"a", b"b"]
    assert found(store, "U2") == [b"b"]
    assert found(store, "k1 k2") == []
    assert found(store, "k1", topic="U") == []


def test_the_newest_messages_are_found_oldest_first(store, clock):
    for number in range(20):
        put(store, b"m%d" % number, keys="k")
        clock.advance(1)
    assert found(store, "k", 3) == numbered(17, 20)
    assert found(store, "k", 3, end=T0 + 10_000) == numbered(8, 11)
    assert found(store, "k", begin=T0 + 18_000) == numbered(18, 20)
    assert found(store, "k", begin=T0 + 5_000, end=T0 + 7_000) == numbered(5, 8)
    assert found(store, "k", begin=T0 + 50_000) == []


def test_no_more_than_the_setting_allows_are_found(stores):
    store = stores.open(max_query=5)
    put(store, *numbered(0, 20), keys="k")
    assert found(store, "k", 1000) == numbered(15, 20)


def test_keys_with_the_same_hash_are_told_apart(store, clock):
    assert java_hash("T#Aa") == java_hash("T#BB")
    put(store, b"wanted", keys="Aa")
    clock.advance(10)
    put(store, *numbered(0, 5), keys="BB")
    assert found(store, "Aa") == [b"wanted"]
    # Not even when those of the other key are all that fits into one look-up.
    assert found(store, "Aa", 2) == [b"wanted"]
    assert found(store, "BB", 2) == numbered(3, 5)
    put(store, b"newer", keys="Aa")
    assert found(store, "Aa") == [b"wanted", b"newer"]
    assert found(store, "Aa", 1) == [b"newer"]


def test_messages_that_are_gone_are_not_found_by_key(stores, store):
    put(store, *numbered(0, 200), keys="k")
    put(store, b"last", keys="k2")
    stores.drop_oldest_files(store)
    low = int(store.queue("T", 0).min_offset)
    assert found(store, "k", 64) == numbered(low, 200)[-64:]
    assert found(store, "k2") == [b"last"]
    again = stores.reopen(store)
    assert found(again, "k", 64) == numbered(low, 200)[-64:]


def test_a_store_without_an_index_finds_nothing_by_key(stores):
    store = stores.open(index=False)
    put(store, b"a", keys="k")
    assert found(store, "k") == []
    assert not (stores.root / "index").exists()
    assert bodies(stores.reopen(store)) == [b"a"]
