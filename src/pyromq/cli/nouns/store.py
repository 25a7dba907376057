"""`pyromq store`: inspect and verify a data directory, ours or RocketMQ's, without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.listing import Listing
from pyromq.client.admin.times import from_millis
from pyromq.errors import StoreError

from ..failures import CommandFailed, Exit
from ..output import Output
from ..session import Session
from ..verbs import new_app, reading, run_app
from . import store_check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.store.inspection import QueueFacts, StoreFacts

app = new_app("Inspect and verify a store that no broker has open, PyroMQ's or RocketMQ's.")
_VERIFY = (
    (store_check.check.__doc__ or "")
    .replace("Example: pyromq check", "Example: pyromq store verify")
    .replace("`pyromq store verify` is", "`pyromq check` is")
)
app.command("verify", help=_VERIFY, context_settings={"help_option_names": ["-h", "--help"]})(store_check.check)


def main(arguments: list[str]) -> int:
    return run_app(app, "store", arguments)


@dataclass(frozen=True, slots=True)
class TopicInStore:
    topic: str
    queues: int
    messages: int
    first_stored: datetime | None
    last_stored: datetime | None


@dataclass(frozen=True, slots=True)
class QueueInStore:
    topic: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    first_stored: datetime | None
    last_stored: datetime | None


@reading(app, "inspect", connects=False)
async def inspect(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The store: the broker's storePathRootDir.")],
    queues: Annotated[bool, typer.Option("-q", "--queues", help="List queues instead of topics.")] = False,
) -> Listing[Any] | dict[str, Any] | None:
    """Show what is in a store: files, offsets, topics, message counts, times, how it was stopped. Writes nothing.

    -o json or yaml prints it all as one document, -o csv only the topics or queues.

    Example: pyromq store inspect ~/store
    """
    from pyromq.store.inspection import inspect_store

    try:
        found = inspect_store(folder)
    except StoreError as exc:
        raise CommandFailed(str(exc), Exit.USAGE) from exc
    if found.user:
        session.note(f"{folder} is in use by {found.user}; the figures may be out of date")
    rows = _queues(found.queues) if queues else _topics(found.queues)
    document = _facts(found)
    match session.asked.output:
        case Output.table:
            session.printer.record({key: _readable(key, value) for key, value in _flat(document)})
            session.text("")
            return rows
        case Output.csv | Output.name:
            return rows
        case _:
            return {**document, "queues" if queues else "topics": rows.rows}


def _facts(found: StoreFacts) -> dict[str, Any]:
    log, index = found.log, found.index
    flushed = dict(zip(("log", "queues", "index"), map(from_millis, found.checkpoint), strict=True))
    stopped = "cleanly" if found.is_clean else "by a crash; the next start recovers it"
    return {
        "stopped": "not yet" if found.user else stopped,
        "messages": sum(queue.messages for queue in found.queues),
        "log": {
            "files": log.files,
            "fileSize": log.file_size,
            "onDisk": log.bytes_on_disk,
            "minOffset": log.begin,
            "maxOffset": log.end,
            "firstStored": from_millis(log.first_time),
            "lastStored": from_millis(log.last_time),
            "recordVersion": log.record_version,
            "tornAt": log.torn_at,
        },
        "index": {
            "files": index.files,
            "entries": index.entries,
            "slotsPerFile": index.slots,
            "entriesPerFile": index.room,
            "firstStored": from_millis(index.first_time),
            "lastStored": from_millis(index.last_time),
        },
        "onDiskUpTo": flushed,
        "configured": {"topics": found.topics, "groups": found.groups},
    }


def _topics(queues: Iterable[QueueFacts]) -> Listing[TopicInStore]:
    by_topic: dict[str, list[QueueFacts]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    rows = [
        TopicInStore(
            topic,
            len(several),
            sum(queue.messages for queue in several),
            from_millis(min((queue.first_time for queue in several if queue.first_time), default=0)),
            from_millis(max(queue.last_time for queue in several)),
        )
        for topic, several in sorted(by_topic.items())
    ]
    return Listing.make(TopicInStore, rows)


def _queues(queues: Iterable[QueueFacts]) -> Listing[QueueInStore]:
    rows = [
        QueueInStore(
            queue.topic,
            queue.queue_id,
            queue.begin,
            queue.end,
            queue.messages,
            from_millis(queue.first_time),
            from_millis(queue.last_time),
        )
        for queue in sorted(queues, key=lambda queue: (queue.topic, queue.queue_id))
    ]
    return Listing.make(QueueInStore, rows)


def _flat(document: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _readable(key: str, value: Any) -> Any:
    return store_check.size_text(value) if key in ("log.fileSize", "log.onDisk") else value
