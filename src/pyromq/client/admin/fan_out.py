"""Ask many servers at once, under one deadline.

    async with within(3.0):
        answers = await fan_out(brokers, admin.brokers.runtime)

However many brokers hang, this ends in time, with the others' answers and the names of those missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from pyromq.errors import PartialFailure, PyroMQError, RequestTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

K = TypeVar("K")
T = TypeVar("T")

# Servers asked at the same time; a cluster may have hundreds.
AT_ONCE = 32
# Extra time after a fan-out's deadline, to ask those that answered for the rest.
_GRACE = 0.6


@dataclass(slots=True)
class _Deadline:
    """When a fan-out is cut off, how many seconds it had, and what cuts off everything else."""

    at: float
    seconds: float
    scope: asyncio.Timeout


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Limit the time of everything inside. A fan-out that is cut off names those missing; anything else
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
    """Extend the deadline, for example by the time a user took to answer a question."""
    if (deadline := _DEADLINE.get()) is not None:
        deadline.at += seconds
        deadline.scope.reschedule(deadline.at + _GRACE)


@dataclass(frozen=True, slots=True)
class Missing:
    """A server that gave no answer, so that part of the picture is unknown."""

    server: str
    error: PyroMQError

    def __str__(self) -> str:
        said = str(self.error)
        return said if said.startswith(self.server) else f"{self.server}: {said}"


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The results of several servers or requests: each is in one of the two tables, by name."""

    what: str
    results: dict[str, T]
    failures: dict[str, PyroMQError]

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The servers that did not answer, or refused."""
        return tuple(Missing(server, error) for server, error in self.failures.items())

    def check(self, partial: object = None) -> dict[str, T]:
        """The results, if nothing failed. Otherwise raises PartialFailure, which carries `partial`.

        If only one was asked, its failure is raised unchanged.
        """
        if not self.failures:
            return self.results
        if not self.results and len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        raise PartialFailure(self.what, tuple(self.results), tuple(self.failures.items()), partial)

    def some(self) -> dict[str, T]:
        """The results. If all failed, raises the first failure."""
        if self.failures and not self.results:
            raise next(iter(self.failures.values()))
        return self.results


@overload
async def fan_out(servers: Mapping[str, K], ask: Callable[[K], Awaitable[T]], what: str = "ask") -> Answers[T]: ...


@overload
async def fan_out(servers: Iterable[K], ask: Callable[[K], Awaitable[T]], what: str = "ask") -> Answers[T]: ...


async def fan_out(
    servers: Mapping[str, K] | Iterable[K], ask: Callable[[K], Awaitable[T]], what: str = "ask"
) -> Answers[T]:
    """Await `ask` for each server, some at a time, until the deadline. Never raises a PyroMQError.

    Without names, servers stand for themselves, and none is asked twice. `what` is for the error of `check`.
    """
    named: Mapping[str, K] = servers if isinstance(servers, Mapping) else {str(key): key for key in servers}
    limit = _DEADLINE.get()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, key: K) -> T | PyroMQError:
        try:
            async with asyncio.timeout_at(limit.at if limit else None), turn:
                return await ask(key)
        except PyroMQError as exc:  # before TimeoutError, which some of them also are
            return exc
        except TimeoutError:
            return _no_answer(name, limit.seconds if limit else 0.0)

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(one(name, key), name=f"{what}: {name}") for name, key in named.items()}
    answers: Answers[T] = Answers(what, {}, {})
    for name, task in tasks.items():
        outcome = task.result()
        if isinstance(outcome, PyroMQError):
            answers.failures[name] = outcome
        else:
            answers.results[name] = outcome
    return answers


async def partly(operation: Awaitable[T]) -> tuple[T, tuple[Missing, ...]]:
    """The whole or partial result of an operation, and who is missing.

    Raises PartialFailure if there is no result at all.
    """
    try:
        return await operation, ()
    except PartialFailure as exc:
        if exc.partial is None or not exc.done:
            raise
        found: T = exc.partial
        return found, tuple(Missing(server, error) for server, error in exc.failures)


def _no_answer(server: str, seconds: float) -> RequestTimeout:
    """The overall time ran out before this server answered."""
    error = RequestTimeout(server, 0, seconds)
    error.args = (f"{server}: no answer within {seconds:g} s",)
    return error
