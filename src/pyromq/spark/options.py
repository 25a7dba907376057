"""The options of our formats, each declared once with its kind, default and description.

Keys may have any case, and `rocketmq-spark`'s names are aliases. An unknown key is refused, with the nearest
known one, since typos are common and would be silent. One set of options may serve reading and writing (a
view does both), so a key of one side is not an error on the other.

Options end up in catalogs, pickles and logs. A secret is never part of a repr, an error or the metadata of a table;
`credentials` says where to find it instead, and is resolved where the connection is made.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyromq.errors import ConfigError

from .moments import moment
from .moments import shown as shown_time
from .option_values import (
    OptionInfo,
    addresses,
    bad_row,
    boolean,
    choice,
    columns,
    declared,
    duration,
    folder,
    integer,
    names,
    offsets_or,
    opt,
    pattern,
    rate,
    size,
    text,
)
from .source import offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.identity import Credentials
    from pyromq.protocol.message_queue import MessageQueue

# The field metadata under which a catalog table keeps its options.
TABLE_METADATA = "rocketmq.options"

_SPARKS_OWN = frozenset(("path", "location", "provider", "owner", "checkpointlocation", "queryname"))
_SPARKS_PREFIXES = ("option.", "asyncprogress")
# Settings of a lake's storage or catalog that are handed on as they are, and may be secret.
_LAKES_PREFIXES = ("lake.storage.", "lake.catalog.")
_CREATE_TABLE_MARKS = ("provider", "option.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options for reaching a cluster and signing requests."""

    namesrv: str = opt(
        "namesrv",
        text,
        "",
        "Name servers: host:port;host:port.",
        aliases=("nameServer", "rocketmq.namesrv.addr", "rocketmq.name.server"),
    )
    access_key: str | None = opt("accessKey", text, None, "Signs requests; credentials is safer.", secret=True)
    secret_key: str | None = opt("secretKey", text, None, "Signs requests; credentials is safer.", secret=True)
    security_token: str | None = opt("securityToken", text, None, "Token for temporary keys.", secret=True)
    credentials: str | None = opt(
        "credentials",
        text,
        None,
        "Where to find the keys: env:PREFIX (PREFIX_ACCESS_KEY, PREFIX_SECRET_KEY) or file:PATH.",
    )
    tls: bool = opt("tls", boolean, False, "Encrypt connections.")
    tls_ca: str | None = opt("tls.ca", text, None, "CA certificates to trust: a path.")
    tls_cert: str | None = opt("tls.cert", text, None, "Client certificate: a path.")
    tls_key: str | None = opt("tls.key", text, None, "Private key of the client certificate: a path.")
    namespace: str | None = opt("namespace", text, None, "Prefix of all topics and groups.")
    broker_address_map: dict[str, str] | None = opt(
        "brokerAddressMap", addresses, None, "Which address to use instead of the one a broker advertises."
    )

    def resolve_credentials(self, environ: Mapping[str, str] = os.environ) -> Credentials | None:
        """Look up the keys now: on the driver and on every executor, so that no plan or pickle carries them."""
        from pyromq.client.identity import Credentials  # the client is large, and a scan of files does not need it

        if self.credentials is None:
            if self.access_key is None or self.secret_key is None:
                return None
            return Credentials(self.access_key, self.secret_key, self.security_token)
        return Credentials.look_up(self.credentials, environ)

    def check(self) -> None:
        """Check options against each other."""
        if not self.namesrv:
            raise ConfigError("option namesrv is missing: host:port of a name server")
        if self.credentials is not None:
            if self.access_key or self.secret_key:
                raise ConfigError("give either credentials or accessKey and secretKey")
            if not re.match("(env|file):.", self.credentials):
                raise ConfigError("credentials must be env:PREFIX or file:PATH")
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("accessKey and secretKey belong together")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(ConnectionOptions):
    """Options of a read from brokers, in batch or as a stream."""

    subscribe: tuple[str, ...] = opt("subscribe", names, (), "Topics to read, separated by commas.", aliases=("topic",))
    subscribe_pattern: re.Pattern[str] | None = opt(
        "subscribePattern", pattern, None, "Topics to read, as a regular expression; never matches system topics."
    )
    assign: frozenset[MessageQueue] | None = opt(
        "assign",
        lambda value: offsets.parse_assignment(value, "assign"),
        None,
        'Queues to read: {"T":{"broker-a":[0,1]}}.',
    )
    starting_offsets: str | dict[MessageQueue, int] | None = opt(
        "startingOffsets",
        offsets_or("startingOffsets", "earliest", "latest", "group", "lake"),
        None,
        "Where a new query starts: earliest, latest (stream), group, lake or JSON. Default: latest, earliest in batch.",
    )
    group_fallback: str = opt(
        "groupFallback", choice("earliest", "latest"), "earliest", "Where to start in queues the group has never read."
    )
    starting_timestamp: int | None = opt(
        "startingTimestamp", moment, None, "Start at this time: ISO 8601, or epoch ms; overrides startingOffsets."
    )
    starting_offsets_by_timestamp: dict[MessageQueue, int] | None = opt(
        "startingOffsetsByTimestamp",
        lambda value: offsets.parse_times(value, "startingOffsetsByTimestamp"),
        None,
        "A time for each queue, as JSON like that of offsets.",
    )
    starting_offsets_by_timestamp_strategy: str | None = opt(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        None,
        "If a queue has nothing that recent: error, or latest to start at its end. Default: error, latest in batch.",
    )
    ending_offsets: str | dict[MessageQueue, int] | None = opt(
        "endingOffsets",
        offsets_or("endingOffsets", "latest"),
        None,
        "Where a batch read ends (exclusive): latest, the default, or JSON.",
    )
    ending_timestamp: int | None = opt(
        "endingTimestamp", moment, None, "End before this time: ISO 8601, or epoch ms; overrides endingOffsets."
    )
    ending_offsets_by_timestamp: dict[MessageQueue, int] | None = opt(
        "endingOffsetsByTimestamp",
        lambda value: offsets.parse_times(value, "endingOffsetsByTimestamp"),
        None,
        "A time for each queue, as JSON like that of offsets.",
    )
    fail_on_data_loss: bool = opt(
        "failOnDataLoss", boolean, True, "Fail if messages to be read are gone; otherwise warn and continue."
    )
    max_offsets_per_trigger: int | None = opt(
        "maxOffsetsPerTrigger", integer(1), None, "Maximum messages per micro-batch.", aliases=("maxOffsetPerTrigger",)
    )
    max_bytes_per_trigger: int | None = opt(
        "maxBytesPerTrigger", size, None, "Maximum bytes per micro-batch, estimated."
    )
    min_offsets_per_trigger: int | None = opt(
        "minOffsetsPerTrigger", integer(1), None, "Wait for this many messages, but no longer than maxTriggerDelay."
    )
    max_trigger_delay: float = opt("maxTriggerDelay", duration, 900.0, "Longest wait for minOffsetsPerTrigger.")
    min_partitions: int | None = opt("minPartitions", integer(1), None, "Split ranges until there are this many tasks.")
    max_records_per_partition: int | None = opt(
        "maxRecordsPerPartition", integer(1), None, "Split ranges with more messages."
    )
    partition_bytes: int = opt("partitionBytes", size, 64 << 20, "Split ranges with more bytes, estimated.")
    parallelism: int = opt(
        "parallelism", integer(1), 8, "Maximum tasks for a small micro-batch; set it to the number of cores."
    )
    consumer_group: str | None = opt(
        "consumerGroup", text, None, "Report progress under this group.", aliases=("group", "rocketmq.group")
    )
    group_id_prefix: str = opt(
        "groupIdPrefix", text, "spark-rocketmq-source", "Prefix of the group's name if consumerGroup is not set."
    )
    group_shared: bool = opt("groupShared", boolean, False, "Report progress even if the group has live consumers.")
    tags: str = opt("tags", text, "*", "Only these tags (A || B), filtered by the broker.", aliases=("subExpression",))
    sql: str | None = opt("sql", text, None, "Only messages that match this SQL92 expression, filtered by the broker.")
    include_properties: bool = opt("includeProperties", boolean, True, "false leaves the map null, which is faster.")
    columns: tuple[str, ...] = opt(
        "columns", columns, (), "Only these columns; works in SQL, too, where no schema can be given."
    )
    decompress: bool = opt("decompress", boolean, True, "Decompress bodies.")
    verify_crc: bool = opt("verifyCrc", boolean, False, "Check the CRC of every body.")
    pull_batch_size: int = opt(
        "pull.batchSize", integer(1), 1024, "Maximum messages per pull.", aliases=("pullBatchSize",)
    )
    pull_timeout_ms: int = opt(
        "pull.timeoutMs", integer(1), 20_000, "Longest wait for a pull's answer.", aliases=("pullTimeoutMs",)
    )
    pull_pipeline: int = opt("pull.pipeline", integer(1), 4, "Concurrent pulls per queue.")
    offsets_refresh_ms: int = opt("offsets.refreshMs", integer(), 200, "How long to cache maximum offsets.")
    offsets_wait_ms: int = opt(
        "offsets.waitMs", integer(), 500, "How long to wait for new messages when there are none."
    )
    offsets_num_retries: int = opt("offsets.numRetries", integer(), 5, "How often the driver retries.")
    offsets_retry_interval_ms: int = opt("offsets.retryIntervalMs", integer(), 200, "Pause between these retries.")
    read_from: str = opt(
        "readFrom",
        choice("auto", "master", "slave"),
        "auto",
        "Which broker to read from; auto follows the broker's advice.",
    )
    lake_root: str | None = opt("lake.root", text, None, "The lake: a folder or a URI such as s3://bucket/folder.")
    lake_name: str | None = opt("lake.name", text, None, "Name of the table, if not the topic's.")
    lake_format: str | None = opt(
        "lake.format", choice("delta", "iceberg"), None, "Format of the table, if it cannot be told from the rest."
    )
    lake_version: int | None = opt(
        "lake.version", integer(), None, "With startingOffsets=lake: version of the table; default: the newest."
    )
    lake_history: bool = opt(
        "lake.history", boolean, False, "Read from the lake what it has of the topic, and only the rest from brokers."
    )
    lake_endpoint: str | None = opt("lake.endpoint", text, None, "URL of an S3-compatible store.")
    lake_region: str | None = opt("lake.region", text, None, "Region of the bucket.")
    lake_credentials: str | None = opt(
        "lake.credentials", text, None, "Where to find the keys of the lake's storage: env:PREFIX or file:PATH."
    )
    lake_access_key: str | None = opt(
        "lake.accessKey", text, None, "Key of the lake's storage; lake.credentials is safer.", secret=True
    )
    lake_secret_key: str | None = opt(
        "lake.secretKey", text, None, "Key of the lake's storage; lake.credentials is safer.", secret=True
    )
    lake_session_token: str | None = opt("lake.sessionToken", text, None, "Token for temporary keys.", secret=True)
    lake_others: Mapping[str, str] | None = field(default=None, repr=False)
    use_index: bool = opt("useIndex", boolean, False, "Look up keys and msgId in the broker's index.")
    broker_gone_timeout: float = opt(
        "brokerGoneTimeout", duration, 600.0, "How long a broker may be unreachable before the query fails."
    )

    def check(self) -> None:
        ConnectionOptions.check(self)
        given = [
            name
            for name, value in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if value
        ]
        if len(given) != 1:
            raise ConfigError(
                f"give one of subscribe, subscribePattern and assign, not {' and '.join(given) or 'none of them'}"
            )
        if self.tags != "*" and self.sql is not None:
            raise ConfigError("give either tags or sql")
        if self.starting_offsets == "group" and self.consumer_group is None:
            raise ConfigError("startingOffsets=group needs consumerGroup")
        self._check_lake()
        _check_order(self.starting_timestamp, self.ending_timestamp)
        if isinstance(self.ending_offsets, dict):
            begins = self.starting_offsets if isinstance(self.starting_offsets, dict) else {}
            for queue, offset in self.ending_offsets.items():
                if offset == offsets.EARLIEST:
                    raise ConfigError(f"endingOffsets: {offsets.place(queue)} ends at -2, before its first message")
                if 0 <= offset < begins.get(queue, 0):
                    raise ConfigError(
                        f"endingOffsets: {offsets.place(queue)} ends at {offset}, before it starts at {begins[queue]}"
                    )

    def _check_lake(self) -> None:
        if self.lake_root is None and (self.starting_offsets == "lake" or self.lake_history):
            raise ConfigError(f"{'lake.history' if self.lake_history else 'startingOffsets=lake'} needs lake.root")
        if self.lake_name is not None and len(self.subscribe) > 1:
            raise ConfigError("lake.name names one table, so it goes with one topic")
        if self.lake_history and self.sql is not None:
            raise ConfigError("sql is for brokers, not for the lake; with lake.history, use a WHERE clause")

    def check_batch(self) -> None:
        """What only a batch read minds."""
        if self.starting_offsets == "latest":
            raise ConfigError("startingOffsets=latest reads nothing in batch; it is for streams")
        offsets_given = (self.starting_offsets, self.ending_offsets)
        times_given = (self.starting_offsets_by_timestamp, self.ending_offsets_by_timestamp)
        if self.lake_history and (any(map(_is_chosen, offsets_given)) or any(times_given)):
            raise ConfigError(
                "a batch with lake.history begins with the lake: use startingTimestamp, endingTimestamp or WHERE"
            )

    def check_stream(self) -> None:
        """What only a stream minds."""
        if self.lake_history and (
            self.starting_timestamp is not None or self.starting_offsets_by_timestamp is not None
        ):
            raise ConfigError("a stream with lake.history begins with the lake: filter by storeTimestamp")
        for key, value in (
            ("endingOffsets", self.ending_offsets),
            ("endingTimestamp", self.ending_timestamp),
            ("endingOffsetsByTimestamp", self.ending_offsets_by_timestamp),
        ):
            if value is not None:
                raise ConfigError(f"{key} is for batch reads: a stream has no end (trigger availableNow ends it)")


