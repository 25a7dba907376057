"""Run a verb: connect, keep the deadline, print the result, and report every failure in one line."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from pyromq.errors import ConsumerNotOnline, PyroMQError, RouteNotFound, SubscriptionGroupNotExist, TopicNotFound

from .connecting import target
from .failures import exit_code, next_step, not_found
from .output import Output, Printer, one_line
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connecting import Target
    from .failures import Exit
    from .session import Asked

INTERRUPTED = 130

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_NAMES_WITHIN = 1.0  # seconds to look up names similar to one that does not exist


def carry_out(
    function: Callable[..., Any], given: dict[str, Any], asked: Asked, timeout: float | None, *, connects: bool
) -> int:
    """Run the verb and print its result, once or repeatedly; returns the exit code.

    `timeout` is the default for the whole verb, in seconds; None means as long as it takes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names and remarks come from others and may hold characters that this terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    # The client's log lines are not for people typing commands; without a handler Python would print them.
    if not (logger := logging.getLogger("pyromq")).handlers:
        logger.addHandler(logging.NullHandler())
    printer = Printer(asked.output, bold=_is_coloured(asked))
    try:
        aim = target(asked.namesrv, asked.context, access_key=asked.sign_as, tls=asked.tls)
        limit = None if timeout is None else asked.timeout or aim.timeout or timeout
        while True:
            session = Session(asked, aim, printer)
            work = _connected(session, function, given, limit) if connects else _done(session, function, given)
            try:
                asyncio.run(work)
                code = session.exit_code
            except (PyroMQError, TimeoutError) as exc:
                # With --watch keep going: the user wants to see the cluster come back.
                code = _failed(asked, exc, aim, limit)
            sys.stdout.flush()
            if asked.watch is None:
                return code
            time.sleep(asked.watch)
    except PyroMQError as exc:
        return _failed(asked, exc)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`). Do not write at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def _connected(
    session: Session, function: Callable[..., Any], given: dict[str, Any], limit: float | None
) -> None:
    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.fan_out import within

    # A bit less than the deadline, so that a single request fails with its own error, which names the silent server.
    timeout = 5.0 if limit is None else 0.95 * limit
    async with AdminClient(client=session.target.client(), timeout=timeout) as session.admin:
        try:
            async with within(limit) if limit is not None else contextlib.nullcontext():
                await _done(session, function, given)
        except PyroMQError as exc:
            raise await _with_nearest(session, given, exc) from exc


async def _done(session: Session, function: Callable[..., Any], given: dict[str, Any]) -> None:
    result = function(session, **given)
    if isinstance(result, AsyncIterator):
        await _print_stream(result, session.printer)
        return
    done = await result
    if session.asked.watch is not None and session.printer.output is Output.table and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    if isinstance(done, Mapping):
        session.printer.record(done)
    elif isinstance(done, tuple):  # several tables
        for number, listing in enumerate(done):
            if number:
                session.text("")
            session.show(listing)
    elif done is not None:
        session.show(done)


async def _print_stream(rows: AsyncIterator[Any], printer: Printer) -> None:
    stream = None
    async for row in rows:
        if stream is None:
            stream = printer.stream(type(row))
        stream.row(row)
    if stream is not None:
        stream.end()
    elif printer.output is Output.json:
        print("[]")


async def _with_nearest(session: Session, given: Mapping[str, Any], error: PyroMQError) -> PyroMQError:
    """If the topic or group does not exist, an error that suggests similar names."""
    topic, group, where = given.get("topic"), given.get("group"), session.target.namesrv
    with contextlib.suppress(PyroMQError, TimeoutError):  # the first error says enough
        async with asyncio.timeout(_NAMES_WITHIN):
            if isinstance(error, TopicNotFound | RouteNotFound) and isinstance(topic, str):
                topics = await session.admin.topics.names()
                if topic not in topics:
                    return not_found("topic", topic, topics, where)
            if isinstance(error, SubscriptionGroupNotExist | ConsumerNotOnline) and isinstance(group, str):
                groups = await session.admin.groups.names()
                if group not in groups:
                    return not_found("group", group, groups, where)
    return error


def _failed(asked: Asked, error: BaseException, aim: Target | None = None, limit: float | None = None) -> Exit:
    sys.stdout.flush()
    line = str(error)
    if aim is not None and isinstance(error, TimeoutError) and not isinstance(error, PyroMQError):
        line = f"{aim.namesrv}: no answer within {limit or 0:g} s"
    hint = next_step(error)
    print(f"{asked.command}: {one_line(line)}{f'; {hint}' if hint else ''}", file=sys.stderr)
    return exit_code(error)


def _is_coloured(asked: Asked) -> bool:
    return sys.stdout.isatty() and not asked.no_color and not os.environ.get("NO_COLOR")
