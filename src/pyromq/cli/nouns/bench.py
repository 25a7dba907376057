"""`pyromq bench`: measure how fast messages are sent and read from here."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pyromq.admin.listing import Listing
from pyromq.admin.messages.ranges import last_messages
from pyromq.admin.messages.reading import read_ranges
from pyromq.admin.messages.sending import Pace
from pyromq.errors import PyroMQError

from ..failures import CommandFailed, Exit, exit_code
from ..parameters import Topic
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .message.options import Rate, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyromq.client import Producer

app = new_app("Measure how fast this client sends and reads messages from this machine.")


def main(arguments: list[str]) -> int:
    return run_app(app, "bench", arguments)


@dataclass(frozen=True, slots=True)
class Measured:
    """Times are in milliseconds; None if single messages were not timed."""

    messages: int
    seconds: float
    per_second: float
    mib_per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    failed: int = 0


@changing(app, "send", timeout=None)
async def bench_send(
    session: Session,
    topic: Topic,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Number of messages.")] = 10_000,
    size: Annotated[int, typer.Option("-s", "--size", min=0, max=4 << 20, help="Body size in bytes.")] = 1024,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=10_000, help="Most messages in flight.")] = 256,
    rate: Rate = None,
) -> Listing[Measured] | None:
    """Send messages full of zeros to a topic; report the total time and each message's latency.

    Example: pyromq bench send orders
    """
    await session.admin.topics.route(topic)  # raises TopicNotFound: a typo must not create a topic
    if not session.agreed(f"send {count} messages of {size} bytes to topic {topic}"):
        return None
    from pyromq.client import Producer

    async with Producer("pyromq_bench", client=session.admin.client) as producer:
        try:
            await producer.send(topic, bytes(size))  # connects
        except PyroMQError as exc:
            raise CommandFailed(str(exc), exit_code(exc)) from exc
        times: list[float] = []
        failures: list[PyroMQError] = []
        left = iter(range(count))
        pace = Pace(rate)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, count)):
                sending = _send(producer, topic, bytes(size), left=left, pace=pace, times=times, failures=failures)
                group.create_task(sending, name="bench send")
        seconds = time.perf_counter() - began
    if failures:
        session.note(f"{len(failures)} sends failed; the first: {failures[0]}")
        session.exit_code = Exit.REFUSED
    return Listing.make(Measured, [measured(times, len(times) * size, seconds, len(failures))])


async def _send(
    producer: Producer,
    topic: str,
    body: bytes,
    *,
    left: Iterator[int],
    pace: Pace,
    times: list[float],
    failures: list[PyroMQError],
) -> None:
    for _ in left:  # one iterator for all tasks
        await pace.turn()
        began = time.perf_counter()
        try:
            await producer.send(topic, body)
        except PyroMQError as exc:
            failures.append(exc)
        else:
            times.append((time.perf_counter() - began) * 1000)


@reading(app, "consume", timeout=None)
async def bench_consume(
    session: Session,
    topic: Topic,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="Read the last N messages.")] = 10_000,
) -> Listing[Measured]:
    """Read messages from all queues of a topic at once and report how long it took. Changes no offsets.

    Example: pyromq bench consume orders
    """
    ranges = await chosen(session, topic)
    if not ranges.count:
        raise CommandFailed(f"topic {topic} has no messages; `pyromq bench send {topic}` sends some", Exit.NOT_FOUND)
    per_queue = -(-count // max(1, sum(1 for part in ranges.queues if part.count)))
    near = last_messages(ranges, per_queue)
    number = size = 0
    began = time.perf_counter()
    async with aclosing(read_ranges(session.admin, near)) as messages:
        async for message in messages:
            number += 1
            size += len(message.body)
            if number == count:
                break
    return Listing.make(Measured, [measured([], size, time.perf_counter() - began, 0, number)])


def measured(times: Sequence[float], size: int, seconds: float, failed: int, count: int | None = None) -> Measured:
    """The figures of a run. `times` are the latencies of single messages in ms; without them, pass `count`."""
    number = len(times) if count is None else count
    ordered = sorted(times)
    return Measured(
        number,
        seconds,
        number / seconds if seconds else 0.0,
        size / seconds / (1 << 20) if seconds else 0.0,
        ordered[len(ordered) // 2] if ordered else None,
        ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] if ordered else None,
        ordered[-1] if ordered else None,
        failed,
    )
