"""Spark format `rocketmq_meta`: a cluster's metadata as small tables.

    spark.read.format("rocketmq_meta").option("namesrv", "host:9876").option("table", "groups").load()

One task asks the cluster when the query runs. The tables and their columns are in `tables.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from ..plain_errors import plainly, plainly_each
from ..shipping import Shipped

# Spark imports this module to learn the format: import the readers only when needed.
if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .options import MetaOptions


class MetaDataSource(Shipped, DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_meta"

    @plainly
    def schema(self) -> StructType:
        from .. import options as known
        from ..schema import with_metadata
        from .options import MetaOptions
        from .tables import table

        known.refuse_secrets_in_catalog((MetaOptions,), self.options)
        options = known.parse(MetaOptions, self.options)
        return with_metadata(table(options.table).spark_schema(), known.to_metadata((MetaOptions,), self.options))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from .. import options as known
        from ..schema import metadata_of
        from .options import MetaOptions
        from .tables import table

        given = known.from_table(MetaOptions, self.options, metadata_of(schema))
        options = known.parse(MetaOptions, given)
        return MetaReader(options, table(options.table).arrow_schema(schema))


class MetaReader(Shipped, DataSourceReader):
    """Reads a table in one task: it is small. Planning asks no server, so the figures are those of the query's run."""

    def __init__(self, options: MetaOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    @plainly_each
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from ..blocking_client import Link
        from .rows import MetaRows
        from .tables import table

        options = self._options
        with Link(options) as link:
            rows = link.run(MetaRows(link, options.topics, options.groups).of(options.table))
        spelt = {name.lower(): name for name in table(options.table).columns}
        columns = [pa.array([row.get(spelt[field.name.lower()]) for row in rows], field.type) for field in self._schema]
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
