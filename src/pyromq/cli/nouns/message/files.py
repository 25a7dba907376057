"""`pyromq message export|import`: messages to a file, and back into a topic.

A file has one message per line, as JSON (`ndjson`, also what `message list -o ndjson` prints), or is CSV with the same
columns; bodies that are not UTF-8 are in base64, and `encoding` says so. Or it is Parquet, with the columns of a topic
as a Spark table.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.messages.ranges import place_of
from pyromq.admin.messages.reading import read_ranges
from pyromq.errors import ConfigError
from pyromq.protocol import properties as props
from pyromq.protocol.message import Message

from ...failures import CommandFailed, Exit
from ...output import Output, Printer, whole_file
from ...parameters import Topic, TopicOption
from ...session import Session
from ...verbs import changing, reading
from .options import Filter, LimitOption, Part, Rate, app, chosen, wanted
from .rows import MessageRow, encoded, message_row
from .sending import Sent, send_all, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyromq.admin.messages.ranges import TopicRanges
    from pyromq.protocol.message import MessageExt

    from .options import Wanted

_PROGRESS = 5.0


class Form(StrEnum):
    ndjson = "ndjson"
    csv = "csv"
    parquet = "parquet"


ToFile = Annotated[Path, typer.Option("-f", "--file", help="File to write; - is stdout.")]
AsForm = Annotated[Form | None, typer.Option("--to", help="File format; taken from the file name if omitted.")]


@reading(app, "export", timeout=None)
async def export(
    session: Session,
    topic: Topic,
    file: ToFile,
    part: Part,
    which: Filter,
    *,
    to: AsForm = None,
    limit: Annotated[int, LimitOption] = 0,
) -> None:
    """Write messages to a file.

    Bodies are complete, in the order they were stored. `message import` reads the file.

    Example: pyromq message export orders -f orders.ndjson --begin -1h
    """
    await write_messages(session, await chosen(session, topic, part), wanted(which), file, to, limit)


async def write_messages(
    session: Session, ranges: TopicRanges, want: Wanted, file: Path, form: Form | None, limit: int = 0
) -> None:
    """Write the chosen messages to a file; a failure removes a newly created one."""
    form = form or _form_of(file)
    if str(file) == "-":
        if form is Form.parquet:
            raise CommandFailed("Parquet needs a seekable file, not stdout", Exit.USAGE)
        await _write_text(session, ranges, want, Output(form.value), limit)
        return
    try:
        with whole_file(file) as part:
            if form is Form.parquet:
                count = await _write_parquet(session, ranges, want, part, limit)
            else:
                with part.open("w", encoding="utf-8", newline="") as target, redirect_stdout(target):
                    count = await _write_text(session, ranges, want, Output(form.value), limit)
    except OSError as exc:
        raise ConfigError(f"cannot be written: {exc.strerror}", str(file)) from exc
    session.note(f"wrote {count} messages of {ranges.topic} to {file}")


async def _write_text(session: Session, ranges: TopicRanges, want: Wanted, output: Output, limit: int) -> int:
    stream = Printer(output).stream(MessageRow)
    return await _write(session, ranges, want, limit, lambda message: stream.row(message_row(message, output)))


async def _write_parquet(session: Session, ranges: TopicRanges, want: Wanted, part: Path, limit: int) -> int:
    with _parquet().ParquetMessages(part) as file:
        return await _write(session, ranges, want, limit, file.add)


async def _write(
    session: Session, ranges: TopicRanges, want: Wanted, limit: int, write: Callable[[MessageExt], None]
) -> int:
    count, spoke = 0, time.monotonic()
    async with aclosing(read_ranges(session.admin, ranges, want.expression)) as messages:
        async for message in messages:
            if want.fits(message):
                write(message)
                count += 1
                if count == limit:
                    break
            if time.monotonic() - spoke > _PROGRESS:
                spoke = time.monotonic()
                session.note(f"{count} of about {ranges.count} messages so far")
    return count


def _parquet() -> Any:
    """The module for Parquet, which comes with Spark."""
    try:
        from pyromq.spark import parquet_files
    except ImportError as exc:
        raise CommandFailed(f"Parquet needs `pip install pyromq[spark]`: {exc}", Exit.USAGE) from exc
    return parquet_files


def _form_of(file: Path) -> Form:
    """The format that a file's name implies."""
    return {".csv": Form.csv, ".parquet": Form.parquet}.get(file.suffix.lower(), Form.ndjson)


