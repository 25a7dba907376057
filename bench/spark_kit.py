"""What the benches of Spark share: a session, stores to read, and contests between ways to do the same.

Spark's own costs are part of every figure, so only ratios say something, and only if both sides ran in turn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

from .broker_machine import ROOT
from .table import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 5
QUICK_SECONDS = 2.0  # `--quick` asks for less than that
TAGS = ("paid", "sent", "done")
HOST = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
_AT_ONCE = 1000


@dataclass
class Results:
    """Lines of a table, each a contest; the ratio is what the bar is about."""

    title: str
    columns: tuple[str, ...] = ("what", "ours", "peer", "ratio", "bar", "")
    rows: list[tuple[object, ...]] = field(default_factory=list)

    def at_least(self, what: str, ours: str, peer: str, ratio: float, bar: float | None) -> None:
        self._add(what, ours, peer, ratio, None if bar is None else f">= {bar:g}", bar is None or ratio >= bar)

    def at_most(self, what: str, ours: str, peer: str, ratio: float, bar: float) -> None:
        self._add(what, ours, peer, ratio, f"<= {bar:g}", ratio <= bar)

    def _add(self, what: str, ours: str, peer: str, ratio: float, bar: str | None, is_met: bool) -> None:
        self.rows.append((what, ours, peer, ratio, bar or "", "" if bar is None else "met" if is_met else "MISSED"))
        print(f"  {what}: {ours} / {peer}, ratio {ratio:.2f}", flush=True)

    def show(self) -> None:
        show(self.title, self.columns, self.rows)


def rounds(seconds: float) -> int:
    """How often each side of a contest runs."""
    return 2 if is_quick(seconds) else ROUNDS


def is_quick(seconds: float) -> bool:
    return seconds < QUICK_SECONDS


def best(sides: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The least seconds of each side, which run in turn; once before that to warm up.

    A side that gives a float has taken its own time.
    """
    least = dict.fromkeys(sides, float("inf"))
    for number in range(times + 1):
        for name, run in sides.items():
            begin = time.perf_counter()
            given = run()
            took = given if isinstance(given, float) else time.perf_counter() - begin
            if number:
                least[name] = min(least[name], took)
    return least


def consume(frame: DataFrame) -> None:
    """Have every row made and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as name:
        yield Path(name)


@contextlib.contextmanager
def session(scratch: Path, slots: int = 2) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Sources that a bench defines are imported by the workers, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    made = (
        SparkSession.builder.master(f"local[{slots}]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(slots))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield made
    finally:
        made.stop()


def properties(number: int) -> bytes:
    """Five properties, three of which change with every message."""
    return (
        f"KEYS\x01order-{number:08d}\x02UNIQ_KEY\x01C0A8010A04D218B4AAC247B7{number:08X}\x02CLUSTER\x01c1"
        f"\x02TAGS\x01{TAGS[number % 3]}\x02customer\x01{number % 1000}"
    ).encode()


def fill(root: Path, count: int, body: int, *, topics: int = 1, queues: int = 4, file_size: int = 1 << 30) -> list[str]:
    """A store with so many messages in turn for each topic and queue; bodies cannot be compressed. The topics."""
    names = [f"topic-{number}" for number in range(topics)]
    content = os.urandom(body + 4096)
    settings = StoreConfig(root=str(root), commit_log_file_size=file_size)
    with MessageStore(settings) as store:
        places = [(name, queue_id, store.queue(name, queue_id)) for queue_id in range(queues) for name in names]
        for first in range(0, count, _AT_ONCE):
            units = []
            for number in range(first, min(first + _AT_ONCE, count)):
                topic, queue_id, queue = places[number % len(places)]
                at = number % 4096
                record = MessageRecord(
                    *(topic, content[at : at + body], properties(number)),
                    queue_id=queue_id,
                    born_timestamp=1_700_000_000_000 + number,
                    born_host=HOST,
                    store_host=HOST,
                )
                units.append((queue, [record]))
            store.put(units)
    return names


def rate(count: int, seconds: float) -> str:
    return f"{count / seconds / 1e3:,.0f} k rows/s"
