"""The tables of a lake: open the one that a user means, make the one that an archive needs, list those there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from pyromq.errors import ConfigError

from . import delta
from .table import LakeError, TableNotFound

if TYPE_CHECKING:
    from .storage import Storage
    from .table import LakeTable

FORMATS = ("delta", "iceberg")


def open_table(storage: Storage, name: str, kind: str | None = None) -> LakeTable:
    """The table `name`, in the format that it has if none is given. Raises TableNotFound."""
    if format_of(storage, kind) == "iceberg":
        from . import iceberg

        return iceberg.open_table(storage, name)
    return delta.open_table(storage, name)


def open_or_create(
    storage: Storage, name: str, topic: str, cluster: str, *, kind: str | None = None, hourly: bool = False
) -> LakeTable:
    """The table of a topic, made if there is none yet. Raises ConfigError if `name` has another topic's messages."""
    table: LakeTable
    if format_of(storage, kind) == "iceberg":
        from . import iceberg

        table = iceberg.create_table(storage, name, topic, cluster, hourly)
    else:
        table = delta.create_table(storage, name, topic, cluster, hourly)
    if table.topic != topic:
        raise ConfigError(f"table {name} has the messages of topic {table.topic}; give {topic} an alias")
    if table.cluster != cluster:
        raise ConfigError(
            f"table {name} has the messages of {topic} in cluster {table.cluster}; give that of {cluster} an alias"
        )
    return table


def list_tables(storage: Storage, kind: str | None = None) -> list[str]:
    """The names of a lake's tables; none if the lake does not exist yet."""
    if format_of(storage, kind) == "iceberg":
        from . import iceberg

        return iceberg.list_tables(storage)
    try:
        selector = fs.FileSelector(storage.path(), allow_not_found=True)
        found = storage.filesystem().get_file_info(selector)
        folders = sorted(info.base_name for info in found if info.type == fs.FileType.Directory)
        return [name for name in folders if delta.is_table(storage, name)]
    except (OSError, pa.ArrowException) as exc:
        raise LakeError(f"{storage.uri()} cannot be listed: {storage.masked(exc)}") from exc


def find_table(storage: Storage, topic_or_name: str, kind: str | None = None) -> LakeTable:
    """The table that has this name, or else that of a topic of this name, whatever its alias. Raises TableNotFound."""
    from .layout import table_name

    names = list_tables(storage, kind)
    for name in dict.fromkeys((topic_or_name, table_name(topic_or_name))):
        if name in names:
            return open_table(storage, name, kind)
    for name in names:
        table = open_table(storage, name, kind)
        if table.topic == topic_or_name:
            return table
    raise TableNotFound(f"the lake at {storage.uri()} has no table {topic_or_name}")


def format_of(storage: Storage, kind: str | None) -> str:
    """What is asked for, or Iceberg where a catalog is configured."""
    chosen = kind or ("iceberg" if any(key.lower().startswith("catalog.") for key in storage.options) else "delta")
    if chosen.lower() not in FORMATS:
        raise ConfigError(f"a lake has tables in the format {' or '.join(FORMATS)}, not {chosen!r}")
    return chosen.lower()
