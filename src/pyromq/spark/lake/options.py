"""The options of the format `rocketmq_lake`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from .. import options as known
from ..moments import moment as epoch
from ..option_values import boolean, choice, integer, opt, size, text
from ..source import offsets
from .decoding import DecodeOptions
from .storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.message_queue import MessageQueue

CLUSTER = "DefaultCluster"  # RocketMQ's own, unless somebody says otherwise

# Settings of a storage that we do not know ourselves: storage.AWS_… goes to delta-rs, catalog.uri to pyiceberg.
_HANDED_ON = ("storage.", "catalog.")


def moment(value: str) -> datetime:
    """A time: ISO 8601, UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("a time such as 2026-01-31T10:00:00") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def names(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(","))
    if not all(found):
        raise ValueError("column names separated by commas")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(DecodeOptions):
    """Options of reads and writes of a table of the lake."""

    path: str | None = opt("path", text, None, "The table's folder: load(path) and save(path).")
    root: str | None = opt("lake.root", text, None, "The lake's root, instead of path.")
    name: str | None = opt("lake.name", text, None, "The table's name below the root.")
    table_format: str | None = opt(
        "lake.format",
        choice("delta", "iceberg"),
        None,
        "Which kind of table: delta, or iceberg, the default with a catalog.",
    )
    topic: str | None = opt("lake.topic", text, None, "Whose messages a new table has, if its rows do not say.")
    cluster: str = opt("lake.cluster", text, CLUSTER, "Whose topic that is.")
    endpoint: str | None = opt("endpoint", text, None, "URL of an S3-compatible store.")
    region: str | None = opt("region", text, None, "Region of the bucket.")
    credentials: str | None = opt(
        "credentials", text, None, "Where to find the storage's keys: env:PREFIX or file:PATH."
    )
    access_key: str | None = opt("accessKey", text, None, "Key of the storage; credentials is safer.", secret=True)
    secret_key: str | None = opt("secretKey", text, None, "Key of the storage; credentials is safer.", secret=True)
    session_token: str | None = opt("sessionToken", text, None, "Token for temporary keys.", secret=True)
    columns: tuple[str, ...] = opt("columns", names, (), "Only these columns; usable from SQL.")
    version_as_of: int | None = opt("versionAsOf", integer(), None, "Read the table as it was at this version.")
    timestamp_as_of: datetime | None = opt("timestampAsOf", moment, None, "Read the table as it was at this time.")
    starting_timestamp: int | None = opt(
        "startingTimestamp", epoch, None, "Only messages stored at this time or later: ISO 8601, or epoch ms."
    )
    ending_timestamp: int | None = opt(
        "endingTimestamp", epoch, None, "Only messages stored before this time: ISO 8601, or epoch ms."
    )
    starting_offsets: dict[MessageQueue, int] | None = opt(
        "startingOffsets",
        lambda value: offsets.parse_offsets(value, "startingOffsets"),
        None,
        'Only messages from these offsets on: {"T":{"broker-a":{"0":23}}}.',
    )
    ending_offsets: dict[MessageQueue, int] | None = opt(
        "endingOffsets",
        lambda value: offsets.parse_offsets(value, "endingOffsets"),
        None,
        "Only messages before these offsets.",
    )
    partition_bytes: int = opt("partitionBytes", size, 128 << 20, "Bytes of files per task.")
    max_offsets_per_trigger: int | None = opt(
        "maxOffsetsPerTrigger", integer(1), None, "Maximum messages per micro-batch."
    )
    starting_version: str = opt(
        "startingVersion", text, "earliest", "Where a new stream starts: earliest, latest, or after a version."
    )
    refresh_ms: int = opt("refreshMs", integer(), 1000, "How long a stream keeps what it knows of the table.")
    with_positions: bool = opt(
        "positions", boolean, True, "Whether a write moves the table's positions, if rows have queues and offsets."
    )

    def check(self) -> None:
        DecodeOptions.check(self)
        if (self.path is None) == (self.root is None):
            raise ConfigError("give either path, the table's folder, or lake.root and lake.name")
        if (self.root is None) != (self.name is None):
            raise ConfigError("lake.root and lake.name belong together")
        if self.version_as_of is not None and self.timestamp_as_of is not None:
            raise ConfigError("give either versionAsOf or timestampAsOf")
        if self.starting_version not in ("earliest", "latest") and not self.starting_version.isdecimal():
            raise ConfigError(f"startingVersion must be earliest, latest or a version, not {self.starting_version!r}")

    @property
    def between(self) -> tuple[datetime | None, datetime | None]:
        """The times that bound a read."""
        since, until = (
            None if ms is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
            for ms in (self.starting_timestamp, self.ending_timestamp)
        )
        return since, until

    @property
    def place(self) -> tuple[str, str]:
        """The root of the lake, and the table's name."""
        if self.root is not None and self.name is not None:
            return self.root, self.name
        root, slash, name = (self.path or "").rstrip("/").rpartition("/")
        if not name or (slash and not root.strip("/:")):
            raise ConfigError(f"path must be a table's folder below a lake's root, not {self.path!r}")
        return root or ".", name

    def storage(self, handed_on: Mapping[str, str]) -> Storage:
        """Where the table is."""
        own = {
            "endpoint": self.endpoint,
            "region": self.region,
            "credentials": self.credentials,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "sessionToken": self.session_token,
        }
        return Storage.of(self.place[0], {**handed_on, **{key: value for key, value in own.items() if value}})


def parse(given: Mapping[str, str]) -> tuple[LakeOptions, Storage]:
    """The options, and where the table is. Raises ConfigError."""
    handed_on, own = {}, {}
    for key, value in given.items():
        prefix = next((each for each in _HANDED_ON if key.lower().startswith(each)), None)
        if prefix is None:
            own[key] = value
        else:
            handed_on[key[len(prefix) :] if prefix == "storage." else key] = value
    options = known.parse(LakeOptions, own)
    return options, options.storage(handed_on)
