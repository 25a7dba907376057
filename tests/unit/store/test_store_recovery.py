"""What a start makes of the files it finds: after a clean stop, after a crash, with parts damaged or gone."""

from __future__ import annotations

import shutil
import struct

import pytest
from tests.unit.store.kit import FOREVER, SIZE_OF_EMPTY, T0, bodies, message, numbered, put, records, sized, state

from pyromq.errors import StoreError
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, MessageRecord, encode_record
from pyromq.store import GetStatus, PutStatus
from pyromq.store.format import ENTRY, PRE_BLANK
from pyromq.store.queues.queue_ends import QUEUE_ENDS
from pyromq.store.recovery import Progress, start_after_crash

RECORD = SIZE_OF_EMPTY + 5  # bytes of a message with a body of five


def log_file(root, number=0):
    return root / "commitlog" / f"{number * 4096:020d}"


def queue_file(root, number=0, topic="T", queue_id=0):
    return root / "consumequeue" / topic / str(queue_id) / f"{number * 200:020d}"


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path, at, bit=0):
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def forget_ends(root):
    """As if RocketMQ had closed the store, which keeps no such file."""
    (root / QUEUE_ENDS).unlink()


# Ends of the log


def test_a_clean_stop_leaves_everything_as_it_was(stores, store):
    put(store, *numbered(0, 100))
    put(store, *numbered(0, 7), topic="U", queue_id=3)
    before = state(store)
    for _ in range(3):
        store = stores.reopen(store)
        assert state(store) == before
    put(store, b"m100")
    assert bodies(store) == numbered(0, 101)


@pytest.mark.scenario("store 5")
def test_a_killed_process_loses_nothing_that_was_stored(stores, store):
    put(store, *numbered(0, 100))
    put(store, *numbered(0, 7), topic="U", queue_id=3)
    before = state(store)
    crashed = stores.crash(store)
    assert state(crashed) == before
    # And again, from what the recovery left behind.
    assert state(stores.crash(crashed)) == before
    assert state(stores.reopen(crashed)) == before


@pytest.mark.scenario("store 5")
def test_the_file_made_in_advance_is_gone_after_a_crash_and_after_a_stop(stores, store):
    put(store, bytes(3000))
    store.log._spare.result()
    assert log_file(store.root, 1).exists()
    copy = stores.crashed_copy(store)
    crashed = stores.start(copy)
    assert len(crashed.log.segments) == 1
    assert not log_file(crashed.root, 1).exists()
    stores.close(store)
    assert not log_file(store.root, 1).exists()


def test_the_mark_of_a_crash_is_there_while_a_store_is_open(stores, store):
    assert (store.root / "abort").read_text().isdecimal()
    stores.close(store)
    assert not (store.root / "abort").exists()


@pytest.mark.scenario("store 6")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_record_with_a_flipped_bit_ends_the_log_and_gives_its_offset_back(stores, store, crash):
    results = put(store, b"one", b"two", b"three")
    if crash:
        config = stores.crashed_copy(store)
    else:
        config = store.config
        stores.close(store)
    last = results[-1]
    root = stores.root if not crash else stores.folder / "copy1"
    flip(log_file(root), last.physical_offset + last.size - 5)
    again = stores.start(config)
    assert again.log.end == last.physical_offset
    assert again.queue("T", 0).max_offset == 2
    assert bodies(again) == [b"one", b"two"]
    (result,) = put(again, b"new")
    assert (result.physical_offset, result.queue_offset) == (last.physical_offset, 2)
    assert bodies(stores.reopen(again)) == [b"one", b"two", b"new"]


