"""Messages as Arrow batches, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.table import LakeCommit, Move
from pyromq.spark.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyromq.spark.lake.storage import Storage
    from pyromq.spark.lake.table import LakeTable, Snapshot

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def queue(number: int = 0, broker: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def messages(
    of: MessageQueue | None = None,
    start: int = 0,
    end: int = 10,
    *,
    stored: datetime = NOON,
    apart: timedelta = timedelta(seconds=1),
    size: int = 20,
    schema: pa.Schema = ARROW_SCHEMA,
    **columns: Any,
) -> pa.RecordBatch:
    """The messages of a queue from `start` up to `end`, stored one after the other."""
    of = of or queue()
    rows = [
        {
            "topic": of.topic,
            "brokerName": of.broker_name,
            "queueId": of.queue_id,
            "queueOffset": offset,
            "physicalOffset": offset * 100,
            "msgId": f"{of.queue_id}-{offset}",
            "keys": f"k{offset}",
            "tags": "A" if offset % 2 else None,
            "properties": [("KEYS", f"k{offset}")],
            "body": f"{of.broker_name}/{of.queue_id}/{offset} ".encode().ljust(size, b"."),
            "bornTimestamp": stored + apart * (offset - start),
            "storeTimestamp": stored + apart * (offset - start),
            "storeSize": size + 100,
            **columns,
        }
        for offset in range(start, end)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def add(table: LakeTable, storage: Storage, name: str, of: MessageQueue, start: int, end: int, **how: Any) -> Snapshot:
    """Archive some messages of a queue in one commit."""
    whole = how.pop("whole", False)
    files = write_parts(storage, name, "t", [messages(of, start, end, **how)], whole=whole)
    return table.commit(LakeCommit(files, [Move(of, start, end)]))
