"""Damage in the index is found at its place, once."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from tests.unit.store.check.kit import (
    GEOMETRY,
    T0,
    fill,
    flip,
    found,
    in_queue,
    index_path,
    log_end,
    message,
    opened,
    overwrite,
    records,
)

from pyromq.protocol import sysflag
from pyromq.store import StoreConfig
from pyromq.store.check.files import fitted
from pyromq.store.format import INDEX_ENTRY, INDEX_HEADER
from pyromq.store.index.index_file import Geometry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyromq.store.scan import ScannedRecord


def entry_at(number: int) -> int:
    return GEOMETRY.entry_at(number)


@pytest.mark.parametrize(
    ("at", "data", "what"),
    [
        (36, "7fffffff", "error: the header is damaged"),
        (32, "00000001", "error: {used} slots are in use, but its header says 1"),
        (entry_at(5) + 16, "00000007", "error: 1 entries are chained wrongly, the first is 5"),
        (entry_at(5) + 4, "0000000000000001", "error: entry 5 is damaged or out of order"),
        (entry_at(5) + 12, "00000063", "warning: entry 5: the entry and its message have different times"),
        (0, "0000018bcfe56bff", "warning: begins at time 1700000001023, but its first message was stored at {begin}"),
        (8, "0000018bcfe56bff", "warning: ends at time 1700000001023, but its last message was stored at {end}"),
        (entry_at(0), "01", "warning: byte {zeroth} is not zero, although it holds no entry"),
        (entry_at(59), "01", "warning: byte {behind} is not zero, although it holds no entry"),
    ],
)
def test_an_index_file_that_changed(root, at, data, what):
    path = index_path(root)
    begin, end, _, _, used, _ = INDEX_HEADER.unpack_from(path.read_bytes())
    overwrite(path, at, bytes.fromhex(data))
    what = what.format(used=used, begin=begin, end=end, zeroth=entry_at(0), behind=entry_at(59))
    assert [text.replace(f" index/{path.name}:", "") for text in found(root)] == [what]


def test_an_entry_of_the_index_with_another_key(root):
    path = index_path(root)
    data = path.read_bytes()
    key_hash, offset, seconds, previous = INDEX_ENTRY.unpack_from(data, entry_at(11))
    # In the same slot, so that the chains are right.
    overwrite(path, entry_at(11), INDEX_ENTRY.pack(key_hash + GEOMETRY.slots, offset, seconds, previous))
    assert found(root) == [
        f"error: index/{path.name}: entry 11: the entry points to {offset}, where the message has no such key",
        f"warning: index: a key of the message at {offset} has no entry; lookups do not find them",
    ]


def test_a_slot_of_the_index_that_changed(root):
    path = index_path(root)
    slots = struct.unpack_from(f">{GEOMETRY.slots}i", path.read_bytes(), INDEX_HEADER.size)
    slot = slots.index(max(slots))
    flip(path, GEOMETRY.slot_at(slot) + 3)
    assert found(root) == [f"error: index/{path.name}: 1 slots point to the wrong entry, the first is {slot}"]


def rebuilt_index(root: Path, keep: Callable[[ScannedRecord], bool], *more: tuple[str, bytes, int, int]) -> None:
    """An index of some messages only."""
    from pyromq.store.disk import Disk
    from pyromq.store.index.index import IndexFiles

    shutil.rmtree(root / "index")
    index = IndexFiles(root / "index", *GEOMETRY, Disk(), lambda: T0 / 1000)
    for record in records(root):
        if keep(record) and record.sys_flag & sysflag.ROLLBACK != sysflag.ROLLBACK:
            index.add(record.topic, record.properties, record.physical_offset, record.store_timestamp)
    for record_like in more:
        index.add(*record_like)
    index.flush()
    index.close()


def test_an_index_that_was_made_anew_is_sound(root):
    rebuilt_index(root, lambda record: True)
    assert found(root) == []


def test_keys_that_the_index_misses(root):
    lost = in_queue(root)[2:4]
    rebuilt_index(root, lambda record: record not in lost)
    offsets = [record.physical_offset for record in lost]
    assert found(root) == [
        f"warning: index: a key of the message at {offset} has no entry, nor do the 2 keys after it; "
        "lookups do not find them"
        for offset in offsets
    ]


def test_an_index_that_lags(root):
    six = in_queue(root, "Six", 0)[0]
    rebuilt_index(root, lambda record: record.physical_offset < six.physical_offset)
    what = (
        f"index: a key of the message at {six.physical_offset} has no entry, nor do the 1 keys after it; "
        "lookups do not find them"
    )
    assert found(root) == [f"warning: {what}"]
    (root / "abort").touch()
    overwrite(root / "checkpoint", 0, struct.pack(">qq", T0, T0))
    assert found(root)[1:] == [f"note: {what}"]


def test_an_index_that_began_later_is_a_note(root):
    third = in_queue(root)[2]
    rebuilt_index(root, lambda record: record.physical_offset >= third.physical_offset)
    # Five messages came before, with three keys each.
    assert found(root) == [f"note: index: 15 keys of messages before offset {third.physical_offset} were never indexed"]


def test_no_index_is_a_note(root):
    shutil.rmtree(root / "index")
    assert found(root) == ["note: index: there is no index; messages cannot be looked up by key"]
    assert found(root, index=False) == []


@pytest.mark.parametrize("unit", [message("KEYS=k", sys_flag=sysflag.ROLLBACK), message("TAGS=red")])
def test_no_index_is_right_if_there_is_nothing_to_look_up(tmp_path, unit):
    store = opened(tmp_path)
    store.put([(store.queue("Orders", 0), [unit])])
    store.close()
    assert not any((tmp_path / "index").glob("*"))
    assert found(tmp_path) == []


def test_the_index_may_hold_tags_and_a_record_twice(root):
    """RocketMQ 5.5 indexes tags too; after a crash it indexes the last record again."""
    last = [record for record in records(root) if b"KEYS" in record.properties][-1]
    again = (last.topic, last.properties, last.physical_offset, last.store_timestamp)
    rebuilt_index(root, lambda record: record.physical_offset <= last.physical_offset, again)
    assert found(root) == []

    blue = next(record for record in records(root) if b"blue" in record.properties)
    shutil.rmtree(root / "index")
    tagged = ("Orders", b"UNIQ_KEY\x01T#blue", blue.physical_offset, blue.store_timestamp)
    (root / "index").mkdir()
    rebuilt_index(root, lambda record: False, tagged)
    assert [text for text in found(root) if "no such key" in text] == []


def test_an_entry_of_the_index_beyond_the_log(root):
    end = log_end(root)
    rebuilt_index(root, lambda record: True, ("Orders", b"KEYS\x01x", end + 10, records(root)[-1].store_timestamp))
    (text,) = found(root)
    assert text.endswith(f"the entry points to {end + 10}, but the log ends at {end}")
    assert text.startswith("error: index/")
    (root / "abort").touch()
    assert found(root)[1].startswith("note: index/")


def test_an_entry_of_the_index_where_no_message_begins(root):
    keep = in_queue(root)[2]
    other = ("Orders", b"KEYS\x01x", keep.physical_offset + 1, keep.store_timestamp)
    rebuilt_index(root, lambda record: record.physical_offset <= keep.physical_offset, other)
    texts = found(root)
    assert f"the entry points to {keep.physical_offset + 1}, where no message begins" in texts[0]


def test_an_index_of_another_size(root):
    path = index_path(root)
    os.truncate(path, 500)
    (text,) = found(root)
    assert text.startswith(f"error: index/{path.name}: has 500 bytes where index files have {GEOMETRY.size}")


def test_an_index_file_that_was_just_being_made(root):
    (root / "index" / "99990101000000000").touch()
    assert found(root) == ["warning: index/99990101000000000: is empty; it was just being created"]


def test_strangers_in_the_index(root):
    (root / "index" / "x").touch()
    (root / "index" / "folder").mkdir()
    assert found(root) == [
        "note: index/folder: is unknown; left alone",
        "error: index/x: is not an index file; move it away, or PyroMQ will not start",
    ]


def test_index_files_that_are_out_of_order(tmp_path):
    store = opened(tmp_path)
    for _ in range(3):
        fill(store)
    store.close()
    assert found(tmp_path) == []
    first, second, *_ = sorted((tmp_path / "index").iterdir())
    first.rename(tmp_path / "x")
    second.rename(first)
    (tmp_path / "x").rename(second)
    assert any("the file before it ends at" in text for text in found(tmp_path))


@pytest.mark.parametrize("geometry", [Geometry(4, 16), Geometry(7, 100), Geometry(1, 50), Geometry(100, 50)])
def test_the_geometry_of_an_index_can_be_guessed(tmp_path, geometry):
    store = opened(tmp_path, hash_slots=geometry.slots, index_entries=geometry.entries)
    fill(store)
    store.close()
    guessed = fitted(StoreConfig(root=str(tmp_path)))
    assert (guessed.hash_slots, guessed.index_entries) == geometry
