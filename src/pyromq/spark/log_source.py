"""Spark format `rocketmq_log`: the files of a store as a table.

    spark.read.format("rocketmq_log").option("topics", "orders").load("/data/store")

Executors must see the files: a shared file system, a replica's disk, a snapshot, or Spark on the broker's host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

# Spark imports this module to learn the format: what reads is imported when something is read.
if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from .options import LogOptions


class LogDataSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_log"

    def schema(self) -> StructType:
        from . import options as known
        from .schema import spark_schema, with_metadata

        options = known.parse(known.LogOptions, self.options)
        return with_metadata(spark_schema(options.columns), known.to_metadata((known.LogOptions,), self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from . import options as known
        from .schema import arrow_schema, metadata_of

        given = known.from_table(known.LogOptions, self.options, metadata_of(schema))
        return LogReader(known.parse(known.LogOptions, given), arrow_schema(schema))


class LogReader(DataSourceReader):
    """A scan: planned on the driver, read by the executors."""

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        from .log_plan import plan

        return [*plan(self._options)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from .log_plan import LogPart, QueuePart
        from .log_reader import read

        # Spark reads one empty partition when there is none.
        return read(partition, self._options, self._schema) if isinstance(partition, LogPart | QueuePart) else iter(())
