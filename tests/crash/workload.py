"""What a store is put through before it crashes: messages of every kind, upkeep, clean-ups, reads, all by chance.

Every message can be recognised: its UNIQ_KEY ends in a digest of all the rest of it. So whatever a store serves can be
told to be whole, acknowledged or not.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.protocol.record import MessageRecord
from pyromq.store import FlushDiskType, GetStatus, MessageStore, PutStatus, StoreConfig
from pyromq.store.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from pyromq.store.put import Unit

QUEUES = (
    ("Orders", 0),
    ("Orders", 1),
    ("Orders", 2),
    ("Payments", 0),
    ("Ünïcode", 7),
    ("%RETRY%" + "g" * 130, 0),  # too long for a record of version 1
    (SCHEDULE_TOPIC, 0),
    (SCHEDULE_TOPIC, 2),
    ("RMQ_SYS_TRANS_HALF_TOPIC", 0),
)
TAGS = ("refund", "new", "Ä")
KEYS = tuple(f"order{n}" for n in range(20))
HOSTS = (bytes((10, 0, 0, 1, 0, 0, 42, 159)), bytes(range(20)))

FLUSH_PATIENCE = 30  # seconds; a store that takes longer hangs


class Opened(msgspec.Struct, tag=True, frozen=True):
    """The store is open and holds the log from `start` to `end`."""

    start: int
    end: int


class Acknowledged(msgspec.Struct, tag=True, frozen=True):
    """A message that the producer was told of. `queue_offset` is -1 for one that is in no queue."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    unique: str
    keys: tuple[str, ...]
    time: int


class Cleaning(msgspec.Struct, tag=True, frozen=True):
    """Messages that lie before `start` may be deleted from now on."""

    start: int


class Flushed(msgspec.Struct, tag=True, frozen=True):
    """The log up to `end` survives a power failure, so the store said."""

    end: int


Event: TypeAlias = Opened | Acknowledged | Cleaning | Flushed


