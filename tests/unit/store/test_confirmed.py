"""What readers of a store see while its newest messages are not confirmed, and how its end is cut off."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.kit import FOREVER, Stores, bodies, numbered, put, records, sized, state

from pyromq.errors import OffsetOutOfRange, StoreError
from pyromq.store import GetStatus


def test_readers_see_a_message_once_it_is_confirmed(stores):
    store = stores.open()
    put(store, b"old")
    store.limit_readers(int(store.log.end))
    (first,) = put(store, b"first", keys="k")
    (second,) = put(store, b"second")
    queue = store.queue("T", 0)
    assert (queue.max_offset, queue.next_offset) == (1, 3)
    assert store.get(queue, 1, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert queue.entry(1) is None
    with pytest.raises(OffsetOutOfRange, match="not confirmed"):
        store.message_at(first.physical_offset)
    assert store.query("T", "k", 10, 0, FOREVER) == []
    assert store.stored_at(first.physical_offset)

    assert store.confirm(second.physical_offset) == [queue]
    assert bodies(store) == [b"old", b"first"]
    assert [each.body for each in records(store.query("T", "k", 10, 0, FOREVER))] == [b"first"]
    assert store.confirm(None) == [queue]
    assert bodies(store) == [b"old", b"first", b"second"]
    assert store.confirm(None) == []


def test_part_of_a_message_is_not_a_message(stores):
    store = stores.open()
    store.limit_readers(0)
    (result,) = put(store, b"first")
    end = result.physical_offset + result.size
    assert store.confirm(end - 1) == []
    assert bodies(store) == []
    assert store.confirm(end) == [store.queue("T", 0)]
    assert bodies(store) == [b"first"]


def test_the_limit_is_where_a_record_ends(stores):
    """Whatever slaves say: the rest of a record may never come, and then its beginning is cut off."""
    store = stores.open()
    store.limit_readers(0)
    ends = [result.physical_offset + result.size for result in put(store, b"first", b"second")]
    store.confirm(ends[0] - 1)
    assert store.confirmed == 0
    store.confirm(ends[0] + 1)
    assert store.confirmed == ends[0]
    store.confirm(ends[1])
    assert store.confirmed == ends[1]


def test_the_limit_never_goes_back(stores):
    store = stores.open()
    store.limit_readers(0)
    put(store, b"first")
    end = int(store.log.end)
    store.confirm(end)
    assert store.confirm(0) == []
    assert (store.confirmed, bodies(store)) == (end, [b"first"])


def test_a_queue_that_comes_later_is_limited_as_well(stores):
    store = stores.open()
    store.limit_readers(0)
    put(store, b"first", queue_id=7)
    assert bodies(store, queue_id=7) == []
    store.confirm(int(store.log.end))
    assert bodies(store, queue_id=7) == [b"first"]


def test_what_was_confirmed_is_known_after_a_restart(stores):
    store = stores.open()
    store.limit_readers(0)
    put(store, *numbered(0, 30))
    confirmed = store.stored_at(0)
    store.confirm(2 * len(confirmed))
    put(store, *numbered(30, 40), queue_id=1)
    stores.close(store)
    again = stores.open()
    again.limit_readers()
    assert (again.confirmed, bodies(again), bodies(again, queue_id=1)) == (2 * len(confirmed), numbered(0, 2), [])
    again.confirm(int(again.log.end))
    assert (bodies(again), bodies(again, queue_id=1)) == (numbered(0, 30), numbered(30, 40))


def test_a_copy_shows_what_its_master_confirms(stores, tmp_path):
    master = stores.open(root=tmp_path / "master")
    put(master, *numbered(0, 5))
    log = bytes(master.log.read(0, int(master.log.end)))
    size = len(log) // 5
    slave = stores.open(root=tmp_path / "slave")
    slave.limit_readers(0)
    slave.append_copy(0, log[: 3 * size + 10])
    assert bodies(slave) == []
    slave.confirm(2 * size)
    slave.append_copy(3 * size + 10, log[3 * size + 10 :])
    assert bodies(slave) == []  # what came as one piece is shown as one
    slave.confirm(3 * size)
    assert bodies(slave) == numbered(0, 3)
    slave.confirm(5 * size)
    assert bodies(slave) == numbered(0, 5)


# The end is cut off


def test_a_log_that_was_cut_goes_on_as_if_the_rest_had_never_been(stores, tmp_path):
    store = stores.open()
    put(store, *numbered(0, 60), keys="old")
    (cut,) = put(store, b"gone", keys="gone")
    put(store, *numbered(100, 200), queue_id=3)
    store.truncate(cut.physical_offset)
    assert (store.log.end, store.flusher.flushed) == (cut.physical_offset, cut.physical_offset)
    assert (bodies(store), bodies(store, queue_id=3)) == (numbered(0, 60), [])
    assert store.query("T", "gone", 10, 0, FOREVER) == []
    assert len(store.query("T", "old", 32, 0, FOREVER)) == 32
    put(store, b"new", queue_id=3)
    store.flushed().result(5)
    expected = state(store)
    stores.close(store)
    assert state(stores.open()) == expected


def test_what_was_cut_off_does_not_come_back_after_a_crash(stores):
    store = stores.open()
    put(store, *numbered(0, 10))
    (cut,) = put(store, b"gone")
    put(store, *numbered(11, 90))
    store.truncate(cut.physical_offset)
    assert bodies(stores.crash(store)) == numbered(0, 10)


@pytest.mark.parametrize("where", [1, 91, -1, 10**9])
def test_a_log_is_cut_between_messages_only(stores, where):
    store = stores.open()
    put(store, b"", b"")
    before = state(store)
    with pytest.raises(StoreError, match="cut"):
        store.truncate(where)
    assert state(store) == before


def test_a_record_that_never_arrived_as_a_whole_is_cut_off(stores, tmp_path):
    master = stores.open(root=tmp_path / "master")
    put(master, *numbered(0, 5))
    log = bytes(master.log.read(0, int(master.log.end)))
    size = len(log) // 5
    slave = stores.open(root=tmp_path / "slave")
    slave.append_copy(0, log[: 3 * size + 10])
    assert slave.cut_torn_record() == 10
    assert slave.log.end == 3 * size
    put(slave, b"own")
    assert bodies(slave) == [*numbered(0, 3), b"own"]
    assert slave.cut_torn_record() == 0


def test_a_limit_outlives_a_cut(stores):
    store = stores.open()
    put(store, *numbered(0, 3))
    store.limit_readers(int(store.log.end))
    put(store, b"m3")
    (fifth,) = put(store, b"m4")
    store.truncate(fifth.physical_offset)
    assert bodies(store) == numbered(0, 3)
    store.confirm(fifth.physical_offset)
    assert bodies(store) == numbered(0, 4)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_cut_store_is_like_one_that_never_had_the_rest(tmp_path_factory, data):
    kit = Stores(tmp_path_factory.mktemp("cut"))
    sizes = data.draw(st.lists(st.integers(92, 1500), min_size=1, max_size=40))
    keep = data.draw(st.integers(0, len(sizes)))
    with_all, with_some = kit.open(root=kit.folder / "all"), kit.open(root=kit.folder / "some")
    places = []
    for number, size in enumerate(sizes):
        queues = (store.queue("T", number % 3) for store in (with_all, with_some))
        places.append(with_all.put([(next(queues), [sized(size)])])[0].physical_offset)
        if number < keep:
            with_some.put([(next(queues), [sized(size)])])
    with_all.truncate(places[keep] if keep < len(places) else int(with_all.log.end))
    assert state(with_all) == state(with_some)
    kit.finish()
