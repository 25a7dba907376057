"""Whatever happens to the files of a store, it opens, and serves only messages that were put into it."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyromq.errors import OffsetOutOfRange
from pyromq.protocol.record import MessageRecord, decode_record
from pyromq.store import GetStatus, MessageStore, PutStatus, StoreConfig
from pyromq.store.disk import Disk
from pyromq.store.queues.queue_ends import QUEUE_ENDS
from pyromq.testing import Clock

FILE = 1024
QUEUES = [("T", 0), ("T", 1), ("U", 0)]
PROPERTIES = b"KEYS\x01k%d\x02TAGS\x01A"
FOREVER = 2**62


class QuickDisk(Disk):
    def sync(self, fd: int) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...


class Put(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    end: int
    body: bytes


class Snapshot(NamedTuple):
    """The files of a store that was closed, and what is in it."""

    files: dict[str, bytes]
    messages: list[Put]
    log_end: int

    def write(self, root: Path) -> None:
        for name, content in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def open_store(root: Path) -> MessageStore:
    config = StoreConfig(
        root=str(root), commit_log_file_size=FILE, consume_queue_file_size=100, hash_slots=10, index_entries=30
    )
    store = MessageStore(config, disk=QuickDisk(), clock=Clock())
    store.open()
    return store


@functools.cache
def snapshot() -> Snapshot:
    messages = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = open_store(root)
        for number in range(40):
            topic, queue_id = QUEUES[number % 7 % 3]
            body = b"body %d" % number * (1 + number % 5)
            record = MessageRecord(topic, body, PROPERTIES % (number % 3))
            (result,) = store.put([(store.queue(topic, queue_id), [record])])
            end = result.physical_offset + result.size
            messages.append(Put(topic, queue_id, result.queue_offset, result.physical_offset, end, body))
        log_end = int(store.log.end)
        store.close()
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return Snapshot(files, messages, log_end)


class Damage(NamedTuple):
    """Bytes written over a file."""

    at: float  # where, as a part of the file
    data: bytes | int  # what: bytes, or so many zeros

    def apply(self, content: bytes) -> tuple[bytes, int]:
        """The damaged content and the first byte that changed."""
        data = bytes(self.data) if isinstance(self.data, int) else self.data
        at = min(int(self.at * len(content)), len(content) - 1)
        damaged = (content[:at] + data)[: len(content)] + content[at + len(data) :]
        changed = next((i for i, (old, new) in enumerate(zip(content, damaged, strict=True)) if old != new), None)
        return damaged, len(content) if changed is None else changed


damages = st.builds(Damage, st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=30) | st.integers(1, 600))


def served(store: MessageStore) -> dict[tuple[str, int], list[MessageRecord]]:
    """Everything that pulls return, queue by queue."""
    found = {}
    for queue in store.queues:
        records: list[MessageRecord] = []
        at = int(queue.min_offset)
        while at < queue.max_offset:
            result = store.get(queue, at, 32)
            assert result.next_offset > at
            assert result.status in (
                GetStatus.FOUND,
                GetStatus.NO_MATCHED_MESSAGE,
                GetStatus.MESSAGE_WAS_REMOVING,
                GetStatus.OFFSET_FOUND_NULL,
            )
            records += [decode_record(record) for record in result.slices]
            at = result.next_offset
        found[queue.topic, queue.queue_id] = records
    return found


@contextlib.contextmanager
def damaged_store(name: str, damage: Damage, *, crashed: bool, keep_ends: bool):
    """A store of the snapshot with one file damaged, open; and the first byte of the file that changed."""
    base = snapshot()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        content, changed = damage.apply(base.files[name])
        base._replace(files=base.files | {name: content}).write(root)
        if crashed:
            (root / "abort").touch()
        if not keep_ends:
            (root / QUEUE_ENDS).unlink()
        store = open_store(root)
        try:
            yield store, changed
        finally:
            store.close()


def log_files() -> list[str]:
    return sorted(name for name in snapshot().files if name.startswith("commitlog/"))


def queue_files() -> list[str]:
    return sorted(name for name in snapshot().files if name.startswith("consumequeue/"))


@settings(max_examples=40)
@given(st.data(), damages, st.booleans(), st.booleans())
def test_damage_in_the_log_costs_nothing_that_lies_before_it(data, damage, crashed, keep_ends):
    name = data.draw(st.sampled_from(log_files()[-3:]))
    with damaged_store(name, damage, crashed=crashed, keep_ends=keep_ends) as (store, changed):
        first_bad = int(name.rpartition("/")[2]) + changed
        assert store.log.end <= snapshot().log_end
        found = served(store)
        genuine = {message.body for message in snapshot().messages}
        for records in found.values():
            assert {record.body for record in records} <= genuine
        for message in snapshot().messages:
            if message.end <= first_bad:
                record = decode_record(store.message_at(message.physical_offset))
                assert (record.queue_offset, record.body) == (message.queue_offset, message.body)
                places = found[message.topic, message.queue_id]
                assert [at.queue_offset for at in places if at.body == message.body] == [message.queue_offset]
        # It goes on from there, and what it holds now it holds after the next start.
        (result,) = store.put([(store.queue("T", 0), [MessageRecord("T", b"new")])])
        assert result.status is PutStatus.PUT_OK
        before = served(store)
        assert before["T", 0][-1].body == b"new"
        store.close()
        again = open_store(store.root)
        try:
            after = served(again)
            assert {queue: found for queue, found in after.items() if found} == {
                queue: found for queue, found in before.items() if found
            }
        finally:
            again.close()


@settings(max_examples=40)
@given(st.data(), damages, st.booleans(), st.booleans())
def test_damage_in_a_queue_makes_it_serve_nothing_that_is_not_its_own(data, damage, crashed, keep_ends):
    name = data.draw(st.sampled_from(queue_files()))
    with damaged_store(name, damage, crashed=crashed, keep_ends=keep_ends) as (store, _):
        assert store.log.end == snapshot().log_end
        found = served(store)
        for message in snapshot().messages:
            assert decode_record(store.message_at(message.physical_offset)).body == message.body
        for queue in QUEUES:
            own = [message.body for message in snapshot().messages if (message.topic, message.queue_id) == queue]
            got = [record.body for record in found[queue]]
            if crashed:
                # All of it was read again from the log.
                assert got == own
            else:
                assert set(got) <= set(own)
            # Nobody gets an offset twice.
            if crashed or keep_ends:
                assert store.queue(*queue).max_offset == len(own)
        (result,) = store.put([(store.queue("T", 0), [MessageRecord("T", b"new")])])
        assert result.status is PutStatus.PUT_OK
        assert served(store)["T", 0][-1].body == b"new"


@settings(max_examples=30)
@given(st.data(), damages, st.booleans())
def test_damage_in_the_index_makes_it_find_nothing_wrong(data, damage, crashed):
    name = data.draw(st.sampled_from(sorted(name for name in snapshot().files if name.startswith("index/"))))
    with damaged_store(name, damage, crashed=crashed, keep_ends=True) as (store, _):
        for key in ("k0", "k1", "k2", "other"):
            for record in store.query("T", key, 64, 0, FOREVER):
                assert decode_record(record).find_property("KEYS") == key
        (result,) = store.put([(store.queue("T", 0), [MessageRecord("T", b"new", b"KEYS\x01other")])])
        assert result.status is PutStatus.PUT_OK


@settings(max_examples=30)
@given(st.sampled_from(["checkpoint", QUEUE_ENDS, "lock"]), damages, st.booleans())
def test_damage_in_the_small_files_costs_nothing(name, damage, crashed):
    with damaged_store(name, damage, crashed=crashed, keep_ends=True) as (store, _):
        found = served(store)
        for queue in QUEUES:
            own = [message.body for message in snapshot().messages if (message.topic, message.queue_id) == queue]
            assert [record.body for record in found[queue]] == own


@pytest.mark.parametrize("crashed", [False, True], ids=["stop", "crash"])
def test_a_log_that_is_cut_anywhere_ends_with_its_last_whole_record(crashed):
    base = snapshot()
    name = log_files()[-1]
    start = int(name.rpartition("/")[2])
    content = base.files[name]
    for cut in range(0, base.log_end - start + 1, 3):
        with damaged_store(name, Damage(cut / FILE, len(content) - cut), crashed=crashed, keep_ends=True) as (store, _):
            # Nothing of a record protects its properties, which come last.
            whole = [message for message in base.messages if message.end - len(PROPERTIES % 0) <= start + cut]
            assert sum(map(len, served(store).values())) == len(whole)
            assert store.log.end == max(whole[-1].end, start)


def test_no_message_is_found_where_none_begins():
    begins = {message.physical_offset: message.body for message in snapshot().messages}
    with whole_store() as store:
        for offset in (-(2**63), -1, *range(snapshot().log_end + 50), 2**63 - 1):
            if offset in begins:
                assert decode_record(store.message_at(offset)).body == begins[offset]
            else:
                with pytest.raises(OffsetOutOfRange):
                    store.message_at(offset)


@contextlib.contextmanager
def whole_store():
    with tempfile.TemporaryDirectory() as folder:
        snapshot().write(Path(folder))
        store = open_store(Path(folder))
        try:
            yield store
        finally:
            store.close()
