"""Stored records to Arrow columns: the decoder that Spark uses, next to the same rows made record by record."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.protocol.record import MessageRecord, encode_record
from pyromq.spark.decode import columns, general_columns
from pyromq.spark.schema import COLUMNS

from .table import show

if TYPE_CHECKING:
    from collections.abc import Callable

BAR = 20.0
RECORDS = 7_000  # of 1 KB they make a batch of almost 8 MB
SCHEMAS = {
    "full": COLUMNS,
    "queueOffset, tags, body": ("queueOffset", "tags", "body"),
    "queueId, queueOffset": ("queueId", "queueOffset"),
}
ROUNDS = 15


def stored(body: int, count: int = RECORDS) -> bytes:
    """A piece of a commit log as a broker writes it: five properties, three of which change with every message."""
    parts = []
    at = 0
    for number in range(count):
        record = encode_record(
            MessageRecord(
                "orders",
                bytes(body),
                f"KEYS\x01order-{number:08d}\x02UNIQ_KEY\x01C0A8010A04D218B4AAC247B7{number:08X}\x02CLUSTER\x01c1"
                f"\x02TAGS\x01{('paid', 'sent', 'done')[number % 3]}\x02customer\x01{number % 1000}".encode(),
                queue_id=number % 8,
                queue_offset=number // 8,
                physical_offset=at,
                born_timestamp=1_700_000_000_000 + number,
                born_host=bytes((10, 0, 0, number % 16, 0, 0, 200, number % 16)),
                store_timestamp=1_700_000_000_001 + number,
                store_host=bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F)),
            )
        )
        parts.append(record)
        at += len(record)
    return b"".join(parts)


def seconds(fast: Callable[[], object], plain: Callable[[], object]) -> tuple[float, float]:
    """The least CPU time of each, which run in turn: other work on the machine only ever adds to it."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for which, call, times in ((0, fast, 5), (1, plain, 1)):
            for _ in range(times):
                begin = time.process_time()
                call()
                least[which] = min(least[which], time.process_time() - begin)
    return least[0], least[1]


def main(_seconds: float) -> None:
    rows = []
    for body in (1024, 128):
        buffer = stored(body)
        for name, schema in SCHEMAS.items():
            fast, plain = seconds(
                lambda b=buffer, s=schema: columns.decode(b, s, broker_name="broker-a"),  # type: ignore[misc]
                lambda b=buffer, s=schema: general_columns.decode(b, s, broker_name="broker-a"),  # type: ignore[misc]
            )
            rows.append(
                (
                    f"{body} B, {name}",
                    RECORDS / fast / 1e6,
                    len(buffer) / fast / 1e9,
                    RECORDS / plain / 1e6,
                    plain / fast,
                    f">= {BAR:g}" if schema is COLUMNS else "",
                )
            )
    show(
        "Decoding records, one core",
        ("body, columns", "M rows/s", "GB/s of log", "record by record", "ratio", "bar"),
        rows,
    )


if __name__ == "__main__":
    main(0)
