"""The vectors T1–T11 of docs/spec/store.md as a whole directory, which RocketMQ 4.9.7 and 5.5.0 opened and served.

We open it, and given the same messages at the same times we write the same bytes.
"""

from __future__ import annotations

import shutil

import pytest
from tests.golden.test_store_vectors import (
    R1_BYTES,
    R2_BYTES,
    R3_BYTES,
    R4_BYTES,
    R5_BYTES,
    R6_BYTES,
    R7_BYTES,
    R8_BYTES,
    R9,
    T0,
    T12,
    T12_BYTES,
)

from pyromq.protocol.record import decode_record, encode_record
from pyromq.store import GetStatus, MessageStore, PutStatus, StoreConfig
from pyromq.store.check.store_check import Severity, check_store
from pyromq.store.inspection import inspect_store
from pyromq.testing import Clock

FOREVER = 2**62
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

RECORDS = [R1_BYTES, R2_BYTES, R3_BYTES, R4_BYTES, R5_BYTES, R6_BYTES, R7_BYTES, R8_BYTES]
BLANK = bytes.fromhex("00000097cbd43194")
LOG = {
    0: (b"".join(RECORDS) + BLANK).ljust(1200, b"\0"),
    1200: encode_record(R9).ljust(1200, b"\0"),
}
QUEUES = {
    ("TestTopic", 3): (
        "0000000000000000000000700000000000000000"
        "0000000000000070000000b6ffffffffc847df78"
        "00000000000004b0000000690000000000000000"
    ),
    ("TestV6", 0): "000000000000012600000084000000000027a807",
    ("TestTopic", 2): (
        "00000000000001aa000000770000000000000041"
        "0000000000000221000000710000000000000000"
        "00000000000002920000007a0000000000000000"
    ),
    (SCHEDULE, 2): "000000000000030c0000009a0000018bcfe59f2b",
    ("TestTopic", 0): "00000000000003a6000000730000000000000000",
}
INDEX = bytes.fromhex(
    "0000018bcfe56c630000018bcfe574330000000000000070000000000000029200000003000000050000000200000004000000000000000300"
    "000000000000000000000000000000000000007e831ab70000000000000070000000000000000004b0b4340000000000000070000000000000"
    "000004b0b4330000000000000070000000000000000104b0b511000000000000029200000002000000000000000000000000000000000000"
    "000000000000"
)
CHECKPOINT = bytes.fromhex("0000018bcfe58ba30000018bcfe58ba30000000000000000").ljust(4096, b"\0")


def config(root, **changes):
    return StoreConfig(
        root=str(root),
        **{
            "commit_log_file_size": 1200,
            "consume_queue_file_size": 200,
            "hash_slots": 4,
            "index_entries": 6,
            **changes,
        },
    )


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def directory(tmp_path):
    """The directory, laid out by hand."""
    for start, content in LOG.items():
        write(tmp_path / "commitlog" / f"{start:020d}", content)
    for (topic, queue_id), entries in QUEUES.items():
        write(tmp_path / "consumequeue" / topic / str(queue_id) / f"{0:020d}", bytes.fromhex(entries).ljust(200, b"\0"))
    write(tmp_path / "index" / "20231114221321123", INDEX)
    write(tmp_path / "checkpoint", CHECKPOINT)
    return tmp_path


def found(root, settings):
    return [str(finding) for finding in check_store(root, settings) if finding.severity is not Severity.NOTE]


def queue_ends(store):
    return {(queue.topic, queue.queue_id): int(queue.max_offset) for queue in store.queues if queue.max_offset}


ENDS = {("TestTopic", 0): 1, ("TestTopic", 2): 3, ("TestTopic", 3): 3, ("TestV6", 0): 1, (SCHEDULE, 2): 1}


def serve(store):
    """All messages, by queue."""
    messages = {}
    for queue in store.queues:
        result = store.get(queue, 0, 32)
        assert result.status is GetStatus.FOUND
        messages[queue.topic, queue.queue_id] = [bytes(record) for record in result.slices]
    return messages


@pytest.mark.scenario("store 1")
@pytest.mark.scenario("store T7")
@pytest.mark.scenario("store T8")
@pytest.mark.scenario("store T11")
@pytest.mark.parametrize("crashed", [False, True], ids=["stop", "crash"])
def test_the_directory_opens_and_holds_nine_messages(directory, crashed):
    if crashed:
        (directory / "abort").touch()
    assert found(directory, config(directory)) == []
    with MessageStore(config(directory), clock=Clock(T0 / 1000 + 60)) as store:
        assert queue_ends(store) == ENDS
        assert store.log.end == 1305
        assert serve(store) == {
            ("TestTopic", 0): [R8_BYTES],
            ("TestTopic", 2): [R4_BYTES, R5_BYTES, R6_BYTES],
            ("TestTopic", 3): [R1_BYTES, R2_BYTES, encode_record(R9)],
            ("TestV6", 0): [R3_BYTES],
            (SCHEDULE, 2): [R7_BYTES],
        }
        for key in ("k1", "k2", "C0A8010A04D218B4AAC247B760000001"):
            assert [bytes(record) for record in store.query("TestTopic", key, 32, 0, FOREVER)] == [R2_BYTES]
        assert [bytes(record) for record in store.query("TestTopic", "bk", 32, 0, FOREVER)] == [R6_BYTES]
        assert bytes(store.message_at(294)) == R3_BYTES
        assert store.queue(SCHEDULE, 2).entry(0) == (780, 154, T0 + 14_123)
    assert found(directory, config(directory)) == []


