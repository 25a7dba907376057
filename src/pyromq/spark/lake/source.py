"""Spark format `rocketmq_lake`: a table of the lake, read and written in batch and as a stream, without jars.

    spark.read.format("rocketmq_lake").load("/lake/orders")
    spark.readStream.format("rocketmq_lake").load("s3://lake/mq/orders")
    frame.writeStream.format("rocketmq_lake").option("checkpointLocation", …).start("/lake/orders")

Tasks write Parquet files, and the driver commits them: with the id of the query and its batch, so that a batch that is
repeated is taken once, and with the positions of the queues, if the rows have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from pyromq.errors import PyroMQError

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

    from .options import LakeOptions
    from .reading import Wanted
    from .storage import Storage


class LakeDataSource(Shipped, DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_lake"

    @plainly
    def schema(self) -> StructType:
        """The table's columns, or those of the option `columns`. Carries the options, for tables in a catalog."""
        from .. import options as known
        from ..schema import with_metadata
        from .options import LakeOptions, parse
        from .planning import snapshot_of, spark_schema

        known.refuse_secrets_in_catalog((LakeOptions,), self.options)
        options, storage = parse(self.options)
        _, snapshot = snapshot_of(options, storage)
        return with_metadata(
            spark_schema(snapshot.schema, options.columns), known.to_metadata((LakeOptions,), self.options)
        )

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(*self._known(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ..refused_stream import RefusedStream
        from .stream_reader import LakeStreamReader

        try:
            return LakeStreamReader(*self._known(schema), schema)
        except PyroMQError as exc:
            return RefusedStream(exc)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .options import parse
        from .writers import LakeWriter, plan

        return LakeWriter(plan(*parse(self.options), schema, overwrite=overwrite))

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .options import parse
        from .writers import LakeStreamWriter, plan

        return LakeStreamWriter(plan(*parse(self.options), schema, overwrite=overwrite))

    def _known(self, schema: StructType) -> tuple[LakeOptions, Storage]:
        from .. import options as known
        from ..schema import metadata_of
        from .options import LakeOptions, parse

        return parse(known.from_table(LakeOptions, self.options, metadata_of(schema)))


class LakeReader(Shipped, DataSourceReader):
    """A batch read of one version: planned on the driver, read by the executors."""

    def __init__(self, options: LakeOptions, storage: Storage, schema: StructType) -> None:
        from .planning import arrow_schema

        self._options = options
        self._storage = storage
        self._schema: pa.Schema = arrow_schema(schema)
        self._wanted: Wanted | None = None
        # Not a method: see PushFilters.
        self.pushFilters = PushFilters(self)  # type: ignore[method-assign]  # on purpose

    @plainly
    def push(self, filters: list[Filter]) -> Sequence[Filter]:
        """Learn where not to look. Spark applies all filters itself: a file may have other rows, too."""
        from .reading import wanted

        self._wanted = wanted(filters, self._options.between)
        return filters

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        from .planning import ranges_of, snapshot_of
        from .reading import chosen, of_ranges, parts, wanted

        table, snapshot = snapshot_of(self._options, self._storage)
        what = self._wanted or wanted((), self._options.between)
        files = chosen(table.files(snapshot), what)
        ranges = ranges_of(self._options, snapshot)
        if ranges is not None:
            files = of_ranges(files, ranges)
        return parts(files, self._options.partition_bytes, ranges)

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from .reading import FilePart, FileReader, wanted

        # Spark reads one empty partition if there is none.
        if not isinstance(partition, FilePart):
            return iter(())
        between = self._options.between
        what = self._wanted or wanted((), between)
        return FileReader(self._storage, self._options.place[1], self._schema, what, between).read(partition)
