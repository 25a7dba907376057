"""Asking many servers at once, under one deadline for all that is asked.

    async with within(3.0):
        lag = await group_lag(admin, "billing")

However many brokers hang, this ends in time: with what the others said, and with who is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyromq.errors import PyroMQError, RequestTimeout

from .listing import Missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

K = TypeVar("K")
T = TypeVar("T")

AT_ONCE = 32
# After the deadline of a fan-out: to ask those who did answer for what completes the picture.
_GRACE = 0.6


@dataclass(slots=True)
class _Deadline:
    """When a fan-out is cut off, of how many seconds that is the end, and what cuts off everything else."""

    at: float
    seconds: float
    scope: asyncio.Timeout


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Give everything inside so much time together. A fan-out that is cut off says who is missing; anything else
    ends in TimeoutError a moment later.
    """
    at = asyncio.get_running_loop().time() + seconds
    async with asyncio.timeout_at(at + _GRACE) as scope:
        before = _DEADLINE.set(_Deadline(at, seconds, scope))
        try:
            yield
        finally:
            _DEADLINE.reset(before)


def more_time(seconds: float) -> None:
    """Put the deadline off, as after a question that somebody thought about for so long."""
    if (deadline := _DEADLINE.get()) is not None:
        deadline.at += seconds
        deadline.scope.reschedule(deadline.at + _GRACE)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What was answered, by the server's name, and who did not answer or refused."""

    results: dict[str, T]
    missing: tuple[Missing, ...]

    def some(self) -> dict[str, T]:
        """The results. If there are none because everybody failed, the first failure is raised instead."""
        if self.missing and not self.results:
            raise self.missing[0].error
        return self.results


async def fan_out(servers: Mapping[str, K], ask: Callable[[K], Awaitable[T]]) -> Answers[T]:
    """Await `ask` for each of the servers, some at a time, each until the deadline. Never raises a PyroMQError."""
    limit = _DEADLINE.get()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, key: K) -> T | PyroMQError:
        try:
            async with asyncio.timeout_at(limit.at if limit else None), turn:
                return await ask(key)
        except PyroMQError as exc:  # before TimeoutError, which some of them are, too
            return exc
        except TimeoutError:
            return no_answer(name, limit.seconds if limit else 0.0)

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(one(name, key), name=f"ask {name}") for name, key in servers.items()}
    results: dict[str, T] = {}
    missing = []
    for name, task in tasks.items():
        outcome = task.result()
        if isinstance(outcome, PyroMQError):
            missing.append(Missing(name, outcome))
        else:
            results[name] = outcome
    return Answers(results, tuple(missing))


def no_answer(server: str, seconds: float) -> RequestTimeout:
    """The time for all of it ran out before this server answered."""
    error = RequestTimeout(server, 0, seconds)
    error.args = (f"{server}: no answer within {seconds:g} s",)
    return error
