"""Spark format `rocketmq`: topics as tables, read from and written to brokers in batch and as a stream.

    spark.read.format("rocketmq").option("namesrv", "host:9876").option("subscribe", "orders").load()
    spark.readStream.format("rocketmq").options(namesrv="host:9876", subscribe="orders").load()
    frame.write.format("rocketmq").options(namesrv="host:9876", topic="orders").mode("append").save()

Any broker that speaks RocketMQ's protocol will do. The options are in `options.py`, the columns in `schema.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from pyromq.errors import ConfigError, PyroMQError

from ..plain_errors import plainly, plainly_each
from ..push_filters import PushFilters
from ..shipping import Shipped

# Spark imports this module to learn the format: import the readers only when needed.
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
        InputPartition,
    )
    from pyspark.sql.types import StructType

    from ..options import SinkOptions, SourceOptions
    from .pushdown import Pushed


class RocketMQDataSource(Shipped, DataSource):
    """The format."""

    # Spark plans with its own instance, and ends the batches of a stream with a pickled copy.
    _was_planned = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_was_planned": True}

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @plainly
    def schema(self) -> StructType:
        """All columns, or those of the option `columns`. Carries the options, for tables in a catalog."""
        from .. import options as known
        from ..schema import spark_schema, with_metadata

        kinds = (known.SourceOptions, known.SinkOptions)
        known.refuse_secrets_in_catalog(kinds, self.options)
        options = known.parse(known.SourceOptions, self.options, others=kinds)
        return with_metadata(spark_schema(options.columns), known.to_metadata(kinds, self.options))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from ..schema import arrow_schema

        options = self._source_options(schema)
        options.check_batch()
        return RocketMQReader(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ..refused_stream import RefusedStream
        from ..schema import arrow_schema
        from .stream_reader import RocketMQStreamReader

        try:
            options = self._source_options(schema)
            options.check_stream()
            return RocketMQStreamReader(options, arrow_schema(schema))
        except PyroMQError as exc:
            return RefusedStream(exc)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ..sink import writers

        writers.refuse_overwrite(overwrite)
        options = self._sink_options()
        options.check_batch()
        return writers.RocketMQWriter(writers.plan(schema, options, streams=False))

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ..sink import writers

        writers.refuse_overwrite(overwrite)
        options = self._sink_options()
        options.check_stream()
        # A commit of sent rows must not fail because a name server is unreachable.
        return writers.RocketMQStreamWriter(writers.plan(schema, options, streams=True, afresh=not self._was_planned))

    def _sink_options(self) -> SinkOptions:
        from .. import options as known

        kinds = (known.SourceOptions, known.SinkOptions)
        if not known.shown(kinds, self.options):
            # A table's options are in the metadata of its schema, but here that may be the table selected from.
            raise ConfigError(
                "no options given, so no topic to write to: Spark does not keep a table's options for writing; use "
                "INSERT INTO t WITH (namesrv = '…', topic = '…') …, or a temporary view, which keeps them"
            )
        return known.parse(known.SinkOptions, self.options, others=kinds)

    def _source_options(self, schema: StructType) -> SourceOptions:
        from .. import options as known
        from ..schema import metadata_of

        kinds = (known.SourceOptions, known.SinkOptions)
        given = known.from_table(known.SourceOptions, self.options, metadata_of(schema))
        if not known.shown(kinds, given):
            raise ConfigError(
                "no options given, but namesrv and subscribe are needed: Spark does not keep the options of a table "
                "created with a list of columns; use the option columns instead, or SELECT … FROM t WITH (…)"
            )
        return known.parse(known.SourceOptions, given, others=kinds)


class RocketMQReader(Shipped, DataSourceReader):
    """A batch read: planned on the driver, read by the executors."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._pushed: Pushed | None = None
        # Not a method: see PushFilters.
        self.pushFilters = PushFilters(self)  # type: ignore[method-assign]  # on purpose

    @plainly
    def push(self, filters: list[Filter]) -> Sequence[Filter]:
        """Take over filters; returns those that Spark must apply."""
        from .pushdown import push

        with_tags = self._options.sql is None and not self._options.lake_history
        self._pushed, handed_back = push(filters, with_tags=with_tags)
        return handed_back

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        from .batch_plan import tasks
        from .pushdown import Pushed

        return tasks(self._options, self._pushed or Pushed())

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from .stream_reader import read_part

        return read_part(partition, self._options, self._schema)
