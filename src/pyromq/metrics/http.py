"""A small HTTP/1.1 server for pages that are read: GET and HEAD, no bodies, no TLS.

A framework would bring a dozen packages into every broker for six pages. What is here is what monitoring needs, and it
refuses the rest: a request has one small head and no body, a connection that says nothing or does not read is closed,
and there are never many of them. Sans IO: `parse` reads a head, `Response.encode` writes an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from pyromq.remoting import Admissions, ServerConfig, join_address
from pyromq.remoting.addresses import format_address, origin_of_host
from pyromq.remoting.folded_log import FoldedLog
from pyromq.remoting.listening import ListeningSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping

    Handler = Callable[["Request"], Awaitable["Response"]]

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"

MAX_HEAD = 8 * 1024
MAX_CONNECTIONS = 64
# Seconds for a request to arrive, from the answer before or from the start, and for an answer to be read.
_PATIENCE = 10.0
_READ = 30.0
_REQUESTS = 1000  # on one connection
_END = b"\r\n\r\n"
_TARGET = re.compile(rb"/[\x21-\x7e]*")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")


class BadRequest(Exception):
    """What was read is not a request that is served here."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Names of `fields` are in small letters; `path` has no query."""

    method: str
    path: str
    fields: Mapping[str, str] = field(default_factory=dict)
    keep_alive: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """A page. `more` are further header fields."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = TEXT
    more: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """A page of plain text."""
        return cls(f"{text}\n".encode(), status)

    def encode(self, *, with_body: bool, keep_alive: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            *(f"{name}: {value}" for name, value in self.more),
        ]
        head = "\r\n".join(lines).encode("latin-1") + _END
        return head + self.body if with_body else head


def parse(head: bytes) -> Request:
    """The request of a head that ends in an empty line. BadRequest if it is not one, or has a body."""
    first, *lines = head.removesuffix(_END).split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
    method, target, version = words
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed header field")
        name = match[1].decode().lower()
        if name in fields and name in ("host", "content-length", "transfer-encoding"):
            raise BadRequest(HTTPStatus.BAD_REQUEST, f"two fields {name}")
        fields[name] = match[2].decode("latin-1")
    if version == b"HTTP/1.1" and "host" not in fields:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "no field host")
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        # What would follow is not read, so nobody can hide a second request in it.
        raise BadRequest(HTTPStatus(413), "no body is taken here")
    if method not in (b"GET", b"HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served here")
    if not _TARGET.fullmatch(target):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed path")
    asked = fields.get("connection", "").lower()
    keep_alive = "close" not in asked if version == b"HTTP/1.1" else "keep-alive" in asked
    return Request(method.decode(), target.partition(b"?")[0].decode(), fields, keep_alive)


class HttpServer:
    """Serves pages on one port while it is entered. ConfigError if the port is taken.

    `handler` makes a page of each request; its errors become code 500, with one line in the log.
    """

    def __init__(self, host: str, port: int, handler: Handler) -> None:
        self._config = ServerConfig(
            bind_address=host,
            listen_port=port,
            backlog=MAX_CONNECTIONS,
            max_connections=MAX_CONNECTIONS,
            max_connections_per_address=MAX_CONNECTIONS // 2,
        )
        self._handler = handler
        self._open = Admissions(self._config)
        self._faults = FoldedLog()
        self._listening: ListeningSocket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._listening is not None, "the server is not running"
        return self._listening.address[1]

    @property
    def address(self) -> str:
        """Where it listens: `127.0.0.1:5557`."""
        return join_address(self._config.bind_address, self.port)

    async def __aenter__(self) -> Self:
        listening = ListeningSocket(self._config, self._accepted)
        try:
            listening.listen()
        except BaseException:
            listening.close()
            raise
        self._listening = listening
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._listening is not None:
            self._listening.close()
        # Let tasks of connections accepted in this turn start, so that they close their sockets.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accepted(self, sock: socket.socket, address: tuple[str, ...]) -> None:
        host = origin_of_host(address[0])
        if not self._open.admits(host):
            sock.close()
            return
        task = asyncio.create_task(self._serve(sock, host, format_address(address)), name="http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, sock: socket.socket, host: str, peer: str) -> None:
        misbehaved = False
        writer: asyncio.StreamWriter | None = None
        try:
            try:
                reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_HEAD)
            except BaseException:
                sock.close()
                raise
            for left in reversed(range(_REQUESTS)):
                if not await self._answer(reader, writer, last=not left):
                    break
        except BadRequest as exc:
            misbehaved = True
            again = self._faults.due((host, exc.status))
            if again is not None:
                logger.info("%s: metrics port: %s; closing%s", peer, exc, again)
        except (OSError, TimeoutError, EOFError) as exc:
            # A probe that only connects, or a peer that left: an everyday event.
            logger.debug("%s: metrics port: %s", peer, str(exc) or type(exc).__name__)
        finally:
            if writer is not None:
                await self._close(writer)
            self._open.left(host, misbehaved=misbehaved)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, last: bool) -> bool:
        """Serve one request; whether there may be more on this connection."""
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(_END)
            request = parse(head)
        except asyncio.LimitOverrunError:
            await self._refuse(writer, BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too large"))
        except BadRequest as exc:
            await self._refuse(writer, exc)
        response = await self._page(request)
        keep_alive = request.keep_alive and not last
        await self._send(writer, response.encode(with_body=request.method == "GET", keep_alive=keep_alive))
        return keep_alive

    async def _page(self, request: Request) -> Response:
        try:
            return await self._handler(request)
        except Exception:  # a page that fails must not end the process that it tells about
            if (again := self._faults.due(request.path)) is not None:
                logger.exception("page %s failed%s", request.path, again)
            return Response.of("this page failed; the log says why", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _refuse(self, writer: asyncio.StreamWriter, error: BadRequest) -> None:
        more = (("Allow", "GET, HEAD"),) if error.status is HTTPStatus.METHOD_NOT_ALLOWED else ()
        response = Response(f"{error}\n".encode(), error.status, more=more)
        await self._send(writer, response.encode(with_body=True, keep_alive=False))
        raise error

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        async with asyncio.timeout(_READ):
            await writer.drain()

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            raise
