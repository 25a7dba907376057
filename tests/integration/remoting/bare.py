"""Peers made of bare sockets: they send and read what a test tells them to, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from typing import Any, Self

from pyromq.protocol.command import ONEWAY, Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.remoting import split_address

PATIENCE = 30.0  # for what must happen; nothing waits that long unless a test fails

_numbers = itertools.count(1)


def request(
    code: int, *, oneway: bool = False, serialize: SerializeType = SerializeType.JSON, body: bytes | None = None
) -> Command:
    """A numbered request, as a client of another make would send it."""
    command = Command.request(code, body=body, serialize=serialize)
    command.opaque = next(_numbers)
    command.flag = ONEWAY if oneway else 0
    return command


class Peer:
    """One end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._decoder = FrameDecoder()

    @classmethod
    async def connect(cls, address: str, receive_buffer: int = 0) -> Self:
        host, port = split_address(address)
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.sock.close()

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()[:2]
        return f"{host}:{port}"

    async def send(self, *parts: Command | bytes) -> None:
        """Send commands and raw bytes in one piece."""
        data = b"".join(encode(part) if isinstance(part, Command) else part for part in parts)
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def ask(self, command: Command) -> Command:
        await self.send(command)
        return await self.read()

    async def read(self) -> Command:
        """The next command. Fails when the connection ends instead."""
        while (command := self._decoder.next()) is None:
            async with asyncio.timeout(PATIENCE):
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            assert data, "the connection ended"
            self._decoder.feed(data)
        return command

    async def read_all(self, count: int) -> list[Command]:
        return [await self.read() for _ in range(count)]

    async def ended(self) -> bytes:
        """Wait for the end of the connection; whatever still came before it."""
        loop = asyncio.get_running_loop()
        received = b""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(self.sock, 65536):
                    received += data
        return received

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()


class Listener:
    """A server that only accepts when told to."""

    def __init__(self, backlog: int = 8, receive_buffer: int = 0) -> None:
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(backlog)
        self.sock.setblocking(False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.sock.close()

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    async def accept(self) -> Peer:
        async with asyncio.timeout(PATIENCE):
            sock, _ = await asyncio.get_running_loop().sock_accept(self.sock)
        return Peer(sock)


async def eventually(condition: Any) -> None:
    """Wait until `condition()` holds, for what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
