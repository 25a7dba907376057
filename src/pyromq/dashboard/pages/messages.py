"""`/messages` and the messages of a topic: one search language; the address holds the whole state. The live tail."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import time
from collections import deque
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, StreamingResponse

from pyromq.admin.messages.bodies import body_of, encoded
from pyromq.admin.messages.query import Query, parse_query
from pyromq.admin.messages.ranges import parse_place
from pyromq.admin.messages.reading import read_ranges
from pyromq.admin.messages.search import Found, expression_of, message_at, places, ranges_of, search, summary_of
from pyromq.admin.messages.tail import Tail
from pyromq.admin.messages.viewing import view_of
from pyromq.errors import ConfigError, PyroMQError

from ..web.asked import segment
from ..web.bodies import shown
from ..web.languages import gettext as _
from ..web.rendering import render
from ..web.routing import page
from ..web.streams import KEEP_ALIVE, MOST_STREAMS, Event, EventStream
from .topics import topic_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.responses import Response

    from pyromq.admin.messages.search import MessageSummary

    from ..web.asked import Asked

LIMIT = 50
EXPORT_LIMIT = 100_000
_TAIL_ROWS = 400  # kept for a browser that reads slowly
_TAIL_EVERY = 0.1


async def messages(ask: Asked) -> Response:
    text = ask.text("q")
    values: dict[str, Any] = {
        "title": _("Messages"),
        "q": text,
        "search_text": text,
        "home": "/messages",
        "examples": not text,
    }
    return await _results(ask, "messages/search.html", values, lambda: parse_query(text), asked=bool(text))


async def of_topic(ask: Asked) -> Response:
    frame = await topic_frame(ask, "messages", q=ask.text("q"))
    topic = ask.part("topic")
    return await _results(
        ask, "topics/messages.html", frame, lambda: parse_query(ask.text("q")).in_topic(topic), asked=True
    )


async def _results(
    ask: Asked, template: str, values: dict[str, Any], parse: Callable[[], Query], *, asked: bool
) -> Response:
    found, error, opened = Found(()), "", None
    limit = min(max(ask.number("limit", LIMIT), 1), 500)
    try:
        if asked:
            query = parse()
            async with ask.deadline(6):
                found = await search(ask.admin, query, limit=limit, older=ask.text("older") or None)
                opened = await _opened(ask, query)
            values["full_query"] = str(query)
    except (ConfigError, ValueError) as exc:
        error = str(exc)
    home, text = values["home"], values["q"]

    def link(row: MessageSummary) -> str:
        open_ = f"{row.topic}@{row.place}"
        return ask.url(home, q=text, older=ask.text("older"), open=open_) + "#open"

    return ask.page(
        template,
        values
        | {"found": found, "error": error, "asked": asked, "link": link, "opened": opened, "older": ask.text("older")},
        400 if error else 200,
    )


async def _opened(ask: Asked, query: Query) -> dict[str, Any] | None:
    """The message that the address opens beside the list."""
    topic, _at, place = ask.text("open").rpartition("@")
    if not topic:
        return None
    try:
        broker, queue, offset = parse_place(place)
        if offset is None:
            return None
        message = await message_at(ask.admin, topic, broker, queue, offset)
    except (ValueError, PyroMQError):
        return None
    view = view_of(message)
    return {"view": view, "shown": shown(view.body), "home": home_of(view)}


def home_of(view: Any) -> str:
    """The address of a message that never changes."""
    return f"/m/{segment(view.topic)}/{segment(view.broker)}/{view.queue}/{view.offset}"


# Export


async def export(ask: Asked) -> Response:
    form = ask.text("form", "ndjson")
    if form not in ("csv", "ndjson"):
        raise ConfigError(_("Messages can be exported as csv or ndjson."))
    query = parse_query(ask.text("q"))
    async with ask.deadline():
        ranges = await ranges_of(ask.admin, query)
    limit = min(ask.number("limit", EXPORT_LIMIT), EXPORT_LIMIT)
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in query.topic or "messages")[:80]

    async def lines() -> AsyncIterator[bytes]:
        count = 0
        out = io.StringIO()
        writer = csv.writer(out)
        if form == "csv":
            writer.writerow(("id", "stored", "broker", "queue", "offset", "tags", "keys", "body", "encoding"))
        async with aclosing(read_ranges(ask.admin, ranges, expression_of(query))) as found:
            async for message in found:
                if not query.fits(message):
                    continue
                body, encoding = encoded(body_of(message))
                row = summary_of(message)
                stored = row.stored.isoformat(timespec="milliseconds") if row.stored else ""
                if form == "csv":
                    cells = (
                        row.id,
                        stored,
                        row.broker,
                        row.queue,
                        row.offset,
                        row.tags or "",
                        " ".join(row.keys),
                        body,
                        encoding,
                    )
                    writer.writerow(tuple(map(_harmless, cells)))
                else:
                    view = view_of(message)
                    record = {
                        "id": row.id, "topic": row.topic, "stored": stored, "broker": row.broker, "queue": row.queue,
                        "offset": row.offset, "tags": row.tags, "keys": row.keys, "body": body, "encoding": encoding,
                        "properties": view.own,
                    }  # fmt: skip
                    out.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
                if out.tell() > 32768:
                    yield out.getvalue().encode()
                    out.seek(0)
                    out.truncate()
                if count >= limit:
                    break
        yield out.getvalue().encode()

    kind = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return StreamingResponse(lines(), media_type=kind, headers=headers)


def _harmless(cell: object) -> object:
    """A spreadsheet would run a cell that begins like a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


