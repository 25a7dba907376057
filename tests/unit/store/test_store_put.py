"""Storing messages: offsets, limits, records of both versions, and what happens when the disk does not take them."""

from __future__ import annotations

import errno

import pytest
from tests.unit.store.kit import SIZE_OF_EMPTY, T0, bodies, message, numbered, put, records, sized

from pyromq.errors import StoreNotWritable
from pyromq.protocol import sysflag
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, HeadKind, read_head
from pyromq.store import GetStatus, PutStatus

V4 = encode_host("10.0.0.1", 10911)
V6 = encode_host("2001:db8::2", 10911)
LONG_RETRY = "%RETRY%" + 121 * "g"


def statuses(results):
    return [result.status for result in results]


# Offsets


def test_messages_of_a_queue_get_consecutive_offsets_and_can_be_read_at_once(store):
    results = put(store, b"a", b"b", b"c")
    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert bodies(store) == [b"a", b"b", b"c"]


def test_one_call_stores_messages_of_many_queues_in_order(store):
    one, two = store.queue("A", 0), store.queue("B", 3)
    results = store.put(
        [
            (one, [message(b"1", topic="A")]),
            (two, [message(b"2", topic="B")]),
            (one, [message(b"3", topic="A"), message(b"4", topic="A")]),
        ]
    )
    assert [(result.status, result.queue_offset) for result in results] == [
        (PutStatus.PUT_OK, 0),
        (PutStatus.PUT_OK, 0),
        (PutStatus.PUT_OK, 1),
        (PutStatus.PUT_OK, 2),
    ]
    offsets = [result.physical_offset for result in results]
    assert offsets == sorted(offsets)
    assert bodies(store, "A", 0) == [b"1", b"3", b"4"]
    assert bodies(store, "B", 3) == [b"2"]


def test_offsets_times_and_queue_of_a_record_are_the_stores(store, clock):
    clock.advance(1.5)
    lie = message(b"x", queue_offset=77, physical_offset=99, store_timestamp=5, queue_id=9)
    (result,) = store.put([(store.queue("T", 0), [lie])])
    (record,) = records(store.get(store.queue("T", 0), 0, 1).slices)
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (0, 0, result.physical_offset)
    assert record.store_timestamp == result.store_timestamp == T0 + 1500


def test_store_times_do_not_go_back_when_the_clock_does(store, clock):
    (first,) = put(store, b"a")
    clock.advance(-3600)
    (second,) = put(store, b"b")
    assert second.store_timestamp == first.store_timestamp
    clock.advance(3601)
    assert put(store, b"c")[0].store_timestamp == first.store_timestamp + 1000


def test_store_times_do_not_go_back_over_a_restart(stores, store, clock):
    (first,) = put(store, b"a")
    clock.advance(-60)
    again = stores.reopen(store)
    assert put(again, b"b")[0].store_timestamp == first.store_timestamp


def test_a_store_time_far_in_the_future_is_not_followed_after_a_restart(stores, store, clock):
    clock.advance(30 * 86400)
    put(store, b"the clock was wrong")
    clock.advance(-30 * 86400)
    again = stores.reopen(store)
    assert put(again, b"b")[0].store_timestamp == T0
    # The checkpoint is as wrong, and after a crash nothing may be skipped because of it.
    crashed = stores.crash(again)
    assert bodies(crashed) == [b"the clock was wrong", b"b"]
    for root in (stores.root, crashed.root):  # times that go back are found by a check
        stores.is_damaged(root)


# Limits


@pytest.mark.scenario("store 15")
@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("T", {"properties": b"P\x01" + b"v" * 32766}),
        ("t" * 128, {}),
        ("T", {"body": bytes(4 * 1024 * 1024 + 1)}),
    ],
    ids=["properties of 32,768 bytes", "topic of 128 bytes", "body of 4 MiB and a byte"],
)
def test_what_breaks_a_limit_is_refused_and_nothing_is_written(stores, topic, fields):
    store = stores.open(commit_log_file_size=16 * 1024 * 1024)
    body = fields.pop("body", b"hello")
    (result,) = store.put([(store.queue(topic, 0), [message(body, topic=topic, **fields)])])
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert result.error
    assert store.log.end == 0
    assert store.queue(topic, 0).max_offset == 0


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("T", {"properties": b"P\x01" + b"v" * 32765}),
        ("t" * 127, {}),
        ("ü" * 63, {}),
        ("T", {"body": bytes(4 * 1024 * 1024)}),
        ("T", {"body": b""}),
        ("T", {"body": bytes(4 * 1024 * 1024 - 1), "properties": b"P\x01" + b"v" * 32765}),
    ],
    ids=["properties", "topic", "topic in UTF-8", "body", "no body", "both"],
)
def test_what_just_keeps_a_limit_is_stored(stores, topic, fields):
    store = stores.open(commit_log_file_size=16 * 1024 * 1024)
    body = fields.pop("body", b"hello")
    assert statuses(store.put([(store.queue(topic, 0), [message(body, topic=topic, **fields)])])) == [PutStatus.PUT_OK]
    again = stores.reopen(store)
    assert bodies(again, topic) == [body]


