"""Queue entries that hold the address of a unit in place of a tags code."""

from __future__ import annotations

import pytest
from tests.unit.store.kit import put

from pyromq.protocol.hashing import java_hash
from pyromq.store import GetStatus
from pyromq.store.format import ENTRY, EXT_BASE, EXT_UNIT, MAX_EXT_ADDRESS
from pyromq.store.open_files import OpenFiles
from pyromq.store.queues.consume_queue_ext import ConsumeQueueExt, ExtUnit
from pyromq.testing import FaultyDisk

# The vector of docs/spec/store.md 11, T8: TagA, T0 + 2123 ms, a bitmap of eight bytes; 28 bytes.
UNIT = bytes.fromhex("001c000000000027a8070000018bcfe5704b00080102040810204080")
TAG_A = java_hash("TagA")
FILE_SIZE = 100


@pytest.fixture
def ext(tmp_path):
    files = OpenFiles(FaultyDisk())
    first = UNIT + UNIT + b"\xff\xff"  # no third one fits
    second = bytes(4) + UNIT.replace(bytes.fromhex("27a807"), bytes.fromhex("27a808"))
    for number, content in enumerate((first, second)):
        (tmp_path / f"{number * FILE_SIZE:020d}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
    yield ConsumeQueueExt(tmp_path, FILE_SIZE, files)
    files.close()


@pytest.mark.scenario("store T8")
def test_a_unit_is_found_by_its_address(ext):
    assert ext.tags_code(int.from_bytes(bytes.fromhex("800000000000001c"), "big", signed=True)) == TAG_A
    assert ext.tags_code(EXT_BASE) == TAG_A
    assert ext.tags_code(EXT_BASE + FILE_SIZE + 4) == TAG_A + 1


def test_a_unit_says_when_its_message_was_stored_and_whom_it_concerns(ext):
    unit = ext.unit(EXT_BASE + 28)
    assert unit == ExtUnit(TAG_A, 1_700_000_002_123, bytes.fromhex("0102040810204080"))


def test_a_bitmap_may_be_long(tmp_path):
    files = OpenFiles(FaultyDisk())
    bitmap = bytes(range(200))
    (tmp_path / f"{0:020d}").write_bytes(EXT_UNIT.pack(EXT_UNIT.size + 200, 7, 8, 200) + bitmap)
    assert ConsumeQueueExt(tmp_path, 4096, files).unit(EXT_BASE) == ExtUnit(7, 8, bitmap)
    (tmp_path / f"{4096:020d}").write_bytes(EXT_UNIT.pack(EXT_UNIT.size + 200, 7, 8, 200) + bitmap[:-1])
    assert ConsumeQueueExt(tmp_path, 4096, files).unit(EXT_BASE + 4096) is None
    files.close()


@pytest.mark.parametrize("position", [56, 80, 95, 99, 3, FILE_SIZE, 2 * FILE_SIZE, 2**62])
def test_where_no_unit_is_nobody_knows_the_tag(ext, position):
    assert ext.tags_code(EXT_BASE + position) is None


def test_an_address_is_below_every_hash():
    assert MAX_EXT_ADDRESS < -(2**31)
    assert EXT_BASE + 2**60 <= MAX_EXT_ADDRESS


def with_ext(stores, *, is_readable=True):
    """A store with three messages of RocketMQ's, whose queue entries lead to units of ext files."""
    store = stores.open(consume_queue_ext_file_size=FILE_SIZE)
    put(store, b"a", b"b", b"c", tags="TagA")
    queue = store.queue("T", 0)
    entries = [queue.entry(offset)[:2] for offset in range(3)]
    stores.close(store)
    path = stores.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    content = b"".join(ENTRY.pack(*entry, EXT_BASE + 28 * number) for number, entry in enumerate(entries))
    path.write_bytes(content.ljust(200, b"\0"))
    folder = stores.root / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    unit_b = UNIT.replace(TAG_A.to_bytes(8, "big", signed=True), java_hash("TagB").to_bytes(8, "big", signed=True))
    units = UNIT + unit_b + UNIT if is_readable else b"\xff" * 84
    (folder / f"{0:020d}").write_bytes(units.ljust(FILE_SIZE, b"\0"))
    stores.is_damaged()  # a check finds the made-up tag of the second message
    return stores.open(consume_queue_ext_file_size=FILE_SIZE)


def test_a_pull_filters_by_the_tags_code_that_the_unit_holds(stores):
    store = with_ext(stores)
    stores.is_damaged()
    queue = store.queue("T", 0)
    assert queue.entry(1)[2] == EXT_BASE + 28
    assert store.get(queue, 0, 32, tags=lambda code: code == TAG_A).count == 2
    assert store.get(queue, 0, 32, tags=lambda code: code == java_hash("TagB")).count == 1
    assert store.get(queue, 0, 32, tags=lambda code: False).status is GetStatus.NO_MATCHED_MESSAGE
    assert store.get(queue, 0, 32).count == 3


def test_a_pull_may_rule_out_messages_by_their_units(stores):
    store = with_ext(stores)
    stores.is_damaged()
    queue = store.queue("T", 0)
    put(store, b"d")  # has none
    assert store.get(queue, 0, 32, units=lambda unit: unit.tags_code == TAG_A).count == 3
    assert store.get(queue, 0, 32, tags=lambda code: code == TAG_A, units=lambda unit: False).count == 0


def test_a_message_whose_unit_cannot_be_read_is_left_to_the_client(stores):
    store = with_ext(stores, is_readable=False)
    stores.is_damaged()
    assert store.get(store.queue("T", 0), 0, 32, tags=lambda code: False).count == 3


def test_new_messages_need_no_unit(stores):
    store = with_ext(stores)
    stores.is_damaged()
    put(store, b"d", tags="TagC")
    queue = store.queue("T", 0)
    assert queue.entry(3)[2] == java_hash("TagC")
    assert store.get(queue, 0, 32, tags=lambda code: code == java_hash("TagC")).count == 1


def test_units_go_with_their_topic(stores):
    store = with_ext(stores)
    stores.is_damaged()
    assert store.delete_topic("T") == 1
    assert not (stores.root / "consumequeue_ext" / "T" / "0").exists()
