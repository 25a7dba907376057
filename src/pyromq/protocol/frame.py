"""Frames: commands in the byte stream.

    i32 L                     bytes that follow, at most 16 MiB less this field
    u8 T, u24 H               serialize type and length of the header
    header, H bytes           see `json_header`, `binary_header`
    body, L - 4 - H bytes     no bytes mean no body

A claimed length reserves no memory: the decoder holds only what arrived, at most one frame and one read.
A request whose body is larger than its code may have is refused as soon as its header is there; the rest of it is
dropped as it comes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import LocalProtocolError, RemoteProtocolError

from . import binary_header, json_header
from .command import RESPONSE, Command, SerializeType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# Java peers close a connection on a larger frame, so we neither accept nor send one.
MAX_FRAME = 16 * 1024 * 1024
# A body of this size may come with every request, whatever its code; only larger ones are looked at.
SMALL_BODY = 64 * 1024

_HEAD = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
_MAX_HEADER = 0xFFFFFF
_ENCODERS = {SerializeType.JSON: json_header.encode, SerializeType.ROCKETMQ: binary_header.encode}


def encode(command: Command, max_frame: int = MAX_FRAME) -> bytes:
    """`command` as one frame."""
    return b"".join(encode_parts(command, max_frame))


def encode_parts(command: Command, max_frame: int = MAX_FRAME) -> Sequence[bytes | memoryview]:
    """`command` as one frame in pieces, the body's pieces as they are: nothing large is copied."""
    header = _ENCODERS[command.serialize](command)
    body = command.body
    if body is None:
        body_size = 0
    elif isinstance(body, bytes):
        body_size = len(body)
    elif isinstance(body, bytearray | memoryview):
        body = memoryview(body).cast("B")
        body_size = len(body)
    else:
        body_size = sum(map(len, body))
    size = 4 + len(header) + body_size
    if size + 4 > max_frame:
        raise LocalProtocolError(f"frame of {size + 4} bytes is larger than {max_frame}")
    if len(header) > _MAX_HEADER:  # only if the frame limit was raised
        raise LocalProtocolError(f"header of {len(header)} bytes is larger than {_MAX_HEADER}")
    head = _HEAD.pack(size, command.serialize << 24 | len(header)) + header
    if not body_size:
        return (head,)
    if isinstance(body, bytes | memoryview):
        return (head, body)
    return (head, *body)  # type: ignore[misc]  # a bytearray became a memoryview above


class OversizedRequest(Exception):
    """A request with a body of `size` bytes, more than its code may have. The decoder goes on behind it."""

    def __init__(self, request: Command, size: int) -> None:
        super().__init__(f"request {request.code} with a body of {size} bytes")
        self.request = request
        self.size = size


