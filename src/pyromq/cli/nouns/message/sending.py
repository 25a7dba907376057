"""`pyromq message send`: send one message, many, or every line of a file."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.messages import sending
from pyromq.admin.messages.ranges import place_of
from pyromq.admin.messages.sending import PAUSE
from pyromq.errors import ConfigError, PyroMQError, TopicNotFound
from pyromq.protocol.message_queue import MessageQueue

from ...failures import CommandFailed, Exit, exit_code
from ...output import Output
from ...parameters import Topic, pairs_of
from ...session import Session
from ...times import FORMS, parse_time
from ...verbs import changing
from .options import Rate, app, queue_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from pyromq.client import SendResult
    from pyromq.protocol.message import Message

GROUP = "pyromq_cli"

_CHUNK = 1 << 16
_FEW = 20  # rows that a table shows one by one
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Sent:
    """A stored message. Any status but SEND_OK says what the broker could not confirm."""

    id: str
    at: str
    status: str


@changing(app, "send", timeout=None)
async def send(
    session: Session,
    topic: Topic,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="The body.", show_default=False)] = None,
    *,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Its tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("-k", "--key", metavar="KEY", help="May be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Read the body from this file.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the body from stdin.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Send each line of the file or stdin as a message.")] = False,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Send it N times.")] = 1,
    rate: Rate = None,
    delay_level: Annotated[int, typer.Option("--delay-level", min=0, max=18, help="Delay level (RocketMQ's).")] = 0,
    delay: Annotated[str | None, typer.Option("--delay", metavar="10s", help="Deliver it after this time.")] = None,
    deliver_at: Annotated[str | None, typer.Option("--deliver-at", metavar="TIME", help=f"{FORMS}.")] = None,
    shard_key: Annotated[
        str | None, typer.Option("--shard-key", help="Messages with the same key stay in order.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("-q", "--queue", metavar="BROKER:N", help="Send it to this queue.")
    ] = None,
) -> AsyncIterator[Sent]:
    """Send a message, or many.

    --lines sends each line of a file or stdin as a message; --count sends the same message N times.

    Example: pyromq message send orders hello --tag paid --key 4711
    """
    if (body is not None) + (file is not None) + stdin != 1:
        raise CommandFailed("give a body, --file or --stdin", Exit.USAGE)
    if lines and (body is not None or count > 1):
        raise CommandFailed("--lines needs --file or --stdin, and excludes --count", Exit.USAGE)
    fields: dict[str, Any] = {
        "tags": tag,
        "keys": key or (),
        "properties": pairs_of(properties) if properties and _all_pairs(properties) else {},
        "delay_level": delay_level,
        "delay": _span(delay),
        "deliver_at": parse_time(deliver_at, datetime.now().astimezone()) if deliver_at else None,
        "shard_key": shard_key,
    }
    to = None
    if queue is not None:
        broker, number = queue_of(queue)
        to = MessageQueue(topic=topic, broker_name=broker, queue_id=number)
    what = "every line" if lines else f"{count} messages" if count > 1 else "a message"
    if not session.agreed(f"send {what} to topic {topic}"):
        return
    await _note_new_topic(session, topic)
    if lines:
        bodies = _lines(file)
    else:
        whole = body.encode() if body is not None else await _whole(file)
        bodies = _repeated(whole, count)
    quiet = session.printer.output is Output.table and (lines or count > _FEW)
    async with aclosing(send_all(session, (_message(topic, each, fields) async for each in bodies), to, rate)) as sent:
        count_sent, began = 0, time.monotonic()
        async for result in sent:
            count_sent += 1
            if not quiet:
                yield Sent(result.id, place_of(result.queue, result.offset), result.status.value)
    if quiet:
        session.text(summary(count_sent, topic, time.monotonic() - began))


def summary(number: int, topic: str, seconds: float) -> str:
    return f"sent {number} messages to {topic} in {seconds:.1f} s ({number / max(seconds, 0.001):.0f}/s)"


async def send_all(
    session: Session, messages: AsyncIterable[Message], queue: MessageQueue | None, rate: float | None
) -> AsyncGenerator[SendResult, None]:
    """The results of sending. Stops at the first failure; CommandFailed says how many were stored before it."""
    done = 0
    try:
        async with aclosing(sending.send_all(session.admin.client, GROUP, messages, queue=queue, rate=rate)) as results:
            async for result in results:
                done += 1
                yield result
    except PyroMQError as exc:
        if not done:
            raise
        raise CommandFailed(f"stopped after {done} messages: {exc}", exit_code(exc)) from exc


def _message(topic: str, body: Any, fields: dict[str, Any]) -> Any:
    from pyromq.protocol.message import Message

    return body if body is PAUSE else Message(topic, body, **fields)


async def _repeated(body: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield body


async def _lines(file: Path | None) -> AsyncIterator[Any]:
    """The lines of a file or stdin without empty ones; pauses when it has caught up."""
    with _opened(file) as source:
        left = b""
        while chunk := await asyncio.to_thread(source.read1, _CHUNK):
            *whole, left = (left + chunk).split(b"\n")
            for line in whole:
                if text := line.removesuffix(b"\r"):
                    yield text
            yield PAUSE
        if left:
            yield left


async def _whole(file: Path | None) -> bytes:
    with _opened(file) as source:
        whole: bytes = await asyncio.to_thread(source.read)
        return whole


def _opened(file: Path | None) -> Any:
    if file is None or str(file) == "-":
        # Do not close it: stdin is shared.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return file.open("rb")
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", str(file)) from exc


async def _note_new_topic(session: Session, topic: str) -> None:
    try:
        await session.admin.topics.route(topic)
    except TopicNotFound:
        session.note(f"topic {topic} did not exist; a broker may create it for this message")


def _all_pairs(words: list[str]) -> bool:
    for word in words:
        if "=" not in word:
            raise CommandFailed(f"{word!r} is not NAME=VALUE", Exit.USAGE)
    return True


def _span(text: str | None) -> timedelta | None:
    if text is None:
        return None
    if not (match := _SPAN.fullmatch(text)):
        raise CommandFailed(f"{text!r} is not a duration; use 10s, 500ms, 5m, 2h or 1d", Exit.USAGE)
    return timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])
