"""Small stores of every kind of message, and the means to damage them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.golden import test_store_vectors as vectors
from tests.golden.test_store_index_vectors import CHECKPOINT as CHECKPOINT_VECTOR
from tests.golden.test_store_index_vectors import INDEX_FILE as INDEX_VECTOR

from pyromq.protocol import ids, sysflag
from pyromq.protocol.record import MessageRecord, encode_blank, encode_record
from pyromq.store import MessageStore, StoreConfig
from pyromq.store.check.store_check import check_store
from pyromq.store.format import ENTRY, segment_name
from pyromq.store.index.index_file import Geometry
from pyromq.store.scan import ScannedRecord, scan

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_700_000_000_000
LOG = 2048
GEOMETRY = Geometry(slots=20, entries=60)
LONG_TOPIC = "%RETRY%" + "g" * 130
V6 = ids.encode_host("2001:db8::1", 10911)

# Where fields lie in a record with two IPv4 hosts.
SIZE_AT, MAGIC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_AT, SYS_FLAG_AT, STORE_TIME_AT, BODY_SIZE_AT, BODY_AT = (
    0, 4, 12, 20, 28, 36, 56, 84, 88,
)  # fmt: skip


def config(root: Path, **changes) -> StoreConfig:
    return StoreConfig(
        root=str(root),
        **{
            "commit_log_file_size": LOG,
            "consume_queue_file_size": 200,
            "hash_slots": GEOMETRY.slots,
            "index_entries": GEOMETRY.entries,
            **changes,
        },
    )


class Clock:
    """A second goes by with every look at it."""

    def __init__(self, now: float = T0 / 1000) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1
        return self.now


def opened(root: Path, clock: Clock | None = None, **changes) -> MessageStore:
    store = MessageStore(config(root, **changes), clock=clock or Clock())
    store.open()
    return store


def message(text: str = "", body: bytes = b"hello", **fields) -> MessageRecord:
    """Properties as `A=1;B=2`."""
    return MessageRecord("", body, text.replace("=", "\x01").replace(";", "\x02").encode(), **fields)


def fill(store: MessageStore) -> None:
    """24 messages of every kind there is, in seven queues; their log has three files."""
    for number in range(12):
        text = f"TAGS=red;KEYS=k{number} k{number % 3};UNIQ_KEY=U{number}"
        store.put([(store.queue("Orders", number % 2), [message(text, b"%d" % number * 70)])])
    store.put([(store.queue("Orders", 1), [message("TAGS=blue"), message("KEYS=batch", b""), message()])])
    store.put([(store.queue("SCHEDULE_TOPIC_XXXX", 2), [message("DELAY=3;REAL_TOPIC=Orders;REAL_QID=0;TAGS=red")])])
    for kind in (sysflag.PREPARED, sysflag.COMMIT, sysflag.ROLLBACK):
        store.put([(store.queue("Payments", 0), [message(f"UNIQ_KEY=P{kind}", sys_flag=kind)])])
    store.put([(store.queue("Six", 0), [message("KEYS=v6", born_host=V6, store_host=V6)])])
    store.put([(store.queue(LONG_TOPIC, 0), [message("KEYS=long")])])
    for number in range(3):
        store.put([(store.queue("Plain", number % 2), [message()])])


def found(root: Path, **changes) -> list[str]:
    """All findings as text, paths relative to the store."""
    return [str(finding).replace(f"{root}/", "") for finding in check_store(root, config(root, **changes))]


def records(root: Path) -> list[ScannedRecord]:
    return [
        record
        for path in sorted((root / "commitlog").iterdir())
        for record in scan(path.read_bytes(), 0, int(path.name), check_crc=True)
    ]


def log_end(root: Path) -> int:
    last = records(root)[-1]
    return last.physical_offset + last.size


def log_file(offset: int) -> str:
    return f"commitlog/{segment_name(offset - offset % LOG)}"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def write_log(root: Path, offset: int, data: bytes) -> None:
    overwrite(root / log_file(offset), offset % LOG, data)


def flip(path: Path, at: int, mask: int = 1) -> None:
    data = path.read_bytes()
    overwrite(path, at, bytes([data[at] ^ mask]))


def flip_log(root: Path, offset: int, mask: int = 1) -> None:
    flip(root / log_file(offset), offset % LOG, mask)


def queue_file(root: Path, topic: str = "Orders", queue_id: int = 1, start: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / segment_name(start)


def write_entry(root: Path, number: int, data: bytes, topic: str = "Orders", queue_id: int = 1) -> None:
    """Overwrite an entry of a queue that has one file."""
    overwrite(queue_file(root, topic, queue_id), number * ENTRY.size, data)


def index_path(root: Path) -> Path:
    (path,) = (root / "index").iterdir()
    return path


def in_queue(root: Path, topic: str = "Orders", queue_id: int = 1) -> list[ScannedRecord]:
    return [record for record in records(root) if (record.topic, record.queue_id) == (topic, queue_id)]


def lay_out_vectors(root: Path) -> None:
    """The store of the vectors T1 to T11 in docs/spec/store.md 11."""
    first = b"".join(getattr(vectors, f"R{number}_BYTES") for number in range(1, 9))
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / segment_name(0)).write_bytes((first + encode_blank(1200 - len(first))).ljust(1200, b"\0"))
    (root / "commitlog" / segment_name(1200)).write_bytes(encode_record(vectors.R9).ljust(1200, b"\0"))
    entries = {
        "TestTopic/3": (
            "0000000000000000000000700000000000000000 0000000000000070000000b6ffffffffc847df78"
            "00000000000004b0000000690000000000000000"
        ),
        "TestV6/0": "000000000000012600000084000000000027a807",
        "TestTopic/2": (
            "00000000000001aa000000770000000000000041 0000000000000221000000710000000000000000"
            "00000000000002920000007a0000000000000000"
        ),
        "SCHEDULE_TOPIC_XXXX/2": "000000000000030c0000009a0000018bcfe59f2b",
        "TestTopic/0": "00000000000003a6000000730000000000000000",
    }
    for queue, text in entries.items():
        (root / "consumequeue" / queue).mkdir(parents=True)
        (root / "consumequeue" / queue / segment_name(0)).write_bytes(bytes.fromhex(text).ljust(200, b"\0"))
    (root / "index").mkdir()
    (root / "index" / "20231114221320000").write_bytes(INDEX_VECTOR)
    (root / "checkpoint").write_bytes(CHECKPOINT_VECTOR)
