"""The lines between the parts of a group. All of them go through this process, and each can break by itself.

Every broker announces addresses on which not it but a junction listens, and finds everybody else behind proxies:

    127.0.1.n   clients, other brokers and controllers reach broker n
    127.0.2.n   slaves reach it for replication
    127.0.3.n   broker n reaches the controllers
    127.0.4.n   and the name server
    127.0.5.1   clients reach the name server
    127.0.6.n   controller n reaches the members of etcd
    127.0.7.n   the other members of etcd reach member n
    127.0.8.n   where controller n says it is. Nobody listens there: who cannot reach it by its own line cannot reach it
    127.0.9.n   where broker n connects from
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from pyromq.testing import Proxy
from pyromq.testing.proxy import Way

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random


class Junction:
    """Listens in front of a broker, with a line of its own for each host in `sources`, and one for all others."""

    def __init__(self, target: str, port: int, host: str, sources: Iterable[str]) -> None:
        self._host = host
        self._port = port
        self.others = Proxy(target)
        self.lines = {source: Proxy(target) for source in sources}
        self._life = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for proxy in self.all():
            await self._life.enter_async_context(proxy)
        server = await asyncio.start_server(self._connected, self._host, self._port)
        self._life.callback(server.close)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._life.aclose()

    def all(self) -> tuple[Proxy, ...]:
        return (self.others, *self.lines.values())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = self.lines.get(writer.get_extra_info("peername")[0], self.others)
        await line._connected(reader, writer)  # accepted for that proxy


@dataclass(frozen=True, slots=True)
class Line:
    """Proxies that break together, by who opens the connections: those to somebody, and those from there."""

    to: tuple[Proxy, ...] = ()
    by: tuple[Proxy, ...] = ()

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        return (*self.to, *self.by)

    def __add__(self, other: Line) -> Line:
        return Line((*self.to, *other.to), (*self.by, *other.by))

    def pause(self, way: Way | None = None) -> None:
        """Pass nothing on; one way only if that is given: THERE is to whoever this is the line of."""
        back = {None: None, Way.THERE: Way.BACK, Way.BACK: Way.THERE}[way]
        for proxy in self.to:
            proxy.pause(way)
        for proxy in self.by:
            proxy.pause(back)

    def resume(self) -> None:
        for proxy in self.proxies:
            proxy.resume()

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.cut()

    def refuse(self) -> None:
        for proxy in self.proxies:
            proxy.refuse()

    def delay(self, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.delay(seconds)

    def end_after(self, count: int) -> None:
        for proxy in self.proxies:
            proxy.end_after(count)

    def restore(self) -> None:
        for proxy in self.proxies:
            proxy.restore()

    async def lose(self, seconds: float, chance: Random) -> None:
        """Lose packets: what follows waits until they are sent again, and now and then nobody waits so long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(chance.uniform(0.02, 0.3))
            self.pause(chance.choice((None, Way.THERE, Way.BACK)))
            await asyncio.sleep(chance.uniform(0.2, 0.8))
            if chance.random() < 0.15:
                self.cut()
            self.resume()


class Lines(NamedTuple):
    """All that connects one broker with the others."""

    host: str  # where it connects from
    main: Junction
    fast: Junction
    replication: Junction
    controllers: tuple[Proxy, ...]
    name_server: Proxy

    @property
    def junctions(self) -> tuple[Junction, ...]:
        return self.main, self.fast, self.replication

    def with_clients(self) -> Line:
        """Clients, and what controllers tell without being asked."""
        return Line(to=(self.main.others, self.fast.others))

    def with_slaves(self) -> Line:
        return Line(to=self.replication.all())

    def with_broker(self, other: Lines) -> Line:
        """All between two brokers."""
        return Line(
            to=tuple(junction.lines[other.host] for junction in self.junctions),
            by=tuple(junction.lines[self.host] for junction in other.junctions),
        )

    def with_controllers(self) -> Line:
        return Line(by=self.controllers)

    def with_name_server(self) -> Line:
        return Line(by=(self.name_server,))

    def with_all(self, others: Iterable[Lines]) -> Line:
        line = self.with_clients() + self.with_controllers() + self.with_name_server()
        for other in others:
            line += self.with_broker(other)
        return line

    def restore(self) -> None:
        for proxy in (*self.controllers, self.name_server, *(each for one in self.junctions for each in one.all())):
            proxy.restore()