def test_a_topic_is_measured_in_bytes(store):
    topic = "ü" * 64
    assert statuses(store.put([(store.queue(topic, 0), [message(topic=topic)])])) == [PutStatus.MESSAGE_ILLEGAL]


def test_the_largest_body_can_be_set_while_the_store_is_open(store):
    store._appender.max_message_size = 10
    queue = store.queue("T", 0)
    assert statuses(store.put([(queue, [message(bytes(10))])])) == [PutStatus.PUT_OK]
    assert statuses(store.put([(queue, [message(bytes(11))])])) == [PutStatus.MESSAGE_ILLEGAL]


def test_a_record_that_fits_no_file_is_refused(store):
    queue = store.queue("T", 0)
    put(store, b"before")
    end = store.log.end
    assert statuses(store.put([(queue, [sized(4096 - 7)])])) == [PutStatus.MESSAGE_ILLEGAL]
    assert store.log.end == end
    assert statuses(store.put([(queue, [sized(4096 - 8)])])) == [PutStatus.PUT_OK]
    assert len(bodies(store)) == 2


def test_a_refused_message_does_not_keep_its_neighbours_from_being_stored(store):
    queue = store.queue("T", 0)
    results = store.put(
        [(queue, [message(b"a")]), (queue, [sized(5000)]), (queue, [message(b"b")]), (queue, [sized(9000)])]
    )
    assert statuses(results) == [
        PutStatus.PUT_OK,
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PUT_OK,
        PutStatus.MESSAGE_ILLEGAL,
    ]
    assert bodies(store) == [b"a", b"b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"flag": 2**31},
        {"sys_flag": 2**32},
        {"born_timestamp": 2**63},
        {"reconsume_times": -(2**31) - 1},
        {"prepared_transaction_offset": 2**64},
        {"born_host": bytes(5)},
        {"store_host": b""},
    ],
)
def test_a_value_that_no_record_has_room_for_is_refused_alone(stores, store, fields):
    queue, other = store.queue("T", 0), store.queue("U", 0)
    results = store.put(
        [
            (queue, [message(b"a")]),
            (other, [message(b"o", topic="U")]),
            (queue, [message(b"b"), message(b"odd", **fields)]),
            (queue, [message(b"c")]),
        ]
    )
    assert statuses(results) == [
        PutStatus.PUT_OK,
        PutStatus.PUT_OK,
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PUT_OK,
    ]
    assert [result.queue_offset for result in results if result.status is PutStatus.PUT_OK] == [0, 0, 1]
    again = stores.reopen(store)
    assert bodies(again) == [b"a", b"c"]
    assert bodies(again, "U") == [b"o"]


def test_a_value_that_does_not_fit_is_found_behind_a_full_file(store):
    queue = store.queue("T", 0)
    put(store, bytes(3500))
    results = store.put([(queue, [message(bytes(600))]), (queue, [message(b"odd", flag=2**40)]), (queue, [message()])])
    assert statuses(results) == [PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK]
    assert bodies(store) == [bytes(3500), bytes(600), b"hello"]


# Records


def test_a_long_retry_topic_is_stored_in_records_of_version_2(stores, store):
    queue = store.queue(LONG_RETRY, 0)
    batch = [message(b"%d" % number, topic=LONG_RETRY) for number in range(3)]
    assert statuses(store.put([(queue, batch), (queue, batch[:1])])) == [PutStatus.PUT_OK] * 4
    put(store, b"short")
    again = stores.reopen(store)
    found = records(again.get(again.queue(LONG_RETRY, 0), 0, 32).slices)
    assert [record.body for record in found] == [b"0", b"1", b"2", b"0"]
    assert {record.magic for record in found} == {MAGIC_V2}
    assert [record.magic for record in records(again.get(again.queue("T", 0), 0, 32).slices)] == [MAGIC_V1]