@pytest.mark.scenario("store 7")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_records_behind_a_damaged_one_do_not_come_back(stores, store, crash):
    put(store, *numbered(0, 5))
    again = stores.reopen(store)
    stores.close(again)
    flip(log_file(stores.root), 2 * (SIZE_OF_EMPTY + 2) + 88)
    again = stores.start(store.config)
    assert bodies(again) == numbered(0, 2)
    put(again, b"m9")
    again = stores.crash(again) if crash else stores.reopen(again)
    assert bodies(again) == [b"m0", b"m1", b"m9"]
    assert again.log.end == 3 * (SIZE_OF_EMPTY + 2)


def test_keys_of_records_that_are_gone_do_not_hide_those_of_new_ones(stores, store):
    for number in range(5):
        put(store, b"m%d" % number, keys=f"k{number}")
    size = store.log.end // 5
    stores.close(store)
    flip(log_file(stores.root), 2 * size + 88)
    again = stores.start(store.config)
    put(again, b"n2", keys="n2")
    assert [record.body for record in records(again.query("T", "n2", 32, 0, FOREVER))] == [b"n2"]
    assert again.query("T", "k3", 32, 0, FOREVER) == []
    assert len(again.query("T", "k1", 32, 0, FOREVER)) == 1


def test_damage_in_the_first_record_leaves_an_empty_log_at_its_place(stores, store):
    put(store, *numbered(0, 200))
    start = store.log.segments[-1].start
    stores.drop_oldest_files(store)
    assert len(store.log.segments) == 1
    queue = store.queue("T", 0)
    first, end = int(queue.min_offset), int(queue.max_offset)
    assert 0 < first < end
    stores.close(store)
    flip(log_file(stores.root, start // 4096), 6)
    again = stores.start(store.config)
    assert (again.log.start, again.log.end) == (start, start)
    assert again.queue("T", 0).max_offset == first
    assert again.get(again.queue("T", 0), first, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    (result,) = put(again, b"new")
    assert (result.physical_offset, result.queue_offset) == (start, first)
    again = stores.reopen(again)
    assert bodies(again) == [b"new"]


def test_a_file_that_is_missing_in_the_middle_costs_its_messages_and_no_others(stores, store):
    put(store, *numbered(0, 200))
    queue = store.queue("T", 0)
    files = [queue.entry(offset)[0] // 4096 for offset in range(200)]
    expected = [body for body, file in zip(numbered(0, 200), files, strict=True) if file != 2]
    assert len(store.log.segments) > 3
    for crash in (True, False):
        config = stores.crashed_copy(store) if crash else store.config
        if not crash:
            stores.close(store)
        again_root = stores.folder / "copy1" if crash else stores.root
        log_file(again_root, 2).unlink()
        again = stores.start(config)
        assert bodies(again) == expected
        assert again.queue("T", 0).max_offset == 200
        put(again, b"new")
        assert bodies(again) == [*expected, b"new"]
        stores.is_damaged(again_root)


def test_an_extra_file_of_zeros_at_the_end_is_removed(stores, store):
    put(store, b"a")
    stores.close(store)
    log_file(stores.root, 1).write_bytes(bytes(4096))
    log_file(stores.root, 2).write_bytes(bytes(4096))
    again = stores.start(store.config)
    assert bodies(again) == [b"a"]
    assert len(again.log.segments) == 1
    assert not log_file(stores.root, 1).exists()


def test_an_empty_file_at_the_end_is_removed_as_5x_does(stores, store):
    put(store, *numbered(0, 10))
    stores.close(store)
    log_file(stores.root, 1).touch()
    queue_file(stores.root, 1).touch()
    again = stores.start(store.config)
    assert bodies(again) == numbered(0, 10)
    assert not log_file(stores.root, 1).exists()


def test_a_file_that_is_filled_to_the_last_byte_leads_to_the_next(stores, store):
    """No writer may leave less than a blank record; one that did must not cost what lies behind."""
    stores.close(store)
    first = encode_record(MessageRecord("T", bytes(4096 - SIZE_OF_EMPTY - 3), store_timestamp=T0))
    second = encode_record(MessageRecord("T", b"second", store_timestamp=T0, queue_offset=1, physical_offset=4096))
    log_file(stores.root).write_bytes(first + bytes(3))
    log_file(stores.root, 1).write_bytes(second.ljust(4096, b"\0"))
    again = stores.start(store.config)
    assert bodies(again) == [bytes(4096 - SIZE_OF_EMPTY - 3), b"second"]
    stores.is_damaged()


def test_a_log_that_ends_in_a_full_file_goes_on_in_a_new_one(stores, store):
    stores.close(store)
    first = encode_record(MessageRecord("T", bytes(4096 - SIZE_OF_EMPTY - 3), store_timestamp=T0))
    log_file(stores.root).write_bytes(first + bytes(3))
    again = stores.start(store.config)
    put(again, b"next")
    assert log_file(stores.root).stat().st_size == 4096
    assert len(bodies(stores.reopen(again))) == 2
    stores.is_damaged()


def test_a_store_without_a_log_forgets_its_queues_and_its_index(stores, store):
    put(store, *numbered(0, 20), keys="k")
    stores.close(store)
    shutil.rmtree(stores.root / "commitlog")
    again = stores.start(store.config)
    assert state(again) == {}
    assert again.query("T", "k", 32, 0, FOREVER) == []
    put(again, b"new", keys="k")
    assert bodies(again) == [b"new"]
    assert len(again.query("T", "k", 32, 0, FOREVER)) == 1


def test_a_crash_of_an_empty_store_is_no_trouble(stores, store):
    crashed = stores.crash(store)
    put(crashed, b"a")
    stores.close(crashed)
    shutil.rmtree(crashed.root / "commitlog")
    (crashed.root / "abort").touch()
    again = stores.start(crashed.config)
    put(again, b"b")
    assert bodies(again) == [b"b"]


# Checkpoint


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\0" * 4096, b"\xff" * 4096, b"\x7f" * 4096, b"short"],
    ids=["missing", "empty", "zeros", "negative", "far future", "short"],
)
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_checkpoint_that_says_nothing_makes_recovery_longer_and_not_worse(stores, store, clock, content, crash):
    for number in range(100):
        put(store, b"m%d" % number)
        clock.advance(1)
    config = stores.crashed_copy(store)
    root = stores.folder / "copy1"
    if not crash:
        (root / "abort").unlink()
    path = root / "checkpoint"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    assert bodies(stores.start(config)) == numbered(0, 100)


def test_after_a_crash_the_log_is_read_from_the_last_file_that_was_surely_flushed(stores, store, clock):
    put(store, *numbered(0, 100))
    clock.advance(60)
    segments = store.log.segments
    assert start_after_crash(segments, 0) == 0
    assert start_after_crash(segments, T0 - 1) == 0
    assert start_after_crash(segments, T0) == segments[-1].start
    put(store, *numbered(100, 200))
    newer = next(segment for segment in store.log.segments if segment.start > segments[-1].start)
    assert start_after_crash(store.log.segments, T0) == newer.start - 4096
    assert start_after_crash(store.log.segments, T0 + 60_000) == store.log.segments[-1].start
    assert start_after_crash([], T0) == 0


def test_after_a_crash_only_what_the_checkpoint_does_not_cover_is_read_again(stores, store, clock):
    put(store, *numbered(0, 200))
    clock.advance(100)
    store.maintain()
    assert store._upkeep._syncing is not None
    store._upkeep._syncing.result()
    clock.advance(100)
    put(store, *numbered(200, 300))
    crashed = stores.crash(store)
    assert bodies(crashed) == numbered(0, 300)


# Queues


@pytest.mark.scenario("store 8")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_all_queues_are_made_anew_when_their_folder_is_gone(stores, store, crash):
    for number in range(160):
        put(store, b"m%d" % number, bytes(100))
        put(store, b"u%d" % number, topic="U", queue_id=number % 3)
    stores.drop_oldest_files(store)  # so that queues do not begin at 0
    stores.clock.advance(60)
    store.maintain()
    put(store, b"last")
    before = state(store)
    assert min(low for low, _, _ in before.values()) > 0
    if crash:
        config = stores.crashed_copy(store)
    else:
        config = store.config
        stores.close(store)
    root = stores.folder / "copy1" if crash else stores.root
    shutil.rmtree(root / "consumequeue")
    again = stores.start(config)
    assert state(again) == before
    low = before["T", 0][0]
    assert again.queue("T", 0).entries(low - low % 10, low % 10) == PRE_BLANK * (low % 10)
    assert again.get(again.queue("T", 0), low - 1, 32).status is GetStatus.OFFSET_TOO_SMALL
    assert state(stores.reopen(again)) == before


def test_queues_are_made_anew_without_what_we_wrote_down_at_the_stop(stores, store):
    put(store, *numbered(0, 100))
    before = state(store)
    stores.close(store)
    forget_ends(stores.root)
    shutil.rmtree(stores.root / "consumequeue")
    assert state(stores.start(store.config)) == before


@pytest.mark.scenario("store 9")
@pytest.mark.parametrize("keep_ends", [False, True])
def test_the_record_right_behind_the_end_of_the_queues_is_dispatched(stores, store, keep_ends):
    put(store, *numbered(0, 15))
    stores.close(store)
    if not keep_ends:
        forget_ends(stores.root)
    overwrite(queue_file(stores.root, 1), 4 * 20, bytes(20))
    again = stores.start(store.config)
    assert bodies(again) == numbered(0, 15)


def test_one_queue_that_lost_its_folder_is_made_anew(stores, store):
    put(store, *numbered(0, 150))
    put(store, *numbered(0, 30), topic="U")
    put(store, *numbered(150, 200))
    put(store, b"last", topic="V")
    before = state(store)
    stores.close(store)
    shutil.rmtree(stores.root / "consumequeue" / "T")
    again = stores.start(store.config)
    assert state(again) == before
    assert put(again, b"m200")[0].queue_offset == 200


def test_one_queue_that_lost_its_end_gets_it_back(stores, store):
    put(store, *numbered(0, 150))
    put(store, *numbered(0, 100), topic="U")
    before = state(store)
    stores.close(store)
    queue_file(stores.root, 14).unlink()
    queue_file(stores.root, 13).unlink()
    overwrite(queue_file(stores.root, 12), 7 * 20, bytes(60))
    assert state(stores.start(store.config)) == before


def test_a_queue_that_is_gone_keeps_its_offsets_though_its_messages_have_expired(stores, store):
    put(store, *numbered(0, 7))
    put(store, *numbered(0, 200), topic="U")
    stores.drop_oldest_files(store)
    queue = store.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    stores.close(store)
    shutil.rmtree(stores.root / "consumequeue" / "T")
    again = stores.start(store.config)
    queue = again.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (7, 7)
    assert put(again, b"new")[0].queue_offset == 7
    assert bodies(stores.reopen(again)) == [b"new"]


@pytest.mark.parametrize("topic", ["T", "U"])
def test_one_queue_that_lost_its_folder_before_a_crash_was_recovered_is_made_anew(stores, store, clock, topic):
    for number in range(100):
        put(store, b"m%d" % number)
        put(store, b"m%d" % number, topic="U")
        clock.advance(1)
    store.maintain()
    store._upkeep._syncing.result()
    put(store, b"m100")
    put(store, b"m100", topic="U")
    before = state(store)
    config = stores.crashed_copy(store)
    shutil.rmtree(stores.folder / "copy1" / "consumequeue" / topic)
    assert state(stores.start(config)) == before


def test_a_queue_that_lost_entries_which_the_checkpoint_covers_gets_them_back_after_a_crash(stores, store, clock):
    for number in range(100):
        put(store, b"m%d" % number)
        clock.advance(1)
    store.maintain()
    store._upkeep._syncing.result()
    put(store, b"m100")
    config = stores.crashed_copy(store)
    root = stores.folder / "copy1"
    for number in range(4, 11):
        queue_file(root, number).unlink(missing_ok=True)
    overwrite(queue_file(root, 3), 5 * 20, bytes(100))
    assert bodies(stores.start(config)) == numbered(0, 101)


@pytest.mark.parametrize("remembered", [True, False], ids=["by us", "by RocketMQ"])
def test_a_deleted_topic_is_not_looked_for_in_the_whole_log_after_a_crash(stores, store, clock, remembered):
    for number in range(100):
        put(store, b"m%d" % number)
        put(store, b"m%d" % number, topic="U")
        clock.advance(1)
    store.maintain()
    store._upkeep._syncing.result()
    put(store, b"m100")
    put(store, b"m100", topic="U")
    assert (store if remembered else store.queues).delete_topic("U") == 1
    crashed = stores.crash(store)
    assert bodies(crashed) == numbered(0, 101)
    # RocketMQ leaves no more behind than an empty folder. What has to be read again anyway is back then.
    assert len(bodies(crashed, "U")) < (1 if remembered else 50)
    if not remembered:
        stores.is_damaged(crashed.root)  # a check wonders where the others are


@pytest.mark.parametrize("how", ["stop", "crash", "queues gone"])
@pytest.mark.parametrize("count", [0, 1, 2, 15])
@pytest.mark.parametrize("is_written", [False, True])
def test_a_topic_that_was_deleted_and_made_anew_has_its_new_messages_and_no_others(
    stores, store, how, count, is_written
):
    put(store, *numbered(0, 25))
    put(store, *numbered(0, 25), queue_id=1)
    put(store, b"other", topic="U")
    if is_written:
        for queue in store.queues:
            queue.write_out()
    assert store.delete_topic("T") == 2
    put(store, *numbered(100, 100 + count))
    assert bodies(store) == numbered(100, 100 + count)
    if is_written:
        store.queue("T", 0).write_out()
    if how == "crash":
        again = stores.crash(store)
    else:
        stores.close(store)
        if how == "queues gone":
            shutil.rmtree(stores.root / "consumequeue")
        again = stores.start(store.config)
    assert bodies(again) == numbered(100, 100 + count)
    assert bodies(again, queue_id=1) == []
    assert bodies(again, "U") == [b"other"]
    assert put(again, b"next")[0].queue_offset == count


def test_a_crash_while_a_topic_is_deleted_leaves_nothing_of_it(stores, store):
    put(store, *numbered(0, 25))
    for queue in store.queues:
        queue.write_out()
    store._deleted_topics.add("T", int(store.log.end))
    crashed = stores.crash(store)
    assert crashed.queue("T", 0).max_offset == 0
    assert put(crashed, b"new")[0].queue_offset == 0
    store.delete_topic("T")  # as it was about to


def test_messages_at_the_place_of_lost_ones_of_a_deleted_topic_are_not_deleted(stores, store):
    """A power failure takes the end of the log, and with it the place where the topic was deleted."""
    results = put(store, *numbered(0, 25))
    store.delete_topic("T")
    config = stores.crashed_copy(store)
    root = stores.folder / "copy1"
    overwrite(log_file(root), results[10].physical_offset, bytes(500))
    crashed = stores.start(config)
    assert crashed.log.end == results[10].physical_offset
    assert bodies(crashed) == []
    put(crashed, *numbered(100, 105))
    assert bodies(stores.crash(crashed)) == numbered(100, 105)


def test_a_deleted_topic_is_forgotten_when_its_messages_have_expired(stores, store):
    put(store, b"a")
    store.delete_topic("T")
    put(store, *numbered(0, 200), topic="U")
    again = stores.reopen(store)
    assert again._deleted_topics.ends == {"T": 93}
    stores.drop_oldest_files(again)
    assert stores.reopen(again)._deleted_topics.ends == {}


@pytest.mark.parametrize("torn", ["deletedtopics.json", "deletedtopics.json.bak"])
def test_what_was_deleted_is_known_though_a_crash_tore_one_of_its_files(stores, store, torn):
    put(store, *numbered(0, 5))
    store.delete_topic("T")
    stores.close(store)
    (stores.root / "abort").touch()
    (stores.root / torn).write_bytes(b"0000")
    again = stores.start(store.config)
    assert bodies(again) == []
    assert state(again) == {}


def test_deleting_a_topic_that_was_never_used_writes_nothing(stores, store):
    assert store.delete_topic("nobody") == 0
    store.queue("T", 0)
    assert store.delete_topic("T") == 1
    assert not (stores.root / "deletedtopics.json").exists()


def test_stale_entries_that_rocketmq_left_behind_its_cut_are_dropped(stores, store):
    put(store, *numbered(0, 8))
    stores.close(store)
    forget_ends(stores.root)
    # One points into the middle of a record, one to a record of another size, one behind the log.
    stale = ENTRY.pack(50, RECORD, 0) + ENTRY.pack(0, RECORD + 1, 0) + ENTRY.pack(2**40, RECORD, 0)
    overwrite(queue_file(stores.root), 8 * 20, stale[:40])
    queue_file(stores.root, 1).write_bytes(stale[40:].ljust(200, b"\0"))
    again = stores.start(store.config)
    assert bodies(again) == numbered(0, 8)
    assert again.queue("T", 0).max_offset == 8
    assert put(again, b"m8")[0].queue_offset == 8


@pytest.mark.parametrize("cut", range(1, 20))
def test_an_entry_torn_by_a_power_failure_is_made_anew(stores, store, cut):
    put(store, *numbered(0, 12), tags="A")
    stores.close(store)
    (stores.root / "abort").touch()
    entry = queue_file(stores.root, 1).read_bytes()[20:40]
    overwrite(queue_file(stores.root, 1), 20, entry[:cut].ljust(20, b"\0"))
    again = stores.start(store.config)
    assert bodies(again) == numbered(0, 12)
    assert again.queue("T", 0).entries(10, 2)[20:] == entry


def test_pages_of_a_queue_that_are_missing_in_the_middle_are_made_anew_after_a_crash(stores, store):
    put(store, *numbered(0, 35))
    config = stores.crashed_copy(store)
    root = stores.folder / "copy1"
    for number in range(4):
        path = queue_file(root, number)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(200))
    overwrite(queue_file(root, 1), 0, bytes(100))
    assert bodies(stores.start(config)) == numbered(0, 35)


def test_the_entries_of_a_queue_end_before_the_end_of_the_log(stores, store):
    results = put(store, *numbered(0, 50))
    stores.close(store)
    flip(log_file(stores.root), results[23].physical_offset + 4)
    again = stores.start(store.config)
    assert again.queue("T", 0).max_offset == 23
    assert not queue_file(stores.root, 3).exists()
    assert queue_file(stores.root, 2).read_bytes()[3 * 20 :] == bytes(7 * 20)


# Records that make no sense


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (12, -1),  # queue id
        (12, 2**31 - 1),
        (20, struct.unpack(">i", b"\x7f\xff\xff\xff")[0]),  # queue offset, its higher half
        (20, -1),
        (20, 1),
        (24, 5_000_000),
    ],
)
def test_fields_that_nothing_protects_cannot_keep_a_store_from_opening(stores, store, at, value, crash):
    results = put(store, *numbered(0, 10))
    stores.close(store)
    if crash:
        (stores.root / "abort").touch()
    forget_ends(stores.root)
    shutil.rmtree(stores.root / "consumequeue")
    overwrite(log_file(stores.root), results[4].physical_offset + at, struct.pack(">i", value))
    again = stores.start(store.config)
    served = bodies(again)
    assert set(numbered(0, 10)) - set(served) <= {b"m4"}
    assert records([again.message_at(results[4].physical_offset)])[0].body == b"m4"
    stores.is_damaged()