def _is_chosen(given: str | dict[MessageQueue, int] | None) -> bool:
    """Whether offsets say more than from the beginning, or up to the end."""
    return given not in (None, "earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(ConnectionOptions):
    """Options of a write, in batch or as a stream."""

    topic: str | None = opt("topic", text, None, "Topic to write to; overrides the column.", aliases=("subscribe",))
    guarantee: str = opt(
        "guarantee",
        choice("at-least-once", "effectively-once"),
        "at-least-once",
        "Whether a repeated task may send messages again.",
    )
    batch_bytes: int = opt("batchBytes", size, 256 << 10, "Bytes to send in one batch.")
    in_flight: int = opt("inFlight", integer(1), 8, "Concurrent sends.")
    send_timeout_ms: int = opt("sendTimeoutMs", integer(1), 3000, "Longest wait for the broker's answer.")
    retries: int = opt("retries", integer(), 3, "How often to retry a send.")
    compress_over: int = opt("compressOver", size, 4096, "Compress bodies larger than this.")
    wait_store: bool = opt(
        "waitStore", boolean, True, "Wait until the broker has flushed and replicated, as it is set to."
    )
    producer_group: str | None = opt("producerGroup", text, None, "Producer group; a generated name by default.")
    on_bad_row: str = opt(
        "onBadRow", bad_row, "fail", "What to do with rows that cannot be sent: fail, skip or dlq:<topic>."
    )
    ignore_extra_columns: bool = opt(
        "ignoreExtraColumns", boolean, False, "Ignore columns that are not message columns."
    )
    keep_queue_id: bool = opt("keepQueueId", boolean, False, "Send each row to the queue in its queueId column.")
    create_topic: int | None = opt("createTopic", integer(1), None, "Create a missing topic with this many queues.")
    job_id: str | None = opt(
        "jobId", text, None, "Name of a batch job that may run again; gives its messages stable ids."
    )
    dedup_lookback: float = opt(
        "dedupLookback", duration, 600.0, "With effectively-once: how far back to look for messages already sent."
    )
    rows_per_second: float | None = opt(
        "rowsPerSecond", rate, None, "Rows that each task sends in a second, at most; as fast as possible by default."
    )
    max_message_bytes: int = opt(
        "maxMessageBytes", size, 4 << 20, "Larger bodies count as bad rows; brokers have a limit of their own."
    )

    @property
    def is_effectively_once(self) -> bool:
        return self.guarantee == "effectively-once"

    @property
    def dead_letter_topic(self) -> str | None:
        """Where bad rows go, if anywhere."""
        word, _, topic = self.on_bad_row.partition(":")
        return topic if word == "dlq" else None

    def check(self) -> None:
        ConnectionOptions.check(self)
        if self.topic is not None and "," in self.topic:
            raise ConfigError("a write goes to one topic: set option topic, or leave it out and use a column topic")
        if self.batch_bytes > self.max_message_bytes:
            raise ConfigError("batchBytes cannot exceed maxMessageBytes: to a broker, a batch is one message")
        if self.job_id is not None and not (self.job_id.isprintable() and len(self.job_id) <= 200):
            raise ConfigError("jobId must be printable text of at most 200 characters")
        if self.is_effectively_once and self.keep_queue_id:
            raise ConfigError(
                "guarantee=effectively-once chooses the queue itself; it cannot be combined with keepQueueId=true"
            )

    def check_batch(self) -> None:
        """What only a batch write minds."""
        if self.is_effectively_once and self.job_id is None:
            raise ConfigError(
                "guarantee=effectively-once needs jobId in a batch: a name that stays the same when the job runs again"
            )

    def check_stream(self) -> None:
        """What only a stream minds."""
        if self.job_id is not None:
            raise ConfigError("jobId is for batch writes; a stream uses its query's id")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a scan of a store's files."""

    path: str = opt("path", folder, "", "Root folder of the store, as executors see it.")
    topics: tuple[str, ...] = opt("topics", names, (), "Only these topics.", aliases=("topic", "subscribe"))
    columns: tuple[str, ...] = opt(
        "columns", columns, (), "Only these columns; works in SQL, too, where no schema can be given."
    )
    starting_timestamp: int | None = opt(
        "startingTimestamp", moment, None, "Only messages stored at this time or later: ISO 8601, or epoch ms."
    )
    ending_timestamp: int | None = opt(
        "endingTimestamp", moment, None, "Only messages stored before this time: ISO 8601, or epoch ms."
    )
    starting_physical_offset: int | None = opt(
        "startingPhysicalOffset", integer(), None, "Only records from this offset on."
    )
    ending_physical_offset: int | None = opt(
        "endingPhysicalOffset", integer(), None, "Only records before this offset."
    )
    via: str = opt(
        "via", choice("auto", "log", "queue"), "auto", "Read the whole log, or only what the consume queues point to."
    )
    partition_bytes: int = opt("partitionBytes", size, 128 << 20, "Bytes of the log per task.")
    broker_name: str | None = opt(
        "brokerName", text, None, "Value of the brokerName column, if it cannot be found in the store's config."
    )
    on_corrupt: str = opt(
        "onCorrupt",
        choice("fail", "stop", "skip"),
        "fail",
        "At a damaged record: fail, stop reading its file (each file is then one task), or skip it.",
    )
    include_internal: bool = opt(
        "includeInternal", boolean, False, "Also show half, delayed and retried messages that are still waiting."
    )
    include_properties: bool = opt("includeProperties", boolean, True, "false leaves the map null, which is faster.")
    verify_crc: bool = opt("verifyCrc", boolean, False, "Check the CRC of every body.")
    decompress: bool = opt("decompress", boolean, True, "Decompress bodies.")
    fail_on_data_loss: bool = opt("failOnDataLoss", boolean, True, "Fail if a file disappears during the scan.")

    def check(self) -> None:
        if not self.path:
            raise ConfigError("option path is missing: the root folder of a store")
        _check_order(self.starting_timestamp, self.ending_timestamp)


def _check_order(since: int | None, until: int | None) -> None:
    if since is not None and until is not None and until < since:
        times = f"endingTimestamp ({shown_time(until)}) is before startingTimestamp ({shown_time(since)})"
        raise ConfigError(f"{times}, so there is nothing to read")


# Parsing


class _Checked(Protocol):
    def check(self) -> None: ...


AnyOptions = TypeVar("AnyOptions", bound=_Checked)


def parse(kind: type[AnyOptions], given: Mapping[str, str], *, others: tuple[type, ...] = ()) -> AnyOptions:
    """The options of `kind` in `given`; keys that only `others` know are ignored.

    Raises ConfigError for unknown keys, invalid values, and options that exclude each other.
    """
    own = _by_key(kind)
    known = dict(own)
    for other in others:
        known = {**_by_key(other), **known}
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    if kind is SourceOptions:
        values["lake_others"] = {key: value for key, value in given.items() if _is_lakes_own(key)}
    for key, value in given.items():
        if _is_lakes_own(key) and SourceOptions in (kind, *others):
            continue
        found = own.get(key.lower())
        if found is None:
            if key.lower() not in known and not _is_sparks_own(key):
                raise _unknown(key, known)
            continue
        name, info = found
        if name in values and keys[name].lower() != key.lower():
            if _names_itself(info, keys[name]):
                continue  # the option's own name wins over its alias
            if not _names_itself(info, key):
                raise ConfigError(f"options {keys[name]} and {key} are the same; set only one")
        values[name] = _value(info, key, value)
        keys[name] = key
    options = kind(**values)
    options.check()
    return options


def from_table(kind: type, given: Mapping[str, str], metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """The given options, plus other options of `kind` that a catalog table kept in its first field's metadata.

    Spark passes a table's options to us only while it is created. Only for reading: a write may see the metadata of
    another table, the one selected from.
    """
    kept = (metadata or {}).get(TABLE_METADATA)
    if not isinstance(kept, str):
        return dict(given)
    own = _by_key(kind)
    names_given = {own[key.lower()][0] for key in given if key.lower() in own}
    below = {
        key: str(value) for key, value in json.loads(kept).items() if own.get(key.lower(), ("",))[0] not in names_given
    }
    return below | dict(given)


def to_metadata(kinds: tuple[type, ...], given: Mapping[str, str]) -> dict[str, str]:
    """Field metadata that keeps these options, secrets left out, for `from_table`."""
    infos = {key: info for kind in kinds for key, (_, info) in _by_key(kind).items()}
    kept = {
        infos[key.lower()].key: value
        for key, value in given.items()
        if key.lower() in infos and not infos[key.lower()].secret
    }
    return {TABLE_METADATA: json.dumps(kept, sort_keys=True, ensure_ascii=False)}


def refuse_secrets_in_catalog(kinds: tuple[type, ...], given: Mapping[str, str]) -> None:
    """Refuse secrets in CREATE TABLE: the catalog would keep them for all to read."""
    if not any(key.lower().startswith(_CREATE_TABLE_MARKS) for key in given):
        return
    infos = {key: info for kind in kinds for key, (_, info) in _by_key(kind).items()}
    for key in given:
        info = infos.get(key.lower().removeprefix("option."))
        if info is not None and info.secret:
            raise ConfigError(
                f"{info.key} would be stored in the catalog; use credentials=env:PREFIX or file:PATH in CREATE TABLE"
            )


def shown(kinds: tuple[type, ...], given: Mapping[str, str]) -> dict[str, str]:
    """Options for display: secrets as stars, Spark's own left out."""
    infos = {key: info for kind in kinds for key, (_, info) in _by_key(kind).items()}
    return {
        infos[key.lower()].key: "*****" if infos[key.lower()].secret else value
        for key, value in given.items()
        if key.lower() in infos
    }


def _by_key(kind: type) -> dict[str, tuple[str, OptionInfo]]:
    return {
        key.lower(): (name, info)
        for name, info in reversed(declared(kind))
        for key in (*reversed(info.aliases), info.key)
    }


def _names_itself(info: OptionInfo, key: str) -> bool:
    return key.lower() == info.key.lower()


def _value(info: OptionInfo, key: str, value: str) -> Any:
    stripped = value.strip()
    try:
        if not stripped:
            raise ValueError("given, or left out")
        return info.parse(stripped)
    except ValueError as exc:
        said = "" if info.secret else f", not {value[:80]!r}"
        # Without the cause if that could quote the value. Spark makes all keys lower-case.
        spelt = next(name for name in (info.key, *info.aliases) if name.lower() == key.lower())
        raise ConfigError(f"option {spelt} must be {exc}{said}") from (None if info.secret else exc)


def _is_lakes_own(key: str) -> bool:
    return key.lower().startswith(_LAKES_PREFIXES)


def _is_sparks_own(key: str) -> bool:
    return key.lower() in _SPARKS_OWN or key.lower().startswith(_SPARKS_PREFIXES)


def _unknown(key: str, known: Mapping[str, tuple[str, OptionInfo]]) -> ConfigError:
    near = difflib.get_close_matches(key.lower(), known, 1, 0.6)
    if not near:
        return ConfigError(f"unknown option {key}")
    _, info = known[near[0]]
    spelt = next(name for name in (info.key, *info.aliases) if name.lower() == near[0])
    return ConfigError(f"unknown option {key}; did you mean {spelt}?")