@pytest.mark.parametrize(
    ("topic", "status"),
    [("%RETRY%" + 248 * "g", PutStatus.PUT_OK), ("%RETRY%" + 249 * "g", PutStatus.MESSAGE_ILLEGAL)],
)
def test_a_retry_topic_has_at_most_255_bytes(stores, topic, status):
    store = stores.open()
    if len(topic) > 255:
        # No folder could have that name, so there is no such queue to begin with.
        queue = store.queue(topic[:255], 0)
        queue.topic = topic
    else:
        queue = store.queue(topic, 0)
    assert statuses(store.put([(queue, [message(topic=topic)])])) == [status]


def test_a_store_for_49_takes_no_record_of_version_2(stores):
    store = stores.open(compatible_49=True)
    (result,) = store.put([(store.queue(LONG_RETRY, 0), [message(topic=LONG_RETRY)])])
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert "storeCompatible49" in result.error
    put(store, b"fine", topic="%RETRY%" + 120 * "g")


@pytest.mark.parametrize("born", [V4, V6], ids=["born v4", "born v6"])
@pytest.mark.parametrize("stored", [V4, V6], ids=["stored v4", "stored v6"])
@pytest.mark.parametrize("claim", [0, 0x10, 0x20, 0x30])
def test_the_host_bits_are_those_of_the_hosts_whatever_the_sender_claims(stores, store, born, stored, claim):
    put(store, b"x", born_host=born, store_host=stored, sys_flag=claim | sysflag.COMPRESSED)
    put(store, b"y")
    again = stores.reopen(store)
    record, _ = records(again.get(again.queue("T", 0), 0, 32).slices)
    assert (record.born_host, record.store_host) == (born, stored)
    bits = (0x10 if born is V6 else 0) | (0x20 if stored is V6 else 0)
    assert record.sys_flag == bits | sysflag.COMPRESSED


@pytest.mark.parametrize(
    ("kind", "is_queued", "is_indexed"),
    [
        (sysflag.NOT_TRANSACTION, True, True),
        (sysflag.PREPARED, False, True),
        (sysflag.COMMIT, True, True),
        (sysflag.ROLLBACK, False, False),
    ],
    ids=["none", "prepared", "commit", "rollback"],
)
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_prepared_and_rolled_back_messages_are_in_the_log_and_not_in_the_queue(
    stores, store, kind, is_queued, is_indexed, crash
):
    put(store, b"before")
    (result,) = put(store, b"tx", sys_flag=kind, keys="k")
    assert result.queue_offset == (1 if is_queued else 0)
    (after,) = put(store, b"after")
    assert after.queue_offset == (2 if is_queued else 1)
    again = stores.crash(store) if crash else stores.reopen(store)
    (record,) = records([again.message_at(result.physical_offset)])
    assert (record.body, record.sys_flag, record.queue_offset) == (b"tx", kind, result.queue_offset)
    assert bodies(again) == [b"before", *([b"tx"] if is_queued else []), b"after"]
    assert len(again.query("T", "k", 32, 0, 2**62)) == (1 if is_indexed else 0)


# Files


@pytest.mark.scenario("store 11")
@pytest.mark.scenario("store T7")
def test_a_record_that_leaves_less_than_a_blank_record_goes_to_the_next_file(store):
    put(store, bytes(1000))
    queue = store.queue("T", 0)
    left = 4096 - store.log.end
    (result,) = store.put([(queue, [sized(left - 7)])])
    assert (result.status, result.physical_offset) == (PutStatus.PUT_OK, 4096)
    kind, size = read_head(store.log.segments[0].view, 4096 - left)
    assert (kind, size) == (HeadKind.BLANK, left)
    assert len(bodies(store)) == 2


def test_a_record_that_leaves_just_a_blank_record_stays_in_its_file(store):
    put(store, bytes(1000))
    left = 4096 - store.log.end
    (result,) = store.put([(store.queue("T", 0), [sized(left - 8)])])
    assert result.physical_offset == 4096 - left
    (after,) = put(store, b"next")
    assert after.physical_offset == 4096
    assert read_head(store.log.segments[0].view, 4096 - 8) == (HeadKind.BLANK, 8)


@pytest.mark.scenario("store 12")
def test_a_batch_that_fits_only_in_part_goes_to_the_next_file_as_a_whole(stores, store):
    put(store, bytes(3500))
    left = 4096 - store.log.end
    queue = store.queue("T", 0)
    batch = [message(bytes(100)), message(bytes(100)), message(bytes(100))]
    results = store.put([(queue, batch)])
    assert statuses(results) == [PutStatus.PUT_OK] * 3
    size = SIZE_OF_EMPTY + 100
    assert [result.physical_offset for result in results] == [4096, 4096 + size, 4096 + 2 * size]
    assert [result.queue_offset for result in results] == [1, 2, 3]
    assert len({result.store_timestamp for result in results}) == 1
    assert read_head(store.log.segments[0].view, 4096 - left) == (HeadKind.BLANK, left)
    assert len(bodies(stores.reopen(store))) == 4


