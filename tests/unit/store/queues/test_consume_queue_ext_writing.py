"""Units of the consume queue ext: written beside the entries of messages that have a bitmap."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.unit.store.kit import T0, bodies, message, put, records, small

from pyromq.protocol.hashing import java_hash
from pyromq.store import MessageStore
from pyromq.store.check.store_check import check_store
from pyromq.store.format import EXT_BASE, MAX_EXT_ADDRESS
from pyromq.store.open_files import OpenFiles
from pyromq.store.queues.consume_queue_ext import ConsumeQueueExt, ExtUnit
from pyromq.testing import Clock, FaultyDisk
from pyromq.testing.power import RecordingDisk, abandon

# The vector of docs/spec/store.md 11, T8.
UNIT = bytes.fromhex("001c000000000027a8070000018bcfe5704b00080102040810204080")
TAG_A = java_hash("TagA")
OF_VECTOR = ExtUnit(TAG_A, T0 + 2123, bytes.fromhex("0102040810204080"))
FILE_SIZE = 100


@pytest.fixture
def files():
    files = OpenFiles(FaultyDisk())
    yield files
    files.close()


@pytest.fixture
def ext(tmp_path, files):
    ext = ConsumeQueueExt(tmp_path / "T" / "0", FILE_SIZE, files)
    assert ext.go_on_behind(None)
    return ext


def contents(ext: ConsumeQueueExt) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in ext._folder.iterdir()}


@pytest.mark.scenario("store T8")
def test_units_have_the_bytes_that_rocketmq_writes(ext):
    assert ext.append([OF_VECTOR, OF_VECTOR]) == [EXT_BASE, EXT_BASE + 28]
    assert contents(ext) == {f"{0:020d}": (UNIT + UNIT).ljust(FILE_SIZE, b"\0")}


def test_a_file_ends_with_a_mark_where_the_next_unit_does_not_fit(ext):
    assert ext.append([OF_VECTOR] * 4) == [EXT_BASE + position for position in (0, 28, 56, FILE_SIZE)]
    first, second = (contents(ext)[f"{start:020d}"] for start in (0, FILE_SIZE))
    assert first == (UNIT * 3 + b"\xff\xff").ljust(FILE_SIZE, b"\0")
    assert second == UNIT.ljust(FILE_SIZE, b"\0")


def test_four_bytes_stay_free_at_the_end_of_a_file(tmp_path, files):
    for file_size, third in ((88, 56), (87, 87)):
        ext = ConsumeQueueExt(tmp_path / str(file_size), file_size, files)
        ext.go_on_behind(None)
        assert ext.append([OF_VECTOR] * 3)[2] == EXT_BASE + third


def test_units_of_any_size_are_read_as_they_were_written(ext):
    units = [ExtUnit(-size, T0 + size, bytes(range(size))) for size in (0, 1, 14, 76, 14, 75, 3)]
    addresses = ext.append(units)
    assert [ext.unit(address) for address in addresses] == units


def test_what_does_not_fit_any_file_is_not_written(ext):
    assert ext.append([ExtUnit(1, T0, bytes(77))]) == []
    assert ext.append([ExtUnit(1, T0, bytes(40_000))]) == []
    assert ext.append([OF_VECTOR]) == [EXT_BASE]


def test_writing_goes_on_behind_the_newest_unit_and_clears_what_lies_there(ext, tmp_path, files):
    ext.append([OF_VECTOR] * 8)
    again = ConsumeQueueExt(tmp_path / "T" / "0", FILE_SIZE, files)
    assert again.go_on_behind(EXT_BASE + 28)
    assert contents(again) == {f"{0:020d}": (UNIT * 2).ljust(FILE_SIZE, b"\0")}
    assert again.append([OF_VECTOR]) == [EXT_BASE + 56]


@pytest.mark.parametrize("address", [None, EXT_BASE + 1])
def test_where_no_entry_leads_to_a_unit_writing_begins_a_new_file(ext, tmp_path, files, address):
    ext.append([OF_VECTOR] * 4)
    again = ConsumeQueueExt(tmp_path / "T" / "0", FILE_SIZE, files)
    assert again.go_on_behind(address)
    assert again.append([OF_VECTOR]) == [EXT_BASE + 2 * FILE_SIZE]
    assert ext.unit(EXT_BASE + 56) == OF_VECTOR


def test_files_of_another_size_are_left_alone(ext, tmp_path, files, caplog):
    ext.append([OF_VECTOR])
    other = ConsumeQueueExt(tmp_path / "T" / "0", 2 * FILE_SIZE, files)
    assert not other.go_on_behind(EXT_BASE)
    assert not other.go_on_behind(EXT_BASE)
    assert other.expire(EXT_BASE + 500) == []
    assert len([record for record in caplog.records if "not written" in record.message]) == 1


def test_what_was_written_is_to_be_synced_once(ext, tmp_path):
    ext.append([OF_VECTOR] * 4)
    folder = tmp_path / "T" / "0"
    files = [folder / f"{0:020d}", folder / f"{FILE_SIZE:020d}"]
    assert ext.take_unsynced() == [*files, folder, *folder.parents[:3]]
    assert ext.take_unsynced() == []
    ext.append([OF_VECTOR])
    assert ext.take_unsynced() == files[1:]


def test_files_before_the_oldest_unit_go(ext):
    ext.append([OF_VECTOR] * 7)
    assert ext.expire(EXT_BASE + FILE_SIZE - 1) == []
    (gone,) = ext.expire(EXT_BASE + FILE_SIZE)
    assert gone.name == f"{0:020d}"


# In a store


def bitmap_of(topic):
    """Bitmaps for the topic T, and for schedules, which must not get any: how long the record is."""
    if topic == "U":
        return None
    return lambda record: len(record).to_bytes(4, "little")


def open_store(stores, **changes):
    store = stores.open(consume_queue_ext_file_size=FILE_SIZE, consume_queue_ext=True, **changes)
    store.bitmaps = bitmap_of
    return store


def units_of(store, queue_id=0, topic="T"):
    queue = store.queue(topic, queue_id)
    codes = [queue.entry(offset)[2] for offset in range(queue.min_offset, queue.max_offset)]
    return [code if code > MAX_EXT_ADDRESS else queue.ext.unit(code) for code in codes]


def test_entries_lead_to_units_with_the_tags_code_the_time_and_the_bitmap(stores):
    store = open_store(stores)
    (first,) = put(store, b"a", tags="TagA")
    put(store, b"ab", b"abc")
    plain, two, three = units_of(store)
    assert plain == ExtUnit(TAG_A, first.store_timestamp, first.size.to_bytes(4, "little"))
    assert (two.tags_code, three.tags_code) == (0, 0)
    queue = store.queue("T", 0)
    assert store.get(queue, 0, 32, tags=lambda code: code == TAG_A).count == 1
    assert store.get(queue, 0, 32, units=lambda unit: unit == plain).count == 1
    assert bodies(store) == [b"a", b"ab", b"abc"]


def test_a_batch_gets_a_unit_for_each_message(stores):
    store = open_store(stores)
    queue, other = store.queue("T", 0), store.queue("T", 1)
    store.put([(queue, [message(b"a"), message(b"ab")]), (other, [message(b"x")]), (queue, [message(b"abc")])])
    assert [type(unit) for unit in units_of(store)] == [ExtUnit] * 3
    assert len({unit.bitmap for unit in units_of(store)}) == 3
    assert [type(unit) for unit in units_of(store, 1)] == [ExtUnit]


def test_other_topics_have_tags_codes_as_ever(stores):
    store = open_store(stores)
    put(store, b"a", topic="U", tags="TagA")
    put(store, b"a", topic="SCHEDULE_TOPIC_XXXX")
    assert units_of(store, topic="U") == [TAG_A]
    assert not (stores.root / "consumequeue_ext").exists()


def test_units_are_found_again_after_a_stop_and_go_on_behind_the_last(stores):
    store = open_store(stores)
    put(store, *[b"x" * number for number in range(12, 17)], tags="TagA")
    before = units_of(store)
    stores.close(store)
    store = open_store(stores)
    assert units_of(store) == before
    put(store, b"y", tags="TagA")
    assert units_of(store)[:5] == before
    assert isinstance(units_of(store)[5], ExtUnit)
    folder = stores.root / "consumequeue_ext" / "T" / "0"
    assert len(list(folder.iterdir())) == 2


def test_after_a_crash_no_unit_is_mistaken_for_another(stores):
    store = open_store(stores)
    put(store, *[b"x" * number for number in range(12, 22)], tags="TagA")
    store.abandon()
    store = open_store(stores)
    # Whatever recovery made anew has its tags code; what it kept has its unit.
    for unit in units_of(store):
        assert (unit if isinstance(unit, int) else unit.tags_code) == TAG_A
    put(store, b"y", tags="TagB")
    assert units_of(store)[-1].tags_code == java_hash("TagB")
    assert len(bodies(store)) == 11


def test_a_disk_that_takes_no_units_takes_messages_all_the_same(stores, caplog):
    store = open_store(stores)
    (stores.root / "consumequeue_ext").write_text("in the way")
    put(store, b"a", b"b", tags="TagA")
    assert units_of(store) == [TAG_A, TAG_A]
    assert len([record for record in caplog.records if "bitmaps not written" in record.message]) == 1
    (stores.root / "consumequeue_ext").unlink()
    put(store, b"c", tags="TagA")
    assert isinstance(units_of(store)[2], ExtUnit)


def test_files_of_units_go_with_the_messages(stores):
    store = open_store(stores, commit_log_file_size=1024)
    folder = stores.root / "consumequeue_ext" / "T" / "0"
    for _ in range(40):
        put(store, b"x" * 100, tags="TagA")
    store.check()  # brings everything to the disk
    stores.disk.used = 0.86  # old files go whatever their age
    going = store.clean()
    assert store.log.start > 0
    assert folder / f"{0:020d}" in going
    assert all(isinstance(unit, ExtUnit) for unit in units_of(store))


def test_a_topic_that_comes_back_begins_with_new_units(stores):
    store = open_store(stores)
    put(store, *[b"x" * 12] * 5, tags="TagA")
    store.delete_topic("T")
    put(store, b"y", tags="TagB")
    assert [unit.tags_code for unit in units_of(store)] == [java_hash("TagB")]


def known_tags(store) -> list[int]:
    """The tags codes of all messages, as their entries and units tell; each is that of the message itself."""
    queue = store.queue("T", 0)
    found = []
    for offset in range(queue.min_offset, queue.max_offset):
        (record,) = records(store.get(queue, offset, 1).slices)
        unit = units_of(store)[offset - queue.min_offset]
        assert unit is not None, f"the unit of message {offset} is lost"
        found.append(unit if isinstance(unit, int) else unit.tags_code)
        assert found[-1] == java_hash(record.find_property("TAGS") or "")
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_power_failure_leaves_no_entry_with_the_unit_of_another(tmp_path, seed):
    chance, clock = random.Random(seed), Clock()
    root = tmp_path / "0"
    root.mkdir()
    # Of short files most are older than what a start reads again.
    short_lived = small(
        root, consume_queue_ext_file_size=FILE_SIZE, commit_log_file_size=512, queue_flush_thorough_interval=1
    )
    number = 0
    for generation in range(3):
        disk = RecordingDisk(root)
        before = len(disk.events)
        config = dataclasses.replace(short_lived, root=str(root))
        store = MessageStore(config, disk=disk, clock=clock)
        store.open()
        store.bitmaps = bitmap_of
        known_tags(store)
        for _ in range(chance.randrange(30)):
            number += 1
            put(store, b"x" * chance.randrange(5), tags=f"Tag{number}")
            clock.advance(2)  # entries of the last seconds are made anew in any case
            if chance.random() < 0.3:
                store.maintain()
            if chance.random() < 0.2:
                store.flushed().result(5)
        known_tags(store)
        if chance.random() < 0.2:
            store.close()
        else:
            abandon(store)
        root = tmp_path / str(generation + 1)
        disk.lose_power(root, chance, chance.randint(before, len(disk.events)))
    config = dataclasses.replace(short_lived, root=str(root))
    with MessageStore(config, clock=clock) as store:
        known_tags(store)
    assert list(check_store(root, config)) == []
