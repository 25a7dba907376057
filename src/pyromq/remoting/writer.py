"""One write per event-loop tick and connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

# Copying pieces up to this size into one buffer pays off; larger ones go to the system uncopied.
_COPY = 16 * 1024


class TickWriter:
    """Joins the frames written during one tick into one send; large pieces are not copied.

    A send costs more than everything else about a small reply, and one read often brings many requests.
    """

    __slots__ = ("_limit", "_loop", "_pieces", "_size", "_transport", "_written")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, limit: int) -> None:
        self._loop = loop
        self._transport = transport
        self._limit = limit
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._written = 0

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send `pieces` with the others of this tick, or at once if they exceed the limit."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces += pieces
        for piece in pieces:
            self._size += len(piece)
        if self._size > self._limit:
            self.flush()

    def write_frame(self, frame: bytes) -> None:
        """Like `write`, for a single piece."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(frame)
        self._size += len(frame)
        if self._size > self._limit:
            self.flush()

    def write_now(self, frames: bytes) -> None:
        """As `write_frame`, without waiting for others of this tick."""
        if self._pieces:
            self.write_frame(frames)
        elif not self._transport.is_closing():
            self._written += len(frames)
            self._transport.write(frames)

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._size + self._transport.get_write_buffer_size()

    @property
    def sent(self) -> int:
        """Bytes that the system has taken so far."""
        return self._written - self._transport.get_write_buffer_size()

    def drop(self) -> None:
        """Drop everything not yet handed over."""
        self._pieces, self._size = [], 0

    def flush(self) -> None:
        """Hand everything to the transport now."""
        pieces, size = self._pieces, self._size
        self.drop()
        if not pieces or self._transport.is_closing():
            return
        self._written += size
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif size <= _COPY or all(len(piece) <= _COPY for piece in pieces):
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)
