"""What is in a store by its files alone, and that looking at them changes nothing."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import TYPE_CHECKING

import pytest

from pyromq.errors import StoreError
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig
from pyromq.store.format import PRE_BLANK
from pyromq.store.inspection import inspect_store

if TYPE_CHECKING:
    from pathlib import Path

RECORD = 102  # bytes of each


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(
        root=str(tmp_path), commit_log_file_size=4096, consume_queue_file_size=200, hash_slots=5, index_entries=20
    )


def put(store: MessageStore, topic: str, queue_id: int, count: int, **record: object) -> None:
    for _ in range(count):
        store.put([(store.queue(topic, queue_id), [MessageRecord("", b"hello", **record)])])  # type: ignore[arg-type]


def prints(root: Path) -> dict[str, str]:
    return {
        str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in root.rglob("*")
        if path.is_file()
    }


def test_an_empty_store_has_nothing(tmp_path, config):
    with MessageStore(config):
        pass
    found = inspect_store(tmp_path)
    assert (found.is_clean, found.user, found.queues) == (True, "", ())
    assert (found.log.begin, found.log.end, found.log.first_time, found.log.torn_at) == (0, 0, 0, None)


def test_queues_have_their_messages_and_times_and_the_log_its_end(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 25)  # beyond the first file of the queue, and that of the log
        put(store, "Orders", 3, 20)
        end = store.log.end
    before = prints(tmp_path)
    found = inspect_store(tmp_path)
    assert prints(tmp_path) == before, "nothing is written"
    assert [(queue.topic, queue.queue_id, queue.begin, queue.end) for queue in found.queues] == [
        ("Orders", 0, 0, 25),
        ("Orders", 3, 0, 20),
    ]
    assert all(0 < queue.first_time <= queue.last_time for queue in found.queues)
    assert (found.log.files, found.log.end, found.log.record_version) == (2, end, 1)
    assert found.log.last_time == max(queue.last_time for queue in found.queues)
    assert found.checkpoint[0] >= found.log.last_time


def test_messages_that_are_gone_from_the_log_are_not_counted(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 45)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    found = inspect_store(tmp_path)
    [queue] = found.queues
    assert (found.log.begin, queue.begin, queue.messages) == (4096, 40, 5)


def test_a_crash_is_told_and_what_no_queue_knows_is_found(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 3)
        end = store.log.end
    queue = tmp_path / "consumequeue" / "Orders" / "0" / f"{0:020}"
    queue.write_bytes(queue.read_bytes()[:20] + bytes(180))
    (tmp_path / "abort").touch()
    found = inspect_store(tmp_path)
    assert not found.is_clean
    assert [each.messages for each in found.queues] == [1]
    assert found.log.end == end == 3 * RECORD


def test_a_log_that_cannot_be_read_on_is_told(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 3)
    log = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[3 * RECORD : 3 * RECORD + 8] = b"\0\0\0\x80rubb"
    log.write_bytes(data)
    found = inspect_store(tmp_path)
    assert (found.log.end, found.log.torn_at) == (3 * RECORD, 3 * RECORD)


def test_an_entry_that_points_nowhere_says_nothing_about_the_log(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 3)
    queue = tmp_path / "consumequeue" / "Orders" / "0" / f"{0:020}"
    data = bytearray(queue.read_bytes())
    data[40:48] = (1 << 60).to_bytes(8, "big")
    queue.write_bytes(data)
    assert inspect_store(tmp_path).log.end == 3 * RECORD


def test_a_file_that_lies_far_behind_the_others_takes_no_time(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 3)
    (tmp_path / "consumequeue" / "Orders" / "0" / f"{10**19}").write_bytes(b"\x01" * 200)
    (tmp_path / "commitlog" / f"{4096 << 50:020}").write_bytes(bytes(4096))
    found = inspect_store(tmp_path)
    assert found.log.end == 3 * RECORD
    assert found.queues[0].end == 10**19 // 20 + 10


def test_files_that_were_cut_are_read_as_far_as_they_go(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 30)
    log, queue = tmp_path / "commitlog" / f"{0:020}", tmp_path / "consumequeue" / "Orders" / "0"
    for path, length in ((log, 250), (queue / f"{200:020}", 33), (queue / f"{400:020}", 0)):
        path.write_bytes(path.read_bytes()[:length])
    found = inspect_store(tmp_path)
    assert found.queues[0].end == 11
    assert found.log.end == 2 * RECORD


@pytest.mark.parametrize("seed", range(10))
def test_damage_of_any_kind_ends_in_facts_or_a_store_error(tmp_path, config, seed):
    chance = random.Random(seed)
    with MessageStore(config) as store:
        put(store, "Orders", 0, 30, properties=b"KEYS\x01a\x02")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for _ in range(6):
        for path in chance.choices(files, k=3):
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data) + 1)
            data[at : at + 8] = chance.choice([b"", chance.randbytes(8), PRE_BLANK])
            path.write_bytes(data[: chance.choice([at, None, None])])
        with contextlib.suppress(StoreError):
            inspect_store(tmp_path)


def test_the_index_has_its_entries(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 3, properties=b"KEYS\x01a b\x02")
    index = inspect_store(tmp_path).index
    assert (index.files, index.entries, index.slots, index.room) == (1, 6, 5, 20)
    assert 0 < index.first_time <= index.last_time


def test_a_store_in_use_is_told(tmp_path, config):
    with MessageStore(config) as store:
        put(store, "Orders", 0, 1)
        assert inspect_store(tmp_path).user == "this process"


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a store"):
        inspect_store(tmp_path)
    with pytest.raises(StoreError, match="is not a folder"):
        inspect_store(tmp_path / "x")