@pytest.mark.parametrize("topic", ["a/b", "..", ".", "", "\0", "t" * 127 + "ü" * 100, "%RETRY%" + "x" * 300])
def test_a_record_of_a_topic_that_can_be_no_folder_is_passed_over(stores, store, topic):
    put(store, b"a")
    stores.close(store)
    magic = MAGIC_V2 if len(topic.encode()) > 127 else MAGIC_V1
    odd = MessageRecord(topic, b"odd", physical_offset=93, store_timestamp=T0, magic=magic)
    data = encode_record(odd)
    after = MessageRecord(
        "T", b"b", physical_offset=93 + len(data), store_timestamp=T0, queue_offset=1, properties=b"KEYS\x01k"
    )
    overwrite(log_file(stores.root), 93, data + encode_record(after))
    again = stores.start(store.config)
    assert bodies(again) == [b"a", b"b"]
    with pytest.raises(StoreError, match="folder"):
        again.queue(topic, 0) if len(topic.encode()) != 227 else again.queue("t/t", 0)
    stores.is_damaged()


# Index


@pytest.mark.scenario("store 10")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_an_index_that_is_gone_is_no_error_and_new_messages_are_found(stores, store, clock, crash):
    put(store, b"old", keys="k")
    clock.advance(10)
    if crash:
        config = stores.crashed_copy(store)
    else:
        config = store.config
        stores.close(store)
    root = stores.folder / "copy1" if crash else stores.root
    shutil.rmtree(root / "index", ignore_errors=True)
    again = stores.start(config)
    old = [record.body for record in records(again.query("T", "k", 32, 0, FOREVER))]
    # After a crash the log is read again, and with it the keys come back.
    assert old == ([b"old"] if crash else [])
    put(again, b"new", keys="k")
    assert [record.body for record in records(again.query("T", "k", 32, 0, FOREVER))] == [*old, b"new"]
    stores.is_damaged(root)