class FrameDecoder:
    """Turns bytes, however they arrive, into commands.

    `feed` takes what was read; `next` returns one command at a time, so that a reader can stop in between. After a
    RemoteProtocolError the stream cannot be trusted any more: close the connection.

    `max_body` says how large the body of a request with a given code may be; SMALL_BODY and less always may. A header
    over `max_header` ends the connection: whoever sent it cannot be answered, since its number stands there.
    """

    __slots__ = ("_admitted", "_buffer", "_left_out", "_max_body", "_max_frame", "_max_header", "_pos", "_tail")

    def __init__(
        self,
        max_frame: int = MAX_FRAME,
        max_body: Callable[[int], int] | None = None,
        max_header: int = _MAX_HEADER,
    ) -> None:
        self._max_frame = max_frame
        self._max_header = max_header
        self._max_body = max_body
        # Whether the frame in the tail has been found small enough, and how much of a refused one is still to come.
        self._admitted = False
        self._left_out = 0
        self._buffer = b""
        self._pos = 0
        # The beginning of a frame that needs more bytes. A bytearray, so that a large frame that comes in small
        # pieces is not copied anew with each of them.
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Take `data`, the bytes that follow those of the last call."""
        if self._left_out:
            dropped = min(self._left_out, len(data))
            self._left_out -= dropped
            data = data[dropped:]
        left = len(self._buffer) - self._pos
        if self._tail:
            self._tail += data
        elif left:
            # Only a reader that stopped midway comes here, and it should not have read on.
            self._buffer = self._buffer[self._pos :] + data
            self._pos = 0
        else:
            self._buffer = data
            self._pos = 0

    def next(self) -> Command | None:
        """The next whole command, or None until more bytes come. Raises RemoteProtocolError and OversizedRequest."""
        if self._tail and not self._tail_is_whole():
            return None
        buffer, pos = self._buffer, self._pos
        available = len(buffer) - pos
        if available < 8:
            self._keep()
            return None
        size, word = _HEAD.unpack_from(buffer, pos)
        kind = word >> 24
        header_size = word & 0xFFFFFF
        if not 4 <= size <= self._max_frame - 4 or kind > 1 or header_size > size - 4 or header_size > self._max_header:
            self._check_head(buffer, pos)
        if available < size + 4:
            self._keep()
            return None
        body_start = pos + 8 + header_size
        self._pos = end = pos + 4 + size
        header = buffer[pos + 8 : body_start]
        command = binary_header.decode(header) if kind else json_header.decode(header)
        if body_start != end:
            if size > SMALL_BODY:
                self._admit(command, end - body_start)
            command.body = buffer[body_start:end]
        return command

    def hand_over(self, take: Callable[[T, bytes, int, int, int], int], whom: T, most: int) -> bool:
        """Let `take` have the whole frames at the front, at most so many; False if nothing is left for `next`.

        It is told for whom, given bytes and where to begin, how many it may take and how long a header may be, and
        says where it ended.
        """
        if self._tail and not self._tail_is_whole():
            return False
        buffer = self._buffer
        end = take(whom, buffer, self._pos, most, self._max_header)
        if end == len(buffer):
            self._buffer, self._pos = b"", 0
            return False
        self._pos = end
        return True

    @property
    def pending(self) -> int:
        """How many bytes wait here, for the rest of their frame or for `next`."""
        return len(self._tail) + len(self._buffer) - self._pos

    def clear(self) -> None:
        """Drop what waits: nobody will ask for it."""
        self._buffer = b""
        self._pos = 0
        self._tail = bytearray()

    def _tail_is_whole(self) -> bool:
        """Whether the tail now holds its frame; if so, it becomes the buffer."""
        tail = self._tail
        if len(tail) < 8 or len(tail) < _LENGTH.unpack_from(tail)[0] + 4:
            self._check_head(tail, 0)
            self._admit_early()
            return False
        self._buffer = bytes(tail)
        self._pos = 0
        self._admitted = False
        tail.clear()
        return True

    def _keep(self) -> None:
        """Put the beginning of a frame aside."""
        self._check_head(self._buffer, self._pos)
        self._tail += memoryview(self._buffer)[self._pos :]
        self._buffer = b""
        self._pos = 0
        self._admit_early()

    def _admit_early(self) -> None:
        """Refuse a request whose body is too large when its header is there, and the body is not yet."""
        tail = self._tail
        if self._admitted or self._max_body is None or len(tail) < 8:
            return
        size, word = _HEAD.unpack_from(tail)
        body_start = 8 + (word & 0xFFFFFF)
        if size <= SMALL_BODY or len(tail) < body_start:
            return
        header = bytes(tail[8:body_start])
        command = binary_header.decode(header) if word >> 24 else json_header.decode(header)
        try:
            self._admit(command, size + 4 - body_start)
        except OversizedRequest:
            self._left_out = size + 4 - len(tail)
            tail.clear()
            raise
        self._admitted = True

    def _admit(self, command: Command, size: int) -> None:
        if (
            self._max_body is not None
            and not command.flag & RESPONSE
            and size > max(SMALL_BODY, self._max_body(command.code))
        ):
            raise OversizedRequest(command, size)

    def _check_head(self, data: bytes | bytearray, pos: int) -> None:
        """Refuse an illegal frame as soon as its first bytes show it, without waiting for the rest."""
        available = len(data) - pos
        if available < 4:
            return
        size = _LENGTH.unpack_from(data, pos)[0]
        if not 4 <= size <= self._max_frame - 4:
            raise RemoteProtocolError(f"frame length {size} is not within 4 and {self._max_frame - 4}")
        if available > 4 and data[pos + 4] > 1:
            raise RemoteProtocolError(f"unknown serialize type {data[pos + 4]}")
        if available >= 8:
            header_size = _HEAD.unpack_from(data, pos)[1] & 0xFFFFFF
            if header_size > size - 4:
                raise RemoteProtocolError(f"header of {header_size} bytes in a frame of {size}")
            if header_size > self._max_header:
                raise RemoteProtocolError(
                    f"header of {header_size} bytes; at most {self._max_header} are taken (maxRequestHeaderSize)"
                )
            if not header_size:
                raise RemoteProtocolError("a frame without a header")
