"""After a crash offsets follow the checkpoints in the store; after a clean stop they are what the file says."""

from __future__ import annotations

import os

import pytest

from pyromq.broker.offsets.consumer_offsets import ConsumerOffsets
from pyromq.broker.pop.records import Checkpoint
from pyromq.broker.pop.recovery import follow_checkpoints
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig
from pyromq.store.metadata.json_files import consumer_offsets_file

REVIVE = "rmq_sys_REVIVE_LOG_c"
NOW = 1_700_000_000_000
SAVED_AT = NOW - 2000


def opened(folder) -> MessageStore:
    config = StoreConfig(root=str(folder), commit_log_file_size=1 << 20, consume_queue_file_size=6000, index=False)
    store = MessageStore(config, clock=lambda: NOW / 1000)
    store.open()
    return store


def put(store: MessageStore, topic: str, body: bytes, properties: bytes) -> None:
    store.put([(store.queue(topic, 0), [MessageRecord(topic, body, properties)])])


def put_checkpoint(store: MessageStore, start: int, count: int, *, parked: bool = True) -> None:
    checkpoint = Checkpoint(
        group="g", topic="T", distances=list(range(count)), count=count, start_offset=start, pop_time=NOW - 1000
    )
    if parked:
        text = f"TAGS\x01ck\x02REAL_TOPIC\x01{REVIVE}\x02REAL_QID\x010\x02TIMER_OUT_MS\x01{NOW}".encode()
        put(store, "rmq_sys_wheel_timer", checkpoint.encode(), text)
    else:
        put(store, REVIVE, checkpoint.encode(), b"TAGS\x01ck")


@pytest.fixture
def offsets(tmp_path):
    """What the file of offsets says, which was saved two seconds before the end."""
    offsets = ConsumerOffsets()
    offsets.commit("g", "T", 0, 5)
    file = consumer_offsets_file(tmp_path)
    file.save(offsets.snapshot())
    os.utime(file.path, (SAVED_AT / 1000, SAVED_AT / 1000))
    return offsets


def test_after_a_crash_what_was_popped_is_not_popped_again(tmp_path, offsets):
    store = opened(tmp_path)
    put_checkpoint(store, 5, 3)
    put(store, "rmq_sys_wheel_timer", b"a timer of somebody", b"REAL_TOPIC\x01T\x02TAGS\x01ck\x02TIMER_OUT_MS\x011")
    put(store, "rmq_sys_wheel_timer", b"{", f"TAGS\x01ck\x02REAL_TOPIC\x01{REVIVE}\x02TIMER_OUT_MS\x011".encode())
    put_checkpoint(store, 8, 4, parked=False)
    store.abandon()
    store = opened(tmp_path)
    follow_checkpoints(store, REVIVE, offsets)
    assert offsets.get("g", "T", 0) == 12
    store.close()


def test_after_a_clean_stop_the_file_is_right(tmp_path, offsets):
    store = opened(tmp_path)
    put_checkpoint(store, 5, 3)
    store.close()
    store = opened(tmp_path)
    follow_checkpoints(store, REVIVE, offsets)
    assert offsets.get("g", "T", 0) == 5
    store.close()