def test_recovery_keeps_its_memory_flat_by_writing_as_it_goes(stores, store, monkeypatch):
    monkeypatch.setattr("pyromq.store.dispatch._STEP", 8)
    monkeypatch.setattr("pyromq.store.dispatch._WRITE_EVERY", 32)
    put(store, *numbered(0, 300), keys="k")
    crashed = stores.crash(store)
    assert bodies(crashed) == numbered(0, 300)
    assert len(crashed.query("T", "k", 64, 0, FOREVER)) == 64
    # The entries were with the system before all of the log was read.
    assert len(crashed.queue("T", 0).tail) < 300 * 20


def test_a_long_recovery_says_how_far_it_is(caplog):
    caplog.set_level("INFO")
    told: list[int] = []
    progress = Progress(told.append, interval=0)
    progress.begin(1000, 1200)
    progress(1050)
    assert "recovering the commit log: 25 %" in caplog.text
    assert told == [25]
    caplog.clear()
    progress = Progress(interval=1000)
    progress.begin(1000, 1200)
    progress(1050)
    assert caplog.text == ""


def test_what_was_recovered_counts_as_flushed_because_it_is(stores, store, disk):
    put(store, *numbered(0, 200))
    config = stores.crashed_copy(store)
    before = disk.syncs
    crashed = stores.start(config)
    assert disk.syncs - before >= len(crashed.log.segments)
    assert crashed.flusher.flushed == crashed.log.end


def test_a_message_of_exactly_one_file_survives(stores, store):
    queue = store.queue("T", 0)
    results = store.put([(queue, [sized(4088)]), (queue, [sized(4088)]), (queue, [message(b"x")])])
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 3
    assert [len(body) for body in bodies(stores.crash(store))] == [3996, 3996, 1]
