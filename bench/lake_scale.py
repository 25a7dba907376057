"""How the time of one archive grows with what there is to archive, and what it holds in memory meanwhile.

    python -m bench.lake_scale 1 5 20                millions of messages of 1 KB, from a store's files
    python -m bench.lake_scale 1 2 --body 128

Twenty million messages of 1 KB are 24 GB of log, and somewhat less of Parquet: say where with --folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import pyromq.spark as mq
from pyromq.spark.lake.archive import archive

from .broker_machine import facts
from .spark_kit import fill, session
from .table import show

BROKER = "broker-a"
MIB = 1 << 20


class Memory:
    """The most memory of its own that any Python process of Spark, and the driver's JVM, had meanwhile."""

    def __init__(self) -> None:
        self.python = self.java = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(0.2):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdecimal():
                    continue
                try:
                    command = (entry / "cmdline").read_bytes()
                    lines = (entry / "status").read_text().splitlines()
                except OSError:
                    continue
                # Without mapped files, whose pages belong to the system.
                own = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
                if b"pyspark.daemon" in command:
                    self.python = max(self.python, own)
                elif b"org.apache.spark.deploy.SparkSubmit" in command:
                    self.java = max(self.java, own)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.lake_scale", description=__doc__.splitlines()[0])
    parser.add_argument("millions", nargs="+", type=float)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    print(facts(), flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="pyromq-scale-", dir=options.folder))
    rows = []
    try:
        with session(scratch) as spark:
            mq.enable(spark)
            for millions in options.millions:
                count = int(millions * 1e6)
                store, lake = scratch / "store", scratch / "lake"
                [topic] = fill(store, count, options.body)
                os.sync()
                with Memory() as memory:
                    begin = time.perf_counter()
                    done = archive(
                        spark,
                        [topic],
                        root=str(lake),
                        stores={BROKER: str(store)},
                        once=True,
                        progress=lambda step: print(
                            f"  {step.rows:,} rows, {step.rows_per_second:,.0f}/s, {step.lag:,} to go", flush=True
                        ),
                    )
                    took = time.perf_counter() - begin
                assert (done.rows, done.errors, done.gaps) == (count, {}, [])
                rows.append(
                    (
                        *(f"{millions:g} M", f"{done.bytes / MIB / 1024:.1f} GiB", done.files, done.commits),
                        *(f"{took:.1f} s", f"{took / millions:.2f} s", f"{count / took / 1e3:,.0f} k/s"),
                        *(f"{memory.python // MIB} MiB", f"{memory.java // MIB} MiB"),
                    )
                )
                print(*rows[-1], flush=True)
                shutil.rmtree(store)
                shutil.rmtree(lake)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    columns = ("messages", "Parquet", "files", "commits", "time", "per million", "rate", "Python", "JVM")
    show(f"one archive from a store's files, bodies of {options.body} B, two slots", columns, rows)


if __name__ == "__main__":
    main()
