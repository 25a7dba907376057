"""A store made for scans, and scans of it without Spark."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.unit.store.kit import small

from pyromq.protocol import sysflag
from pyromq.protocol.record import MAGIC_V1, MessageRecord
from pyromq.spark import options as known
from pyromq.spark.log.plan import plan
from pyromq.spark.log.reader import read
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.store import MessageStore, PutStatus
from pyromq.testing import Clock

if TYPE_CHECKING:
    from pathlib import Path

HOST = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HALF, OP, DELAYED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
T0 = 1_700_000_000_000


def message(number: int, topic: str = "orders", body: bytes | None = None, **fields: Any) -> MessageRecord:
    properties = f"KEYS\x01k{number}\x02TAGS\x01{'AB'[number % 2]}\x02UNIQ_KEY\x01{number:032X}".encode()
    body = b"body %d" % number if body is None else body
    return MessageRecord(topic, body, properties, born_host=HOST, store_host=HOST, born_timestamp=T0 + number, **fields)


def fill(root: Path, records: list[MessageRecord], **changes: Any) -> None:
    """A store at `root` with these messages, each a millisecond after the other, closed again."""
    clock = Clock()
    store = MessageStore(small(root, **{"commit_log_file_size": 16384, **changes}), clock=clock)
    store.open()
    try:
        for record in records:
            (result,) = store.put([(store.queue(record.topic, record.queue_id), [record])])
            assert result.status is PutStatus.PUT_OK
            clock.advance(0.001)
    finally:
        store.close()


def misleading_body(number: int) -> bytes:
    """A body full of what a search for records looks for."""
    magic = struct.pack(">i", MAGIC_V1)
    return magic * 3 + bytes(20) + struct.pack(">ii", 120, MAGIC_V1) + number.to_bytes(8, "big") + magic


def scan(root: Path, schema=ARROW_SCHEMA, **options: str) -> list[dict[str, Any]]:
    """All rows, in the order of the log."""
    parsed = known.parse(known.LogOptions, {"path": str(root), "brokerName": "broker-a", **options})
    rows = [row for part in plan(parsed) for batch in read(part, parsed, schema) for row in checked(batch, schema)]
    return sorted(rows, key=lambda row: row["physicalOffset"]) if "physicalOffset" in schema.names else rows


def checked(batch, schema) -> list[dict[str, Any]]:
    assert batch.schema.equals(schema)
    assert batch.num_rows
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def internal_messages() -> list[MessageRecord]:
    """What waits inside a broker, and what it never shows."""
    return [
        message(0),
        message(1, HALF),
        message(2, OP),
        message(3, DELAYED),
        message(4, "%RETRY%g"),
        message(5, "%DLQ%g"),
        message(6, sys_flag=sysflag.PREPARED),
        message(7, sys_flag=sysflag.ROLLBACK),
        message(8, sys_flag=sysflag.COMMIT),
    ]
