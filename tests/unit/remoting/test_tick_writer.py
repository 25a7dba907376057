"""One write per tick, seen from a transport that only takes notes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyromq.remoting.writer import TickWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 1 << 20


class NotingTransport:
    def __init__(self) -> None:
        self.writes: list[Any] = []
        self.closing = False
        self.buffered = 0

    def write(self, data: bytes | memoryview) -> None:
        self.writes.append(data)

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> None:
        self.writes.append(list(pieces))

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.buffered


@pytest.fixture
def transport() -> NotingTransport:
    return NotingTransport()


@pytest.fixture
async def writer(transport: NotingTransport) -> TickWriter:
    return TickWriter(asyncio.get_running_loop(), cast("Any", transport), LIMIT)


async def test_what_is_written_in_one_tick_is_sent_in_one_piece(writer: TickWriter, transport: NotingTransport):
    for n in range(5):
        writer.write((b"head %d " % n, b"body "))
    assert transport.writes == []
    assert writer.unsent == 5 * 12
    await asyncio.sleep(0)
    assert transport.writes == [b"".join(b"head %d body " % n for n in range(5))]
    writer.write((b"next tick",))
    await asyncio.sleep(0)
    assert transport.writes[1:] == [b"next tick"]


async def test_large_pieces_are_passed_on_without_a_copy(writer: TickWriter, transport: NotingTransport):
    large = memoryview(bytes(100_000))
    writer.write((b"head", large))
    writer.write((b"small",))
    await asyncio.sleep(0)
    assert transport.writes == [[b"head", large, b"small"]]
    assert transport.writes[0][1] is large


async def test_more_than_the_limit_is_not_kept_until_the_end_of_the_tick(
    writer: TickWriter, transport: NotingTransport
):
    piece = bytes(10_000)
    for _ in range(120):
        writer.write((piece,))
    assert sum(map(len, transport.writes)) > LIMIT
    assert writer.unsent < LIMIT
    await asyncio.sleep(0)
    assert sum(map(len, transport.writes)) == 120 * 10_000


async def test_it_counts_what_the_system_has_taken(writer: TickWriter, transport: NotingTransport):
    assert writer.sent == 0
    writer.write((b"x" * 100,))
    assert writer.sent == 0
    transport.buffered = 40
    writer.flush()
    assert (writer.sent, writer.unsent) == (60, 40)
    transport.buffered = 0
    assert (writer.sent, writer.unsent) == (100, 0)


async def test_nothing_is_written_to_a_transport_that_closes(writer: TickWriter, transport: NotingTransport):
    writer.write((b"too late",))
    transport.closing = True
    await asyncio.sleep(0)
    assert transport.writes == []
    assert writer.unsent == 0


async def test_flushing_without_anything_to_send_does_nothing(writer: TickWriter, transport: NotingTransport):
    writer.flush()
    writer.write((b"once",))
    writer.flush()
    await asyncio.sleep(0)
    assert transport.writes == [b"once"]
