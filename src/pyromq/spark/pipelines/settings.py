"""The settings of every pipeline, each declared once: the file, the flags of the commands and the docs come from here.

A value is given as text, as it stands in the file or on the command line; a setting parsed by `several` also takes a
list. `every` and `name` are the same everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pyromq.errors import ConfigError
from pyromq.protocol.names import DLQ_PREFIX, TRACE_TOPIC

from .. import moments
from ..option_values import (
    OptionInfo,
    bad_row,
    boolean,
    choice,
    declared,
    duration,
    integer,
    opt,
    rate,
    size,
    text,
)
from .near import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d)")
_AGO_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_RULE = re.compile(r"(?:([^\s:]+)\s*:)?\s*(lag|oldest)\s*>\s*(\S+)")


# Values


def several(value: str | Sequence[str]) -> tuple[str, ...]:
    """A list, or one text with commas."""
    found = tuple(value.split(",") if isinstance(value, str) else value)
    cleaned = tuple(dict.fromkeys(each.strip() for each in found))
    if not cleaned or not all(cleaned):
        raise ValueError("a list of names")
    return cleaned


def moment(value: str) -> datetime:
    """A point in time as the source takes it, or `now`, or -15m for a quarter of an hour ago."""
    if value == "now":
        return datetime.now(UTC)
    if ago := _AGO.fullmatch(value):
        return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _AGO_UNITS[ago[2]])
    return _EPOCH + timedelta(milliseconds=moments.moment(value))


def function_name(value: str) -> tuple[str, str]:
    """FILE.py:name or package.module:name."""
    place, _, name = value.rpartition(":")
    if not place or not name.isidentifier():
        raise ValueError("FILE.py:name or package.module:name")
    return place, name


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """Raises an alarm for a group, or any, that is too many messages or too many seconds behind."""

    group: str | None
    measure: str  # lag or oldest
    limit: float
    words: str

    def is_broken(self, group: str, lag: int | None, oldest: float | None) -> bool:
        if self.group is not None and self.group != group:
            return False
        found = lag if self.measure == "lag" else oldest
        return found is not None and found > self.limit


def alarms(value: str | Sequence[str]) -> tuple[AlarmRule, ...]:
    return tuple(map(_alarm, several(value)))


def _alarm(words: str) -> AlarmRule:
    said = "rules such as lag > 1000, oldest > 10m or billing: lag > 0"
    found = _RULE.fullmatch(words)
    if found is None:
        raise ValueError(said)
    group, measure, limit = found.groups()
    try:
        most = float(integer()(limit.replace("_", ""))) if measure == "lag" else duration(limit)
    except ValueError:
        raise ValueError(said) from None
    return AlarmRule(group, measure, most, words)


# Pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """What all of them have."""

    name: str = opt("name", text, "", "What progress and errors call it; by default what it does and to which topic.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings(PipelineSettings):
    """Topics become tables of the lake, each message once."""

    topics: tuple[str, ...] = opt("topics", several, (), "Topics to archive; regular expressions for whole names.")
    every: float = opt("every", duration, 300.0, "How often to archive.")
    max_lag: float = opt("maxLag", duration, 900.0, "Archive small amounts, too, when they are this old.")
    hourly: bool = opt("hourly", boolean, False, "Partition new tables by hour, too: for more than 50 GB a day.")
    alias: str | None = opt("alias", text, None, "Name of the table, if there is one topic and it is to differ.")
    stores: tuple[str, ...] = opt(
        "stores", several, (), "Folders of stores as BROKER=FOLDER, to read a large backlog from files."
    )
    direct_log_over: int = opt("directLogOver", size, 1 << 30, "What counts as a large backlog.")
    decode: str | None = opt(
        "decode", choice("json", "avro", "protobuf", "csv"), None, "Turn bodies into columns; needs decodeSchema."
    )
    decode_schema: str | None = opt("decodeSchema", text, None, "Schema of the bodies.")
    decode_message: str | None = opt("decodeMessage", text, None, "Full name of the Protobuf message.")
    decode_delimiter: str | None = opt("decodeDelimiter", text, None, "What separates the values of a CSV line.")
    keep_body: bool = opt("keepBody", boolean, True, "Keep bodies beside their columns.")
    on_error: str = opt(
        "onError", choice("fail", "skip", "dlq"), "dlq", "What to do with bodies that cannot be decoded."
    )

    def check(self) -> None:
        if not self.topics:
            raise ConfigError("topics is missing")
        if self.alias is not None and len(self.topics) != 1:
            raise ConfigError("alias names the table of one topic, so give one topic")
        if any("=" not in each for each in self.stores):
            raise ConfigError("stores must be BROKER=FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings(PipelineSettings):
    """Messages of a topic, a lake table or a group's dead letters are sent again."""

    from_: str = opt("from", text, "", "Topic, or %DLQ%GROUP for the dead letters of a group.")
    to: str | None = opt("to", text, None, "Topic to send to; dead letters go where they came from by default.")
    source: str = opt(
        "source",
        choice("topic", "lake", "all"),
        "topic",
        "Read the topic from its brokers, its table in the lake, or all that both have.",
    )
    since: datetime | None = opt("since", moment, None, "Only messages stored at this time or later.")
    until: datetime | None = opt("until", moment, None, "Only messages stored before this time.")
    tags: tuple[str, ...] = opt("tags", several, (), "Only messages with one of these tags.")
    keys: tuple[str, ...] = opt("keys", several, (), "Only messages with one of these keys.")
    ids: tuple[str, ...] = opt("ids", several, (), "Only messages with these ids.")
    where: str | None = opt("where", text, None, "Only messages for which this Spark SQL condition holds.")
    limit: int | None = opt("limit", integer(1), None, "At most this many, the oldest first.")
    rate: float | None = opt("rate", rate, None, "Messages a second, at most.")
    ordered: bool = opt(
        "ordered", boolean, False, "Messages of one queue go to one queue, in their order; by default to any."
    )
    on_bad_row: str = opt(
        "onBadRow", bad_row, "fail", "What to do with messages that cannot be sent: fail, skip or dlq:<topic>."
    )

    def check(self) -> None:
        if not self.from_:
            raise ConfigError("from is missing: a topic, or %DLQ%GROUP")
        if self.to is None and not self.from_.startswith(DLQ_PREFIX):
            raise ConfigError("to is missing: the topic to send to")
        if self.since and self.until and self.since >= self.until:
            raise ConfigError("since must be before until")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSettings(PipelineSettings):
    """A topic, changed by SQL or a Python function, goes to another topic."""

    from_: str = opt("from", text, "", "Topic to read.")
    to: str = opt("to", text, "", "Topic to send to.")
    sql: str | None = opt("sql", text, None, "A SELECT from the topic that gives message columns: body, keys, tags, …")
    function: tuple[str, str] | None = opt(
        "function", function_name, None, "FILE.py:name; called with each message, returns what to send."
    )
    frame: tuple[str, str] | None = opt(
        "frame", function_name, None, "FILE.py:name; called once with the stream, a DataFrame, returns another."
    )
    guarantee: str = opt(
        "guarantee",
        choice("at-least-once", "effectively-once"),
        "at-least-once",
        "Whether a repeated task may send messages again.",
    )
    on_error: str = opt(
        "onError", choice("fail", "skip", "dlq"), "dlq", "What to do with bad rows; dlq sends them to <to>__dlq."
    )
    starting_offsets: str = opt(
        "startingOffsets", text, "earliest", "Where the first run starts: earliest, latest, group or JSON."
    )
    starting_timestamp: datetime | None = opt("startingTimestamp", moment, None, "Where the first run starts: a time.")
    tags: str | None = opt("tags", text, None, "Only these tags (A || B), filtered by the broker.")
    group: str | None = opt("group", text, None, "Report progress under this consumer group.")
    create_topic: int | None = opt("createTopic", integer(1), None, "Create a missing topic with this many queues.")
    max_per_batch: int | None = opt("maxOffsetsPerTrigger", integer(1), None, "Messages in a micro-batch, at most.")
    every: float | None = opt("every", duration, None, "Time between micro-batches; by default as soon as possible.")

    def check(self) -> None:
        for key, value in (("from", self.from_), ("to", self.to)):
            if not value:
                raise ConfigError(f"{key} is missing")
        given = [key for key in ("sql", "function", "frame") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ConfigError(f"give one of sql, function and frame, not {' and '.join(given) or 'none of them'}")
        if self.from_ == self.to:
            raise ConfigError("from and to are the same topic: each message would be transformed for ever")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(PipelineSettings):
    """Checks that the lake has what the brokers have, and an output topic what its input has."""

    topics: tuple[str, ...] = opt("topics", several, (), "Topics to compare with their tables; regular expressions.")
    since: datetime | None = opt("since", moment, None, "Only messages stored at this time or later.")
    crc: bool = opt("crc", boolean, True, "Check the CRC of every body.")
    ids: bool = opt("ids", boolean, True, "Look for ids that occur twice, as after a producer's retry.")
    fail_on_ids: bool = opt("failOnIds", boolean, False, "Whether such ids are a failure.")
    max_lag: int | None = opt("maxLag", integer(), None, "Fail if the lake is more than this many messages behind.")
    in_topic: str | None = opt("inTopic", text, None, "Topic that a pipeline reads, to compare with outTopic.")
    out_topic: str | None = opt("outTopic", text, None, "Topic that the pipeline writes.")
    by: str = opt(
        "by",
        choice("keys", "spark_txn"),
        "keys",
        "Compare these two by their keys, or check the SPARK_TXN of outTopic alone.",
    )
    where: str | None = opt(
        "where",
        text,
        None,
        "Only messages of inTopic for which this Spark SQL condition holds are expected in outTopic.",
    )
    table: str | None = opt("table", text, None, "Folder to append the findings to, as Parquet.")
    every: float = opt("every", duration, 3600.0, "How often to check.")

    def check(self) -> None:
        if not self.topics and self.out_topic is None:
            raise ConfigError("topics is missing, or inTopic and outTopic")
        if self.out_topic is not None and self.in_topic is None and self.by == "keys":
            raise ConfigError("inTopic is missing: the topic to compare outTopic with; by: spark_txn needs none")
        if self.in_topic is not None and self.out_topic is None:
            raise ConfigError("outTopic is missing: the topic to compare inTopic with")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSettings(PipelineSettings):
    """How far consumer groups are behind, with alarms."""

    groups: tuple[str, ...] = opt("groups", several, (), "Only these groups; regular expressions.")
    topics: tuple[str, ...] = opt("topics", several, (), "Only these topics; regular expressions.")
    alarms: tuple[AlarmRule, ...] = opt(
        "alarms", alarms, (), "Rules such as lag > 1000, oldest > 10m, billing: lag > 0."
    )
    table: str | None = opt("table", text, None, "Folder to append the rows to, as Parquet.")
    every: float = opt("every", duration, 60.0, "How often to look.")

    def check(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings(PipelineSettings):
    """How long sending and consuming take, from the traces that clients leave."""

    topic: str = opt("traceTopic", text, TRACE_TOPIC, "Topic with the traces.")
    topics: tuple[str, ...] = opt("topics", several, (), "Only messages of these topics; regular expressions.")
    groups: tuple[str, ...] = opt("groups", several, (), "Only these producer and consumer groups; likewise.")
    since: datetime | None = opt("since", moment, None, "Only traces stored at this time or later.")
    until: datetime | None = opt("until", moment, None, "Only traces stored before this time.")
    table: str | None = opt("table", text, None, "Folder to append the rows to, as Parquet.")
    every: float = opt("every", duration, 300.0, "How often to look.")

    def check(self) -> None:
        pass


AnySettings = ArchiveSettings | ReplaySettings | TransformSettings | AuditSettings | LagSettings | LatencySettings

KINDS: dict[str, type[AnySettings]] = {
    "archive": ArchiveSettings,
    "replay": ReplaySettings,
    "transform": TransformSettings,
    "audit": AuditSettings,
    "lag": LagSettings,
    "latency": LatencySettings,
}
LISTS: tuple[Callable[..., Any], ...] = (several, alarms)

T = TypeVar("T")


def parse_setting(info: OptionInfo, value: str | Sequence[str]) -> Any:
    """The value of a setting. Raises ConfigError that names it."""
    if not isinstance(value, str) and info.parse not in LISTS:
        raise ConfigError(f"{info.key} takes one value, not a list")
    given = value.strip() if isinstance(value, str) else value
    try:
        if not given:
            raise ValueError("given, or left out")
        return info.parse(given)  # type: ignore[arg-type]  # those in LISTS take lists, too
    except ValueError as exc:
        shown = repr(value[:80]) if isinstance(value, str) else ", ".join(map(str, value))[:80]
        raise ConfigError(f"{info.key} must be {exc}, not {shown}") from exc


def parse(kind: type[T], given: Mapping[str, str | Sequence[str]]) -> T:
    """The settings of `kind`, from texts by their keys. Raises ConfigError."""
    infos = {info.key.lower(): (attribute, info) for attribute, info in declared(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        found = infos.get(key.lower())
        if found is None:
            raise ConfigError(unknown(key, kind))
        values[found[0]] = parse_setting(found[1], value)
    made = kind(**values)
    made.check()  # type: ignore[attr-defined]  # all kinds have it
    return made


def unknown(key: str, kind: type) -> str:
    """What to say of a key that `kind` does not have."""
    return f"unknown key {key}{nearest(key, [info.key for _, info in declared(kind)])}"
