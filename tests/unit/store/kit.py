"""Small stores for tests: files of a few kilobytes, a clock that stands still, a disk that can fail."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING, Any

from pyromq.protocol.record import MessageRecord, decode_record
from pyromq.store import GetStatus, MessageStore, PutStatus, StoreConfig
from pyromq.store.check.store_check import Severity, check_store
from pyromq.testing import Clock, FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyromq.store import PutResult
    from pyromq.store.queues.consume_queue import ConsumeQueue

T0 = 1_700_000_000_000
FOREVER = 2**62

SIZE_OF_EMPTY = 92  # bytes of a record with a topic of one letter and nothing else


def small(root: Path, **changes: Any) -> StoreConfig:
    """Settings of a store whose files are soon full: 10 entries to a queue file, 100 to an index file."""
    defaults: dict[str, Any] = {
        "root": str(root),
        "commit_log_file_size": 4096,
        "consume_queue_file_size": 200,
        "hash_slots": 20,
        "index_entries": 100,
        "delete_interval": 0,
        "delete_queue_interval": 0,
    }
    return StoreConfig(**defaults | changes)


def message(
    body: bytes = b"hello", *, topic: str = "T", tags: str = "", keys: str = "", **fields: Any
) -> MessageRecord:
    pairs = {"KEYS": keys, "TAGS": tags}
    properties = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items() if value).encode()
    return MessageRecord(topic, body, **{"properties": properties, **fields})


def sized(size: int, fill: bytes = b"x") -> MessageRecord:
    """A message of topic T whose record takes `size` bytes."""
    return message(fill * (size - SIZE_OF_EMPTY))


def put(store: MessageStore, *bodies: bytes, topic: str = "T", queue_id: int = 0, **fields: Any) -> list[PutResult]:
    """Store one message per body, each on its own; all must be taken."""
    queue = store.queue(topic, queue_id)
    results = [store.put([(queue, [message(body, topic=topic, **fields)])])[0] for body in bodies]
    assert [result.status for result in results] == [PutStatus.PUT_OK] * len(bodies), results
    return results


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"m%d" % number for number in range(start, stop)]


def records(slices: Iterable[memoryview]) -> list[MessageRecord]:
    return [decode_record(record) for record in slices]


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0, offset: int | None = None) -> list[bytes]:
    """All messages of a queue, pulled one answer after the other; each must have the offset it was found at."""
    queue = store.queue(topic, queue_id)
    found = []
    at = int(queue.min_offset if offset is None else offset)
    while (result := store.get(queue, at, 32)).status not in (
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
    ):
        assert result.next_offset > at, result
        for record in records(result.slices):
            assert at <= record.queue_offset < result.next_offset
            assert (record.topic, record.queue_id) == (topic, queue_id)
            found.append(record.body)
        at = result.next_offset
    return found


def files_of(root: Path) -> dict[Path, bytes]:
    """The content of every file but the lock, which a process loses when it closes any descriptor of it."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


def state(store: MessageStore) -> dict[tuple[str, int], tuple[int, int, list[bytes]]]:
    """What a reader can see of a store: the ends and the messages of every queue."""
    queues = [queue for queue in store.queues if queue.max_offset]
    return {
        (queue.topic, queue.queue_id): (
            queue.min_offset,
            queue.max_offset,
            bodies(store, queue.topic, queue.queue_id),
        )
        for queue in sorted(queues, key=_name)
    }


def _name(queue: ConsumeQueue) -> tuple[str, int]:
    return queue.topic, queue.queue_id


class Stores:
    """Opens stores in one folder, and sees to it that each is closed and sound when the test is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.disk = FaultyDisk()
        self.disk.used = 0.1
        self._open: list[MessageStore] = []
        self._roots: dict[Path, StoreConfig] = {}
        self._copies = 0

    @property
    def root(self) -> Path:
        return self.folder / "store"

    def config(self, **changes: Any) -> StoreConfig:
        return small(changes.pop("root", self.root), **changes)

    def open(self, *, disk: FaultyDisk | None = None, memory: int | None = None, **changes: Any) -> MessageStore:
        """A store in `root`, with these settings."""
        return self.start(self.config(**changes), disk=disk, memory=memory)

    def start(self, config: StoreConfig, *, disk: FaultyDisk | None = None, memory: int | None = None) -> MessageStore:
        store = MessageStore(config, disk=disk or self.disk, clock=self.clock, memory=memory)
        store.open()
        self._open.append(store)
        self._roots[store.root] = config
        return store

    def close(self, store: MessageStore) -> None:
        store.close()
        self._open.remove(store)

    def reopen(self, store: MessageStore) -> MessageStore:
        """The store after a clean stop and a start."""
        self.close(store)
        return self.start(store.config)

    def crash(self, store: MessageStore) -> MessageStore:
        """What a new process finds if the store's is killed now: everything it wrote, nothing that it only held.

        The store itself goes on, in its own folder.
        """
        return self.start(self.crashed_copy(store))

    def crashed_copy(self, store: MessageStore) -> StoreConfig:
        """As `crash`, before it is opened."""
        self._copies += 1
        copy = self.folder / f"copy{self._copies}"
        # Not the lock: a process that closes any descriptor of it has lost it.
        shutil.copytree(store.root, copy, ignore=shutil.ignore_patterns("lock"))
        return dataclasses.replace(store.config, root=str(copy))

    def drop_oldest_files(self, store: MessageStore) -> list[Path]:
        """Have a round of clean-up delete up to ten files of the log, as on a disk that is nearly full."""
        self.sync_all(store)
        before, self.disk.used = self.disk.used, 0.86
        gone = store.clean()
        store._removal.wait()
        self.disk.used = before
        return gone

    def sync_all(self, store: MessageStore) -> None:
        """Bring everything to the disk. What is not there is not deleted."""
        store._upkeep.hurry()
        store.maintain()
        while store._upkeep._round_mark is not None:
            store.maintain()
        assert store._upkeep._syncing is not None
        store._upkeep._syncing.result(5)

    def is_damaged(self, root: Path | None = None) -> None:
        """The test leaves damage behind that no recovery can mend; the check would find it."""
        self._roots.pop(root or self.root, None)

    def finish(self) -> None:
        self.disk.heal()
        self.disk.release_syncs()
        for store in self._open:
            store.close()
        for root, config in self._roots.items():
            found = [str(finding) for finding in check_store(root, config) if finding.severity is not Severity.NOTE]
            assert found == [], found
