"""Scans of store directories, without Spark: the parts are planned and read one after the other."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.golden.test_store_directory import LOG, RECORDS
from tests.golden.test_store_vectors import R9
from tests.unit.spark.log.scans import DELAYED, HALF, OP, T0, fill, internal_messages, message, misleading_body, scan
from tests.unit.spark.rows import plain_values

from pyromq.errors import StoreError
from pyromq.protocol.record import MessageRecord, decode_record, encode_record
from pyromq.spark import options as known
from pyromq.spark.decode import general_columns
from pyromq.spark.log.files import first_since, log_end, log_files, next_record
from pyromq.spark.log.plan import QueuePart, plan
from pyromq.spark.log.reader import read
from pyromq.spark.schema import ARROW_SCHEMA

PLACES = pa.schema([ARROW_SCHEMA.field(name) for name in ("topic", "queueId", "queueOffset", "physicalOffset", "body")])
TOPICS = ("orders", "payments", "refunds")


def mixed(count: int) -> list[MessageRecord]:
    return [message(number, TOPICS[number % 3], queue_id=number % 2) for number in range(count)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics of two queues each, in several files of 16 KiB; nobody changes it."""
    root = tmp_path_factory.mktemp("scan") / "store"
    fill(root, mixed(300))
    return root


@pytest.fixture
def damaged(store: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be damaged."""
    shutil.copytree(store, tmp_path / "store")
    return tmp_path / "store"


def log_paths(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.scenario("spark 28")
def test_a_scan_gives_every_message_with_the_fields_of_its_record(store):
    rows = scan(store)
    files = log_files(store)
    expected = []
    for file in files:
        data = Path(file.path).read_bytes()
        pos = 0
        while pos < len(data) and file.start + pos < log_end(files) and data[pos + 4 : pos + 5] == b"\xda":
            batch, pos, _ = general_columns.decode(data, ARROW_SCHEMA, broker_name="broker-a", start=pos, max_rows=1)
            expected += batch.to_pylist()
    assert len(rows) == 300
    assert rows == expected
    assert [row["body"] for row in rows] == [b"body %d" % number for number in range(300)]


@pytest.mark.scenario("spark 28")
@pytest.mark.parametrize("topics", [TOPICS, TOPICS[:1]])
def test_by_log_and_by_queue_the_rows_are_the_same(store, topics):
    wanted = {"topics": ",".join(topics)}
    by_log, by_queue = scan(store, via="log", **wanted), scan(store, via="queue", **wanted)
    assert by_log == by_queue
    assert len(by_log) == 100 * len(topics)


def test_a_few_topics_of_many_are_read_by_their_queues_and_all_of_them_by_the_log(store):
    def ways(**options):
        parsed = known.parse(known.LogOptions, {"path": str(store), **options})
        return {type(part) for part in plan(parsed)}

    assert ways(topics="orders") == {QueuePart}
    assert QueuePart not in ways(topics=",".join(TOPICS))
    assert QueuePart not in ways()


@pytest.mark.parametrize("kind", ["lost", "batches"])
def test_topics_whose_queues_cannot_be_read_are_read_along_the_log(damaged, kind):
    whole = scan(damaged, PLACES, topics="orders")
    folder = damaged / "consumequeue" / "orders"
    if kind == "batches":
        (damaged / "batchconsumequeue").mkdir()
        folder.rename(damaged / "batchconsumequeue" / "orders")
    else:
        shutil.rmtree(folder)
    assert scan(damaged, PLACES, topics="orders") == whole
    assert scan(damaged, PLACES, topics="orders,payments") == scan(damaged, PLACES, topics="orders,payments", via="log")


@pytest.mark.parametrize("via", ["log", "queue"])
@pytest.mark.parametrize("size", ["1k", "3k", "7000", "1m"])
def test_the_size_of_the_parts_changes_no_rows(store, via, size):
    assert scan(store, PLACES, via=via, partitionBytes=size) == scan(store, PLACES)


@pytest.mark.scenario("spark 29")
@pytest.mark.parametrize("parts", [1, 7, 64])
def test_cuts_inside_of_bodies_that_look_like_records_lose_and_double_nothing(tmp_path, parts):
    records = [message(number, body=misleading_body(number) * 10) for number in range(200)]
    fill(tmp_path, records, commit_log_file_size=1 << 20)
    size = log_end(log_files(tmp_path))
    rows = scan(tmp_path, PLACES, partitionBytes=str(-(-size // parts)))
    assert [row["body"] for row in rows] == [record.body for record in records]


@pytest.mark.scenario("spark 29")
def test_a_copy_of_a_record_inside_of_a_body_is_not_taken_for_one(tmp_path):
    inner = encode_record(message(1, body=b"inner"))
    records = [message(number, body=inner * 5) for number in range(50)]
    fill(tmp_path, records, commit_log_file_size=1 << 20)
    assert len(scan(tmp_path, PLACES, partitionBytes="100")) == 50


def test_a_search_for_a_record_ends_where_it_is_told_to(store):
    data = log_paths(store)[0].read_bytes()
    first, second = (row["physicalOffset"] for row in scan(store, PLACES)[:2])
    assert next_record(data, first, 0, first) is None
    assert next_record(data, first, 0, first + 1) == first
    assert next_record(data, first + 1, 0, second) is None
    assert next_record(data, first + 1, 0, second + 1) == second


@pytest.mark.parametrize(("since", "expected"), [(0, 0), (T0, 0), (T0 + 1, 1), (T0 + 150, 150), (T0 + 299, 299)])
def test_the_first_record_since_a_time_is_found(store, since, expected):
    rows = scan(store, PLACES)
    files = log_files(store)
    assert first_since(files, since, log_end(files)) == rows[expected]["physicalOffset"]
    assert first_since(files, T0 + 300, log_end(files)) == log_end(files)


@pytest.mark.scenario("spark 30")
@pytest.mark.parametrize("partition_bytes", ["1m", "1000"])
def test_a_record_with_a_broken_size_fails_the_scan_or_ends_the_file_or_is_skipped(damaged, partition_bytes, caplog):
    whole = scan(damaged, PLACES)
    first, second = log_paths(damaged)[:2]
    start = int(second.name)
    victim = next(row for row in whole if row["physicalOffset"] > start + 3000)
    at = victim["physicalOffset"] - start
    overwrite(second, at, (1 << 30).to_bytes(4, "big"))
    options = {"partitionBytes": partition_bytes, "via": "log"}

    with pytest.raises(StoreError, match=f"{second.name}, byte {at}: record of {1 << 30} bytes"):
        scan(damaged, PLACES, **options)

    with caplog.at_level(logging.WARNING):
        rows = scan(damaged, PLACES, onCorrupt="skip", **options)
    assert rows == [row for row in whole if row != victim]
    assert f"{second.name}, byte {at}: " in caplog.text

    end = start + first.stat().st_size
    rows = scan(damaged, PLACES, onCorrupt="stop", **options)
    assert rows == [row for row in whole if not victim["physicalOffset"] <= row["physicalOffset"] < end]


@pytest.mark.scenario("spark 30")
def test_a_torn_last_record_is_damage_and_a_tail_of_zeros_is_the_end(damaged):
    whole = scan(damaged, PLACES)
    last = [path for path in log_paths(damaged) if int(path.name) <= whole[-1]["physicalOffset"]][-1]
    at = whole[-1]["physicalOffset"] - int(last.name)
    overwrite(last, at + 60, bytes(last.stat().st_size - at - 60))
    with pytest.raises(StoreError, match=rf"{last.name}, byte {at}: "):
        scan(damaged, PLACES)
    assert scan(damaged, PLACES, onCorrupt="stop") == whole[:-1]
    assert scan(damaged, PLACES, onCorrupt="skip") == whole[:-1]
    overwrite(last, at, bytes(100))
    assert scan(damaged, PLACES) == whole[:-1]


@pytest.mark.scenario("spark 30")
def test_zeros_in_the_middle_of_the_log_are_damage(damaged):
    whole = scan(damaged, PLACES)
    second = log_paths(damaged)[1]
    hole = [row for row in whole if row["physicalOffset"] >= int(second.name)][5:9]
    at = hole[0]["physicalOffset"] - int(second.name)
    overwrite(second, at, bytes(hole[-1]["physicalOffset"] - hole[0]["physicalOffset"] + 10))
    with pytest.raises(StoreError, match=rf"byte {at}: zeros where a record should be"):
        scan(damaged, PLACES)
    assert scan(damaged, PLACES, onCorrupt="skip") == [row for row in whole if row not in hole]


@pytest.mark.scenario("spark 30")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_a_flipped_byte_of_a_body_shows_only_when_crcs_are_checked(damaged, via):
    whole = scan(damaged, PLACES)
    victim = whole[120]
    path = [path for path in log_paths(damaged) if int(path.name) <= victim["physicalOffset"]][-1]
    data = path.read_bytes()
    at = data.index(victim["body"], victim["physicalOffset"] - int(path.name))
    overwrite(path, at, b"B")
    assert len(scan(damaged, PLACES, via=via)) == 300
    place = f"message {victim['queueOffset']} of queue {victim['queueId']} of {victim['topic']}"
    with pytest.raises(StoreError, match=f"body does not match its CRC; it is {place}"):
        scan(damaged, PLACES, via=via, verifyCrc="true")
    assert scan(damaged, PLACES, via=via, verifyCrc="true", onCorrupt="skip") == [row for row in whole if row != victim]


@pytest.mark.scenario("spark 31")
@pytest.mark.parametrize("via", ["log", "queue"])
def test_what_waits_inside_the_broker_is_shown_only_when_asked_for(tmp_path, via):
    fill(tmp_path, internal_messages())

    def seen(**options):
        return [int(row["body"].removeprefix(b"body ")) for row in scan(tmp_path, PLACES, via=via, **options)]

    assert seen() == [0, 5, 8]
    # Those that were prepared or rolled back are in no queue.
    assert seen(includeInternal="true") == ([*range(9)] if via == "log" else [0, 1, 2, 3, 4, 5, 8])
    assert seen(topics=f"{HALF},{OP},{DELAYED}") == [1, 2, 3]


@pytest.mark.parametrize("via", ["log", "queue"])
def test_times_and_physical_offsets_bound_a_scan(store, via):
    rows = scan(store)

    def bounded(**options):
        return scan(store, PLACES, via=via, **{name: str(value) for name, value in options.items()})

    def expected(found):
        return [{name: row[name] for name in PLACES.names} for row in found]

    assert bounded(startingTimestamp=T0 + 50, endingTimestamp=T0 + 260) == expected(rows[50:260])
    assert bounded(startingTimestamp=T0 + 299) == expected(rows[299:])
    assert bounded(startingTimestamp=T0 + 1000) == []
    low, high = rows[77]["physicalOffset"], rows[200]["physicalOffset"]
    assert bounded(startingPhysicalOffset=low, endingPhysicalOffset=high) == expected(rows[77:200])
    assert bounded(startingPhysicalOffset=low + 1, endingPhysicalOffset=high + 1) == expected(rows[78:201])


def test_a_file_that_was_deleted_after_planning_is_an_error_or_a_gap(damaged):
    whole = scan(damaged, PLACES)
    parsed = known.parse(known.LogOptions, {"path": str(damaged)})
    parts = plan(parsed)
    first, second = log_paths(damaged)[:2]
    first.unlink()
    with pytest.raises(StoreError, match=f"{first.name} was deleted"):
        [*read(parts[0], parsed, PLACES)]
    tolerant = known.parse(known.LogOptions, {"path": str(damaged), "failOnDataLoss": "false"})
    rows = [row for part in parts for batch in read(part, tolerant, PLACES) for row in batch.to_pylist()]
    assert rows == [row for row in whole if row["physicalOffset"] >= int(second.name)]


def test_a_directory_that_apache_brokers_served_reads_as_its_vectors_say(tmp_path):
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for start, data in LOG.items():
        (folder / f"{start:020d}").write_bytes(data)
    rows = scan(tmp_path, includeInternal="true")
    assert len(rows) == len(RECORDS) + 1
    assert rows[0]["body"] == decode_record(RECORDS[0]).body
    assert rows[-1]["body"] == R9.body


def test_what_is_stored_after_planning_is_not_part_of_the_scan(tmp_path):
    fill(tmp_path, mixed(10))
    parsed = known.parse(known.LogOptions, {"path": str(tmp_path)})
    parts = plan(parsed)
    fill(tmp_path, mixed(5))
    assert sum(batch.num_rows for part in parts for batch in read(part, parsed, PLACES)) == 10
    assert len(scan(tmp_path, PLACES)) == 15


def test_the_end_of_the_log_is_found_behind_a_message_of_zeros(tmp_path):
    fill(tmp_path, [message(0), message(1, body=bytes(2_000_000)), message(2)], commit_log_file_size=16 << 20)
    assert [len(row["body"]) for row in scan(tmp_path, PLACES)] == [6, 2_000_000, 6]


@pytest.mark.scenario("spark 43")
def test_batches_stay_small_when_messages_are_large(tmp_path):
    fill(tmp_path, [message(number, body=os.urandom(3 << 20)) for number in range(9)], commit_log_file_size=64 << 20)
    parsed = known.parse(known.LogOptions, {"path": str(tmp_path)})
    before = pa.total_allocated_bytes()
    rows, most = 0, 0
    for part in plan(parsed):
        for batch in read(part, parsed, ARROW_SCHEMA):
            rows += batch.num_rows
            assert batch.nbytes <= 8 << 20
            most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 9
    assert most < 20 << 20


@pytest.mark.parametrize(("time", "kept"), [(0, 0), (T0 + 150, 25), (T0 + 299, 50)])
def test_messages_whose_entries_a_running_broker_has_not_written_yet_are_read_from_the_log(damaged, time, kept):
    whole = scan(damaged, PLACES, topics="orders")
    (damaged / "abort").write_bytes(b"")
    overwrite(damaged / "checkpoint", 8, time.to_bytes(8, "big"))
    for path in (damaged / "consumequeue" / "orders").glob("*/*"):
        at = min(max(kept * 20 - int(path.name), 0), path.stat().st_size)
        overwrite(path, at, bytes(path.stat().st_size - at))
    for via in ("queue", "auto"):
        assert scan(damaged, PLACES, topics="orders", via=via) == whole


def test_a_path_without_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a store: it has no commitlog folder"):
        scan(tmp_path)


def test_an_empty_store_has_no_parts(tmp_path):
    fill(tmp_path, [])
    assert scan(tmp_path) == []


def test_rows_of_a_scan_have_times_of_the_store(store):
    parsed = known.parse(known.LogOptions, {"path": str(store)})
    (batch, *_) = [batch for part in plan(parsed) for batch in read(part, parsed, ARROW_SCHEMA)]
    assert plain_values(batch)[0]["storeTimestamp"] == T0 * 1000
    assert plain_values(batch)[0]["brokerName"] is None