@changing(app, "import", timeout=None)
async def import_messages(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File from `message export`; - is stdin.")],
    topic: TopicOption = None,
    rate: Rate = None,
) -> AsyncIterator[Sent]:
    """Send the messages of a file.

    They go to the topics they came from, or with -t all to one, and get new ids.

    Example: pyromq message import orders.ndjson --yes
    """
    count = sum(1 for _ in messages_in(file, topic)) if str(file) != "-" else None
    what = f"send {count} messages" if count is not None else "send messages"
    if not session.agreed(f"{what} to {f'topic {topic}' if topic else 'their topics'}", dangerous=topic is None):
        return
    quiet = session.printer.output is Output.table
    began, number = time.monotonic(), 0
    async with aclosing(send_all(session, _given(messages_in(file, topic)), None, rate)) as sent:
        async for result in sent:
            number += 1
            if not quiet:
                yield Sent(result.id, place_of(result.queue, result.offset), result.status.value)
    session.text(summary(number, topic or "their topics", time.monotonic() - began))


async def _given(messages: Iterator[Message]) -> AsyncIterator[Message]:
    for message in messages:
        yield message


def messages_in(file: Path, topic: str | None = None) -> Iterator[Message]:
    """The messages of a file. Raises ConfigError, which names the faulty line."""
    if _form_of(file) is Form.parquet:
        for number, row in enumerate(_parquet().parquet_rows(file), start=1):
            row["body"], row["encoding"] = encoded(row["body"] or b"")
            yield _from_row(row, topic, file, number)
        return
    try:
        with _text(file) as source:
            first = source.read(1)
            if first == "{":
                for number, line in enumerate(source, start=1):
                    text = first + line if number == 1 else line
                    if text.strip():
                        yield _message(text, topic, file, number)
            elif first:
                rows = csv.DictReader(_joined(first, source))
                for number, row in enumerate(rows, start=2):
                    yield _from_row(_from_csv(row, file, number), topic, file, number)
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise ConfigError(f"cannot be read: {exc}", str(file)) from exc


def _text(file: Path) -> Any:
    if str(file) == "-":
        return open(sys.stdin.fileno(), encoding="utf-8", newline="", closefd=False)
    return file.open(encoding="utf-8", newline="")


def _joined(first: str, source: Iterator[str]) -> Iterator[str]:
    yield first + next(source, "")
    yield from source


def _message(text: str, topic: str | None, file: Path, number: int) -> Message:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise _bad(file, number, "not JSON") from exc
    return _from_row(row, topic, file, number)


def _from_csv(row: dict[str, Any], file: Path, number: int) -> dict[str, Any]:
    try:
        for name in ("keys", "properties"):
            row[name] = json.loads(row.get(name) or "null")
        row["flag"] = int(row.get("flag") or 0)
    except (ValueError, TypeError, RecursionError) as exc:
        raise _bad(file, number, "not what `message export` writes") from exc
    return row


def _from_row(row: Any, topic: str | None, file: Path, number: int) -> Message:
    """The sender's part of a message; clients and brokers will add theirs anew."""
    if not isinstance(row, dict) or not isinstance(row.get("body"), str):
        raise _bad(file, number, "no body")
    to = topic or row.get("topic")
    if not isinstance(to, str) or not to:
        raise _bad(file, number, "no topic; give one with -t")
    keys, properties, flag = row.get("keys") or (), row.get("properties") or {}, row.get("flag") or 0
    if not isinstance(properties, dict) or not isinstance(keys, list | tuple) or not isinstance(flag, int):
        raise _bad(file, number, "keys, properties or flag are not what `message export` writes")
    try:
        body = base64.b64decode(row["body"], validate=True) if row.get("encoding") == "base64" else row["body"].encode()
    except (binascii.Error, ValueError) as exc:
        raise _bad(file, number, "the body is not base64") from exc
    own = {str(name): str(value) for name, value in properties.items() if name not in props.RESERVED}
    shard_key = own.pop(props.SHARDING_KEY, None)
    return Message(
        to,
        body,
        tags=str(row["tags"]) if row.get("tags") else None,
        keys=[str(key) for key in keys],
        properties=own,
        flag=flag,
        shard_key=shard_key,
    )


def _bad(file: Path, number: int, reason: str) -> CommandFailed:
    return CommandFailed(f"{file}, line {number}: {reason}", Exit.USAGE)
