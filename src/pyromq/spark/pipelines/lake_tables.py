"""The lake's tables, as pipelines read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from ..lake.storage import Storage
from ..lake.table import TableNotFound
from ..lake.tables import find_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame

    from pyromq.protocol.message_queue import MessageQueue

    from ..lake.table import Gap, LakeTable, Snapshot
    from .pipelines_file import LakePlace
    from .surroundings import Surroundings

# Options of the format `rocketmq_lake` itself; it hands on others to the storage if they say so.
_OWN = frozenset(("endpoint", "region", "credentials", "accesskey", "secretkey", "sessiontoken"))


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a topic's table."""

    where: Surroundings
    table: LakeTable
    snapshot: Snapshot
    gaps: Sequence[Gap]

    @property
    def positions(self) -> Mapping[MessageQueue, int]:
        return self.snapshot.positions

    def frame(self, since: datetime | None = None, until: datetime | None = None) -> DataFrame:
        """Its rows, stored from `since` up to `until`."""
        from pyspark.sql import functions as F

        options = {
            "lake.root": self.where.needed_lake().root,
            "lake.name": self.table.name,
            "lake.format": self.table.format,
            "versionAsOf": str(self.snapshot.version),
            **format_options(self.where.needed_lake()),
        }
        frame = self.where.spark.read.format("rocketmq_lake").options(**options).load()
        if since is not None:
            frame = frame.where(F.col("storeTimestamp") >= F.lit(since))
        return frame if until is None else frame.where(F.col("storeTimestamp") < F.lit(until))


def format_options(lake: LakePlace) -> dict[str, str]:
    """The lake's own options as the format `rocketmq_lake` takes them."""
    return {
        key if key.lower() in _OWN or key.lower().startswith(("catalog.", "storage.")) else f"storage.{key}": value
        for key, value in lake.options.items()
    }


def open_table(where: Surroundings, topic: str, version: int | None = None) -> Table | None:
    """A version of a topic's table, the newest by default; None if there is no table."""
    lake = where.needed_lake()
    try:
        table = find_table(Storage.of(lake.root, lake.options), topic, lake.format)
    except TableNotFound:
        return None
    return Table(where, table, table.snapshot(version), table.gaps())


def needed_table(where: Surroundings, topic: str, version: int | None = None) -> Table:
    found = open_table(where, topic, version)
    if found is None:
        raise ConfigError(f"the lake at {where.needed_lake().root} has no table of {topic}")
    return found
