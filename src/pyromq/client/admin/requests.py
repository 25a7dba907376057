"""Requests of an admin client: to one server, to the name servers, or to many brokers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import NoNameServer, StateError, broker_error
from pyromq.protocol.command import Command

from .fan_out import fan_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.protocol.command import Body
    from pyromq.protocol.header import Header
    from pyromq.protocol.headers import PullMessage

    from ..client import Client
    from .fan_out import Answers

# Factor on the timeout for slow requests: an index not in memory, a walk over all groups or files.
SLOW = 3
# A broker that passes a request on to a consumer waits 10 s for its answer before it reports a timeout.
RELAYED = 15.0


class Requests:
    """The requests of one admin client. A refusal raises the error of its code, with the server's address.

    `timeout` covers one request, in seconds; an operation with several may take a multiple of it.
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
        """Ask a broker. `slow` multiplies the timeout, `at_least` is its minimum in seconds."""
        self._check()
        timeout = max(self._timeout * slow, at_least)
        return await self._client.calls.invoke(address, Command.request(code, header, body), timeout)

    async def ask_each(
        self,
        what: str,
        brokers: Mapping[str, str] | Iterable[str],
        code: int,
        header: Header | None = None,
        body: Body | None = None,
        *,
        slow: int = 1,
    ) -> Answers[Command]:
        """Ask several brokers the same, given as addresses or as addresses by name."""
        return await fan_out(brokers, lambda address: self.ask(address, code, header, body, slow=slow), what)

    async def tell(
        self,
        what: str,
        addresses: list[str],
        code: int,
        header: Header | None = None,
        body: Body | None = None,
        *,
        slow: int = 1,
    ) -> list[str]:
        """Make several brokers do the same; returns their addresses. Raises PartialFailure."""
        (await self.ask_each(what, addresses, code, header, body, slow=slow)).check()
        return addresses

    async def pull(self, address: str, header: PullMessage, *, longer: float = 0.0) -> Command:
        """Pull messages from a broker. If there are none, the reply's code says so (19, 20, 21); it is not an error.

        `longer` is added to the timeout: the seconds the broker waits for messages.
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
        """Ask every name server: they do not talk to each other."""
        self._check()

        async def ask(address: str) -> Command:
            request = Command.request(code, header, body)
            return _checked(await self._client.remoting.invoke(address, request, self._timeout), address)

        return await fan_out(self._name_servers(), ask, what)

    async def ask_controller(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: Body | None = None,
        *,
        at_most: float | None = None,
    ) -> Command:
        """Ask a controller, which has one port only. `at_most` shortens the timeout, in seconds."""
        self._check()
        timeout = self._timeout if at_most is None else min(self._timeout, at_most)
        request = Command.request(code, header, body)
        return _checked(await self._client.remoting.invoke(address, request, timeout), address)

    def _name_servers(self) -> tuple[str, ...]:
        addresses = self._client.name_servers.addresses
        if not addresses:
            raise NoNameServer("no name server address; give namesrv, or set NAMESRV_ADDR")
        return addresses

    def _check(self) -> None:
        if not self.started:
            raise StateError("this admin client is not started, or closed")
        self._client.check_open()


def _checked(reply: Command, server: str) -> Command:
    if reply.code:
        raise broker_error(reply.code, reply.remark, server)
    return reply