class Clock:
    """Goes on with the work, not with the time of day, and is set back now and then."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class RoomyDisk(Disk):
    """The real disk, as if there were always room on it."""

    def used_ratio(self, folder: Path) -> float:
        return 0.1


class UnsyncedDisk(RoomyDisk):
    """For stores that will see neither a crash nor a power failure; syncing takes most of the time otherwise."""

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...


def random_config(root: Path, random: Random, flush: FlushDiskType | None = None) -> StoreConfig:
    """Small files of odd sizes, so that everything rolls often."""
    return StoreConfig(
        root=str(root),
        commit_log_file_size=random.choice((12_000, 16_384, 40_001, 65_536)),
        consume_queue_file_size=20 * random.choice((3, 10, 37, 100, 500)),
        hash_slots=random.choice((3, 16, 100, 2000)),
        index_entries=random.choice((10, 60, 300, 1500)),
        index_safe=random.random() < 0.3,
        flush=flush or random.choice(tuple(FlushDiskType)),
        flush_interval=random.choice((1, 5, 50)),
        flush_thorough_interval=random.choice((1, 50, 10_000)),
        queue_flush_thorough_interval=random.choice((500, 2_000, 10_000, 60_000)),
        reserved_hours=0,
        delete_batch=random.choice((1, 3, 10)),
        delete_when="",
        delete_interval=0,
        delete_queue_interval=0,
    )


def describe(config: StoreConfig) -> str:
    """What is special about it."""
    plain = StoreConfig(root=config.root)
    return str({f.name: value for f in fields(config) if (value := getattr(config, f.name)) != getattr(plain, f.name)})


def digest(record: MessageRecord, properties: Sequence[str]) -> str:
    """Of everything in a message that its producer decides, but for its UNIQ_KEY."""
    whole = hashlib.blake2b(digest_size=8)
    kind = record.sys_flag & sysflag.TRANSACTION_MASK
    for part in (record.topic, record.queue_id, record.flag, kind, record.body, record.born_host, *properties):
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"/")
    return whole.hexdigest()


def is_whole(record: MessageRecord) -> bool:
    """Whether nothing of a message is missing or changed."""
    pairs = record.properties.decode(errors="replace").split("\x02")
    unique = [pair for pair in pairs if pair.startswith("UNIQ_KEY\x01")]
    return len(unique) == 1 and unique[0].endswith(digest(record, [pair for pair in pairs if pair not in unique]))


class Messages:
    """Makes messages, no two of them alike."""

    def __init__(self, random: Random, prefix: str) -> None:
        self._random = random
        self._prefix = prefix
        self._count = 0

    def make(self, topic: str, queue_id: int, *, in_batch: bool = False) -> MessageRecord:
        random = self._random
        self._count += 1
        size = int(8192 ** random.random()) if random.random() < 0.9 else random.choice((0, 8192))
        body = random.randbytes(size) if random.random() < 0.9 else bytes(size)
        pairs = []
        if random.random() < 0.6:
            pairs.append(f"{props.TAGS}\x01{random.choice(TAGS)}")
        if random.random() < 0.6:
            pairs.append(f"{props.KEYS}\x01{' '.join(random.sample(KEYS, random.randint(1, 3)))}")
        if topic == SCHEDULE_TOPIC:
            pairs.append(f"{props.DELAY}\x01{queue_id + 1}")
        if random.random() < 0.1:
            pairs.append("padding\x01" + "x" * random.randint(1, 3000))
        kinds = (sysflag.NOT_TRANSACTION,) * 6 + (sysflag.PREPARED, sysflag.COMMIT, sysflag.ROLLBACK)
        record = MessageRecord(
            topic,
            body,
            queue_id=queue_id,
            flag=random.getrandbits(31),
            sys_flag=sysflag.NOT_TRANSACTION if in_batch else random.choice(kinds),
            born_host=random.choice(HOSTS),
            store_host=random.choice(HOSTS),
        )
        unique = f"UNIQ_KEY\x01{self._prefix}{self._count:08d}{digest(record, pairs)}"
        pairs.insert(random.randint(0, len(pairs)), unique)
        return msgspec.structs.replace(record, properties="\x02".join(pairs).encode())


def acknowledged(record: MessageRecord, result_offset: int, physical: int, size: int, stored: int) -> Acknowledged:
    in_queue = record.sys_flag & sysflag.PREPARED == 0
    return Acknowledged(
        record.topic,
        record.queue_id,
        result_offset if in_queue else -1,
        physical,
        size,
        record.find_property(props.UNIQ_KEY) or "",
        tuple((record.find_property(props.KEYS) or "").split()),
        stored,
    )


class Workload:
    """Uses a store as a broker would. `tell` learns what happened, after it happened."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        random: Random,
        tell: Callable[[Sequence[Event]], None],
        prefix: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._tell = tell
        self._messages = Messages(random, prefix)
        self._keep = random.randint(3, 30)  # files of the log

    def step(self) -> None:
        """Do the next thing. Errors of the disk come out as they are."""
        random = self._random
        self._clock.now += random.choice((0.0, 0.01, 0.1, 0.5, 2.0))
        if random.random() < 0.01:
            self._clock.now += random.choice((-10.0, 30.0))
        dice = random.random()
        if dice < 0.75:
            self.put()
        elif dice < 0.93:
            self._store.maintain()
        elif dice < 0.98:
            self._read()
        elif len(self._store.log.segments) > self._keep:
            self._clean()

    def put(self) -> None:
        """Store some messages; StoreNotWritable if the store takes none."""
        random = self._random
        units: list[Unit] = []
        records: list[MessageRecord] = []
        left = random.choice((1, 1, 2, 8, random.randint(1, 64)))
        while left > 0:
            topic, queue_id = random.choice(QUEUES)
            count = min(left, random.choice((1, 1, 1, 3, 10)))
            batch = [self._messages.make(topic, queue_id, in_batch=count > 1) for _ in range(count)]
            units.append((self._store.queue(topic, queue_id), batch))
            records += batch
            left -= count
        results = self._store.put(units)
        assert len(results) == len(records)
        stored = [
            acknowledged(record, result.queue_offset, result.physical_offset, result.size, result.store_timestamp)
            for record, result in zip(records, results, strict=True)
            if result.status is PutStatus.PUT_OK
        ]
        if self._store.config.flush is FlushDiskType.SYNC_FLUSH:
            end = int(self._store.log.end)
            self._store.flushed(end).result(FLUSH_PATIENCE)
            self._tell([Flushed(end), *stored])
        else:
            self._tell([*stored, Flushed(self._store.flusher.flushed)])

    def _read(self) -> None:
        random = self._random
        queue = self._store.queue(*random.choice(QUEUES))
        if queue.max_offset > queue.min_offset:
            found = self._store.get(queue, random.randrange(queue.min_offset, queue.max_offset), 32)
            assert found.status is GetStatus.FOUND, found
        self._store.query(queue.topic, random.choice(KEYS), 32, 0, 2**62)

    def _clean(self) -> None:
        segments = self._store.log.segments
        self._tell([Cleaning(segments[min(self._store.config.delete_batch, len(segments) - 1)].start)])
        self._store.clean_now(1)
        self._store.clean()


def start_time() -> float:
    """Ahead of the time of day: files are as old as the real clock says, and must not be from the future."""
    return time.time() + 60