@pytest.mark.scenario("store 1")
@pytest.mark.parametrize("missing", ["consumequeue", "index", "checkpoint"])
def test_what_is_missing_of_the_directory_is_made_anew(directory, missing):
    path = directory / missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with MessageStore(config(directory), clock=Clock(T0 / 1000 + 60)) as store:
        assert queue_ends(store) == ENDS
    if missing == "consumequeue":
        for (topic, queue_id), entries in QUEUES.items():
            content = (directory / "consumequeue" / topic / str(queue_id) / f"{0:020d}").read_bytes()
            assert content.hex() == bytes.fromhex(entries).ljust(200, b"\0").hex()


def test_the_directory_is_left_as_it_was_but_for_what_is_ours(directory):
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with MessageStore(config(directory), clock=Clock(T0 / 1000 + 60)):
        pass
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} == {"lock", "queueends.json"}
    changed = {path.name for path in before if after.get(path) != before[path]}
    assert changed <= {"checkpoint"}
    assert after[directory / "checkpoint"][:16] == CHECKPOINT[:16]


def store_the_vectors(store, clock):
    """Put the messages of the vectors as a broker would; the store gives offsets and times."""
    units = [RECORDS[0:1], RECORDS[1:2], RECORDS[2:3], RECORDS[3:6], RECORDS[6:7], RECORDS[7:8], [encode_record(R9)]]
    for unit in units:
        records = [decode_record(record) for record in unit]
        clock.set_millis(records[0].store_timestamp)
        if records[0].physical_offset == 1200:
            store.log.roll()  # the vectors do so for the sake of a blank record; R9 itself would have fitted
        queue = store.queue(records[0].topic, records[0].queue_id)
        results = store.put([(queue, records)])
        assert [result.status for result in results] == [PutStatus.PUT_OK] * len(unit)
        assert [result.physical_offset for result in results] == [record.physical_offset for record in records]
        assert [result.queue_offset for result in results] == [record.queue_offset for record in records]


@pytest.mark.scenario("store 2")
@pytest.mark.scenario("store T7")
@pytest.mark.scenario("store T8")
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_the_same_messages_at_the_same_times_are_the_same_bytes(tmp_path, crash):
    clock = Clock()
    root = tmp_path / "store"
    store = MessageStore(config(root), clock=clock)
    store.open()
    store_the_vectors(store, clock)
    if crash:
        shutil.copytree(root, tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    store.close()
    if crash:
        root = tmp_path / "copy"
        MessageStore(config(root), clock=clock).__enter__().close()
    for start, content in LOG.items():
        assert (root / "commitlog" / f"{start:020d}").read_bytes().hex() == content.hex()
    assert len(list((root / "commitlog").iterdir())) == 2
    for (topic, queue_id), entries in QUEUES.items():
        (path,) = (root / "consumequeue" / topic / str(queue_id)).iterdir()
        assert path.read_bytes().hex() == bytes.fromhex(entries).ljust(200, b"\0").hex()
    (index,) = (root / "index").iterdir()
    assert index.read_bytes().hex() == INDEX.hex()
    assert (root / "checkpoint").read_bytes()[:16] == CHECKPOINT[:16]
    assert not (root / "abort").exists()
    assert found(root, config(root)) == []


@pytest.mark.scenario("store 4")
@pytest.mark.scenario("store T12")
def test_a_record_of_version_2_is_read_and_written(tmp_path):
    """T12 lies at 2048; one large record fills the space before it."""
    clock = Clock()
    settings = config(tmp_path, commit_log_file_size=4096)
    with MessageStore(settings, clock=clock) as store:
        clock.set_millis(T12.store_timestamp)
        filler = decode_record(R1_BYTES)
        size = 2048 - (len(R1_BYTES) - len(filler.body))
        queue = store.queue(filler.topic, 3)
        store.put([(queue, [type(filler)(filler.topic, bytes(size))])])
        (result,) = store.put([(store.queue(T12.topic, 0), [T12])])
        assert result.physical_offset == 2048
    content = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert content[2048 : 2048 + len(T12_BYTES)].hex() == T12_BYTES.hex()
    (tmp_path / "abort").touch()
    with MessageStore(settings, clock=clock) as store:
        (record,) = store.get(store.queue(T12.topic, 0), 0, 32).slices
        assert bytes(record) == T12_BYTES


def test_its_contents_can_be_told_without_opening_it(directory):
    found = inspect_store(directory)
    assert found.log.end == 1200 + len(encode_record(R9))
    assert {(queue.topic, queue.queue_id): queue.messages for queue in found.queues} == {
        place: len(entries) // 40 for place, entries in QUEUES.items()
    }
    assert (found.index.files, found.index.entries) == (1, 4)
