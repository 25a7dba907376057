"""Messages in Parquet files, with the columns of a topic's Spark table; for `pyromq message export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pyromq.errors import ConfigError, CorruptRecord
from pyromq.protocol import properties as props

from .decode.general_columns import host_text
from .schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.protocol.message import MessageExt

_GROUP = 4096  # rows that are written at once
_GROUP_BYTES = 64 << 20
_MAX_MS = (2**63 - 1) // 1000  # in µs it still fits into 64 bits


class ParquetMessages:
    """Writes messages to a file, some thousand at a time. The file can be read only once closed."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, ARROW_SCHEMA)
        self._rows: list[dict[str, Any]] = []
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, message: MessageExt) -> None:
        row = _row(message)
        self._rows.append(row)
        self._size += len(row["body"])
        if len(self._rows) >= _GROUP or self._size >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=ARROW_SCHEMA))
        self._rows, self._size = [], 0


def _row(message: MessageExt) -> dict[str, Any]:
    record = message.record
    try:
        body = message.body
    except CorruptRecord:
        body = record.body
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": record.physical_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "keys": message.properties.get(props.KEYS),
        "tags": message.tags,
        "properties": list(message.properties.items()),
        "body": body,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc,
        "bornTimestamp": _microseconds(message.born_timestamp),
        "storeTimestamp": _microseconds(message.store_timestamp),
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "storeSize": record.store_size,
    }


def _microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if -_MAX_MS <= milliseconds <= _MAX_MS else None


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """What a sender gave each message: topic, body, tags, keys, properties, flag. Raises ConfigError."""
    try:
        with pq.ParquetFile(path) as file:
            wanted = ("topic", "body", "tags", "keys", "properties", "flag")
            if missing := {"topic", "body"} - {*file.schema_arrow.names}:
                raise ConfigError(f"it has no column {', '.join(sorted(missing))}", str(path))
            columns = [name for name in wanted if name in file.schema_arrow.names]
            for batch in file.iter_batches(_GROUP, columns=columns):
                for row in batch.to_pylist(maps_as_pydicts="lossy"):
                    row["keys"] = (row.get("keys") or "").split()
                    yield row
    except (pa.ArrowException, OSError) as exc:
        raise ConfigError(f"it cannot be read: {exc}", str(path)) from exc
