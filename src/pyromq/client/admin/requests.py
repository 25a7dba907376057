"""How an admin client asks: one server, the name servers, or many brokers at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyromq.errors import NoNameServer, PartialFailure, PyroMQError, StateError, broker_error
from pyromq.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyromq.protocol.command import Body
    from pyromq.protocol.header import Header
    from pyromq.protocol.headers import PullMessage

    from ..client import Client

K = TypeVar("K")
T = TypeVar("T")

# So many servers are asked at the same time; a cluster may have hundreds of them.
AT_ONCE = 16

# What a broker may need long for: an index that is not in memory, a walk over all groups or files. Times the timeout.
SLOW = 3
# A broker that passes a question on to a consumer waits 10 s for its answer, and then says so.
RELAYED = 15.0


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What several servers, or several requests, came to: each is in one of the two tables, by its name."""

    what: str
    results: dict[str, T]
    failures: dict[str, PyroMQError]

    def check(self, partial: object = None) -> dict[str, T]:
        """The results, if nothing failed. Otherwise raises PartialFailure, which carries `partial`.

        The failure of the only one that was asked is raised as it is.
        """
        if not self.failures:
            return self.results
        if not self.results and len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        raise PartialFailure(self.what, tuple(self.results), tuple(self.failures.items()), partial)


class Asking:
    """The requests of one admin client. Every refusal is raised as the error of its code, with the server's address.

    `timeout` is for one request, in seconds; an operation that makes several may take a multiple of it.
    """

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self.started = False

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: Body | None = None,
        *,
        slow: int = 1,
        at_least: float = 0.0,
    ) -> Command:
        """Ask a broker. `slow` is how many times longer than usual it may take, `at_least` the seconds it gets."""
        self._check()
        timeout = max(self._timeout * slow, at_least)
        return await self._client.calls.invoke(address, Command.request(code, header, body), timeout)

    async def pull(self, address: str, header: PullMessage, *, longer: float = 0.0) -> Command:
        """Pull messages from a broker. That there are none (19, 20, 21) is no error, but the code of the reply.

        `longer` is added to the timeout: the seconds that the broker was told to wait for messages.
        """
        self._check()
        return await self._client.calls.pull(address, header, self._timeout + longer)

    async def ask_name_server(self, code: int, header: Header | None = None) -> Command:
        """Ask any name server: all of them know the same."""
        self._check()
        self._name_servers()
        servers = self._client.name_servers
        reply = await servers.invoke(Command.request(code, header), self._timeout)
        return _checked(reply, servers.current or "name server")

    async def ask_name_servers(
        self, what: str, code: int, header: Header | None = None, body: Body | None = None
    ) -> Answers[Command]:
        """Ask every name server: they do not tell each other what they are told."""
        self._check()

        async def ask(address: str) -> Command:
            request = Command.request(code, header, body)
            return _checked(await self._client.remoting.invoke(address, request, self._timeout), address)

        return await each(what, self._name_servers(), ask)

    def _name_servers(self) -> tuple[str, ...]:
        addresses = self._client.name_servers.addresses
        if not addresses:
            raise NoNameServer("no address of a name server is known; give namesrv, or set NAMESRV_ADDR")
        return addresses

    def _check(self) -> None:
        if not self.started:
            raise StateError("this admin client was not started, or was closed")
        self._client.check_open()


async def each(what: str, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> Answers[T]:
    """Await `ask` for each of the keys, some at a time. Who fails does not keep the others from being asked."""
    turn = asyncio.Semaphore(AT_ONCE)
    asked = list(dict.fromkeys(keys))
    answers: Answers[T] = Answers(what, {}, {})

    async def one(key: K) -> T | PyroMQError:
        async with turn:
            try:
                return await ask(key)
            except PyroMQError as exc:
                return exc

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(key), name=f"{what}: {key}") for key in asked]
    for key, task in zip(asked, tasks, strict=True):
        outcome = task.result()
        if isinstance(outcome, PyroMQError):
            answers.failures[str(key)] = outcome
        else:
            answers.results[str(key)] = outcome
    return answers


def _checked(reply: Command, server: str) -> Command:
    if reply.code:
        raise broker_error(reply.code, reply.remark, server)
    return reply
