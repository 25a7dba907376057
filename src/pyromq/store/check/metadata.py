"""Checks the small files: the checkpoint and the files in `config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import (
    Body,
    ConsumerOffsetTable,
    DelayOffsetTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from pyromq.protocol.bodies.conversion import convert
from pyromq.protocol.names import SCHEDULE_TOPIC

from ..format import CHECKPOINT_SIZE, CHECKPOINT_TIMES
from ..metadata.json_files import ConsumerFilterTable
from .files import listed
from .findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .findings import Report

# The files known to `json_files`; others only have to be JSON.
_BODIES: dict[str, type[Body]] = {
    "topics.json": TopicConfigSerializeWrapper,
    "subscriptionGroup.json": SubscriptionGroupWrapper,
    "consumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
    "consumerFilter.json": ConsumerFilterTable,
}
# Files of brokers that are not JSON.
_OTHERS = {"timercheck", "timermetrics", "transactionMetrics", "broker.properties"}
BodyT = TypeVar("BodyT", bound=Body)

_BACKUP = ".bak"
_TEMPORARY = ".tmp"


def check_checkpoint(path: Path, newest: int | None, report: Report) -> None:
    """`newest` is the store time of the newest message, 0 if there is none, None if unknown.

    A later time is odd, since nothing was stored then. One that lay in the future when it was written is harmful:
    after a crash, recovery would begin after messages that were never on disk.
    """
    try:
        data = path.read_bytes()
        written = path.stat().st_mtime * 1000
    except FileNotFoundError:
        if newest:
            report.note(path, "is missing; after a crash the whole log would be read again")
        return
    except OSError as exc:
        report.error(path, f"cannot be read: {exc.strerror}")
        return
    if len(data) != CHECKPOINT_SIZE:
        report.warning(path, f"has {len(data)} bytes of {CHECKPOINT_SIZE}; what is missing counts as 0")
    times = CHECKPOINT_TIMES.unpack_from(data.ljust(CHECKPOINT_TIMES.size, b"\0"))
    for name, time in zip(("the commit log", "the consume queues", "the index"), times, strict=True):
        if time < 0:
            report.warning(path, f"says that {name} is on disk up to {time}, which is not a time")
        elif newest is not None and time > newest:
            severity = Severity.NOTE if time <= written else Severity.WARNING
            report.add(
                severity, path, f"says that {name} is on disk up to {time}, but the newest message is from {newest}"
            )


def checkpoint_times(path: Path) -> tuple[int, int, int]:
    """Up to which times log, queues and index are on disk, as recovery reads it: 0 for what cannot be read."""
    try:
        data = path.read_bytes()
    except OSError:
        data = b""
    log, queues, index = CHECKPOINT_TIMES.unpack_from(data.ljust(CHECKPOINT_TIMES.size, b"\0"))
    return max(0, log), max(0, queues), max(0, index)


class Tables(NamedTuple):
    """The content of the files in `config`; None if a file is missing or unusable."""

    topics: TopicConfigSerializeWrapper | None = None
    consumer_offsets: ConsumerOffsetTable | None = None
    delay_offsets: DelayOffsetTable | None = None
    groups: SubscriptionGroupWrapper | None = None


def check_config(folder: Path, report: Report) -> Tables:
    """Read every file as a broker would, with its backup."""
    names = [entry.name for entry in listed(folder, report) if entry.is_file()]
    bases = {name.removesuffix(_BACKUP) for name in names if name.removesuffix(_BACKUP).endswith(".json")}
    bodies = [_check_json(folder / name, report) for name in sorted(bases)]
    for name in names:
        if name.endswith(_TEMPORARY):
            report.note(folder / name, "is left over from an interrupted write")
        elif name.removesuffix(_BACKUP) not in bases | _OTHERS:
            report.note(folder / name, "is unknown; left alone")
    return Tables(
        _the(TopicConfigSerializeWrapper, bodies),
        _the(ConsumerOffsetTable, bodies),
        _the(DelayOffsetTable, bodies),
        _the(SubscriptionGroupWrapper, bodies),
    )


def check_offsets(folder: Path, tables: Tables, ends: Mapping[tuple[str, int], int], report: Report) -> None:
    """Compare consumed and delivered offsets with the ends of the queues."""
    if tables.consumer_offsets is not None:
        for name, offsets in tables.consumer_offsets.offset_table.items():
            topic, _, group = name.partition("@")
            for queue_id, offset in offsets.items():
                if offset > (end := ends.get((topic, queue_id), offset)):
                    what = f"group {group} continues at {offset} in {topic}/{queue_id}, which ends at {end}"
                    report.warning(folder / "consumerOffset.json", what)
    if tables.delay_offsets is not None:
        for level, offset in tables.delay_offsets.offset_table.items():
            if offset > (end := ends.get((SCHEDULE_TOPIC, level - 1), offset)):
                what = f"delivery of level {level} continues at {offset}, but its queue ends at {end}"
                report.warning(folder / "delayOffset.json", what)


def _the(kind: type[BodyT], bodies: Iterable[object]) -> BodyT | None:
    return next((body for body in bodies if isinstance(body, kind)), None)


def _check_json(path: Path, report: Report) -> object:
    """The content of the file, or else of its backup; None if neither is usable."""
    backup = path.with_name(path.name + _BACKUP)
    body, fault = _read(path, _BODIES.get(path.name))
    older, backup_fault = _read(backup, _BODIES.get(path.name))
    if body is not None:
        if older is None and backup.exists():
            report.note(backup, backup_fault)
        return body
    if older is not None:
        report.warning(path, f"{fault}; {backup.name} is used instead")
    else:
        report.error(path, f"{fault}; {backup.name} {backup_fault}")
    return older


def _read(path: Path, kind: type[Body] | None) -> tuple[object, str]:
    """The content of a file, or None and why it is unusable."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, "is missing"
    except OSError as exc:
        return None, f"cannot be read: {exc.strerror}"
    if not data.strip():
        return None, "is empty"
    try:
        table = fastjson.loads(data)
        if not isinstance(table, dict):
            return None, "is not a JSON object"
        return (table if kind is None else convert(kind, table)), ""
    except RemoteProtocolError as exc:
        return None, f"is torn: {exc}"
