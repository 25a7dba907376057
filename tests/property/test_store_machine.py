"""The store agrees with plain lists, whatever is done to it and wherever it crashes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyromq.errors import OffsetOutOfRange
from pyromq.protocol import sysflag
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.protocol.record import MessageRecord, decode_record
from pyromq.store import GetStatus, MessageStore, PutStatus, StoreConfig, failpoints
from pyromq.store.check.store_check import Severity, check_store
from pyromq.store.disk import Disk
from pyromq.testing.power import abandon

if TYPE_CHECKING:
    from collections.abc import Callable

Queue = tuple[str, int]

FOREVER = 2**62
LONG_AFTER = 4_000_000_000.0  # any real file was made before, and is old enough to be deleted
QUEUES: tuple[Queue, ...] = (
    ("Orders", 0),
    ("Orders", 1),
    ("Payments", 0),
    (SCHEDULE_TOPIC, 1),
    ("%RETRY%" + "g" * 130, 0),
)
TOPICS = sorted({topic for topic, _ in QUEUES})
KEYS = ("a", "b", "c")
# Where the thread that owns the store comes by; in the others nothing can be raised. tests/crash has them all.
OWN = sorted(name for name in failpoints.NAMES if name.split(".")[0] not in ("flush", "upkeep", "checkpoint", "clean"))

queues = st.sampled_from(QUEUES)
messages = st.builds(
    MessageRecord,
    st.just(""),
    st.integers(0, 600).map(bytes) | st.binary(max_size=20),
    st.sampled_from([b"", b"TAGS\x01red", b"TAGS\x01blue\x02DELAY\x011", b"DELAY\x012\x02x\x01y"]),
    sys_flag=st.sampled_from([0, 0, 0, sysflag.PREPARED, sysflag.COMMIT, sysflag.ROLLBACK]),
    reconsume_times=st.integers(0, 3),
)
keys = st.lists(st.sampled_from(KEYS), max_size=2, unique=True)
units = st.lists(st.tuples(queues, st.lists(st.tuples(messages, keys), min_size=1, max_size=4)), min_size=1, max_size=6)


class RoomyDisk(Disk):
    """Always has room, and need not survive a power failure."""

    def used_ratio(self, folder: Path) -> float:
        return 0.1

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...


@dataclass
class Stored:
    """A message as the model knows it."""

    record: MessageRecord  # as it was put
    keys: tuple[str, ...]
    physical: int = -1
    queue_offset: int = -1
    time: int = 0

    @property
    def in_queue(self) -> bool:
        return self.record.sys_flag & sysflag.PREPARED == 0

    def is_like(self, record: MessageRecord) -> bool:
        """Whether this is what was put, wherever it lies now."""
        return (record.topic, record.queue_id, record.body, record.properties, record.reconsume_times) == (
            self.record.topic,
            self.record.queue_id,
            self.record.body,
            self.record.properties,
            self.record.reconsume_times,
        )


@dataclass
class Model:
    """What the store should hold."""

    queues: dict[Queue, list[Stored]] = field(default_factory=lambda: {queue: [] for queue in QUEUES})
    log: list[Stored] = field(default_factory=list)  # everything, in order
    begin: dict[Queue, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))  # offset of the first in the list
    deleted: set[str] = field(default_factory=set)  # topics that a recovery may bring back

    def add(self, stored: Stored, record: MessageRecord) -> None:
        stored.physical, stored.time = record.physical_offset, record.store_timestamp
        self.log.append(stored)
        if stored.in_queue:
            stored.queue_offset = record.queue_offset
            queue = self.queues[record.topic, record.queue_id]
            assert record.queue_offset == self.begin[record.topic, record.queue_id] + len(queue)
            queue.append(stored)


class StoreMachine(RuleBasedStateMachine):
    @initialize(
        log_size=st.sampled_from([1500, 4000, 30_000]),
        queue_entries=st.sampled_from([2, 7, 100]),
        index=st.sampled_from([(1, 5), (10, 40), (50, 500)]),
        safe=st.booleans(),
    )
    def begin(self, log_size: int, queue_entries: int, index: tuple[int, int], safe: bool) -> None:
        self.folder = tempfile.mkdtemp()
        self.now = LONG_AFTER
        self.count = 0
        self.model = Model()
        self.in_flight: list[Stored] = []
        self.config = StoreConfig(
            root=self.folder,
            commit_log_file_size=log_size,
            consume_queue_file_size=20 * queue_entries,
            hash_slots=index[0],
            index_entries=index[1],
            index_safe=safe,
            flush_interval=1,
            reserved_hours=0,
            delete_when="",
            delete_batch=2,
            delete_interval=0,
            delete_queue_interval=0,
        )
        self.store = self.make()
        self.store.open()

    def make(self) -> MessageStore:
        return MessageStore(self.config, disk=RoomyDisk(), clock=lambda: self.now)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.reopen()
            finally:
                self.store.close()
                shutil.rmtree(self.folder)

    # Writing

    def stage(self, units) -> None:
        """Fill in what makes messages different from each other."""
        self.in_flight = []
        self.staged = []
        for (topic, queue_id), items in units:
            batch = []
            for record, keys in items:
                self.count += 1
                properties = [b"UNIQ_KEY\x01u%d" % self.count]
                if keys:
                    properties.append(b"KEYS\x01" + " ".join(keys).encode())
                if record.properties:
                    properties.append(record.properties)
                record = MessageRecord(
                    topic,
                    record.body,
                    b"\x02".join(properties),
                    queue_id=queue_id,
                    sys_flag=record.sys_flag,
                    reconsume_times=record.reconsume_times,
                )
                batch.append(record)
                self.in_flight.append(Stored(record, (f"u{self.count}", *keys)))
            self.staged.append((self.store.queue(topic, queue_id), batch))

    def put_staged(self) -> None:
        results = self.store.put(self.staged)
        assert len(results) == len(self.in_flight)
        for stored, result in zip(self.in_flight, results, strict=True):
            if result.status is PutStatus.MESSAGE_ILLEGAL:
                continue  # a batch larger than a file
            assert result.status is PutStatus.PUT_OK, result
            record = decode_record(self.store.message_at(result.physical_offset))
            assert stored.is_like(record)
            if stored.in_queue:
                assert record.queue_offset == result.queue_offset
            self.model.add(stored, record)
        self.in_flight = []

    @rule(units=units)
    def put(self, units) -> None:
        self.stage(units)
        self.put_staged()

    @rule(seconds=st.sampled_from([-5.0, 0.01, 1.0, 10.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def flush(self) -> None:
        end = int(self.store.log.end)
        self.store.flushed(end).result(10)
        assert self.store.flusher.flushed >= end

    @rule(seconds=st.sampled_from([0, 61]))
    def maintain(self, seconds: int) -> None:
        """After 61 seconds everything goes to the disk."""
        self.now += seconds
        self.store.maintain()
        self.wait_for_threads()

    def wait_for_threads(self) -> None:
        """Let what other threads do not depend on chance: hypothesis must be able to repeat it."""
        self.store.flushed().result(10)
        self.store.flusher.run(lambda: None).result(10)
        self.store._removal.wait()

    @rule(times=st.integers(1, 3))
    def clean(self, times: int) -> None:
        self.store.clean_now(times)
        for _ in range(times):
            self.wait_for_threads()
            self.store.clean()
        self.wait_for_threads()
        self.expire()

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        for queue in QUEUES:
            if queue[0] == topic:
                self.model.queues[queue] = []
                self.model.begin[queue] = 0
        self.model.deleted.add(topic)

    def expire(self) -> None:
        start = int(self.store.log.start)
        self.model.log = [stored for stored in self.model.log if stored.physical >= start]
        for queue, stored in self.model.queues.items():
            kept = [one for one in stored if one.physical >= start]
            self.model.begin[queue] += len(stored) - len(kept)
            self.model.queues[queue] = kept

    # Stopping

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert not Path(self.folder, "abort").exists()
        found = check_store(Path(self.folder), self.config)
        findings = [str(finding) for finding in found if finding.severity is not Severity.NOTE]
        assert not findings, findings
        self.open()

    @rule()
    def crash(self) -> None:
        abandon(self.store)
        self.open()

    def open(self) -> None:
        self.store = self.make()
        self.store.open()
        self.take_over()

    @rule(name=st.sampled_from(OWN), nth=st.integers(1, 3), units=units)
    def crash_while_putting(self, name: str, nth: int, units) -> None:
        self.stage(units)
        self.crash_at(name, nth, self.put_staged)

    @rule(name=st.sampled_from(OWN), nth=st.integers(1, 3))
    def crash_while_maintaining(self, name: str, nth: int) -> None:
        self.now += 61
        self.crash_at(name, nth, self.store.maintain)

    @rule(name=st.sampled_from(OWN), nth=st.integers(1, 2))
    def crash_while_cleaning(self, name: str, nth: int) -> None:
        self.crash_at(name, nth, lambda: self.clean(1))

    @rule(name=st.sampled_from(OWN))
    def crash_while_closing(self, name: str) -> None:
        self.crash_at(name, 1, self.store.close)

    @rule(name=st.sampled_from(OWN), nth=st.integers(1, 3), clean=st.booleans())
    def crash_while_opening(self, name: str, nth: int, clean: bool) -> None:
        if clean:
            self.store.close()
        else:
            abandon(self.store)
        store = self.store = self.make()
        self.crash_at(name, nth, store.open)

    def crash_at(self, name: str, nth: int, action: Callable[[], object]) -> None:
        """Do something that may be cut short by a crash; it crashes afterwards in any case."""
        with (
            failpoints.active(name, failpoints.nth(nth, failpoints.crash)),
            contextlib.suppress(failpoints.Crashed),
        ):
            action()
        abandon(self.store)
        self.open()

    def take_over(self) -> None:
        """After recovery: what was never acknowledged may be there, and what was being deleted may be gone."""
        self.store.queues.correct_min(int(self.store.log.start))
        self.expire()
        waiting, self.in_flight = self.in_flight, []
        at = self.model.log[-1].physical if self.model.log else int(self.store.log.start)
        behind = [record for record in self.log_records() if record.physical_offset > at or not self.model.log]
        # Whole messages, in their order, from the first on.
        for record in behind:
            while waiting and not waiting[0].is_like(record):
                waiting.pop(0)  # refused
            assert waiting, f"nobody put {record}"
            self.model.add(waiting.pop(0), record)
        for topic in self.model.deleted:
            self.take_over_deleted(topic)
        self.everything_is_there()

    def take_over_deleted(self, topic: str) -> None:
        """A topic that was deleted may come back with its old messages, if it got no new ones."""
        for queue in QUEUES:
            if queue[0] == topic and not self.model.queues[queue]:
                found = self.store.queue(*queue)
                old = [stored for stored in self.model.log if stored.in_queue and stored.record.topic == topic]
                self.model.begin[queue] = int(found.min_offset)
                for offset in range(found.min_offset, found.max_offset):
                    (record,) = (decode_record(view) for view in self.store.get(found, offset, 1).slices)
                    self.model.queues[queue] += [stored for stored in old if stored.physical == record.physical_offset]

    def log_records(self) -> list[MessageRecord]:
        records = []
        at = int(self.store.log.start)
        while at < self.store.log.end:
            try:
                record = decode_record(self.store.message_at(at))
            except OffsetOutOfRange:  # the rest of a file
                at += self.config.commit_log_file_size - at % self.config.commit_log_file_size
                continue
            records.append(record)
            at += record.store_size
        return records

    # Reading

    def everything_is_there(self) -> None:
        assert [record.physical_offset for record in self.log_records()] == [one.physical for one in self.model.log]
        for queue, stored in self.model.queues.items():
            offset = self.model.begin[queue]
            for one in stored:
                self.is_at(queue, offset, one)
                offset += 1

    def is_at(self, queue: Queue, offset: int, stored: Stored) -> None:
        found = self.store.get(self.store.queue(*queue), offset, 1)
        assert found.status is GetStatus.FOUND
        (record,) = map(decode_record, found.slices)
        assert stored.is_like(record)
        assert (record.queue_offset, record.physical_offset) == (offset, stored.physical)
        assert found.next_offset == offset + 1

    @invariant()
    def queues_begin_and_end_where_they_should(self) -> None:
        for queue, stored in self.model.queues.items():
            found = self.store.queue(*queue)
            begin = self.model.begin[queue]
            assert (found.min_offset, found.max_offset) == (begin, begin + len(stored))
            assert self.store.get(found, begin + len(stored), 1).status in (
                GetStatus.OFFSET_OVERFLOW_ONE,
                GetStatus.NO_MESSAGE_IN_QUEUE,
            )
            if stored:
                self.is_at(queue, begin, stored[0])
                self.is_at(queue, begin + len(stored) - 1, stored[-1])

    @rule(queue=queues, data=st.data())
    def read_a_queue(self, queue: Queue, data) -> None:
        stored = self.model.queues[queue]
        begin = self.model.begin[queue]
        offset = data.draw(st.integers(begin, begin + len(stored)))
        while offset < begin + len(stored):
            found = self.store.get(self.store.queue(*queue), offset, data.draw(st.integers(1, 40)))
            assert found.status is GetStatus.FOUND
            for view in found.slices:
                assert stored[offset - begin].is_like(decode_record(view))
                offset += 1
            assert found.next_offset == offset

    @rule(queue=queues, data=st.data())
    def read_by_time(self, queue: Queue, data) -> None:
        stored = self.model.queues[queue]
        begin = self.model.begin[queue]
        if stored:
            when = data.draw(st.sampled_from(stored)).time + data.draw(st.integers(-1, 1))
            found = self.store.reader.offset_by_time(self.store.queue(*queue), when)
            assert found == begin + sum(one.time < when for one in stored)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def read_by_key(self, topic: str, key: str) -> None:
        expected = [one.physical for one in self.indexed(topic) if key in one.keys]
        found = [decode_record(view).physical_offset for view in self.store.query(topic, key, 64, 0, FOREVER)]
        # Other keys may have the same hash, and be among the newest 64 that are looked at.
        assert found == expected[len(expected) - len(found) :]
        assert len(found) >= min(len(expected), 20)

    @precondition(lambda self: self.model.log)
    @rule(data=st.data())
    def read_by_offset_and_unique_key(self, data) -> None:
        stored = data.draw(st.sampled_from(self.model.log))
        assert stored.is_like(decode_record(self.store.message_at(stored.physical)))
        found = self.store.query(stored.record.topic, stored.keys[0], 32, 0, FOREVER)
        expected = [stored.physical] if stored in self.indexed(stored.record.topic) else []
        assert [decode_record(view).physical_offset for view in found] == expected

    def indexed(self, topic: str) -> list[Stored]:
        return [
            one
            for one in self.model.log
            if one.record.topic == topic and one.record.sys_flag & sysflag.TRANSACTION_MASK != sysflag.ROLLBACK
        ]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=120, stateful_step_count=40)