def test_a_batch_that_fits_no_file_is_refused_as_a_whole(store):
    queue = store.queue("T", 0)
    results = store.put([(queue, [message(bytes(1500))] * 3), (queue, [message(b"fine")])])
    assert statuses(results) == [PutStatus.MESSAGE_ILLEGAL] * 3 + [PutStatus.PUT_OK]
    assert bodies(store) == [b"fine"]


def test_a_batch_has_at_most_the_size_of_the_largest_message(stores):
    store = stores.open(commit_log_file_size=1 << 20, max_message_size=100_000)
    queue = store.queue("T", 0)
    assert statuses(store.put([(queue, [message(bytes(90_000))] * 2)])) == [PutStatus.MESSAGE_ILLEGAL] * 2
    assert statuses(store.put([(queue, [message(bytes(80_000))] * 2)])) == [PutStatus.PUT_OK] * 2


def test_many_messages_in_one_call_fill_many_files(stores, store):
    queue = store.queue("T", 0)
    results = store.put([(queue, [message(body)]) for body in numbered(0, 500)])
    assert statuses(results) == [PutStatus.PUT_OK] * 500
    assert [result.queue_offset for result in results] == list(range(500))
    assert len(store.log.segments) > 10
    assert bodies(stores.reopen(store)) == numbered(0, 500)


def test_an_empty_unit_stores_nothing(store):
    assert store.put([]) == []
    assert store.put([(store.queue("T", 0), [])]) == []
    assert store.log.end == 0


# Tags


def test_the_entry_holds_the_hash_of_the_tag(store):
    put(store, b"a", tags="refund")
    put(store, b"b")
    queue = store.queue("T", 0)
    assert [queue.entry(offset)[2] for offset in (0, 1)] == [java_hash("refund"), 0]


@pytest.mark.scenario("store 28")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
@pytest.mark.parametrize(
    ("level", "delay"),
    [("3", 10_000), ("18", 7_200_000), ("99", 7_200_000), ("0003", 10_000), ("9" * 9000, 7_200_000)],
    ids=["3", "18", "99", "0003", "nines"],
)
def test_the_entry_of_a_delayed_message_holds_the_time_of_delivery(stores, clock, level, delay, crash):
    topic = "SCHEDULE_TOPIC_XXXX"
    text = f"DELAY\x01{level}\x02REAL_TOPIC\x01T\x02REAL_QID\x010".encode()
    store = stores.open(commit_log_file_size=32768)
    put(store, b"later", topic=topic, queue_id=2, properties=text)
    clock.advance(5)
    again = stores.crash(store) if crash else stores.reopen(store)
    (entry,) = [again.queue(topic, 2).entry(0)]
    assert entry[2] == T0 + delay
    assert bodies(again, topic, 2) == [b"later"]


@pytest.mark.parametrize("level", ["0", "-1", "x", "3x"])
def test_a_message_on_the_schedule_topic_without_a_level_has_an_ordinary_tag(store, level):
    topic = "SCHEDULE_TOPIC_XXXX"
    put(store, b"x", topic=topic, properties=f"DELAY\x01{level}\x02TAGS\x01A".encode())
    assert store.queue(topic, 0).entry(0)[2] == java_hash("A")


# A disk that does not take it