# Tail


async def tail(ask: Asked) -> Response:
    text = ask.text("q")
    frame = await topic_frame(ask, "tail", q=text)
    error = ""
    try:
        parse_query(text)
    except ConfigError as exc:
        error = str(exc)
    return ask.page("topics/tail.html", frame | {"error": error}, 400 if error else 200)


async def tail_events(ask: Asked) -> Response:
    if EventStream.open_now >= MOST_STREAMS:
        return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "10"})
    query = parse_query(ask.text("q")).in_topic(ask.part("topic"))
    async with ask.deadline():
        ranges = await ranges_of(ask.admin, query)
    at = ask.request.headers.get("last-event-id") or ask.text("at")
    known = places(at) if at else {}

    def begin(part: Any) -> int:
        wanted = known.get((part.queue.broker_name, part.queue.queue_id), part.end)
        return int(max(part.begin, min(wanted, part.end)))

    ranges = replace(ranges, queues=tuple(replace(part, begin=begin(part)) for part in ranges.queues))
    return EventStream(_tail(ask, query, ranges))


async def _tail(ask: Asked, query: Query, ranges: Any) -> AsyncIterator[bytes]:
    """Rows as they arrive, some at a time; a browser that cannot keep up is told how many it did not get."""
    rows: deque[MessageSummary] = deque()
    positions = {(part.queue.broker_name, part.queue.queue_id): part.begin for part in ranges.queues}
    troubles: deque[str] = deque(maxlen=4)
    arrived = asyncio.Event()
    skipped = 0

    def trouble(line: str) -> None:
        troubles.append(line)
        arrived.set()

    async def read(messages: Tail) -> None:
        nonlocal skipped
        async for message in messages:
            positions[message.broker_name, message.queue_id] = message.queue_offset + 1
            if query.fits(message):
                rows.append(summary_of(message))
                if len(rows) > _TAIL_ROWS:
                    rows.popleft()
                    skipped += 1
                arrived.set()

    def link(row: MessageSummary) -> str:
        return ask.url(f"/m/{segment(row.topic)}/{segment(row.broker)}/{row.queue}/{row.offset}")

    yield b"retry: 1000\n\n"
    async with Tail(ask.admin, ranges, expression_of(query), trouble) as messages:
        reader = asyncio.create_task(read(messages), name="tail rows")
        try:
            while ask.is_welcome():
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        await arrived.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                arrived.clear()
                began = time.monotonic()
                while troubles:
                    yield Event("trouble", troubles.popleft()).encode()
                if rows:
                    batch, lost = list(reversed(rows)), skipped
                    rows.clear()
                    skipped = 0
                    html = render("parts/message_rows.html", {"rows": batch, "link": link})
                    data = json.dumps({"html": html, "count": len(batch), "skipped": lost})
                    where = ",".join(f"{broker}:{queue}:{offset}" for (broker, queue), offset in positions.items())
                    yield Event("rows", data, where).encode()
                await asyncio.sleep(max(0.0, _TAIL_EVERY - (time.monotonic() - began)))
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


ENDPOINTS = [
    page("/messages", messages),
    page("/messages/export", export),
    page("/topics/{topic}", of_topic),
    page("/topics/{topic}/tail", tail),
    page("/topics/{topic}/tail/events", tail_events),
]
