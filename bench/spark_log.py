"""`rocketmq_log` in Spark: next to a source of ready-made Arrow batches, next to Parquet, and way by way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .spark_kit import Results, best, consume, fill, folder, is_quick, rate, rounds, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

THREE = "queueOffset bigint, tags string, body binary"
TOPICS = 8
# Half a gigabyte each: a query costs Spark a fifth of a second whatever it reads, and that should not be most of it.
COUNTS = {1024: 480_000, 128: 1_600_000}


class RawSource(DataSource):
    """Arrow batches out of files that hold nothing else: as fast as a Python source can be."""

    @classmethod
    def name(cls) -> str:
        return "bench_raw"

    def reader(self, schema: Any) -> DataSourceReader:
        return RawReader(self.options["path"])


class RawReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self._path).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with pa.memory_map(partition.value) as file:
            stream = pa.ipc.open_file(file)
            for number in range(stream.num_record_batches):
                yield stream.get_batch(number)


def main(seconds: float) -> None:
    results = Results("rocketmq_log in Spark, two slots")
    with folder() as scratch, session(scratch) as spark:
        spark.dataSource.register(RawSource)
        for body, count in COUNTS.items():
            if is_quick(seconds):
                count //= 4
            root = scratch / f"store-{body}"
            fill(root, count, body, topics=TOPICS)
            contest = Contest(spark, root, scratch, count, f"{body} B", results, rounds(seconds))
            contest.next_to_raw()
            contest.next_to_parquet()
            contest.aggregates()
            contest.one_topic()
    results.show()


class Contest:
    def __init__(
        self, spark: SparkSession, root: Path, scratch: Path, count: int, what: str, results: Results, times: int
    ) -> None:
        self._spark = spark
        self._root = root
        self._scratch = scratch / root.name.replace("store", "copy")
        self._scratch.mkdir()
        self._count = count
        self._what = what
        self._results = results
        self._times = times

    def _log(self, schema: str = "", **options: str) -> DataFrame:
        reader = self._spark.read.format("rocketmq_log").options(**options)
        return (reader.schema(schema) if schema else reader).load(str(self._root))

    def _compare(self, what: str, ours: Callable[[], object], peer: Callable[[], object], bar: float | None) -> None:
        took = best({"ours": ours, "peer": peer}, self._times)
        sides = rate(self._count, took["ours"]), rate(self._count, took["peer"])
        self._results.at_least(f"{self._what}: {what}", *sides, took["peer"] / took["ours"], bar)

    def next_to_raw(self) -> None:
        for name, schema, bar in (("all columns", "", 0.6), ("3 columns", THREE, 0.8)):
            frame = self._log(schema)
            raw = self._raw(name.split()[0], frame, schema)
            self._compare(f"{name} / raw Arrow", lambda f=frame: consume(f), lambda r=raw: consume(r), bar)  # type: ignore[misc]

    def _raw(self, name: str, frame: DataFrame, schema: str) -> DataFrame:
        """The batches of our own tasks, in as many files as there are tasks."""
        import pyarrow as pa

        from pyromq.spark import options as known
        from pyromq.spark.log.plan import plan
        from pyromq.spark.log.reader import read
        from pyromq.spark.schema import arrow_schema

        folder = self._scratch / name
        folder.mkdir()
        options = known.parse(known.LogOptions, {"path": str(self._root)})
        wanted = arrow_schema(frame.schema)
        for number, part in enumerate(plan(options)):
            path = str(folder / f"{number:04d}")
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, wanted) as writer:
                for batch in read(part, options, wanted):
                    writer.write_batch(batch)
        return self._spark.read.format("bench_raw").schema(schema or frame.schema).load(str(folder))

    def next_to_parquet(self) -> None:
        path = str(self._scratch / "parquet")
        self._log().write.option("compression", "none").parquet(path)
        stored = self._spark.read.parquet(path)
        frame = self._log()
        self._compare("all columns / uncompressed Parquet", lambda: consume(frame), lambda: consume(stored), 0.4)

    def aggregates(self) -> None:
        def summed(frame: DataFrame) -> object:
            # A plan that is kept keeps what it has shuffled, too.
            return frame.selectExpr("max(queueOffset)", "count(tags)", "sum(length(body))").collect()

        three, every = self._log(THREE), self._log()
        what = "aggregate of a 3-column schema / of all columns"
        self._compare(what, lambda: summed(three), lambda: summed(every), 3)

    def one_topic(self) -> None:
        """What a walk costs with a filter behind it, as SQL has it, and with the topic known to it."""
        queue = self._log(via="queue", topics="topic-3")
        behind = self._log(via="log").where("topic = 'topic-3'")
        known = self._log(via="log", topics="topic-3")
        rows = queue.count()
        assert rows == self._count // TOPICS == behind.count() == known.count()
        few = self._log("queueId int, queueOffset bigint", via="queue", topics="topic-3")
        few_known = self._log("queueId int, queueOffset bigint", via="log", topics="topic-3")
        self._compare("1 topic of 8, by queue / by log, then WHERE", lambda: consume(queue), lambda: consume(behind), 4)
        self._compare("1 topic of 8, by queue / by log", lambda: consume(queue), lambda: consume(known), None)
        what = "1 topic of 8, 2 columns, by queue / by log"
        self._compare(what, lambda: consume(few), lambda: consume(few_known), None)
