"""A line of a connection that is no socket: what is written to it is kept."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryLine(asyncio.Transport):
    """A line that keeps what is written to it."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, pieces: Any) -> None:
        self.sent += b"".join(pieces)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
