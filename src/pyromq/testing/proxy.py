"""A connection that tests can break: a proxy between two peers that cuts, pauses, delays, garbles and restores.

    async with Proxy("127.0.0.1:10911") as proxy:
        ...                 # let a client connect to proxy.address instead
        proxy.pause()       # from now on nothing gets through, and neither peer knows
        proxy.resume()
        proxy.cut()         # both ends see their connection reset; they may connect again

It knows nothing of the protocol: bytes come in at one end and go out at the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from enum import Enum
from typing import TYPE_CHECKING, Self

from pyromq.remoting import format_address, split_address

if TYPE_CHECKING:
    from collections.abc import Iterable

_PIECE = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset instead of what is left


class Way(Enum):
    """A direction: to the target, or back from it."""

    THERE = "there"
    BACK = "back"


class Proxy:
    """Passes the bytes of any number of connections to `target` (`host:port`) and back.

    Every switch acts on existing and future connections. A switch is a plain call, not a coroutine: it has taken
    effect when it returns. It listens on `port` of `host`, or on any free one.
    """

    def __init__(self, target: str, port: int = 0, host: str = "127.0.0.1") -> None:
        self._target = split_address(target)
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._lines: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._flowing = {Way.THERE: asyncio.Event(), Way.BACK: asyncio.Event()}
        self.resume()
        self._refusing = False
        self._delay = 0.0
        self._garble = 0
        self._left: int | None = None  # bytes from the target until it seems to close; None if it does not

    @property
    def address(self) -> str:
        """The address to connect to instead of the target."""
        assert self._server is not None, "the proxy is not running"
        return format_address(self._server.sockets[0].getsockname())

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        return len(self._lines)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, self._host, self._port)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        lines = tuple(self._lines)
        for line in lines:
            line.cancel()
        self.cut()
        await asyncio.gather(*lines, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection on both ends, losing data in flight."""
        for line, writers in self._lines.items():
            _reset(writers)
            line.cancel()

    def end_after(self, count: int) -> None:
        """Pass `count` more bytes from the target, then close that connection as if the target had died while sending.

        It happens once; the client may connect again.
        """
        self._left = count

    def refuse(self) -> None:
        """Close new connections at once, as if the target were starting or full."""
        self._refusing = True

    def restore(self) -> None:
        """Undo every switch: accept connections and pass bytes on unchanged, without delay."""
        self._refusing = False
        self._delay = 0.0
        self._garble = 0
        self._left = None
        self.resume()

    def pause(self, way: Way | None = None) -> None:
        """Pass nothing on, in one direction or in both; bytes sent meanwhile arrive after `resume`."""
        for each in Way if way is None else (way,):
            self._flowing[each].clear()

    def resume(self) -> None:
        for flowing in self._flowing.values():
            flowing.set()

    def delay(self, seconds: float) -> None:
        """Delay every piece by this time; pieces of one direction stay in order, as on a slow line."""
        self._delay = seconds

    def garble(self, count: int = 1) -> None:
        """Garble the next `count` bytes that pass."""
        self._garble = count

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines[line] = writers = [writer]
        try:
            if self._refusing:
                return
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer, Way.THERE), name="proxy there")
                pumps.create_task(self._pump(far_reader, writer, Way.BACK), name="proxy back")
        except* (OSError, asyncio.CancelledError):
            _reset(writers)  # one end is gone, or the line was cut: close the other too
        finally:
            for each in writers:
                each.close()
            del self._lines[line]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        while data := await reader.read(_PIECE):
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._flowing[way].wait()
            if self._garble:
                self._garble -= 1
                data = bytes([data[0] ^ 0xFF]) + data[1:]
            if way is Way.BACK and self._left is not None:
                if len(data) >= self._left:
                    writer.write(data[: self._left])
                    self._left = None
                    break
                self._left -= len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()


def _reset(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        if not writer.transport.is_closing():
            with contextlib.suppress(OSError):  # the peer was first
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
