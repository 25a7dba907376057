"""Spark format `rocketmq_log`: the files of a store as a table.

    spark.read.format("rocketmq_log").option("topics", "orders").load("/data/store")

Executors must see the files: a shared file system, a replica's disk, a snapshot, or Spark on the broker's host.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from pyromq.errors import ConfigError

from ..plain_errors import plainly, plainly_each
from ..push_filters import PushFilters
from ..shipping import Shipped

# Spark imports this module to learn the format: import the readers only when needed.
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, Filter, InputPartition
    from pyspark.sql.types import StructType

    from ..options import LogOptions
    from .filters import LogFilters


class LogDataSource(Shipped, DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_log"

    @plainly
    def schema(self) -> StructType:
        from .. import options as known
        from ..schema import spark_schema, with_metadata

        options = known.parse(known.LogOptions, self.options)
        return with_metadata(spark_schema(options.columns), known.to_metadata((known.LogOptions,), self.options))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from .. import options as known
        from ..schema import arrow_schema, metadata_of
        from .store_facts import broker_name

        given = known.from_table(known.LogOptions, self.options, metadata_of(schema))
        options = known.parse(known.LogOptions, given)
        if options.broker_name is None:
            options = replace(options, broker_name=broker_name(Path(options.path)))
        return LogReader(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ..refused_stream import RefusedStream

        return RefusedStream(
            ConfigError(
                "rocketmq_log is for batch reads: stream the topic with the format rocketmq, from its first message on "
                "with startingOffsets=earliest"
            )
        )


class LogReader(Shipped, DataSourceReader):
    """A scan: planned on the driver, read by the executors."""

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._filters: LogFilters | None = None
        # Not a method: see PushFilters.
        self.pushFilters = PushFilters(self)  # type: ignore[method-assign]  # on purpose

    @plainly
    def push(self, filters: list[Filter]) -> Sequence[Filter]:
        """Take over filters; returns those that Spark must apply."""
        from .filters import push

        self._filters, handed_back = push(filters, self._options)
        return handed_back

    @plainly
    def partitions(self) -> list[InputPartition]:
        from .filters import LogFilters
        from .plan import plan

        return [*plan(self._options, self._filters or LogFilters())]

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from .plan import LogPart, PlacesPart, QueuePart
        from .reader import read

        # Spark reads one empty partition if there is none.
        is_ours = isinstance(partition, LogPart | QueuePart | PlacesPart)
        return read(partition, self._options, self._schema) if is_ours else iter(())
