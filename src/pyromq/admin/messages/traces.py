"""What happened to a message, as clients traced it (the format is in `pyromq/client/trace.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import partly
from pyromq.client.admin.times import from_millis
from pyromq.protocol.names import TRACE_TOPIC

from ..listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.message import MessageExt

_FIELD, _RECORD = "\x01", "\x02"
_NULL = "null"
# How a consumer ended (RocketMQ's ConsumeReturnType), by its number.
_ENDS = ("success", "timed out", "exception", "returned null", "failed")
_KINDS = ("normal", "half", "commit", "delayed")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something a client did with a message. `status` is None if it began but never reported how it ended."""

    time: datetime | None
    event: str
    group: str
    status: str | None
    cost_ms: int | None
    retries: int | None
    client: str
    topic: str | None = None
    id: str = field(default="", metadata={"hidden": True})
    tags: str | None = field(default=None, metadata={"hidden": True})
    keys: str | None = field(default=None, metadata={"hidden": True})
    broker: str | None = field(default=None, metadata={"hidden": True})
    size: int | None = field(default=None, metadata={"hidden": True})
    offset_id: str | None = field(default=None, metadata={"hidden": True})
    kind: str | None = field(default=None, metadata={"hidden": True})
    request: str | None = field(default=None, metadata={"hidden": True})


async def trace_of(
    admin: AdminClient,
    name: str,
    topic: str = TRACE_TOPIC,
    *,
    limit: int = 64,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> Listing[TraceEvent]:
    """What happened to the message with this id, or to all with this key, in order of time.

    `limit` applies to each broker; `begin` and `end` to when the traces were stored.

    Raises NoMessage if it was not traced, and TopicNotFound if nothing is traced at all.
    """
    messages, missing = await partly(admin.messages.by_key(topic, name, limit=limit, begin=begin, end=end))
    rows = events(messages, name)
    return Listing.make(TraceEvent, rows, missing)


def events(messages: Iterable[MessageExt], name: str) -> list[TraceEvent]:
    """The records about `name`, an id or a key. Skips anything in the topic that is not a trace record."""
    found: dict[object, TraceEvent] = {}
    ends: dict[tuple[str, str], tuple[str, int | None]] = {}
    for message in messages:
        client = ":".join(map(str, message.record.born_address))
        for fields in _records(message.body):
            if fields[0] == "SubAfter":
                if end := _end(fields):
                    ends[end[0]] = end[1]
            elif (event := _event(fields, client)) and (name == event.id or name in (event.keys or "").split()):
                # A trace message may have been sent twice.
                found[event.event, event.group, event.id, event.request, event.time] = event
    rows = [_ended(event, ends) for event in found.values()]
    return sorted(rows, key=lambda row: (row.time.timestamp() if row.time else 0.0, row.event))


def _records(body: bytes) -> Iterator[list[str]]:
    for text in body.decode("utf-8", "replace").split(_RECORD):
        if text:
            yield text.split(_FIELD)


def _event(fields: list[str], client: str) -> TraceEvent | None:
    match fields:
        case ["Pub", when, _, group, topic, name, tags, keys, broker, size, cost, kind, *rest]:
            # Older clients write no offset id; newer ones append their own address.
            success = rest[-1] if len(rest) < 2 else rest[1]
            return TraceEvent(
                _time(when),
                "publish",
                group,
                "success" if success == "true" else "failed",
                _number(cost),
                None,
                rest[2] if len(rest) > 2 else client,
                topic,
                name,
                _known(tags),
                _known(keys),
                broker,
                _number(size),
                rest[0] if len(rest) > 1 else None,
                _word(_KINDS, kind),
            )
        case ["SubBefore", when, _, group, request, name, retries, keys, *rest]:
            return TraceEvent(
                _time(when),
                "consume",
                group,
                None,
                None,
                _number(retries),
                rest[0] if rest else client,
                None,
                name,
                keys=_known(keys),
                request=request,
            )
        case ["EndTransaction", when, _, group, topic, name, tags, keys, broker, _, _, state, *_]:
            return TraceEvent(
                _time(when), "end transaction", group, state, None, None, client, topic, name, _known(tags),
                _known(keys), broker,
            )  # fmt: skip
        case ["Recall", when, _, group, topic, name, success, *_]:
            status = "success" if success == "true" else "failed"
            return TraceEvent(_time(when), "recall", group, status, None, None, client, topic, name)
        case _:
            return None


def _end(fields: list[str]) -> tuple[tuple[str, str], tuple[str, int | None]] | None:
    """How a consumption ended, and how long it took, by request and message id."""
    match fields:
        case [_, request, name, cost, success, _, code, *_]:
            status = _word(_ENDS, code) or ("success" if success == "true" else "failed")
        case [_, request, name, cost, success, *_]:
            status = "success" if success == "true" else "failed"
        case _:
            return None
    return (request, name), (status, _number(cost))


def _ended(event: TraceEvent, ends: dict[tuple[str, str], tuple[str, int | None]]) -> TraceEvent:
    if event.event != "consume" or event.request is None or (event.request, event.id) not in ends:
        return event
    status, cost = ends[event.request, event.id]
    return replace(event, status=status, cost_ms=cost)


def _time(text: str) -> datetime | None:
    return from_millis(_number(text) or 0)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _known(text: str) -> str | None:
    return None if text in (_NULL, "") else text


def _word(words: tuple[str, ...], number: str) -> str | None:
    index = _number(number)
    return words[index] if index is not None and index < len(words) else None
