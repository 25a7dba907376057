"""What every read of a table begins with: the table, the version that is meant, and its columns as Spark wants them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pyarrow as pa

from pyromq.errors import ConfigError

from ..source.offsets import EARLIEST, LATEST, resolve
from .column_types import to_spark
from .tables import open_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from pyromq.protocol.message_queue import MessageQueue

    from .options import LakeOptions
    from .storage import Storage
    from .table import LakeTable, Snapshot


def table_of(options: LakeOptions, storage: Storage) -> LakeTable:
    """The table. Raises TableNotFound."""
    return open_table(storage, options.place[1], options.table_format)


def snapshot_of(options: LakeOptions, storage: Storage) -> tuple[LakeTable, Snapshot]:
    """The table and the version that the options mean."""
    table = table_of(options, storage)
    return table, table.snapshot(options.version_as_of, options.timestamp_as_of)


def spark_schema(schema: pa.Schema, columns: Sequence[str] = ()) -> StructType:
    """The columns of a read: these, or all. Raises ConfigError for unknown ones."""
    by_name = {field.name.lower(): field for field in schema}
    if not columns:
        return to_spark(schema)
    for name in columns:
        if name.lower() not in by_name:
            near = difflib.get_close_matches(name.lower(), by_name, 1, 0.5)
            advice = f"; did you mean {by_name[near[0]].name}?" if near else ""
            raise ConfigError(f"the table has no column {name!r}{advice}")
    return to_spark(pa.schema([by_name[name.lower()] for name in columns]))


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of batches for `schema`, nullability and all."""
    from pyspark.sql.pandas.types import to_arrow_schema

    made = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in made])


def ranges_of(options: LakeOptions, snapshot: Snapshot) -> dict[MessageQueue, tuple[int, int]] | None:
    """The offsets that the options ask for, of each queue; None for all."""
    if options.starting_offsets is None and options.ending_offsets is None:
        return None
    known = {queue: (0, position) for queue, position in snapshot.positions.items()}
    starts = resolve(options.starting_offsets or {}, known, lambda _: EARLIEST, "startingOffsets")
    ends = resolve(options.ending_offsets or {}, known, lambda _: LATEST, "endingOffsets")
    return {queue: (starts[queue], ends[queue]) for queue in known}