def test_nothing_is_acknowledged_that_a_full_disk_did_not_take(stores, store, disk):
    put(store, b"a")
    end = store.log.end
    disk.fill(150)
    queue = store.queue("T", 0)
    results = store.put([(queue, [message(b"lost 1")]), (queue, [message(b"lost 2")]), (queue, [sized(9999)])])
    assert statuses(results) == [PutStatus.UNKNOWN_ERROR, PutStatus.UNKNOWN_ERROR, PutStatus.MESSAGE_ILLEGAL]
    assert "No space left" in results[0].error
    assert (store.log.end, queue.max_offset) == (end, 1)
    assert store.get(queue, 1, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    disk.free()
    (result,) = put(store, b"b")
    assert (result.physical_offset, result.queue_offset) == (end, 1)
    assert bodies(store) == [b"a", b"b"]
    for again in (stores.crash(store), stores.reopen(store)):
        assert bodies(again) == [b"a", b"b"]


def test_what_a_full_disk_took_of_a_batch_does_not_come_back(stores, store, disk):
    put(store, b"a")
    disk.fill(2 * SIZE_OF_EMPTY + 30)  # two records and a bit
    queue = store.queue("T", 0)
    batch = [message(b"1"), message(b"2"), message(b"3")]
    assert statuses(store.put([(queue, batch)])) == [PutStatus.UNKNOWN_ERROR] * 3
    disk.free()
    for again in (stores.crash(store), stores.reopen(store)):
        assert bodies(again) == [b"a"]


def test_bytes_that_could_not_even_be_zeroed_do_not_come_back_behind_the_next_record(stores, store, disk):
    put(store, b"a")
    disk.fill(2 * SIZE_OF_EMPTY + 30)
    disk.fail_zeros()
    queue = store.queue("T", 0)
    batch = [message(b"1"), message(b"2"), message(b"3")]
    assert statuses(store.put([(queue, batch)])) == [PutStatus.UNKNOWN_ERROR] * 3
    disk.free()
    # Written over them now, a record of the same size would make the second one whole again.
    assert statuses(store.put([(queue, [message(b"b")])])) == [PutStatus.UNKNOWN_ERROR]
    disk.heal()
    put(store, b"b")
    for again in (stores.crash(store), stores.reopen(store)):
        assert bodies(again) == [b"a", b"b"]


def test_no_space_for_the_next_file_is_told_and_storing_goes_on_once_there_is(stores, store, disk):
    queue = store.queue("T", 0)
    put(store, bytes(1800))
    disk.fail_creates(where="commitlog")
    put(store, bytes(1800))
    (result,) = store.put([(queue, [message(bytes(1000))])])
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert "No space left" in result.error
    put(store, b"small ones still fit")
    assert queue.max_offset == 3
    disk.heal()
    (result,) = put(store, bytes(1000))
    assert (result.queue_offset, result.physical_offset) == (3, 4096)
    assert len(bodies(stores.reopen(store))) == 4


@pytest.mark.parametrize("fault", ["fail_writes", "fail_folder_syncs"])
def test_a_failed_roll_can_be_tried_again(stores, store, disk, fault):
    queue = store.queue("T", 0)
    put(store, bytes(1000))  # less than half of the file: the next one is not made in advance
    getattr(disk, fault)(errno.EIO, "commitlog")
    (result,) = store.put([(queue, [message(bytes(3000))])])
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert store.log.end < 4096
    disk.heal()
    put(store, bytes(3000))
    assert len(bodies(stores.reopen(store))) == 2


def test_a_failed_roll_does_not_leave_half_a_blank_record(stores, store, disk):
    queue = store.queue("T", 0)
    put(store, bytes(3000))
    store.log._spare.result()
    disk.fill(5)
    assert statuses(store.put([(queue, [message(bytes(3000))])])) == [PutStatus.CREATE_MAPPED_FILE_FAILED]
    disk.free()
    put(store, b"small")
    for again in (stores.crash(store), stores.reopen(store)):
        assert bodies(again) == [bytes(3000), b"small"]


def test_messages_behind_a_full_file_fail_and_those_before_it_are_stored(store, disk):
    queue = store.queue("T", 0)
    put(store, bytes(1000))
    disk.fail_creates(where="commitlog")
    results = store.put([(queue, [message(b"fits")]), (queue, [message(bytes(3500))]), (queue, [message(b"too")])])
    assert statuses(results) == [
        PutStatus.PUT_OK,
        PutStatus.CREATE_MAPPED_FILE_FAILED,
        PutStatus.CREATE_MAPPED_FILE_FAILED,
    ]
    assert bodies(store) == [bytes(1000), b"fits"]


def test_a_closed_store_takes_nothing(stores, store):
    queue = store.queue("T", 0)
    stores.close(store)
    with pytest.raises(StoreNotWritable, match="closed"):
        store.put([(queue, [message()])])


def test_when_a_write_fails_nothing_behind_it_is_stored(store, monkeypatch):
    queue = store.queue("T", 0)
    put(store, bytes(1000))
    write = store.log.write
    failed: list[bytes] = []

    def failing_once(data):
        if not failed:
            failed.append(data)
            raise OSError(errno.EIO, "broken")
        write(data)

    monkeypatch.setattr(store.log, "write", failing_once)
    results = store.put([(queue, [message(b"old file")]), (queue, [message(bytes(3500))]), (queue, [message(b"new")])])
    assert statuses(results) == [PutStatus.UNKNOWN_ERROR] * 3
    assert bodies(store) == [bytes(1000)]


def test_what_does_not_fit_can_be_known_before(store):
    queue = store.queue("T", 0)
    assert store.fits(queue, message(bytes(1000)))
    assert not store.fits(queue, sized(9999))
    assert not store.fits(queue, message(properties=bytes(32768)))
