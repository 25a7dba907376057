"""What one read event costs: one pass over the bytes, one write for all replies."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.remoting import Connection, Endpoint


class NotingTransport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_read = True

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 5123)

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def connected(endpoint: Endpoint) -> tuple[Connection, NotingTransport]:
    connection, transport = Connection(endpoint), NotingTransport()
    connection.connection_made(cast("Any", transport))
    return connection, transport


async def others_are_read_and_answered() -> None:
    """Whoever has much to say lets two turns of the loop pass."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_the_replies_to_all_requests_of_one_read_go_out_in_one_write():
    connection, transport = connected(Endpoint(processors={1: lambda _, asked: asked.reply(body=b"x" * 100)}))
    segment = b""
    for opaque in range(64):
        request = Command.request(1, serialize=SerializeType(opaque % 2))
        request.opaque = opaque
        segment += encode(request)
    connection.data_received(segment[:-1])
    connection.data_received(segment[-1:])
    assert transport.writes == []
    await asyncio.sleep(0)
    (written,) = transport.writes
    decoder = FrameDecoder()
    decoder.feed(written)
    replies = [decoder.next() for _ in range(64)]
    assert [reply and reply.opaque for reply in replies] == list(range(64))
    assert decoder.next() is None


async def test_the_requests_of_one_tick_go_out_in_one_write():
    connection, transport = connected(Endpoint())
    calls = [asyncio.create_task(connection.invoke(Command.request(1), 60)) for _ in range(64)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(transport.writes) == 1
    assert connection.calls_under_way == 64
    connection.connection_lost(None)
    await asyncio.gather(*calls, return_exceptions=True)


async def test_a_connection_says_whose_it_is():
    connection, _ = connected(Endpoint())
    assert (connection.peer, repr(connection)) == ("192.0.2.7:5123", "<Connection 192.0.2.7:5123>")
    connection.connection_lost(None)
    assert repr(connection) == "<Connection 192.0.2.7:5123 closed>"


async def test_a_server_takes_some_requests_of_a_connection_and_then_lets_others_have_their_turn():
    taken: list[int] = []
    endpoint = Endpoint(processors={1: lambda _, asked: taken.append(asked.opaque)}, holds_requests=True)
    connection, transport = connected(endpoint)
    requests = [Command.request(1) for _ in range(600)]
    for number, request in enumerate(requests):
        request.opaque = number
    connection.data_received(b"".join(map(encode, requests)))
    for most in (256, 512):
        assert taken == list(range(most))
        assert not transport.is_read
        await others_are_read_and_answered()
    assert taken == list(range(600))
    assert transport.is_read


async def test_beside_others_with_little_to_say_whoever_has_much_to_say_takes_short_turns():
    taken: list[Connection] = []
    endpoint = Endpoint(processors={1: lambda connection, _: taken.append(connection)}, holds_requests=True)
    (talker, _), (other, transport) = connected(endpoint), connected(endpoint)
    request = encode(Command.request(1))
    talker.data_received(request * 800)
    other.data_received(request)
    assert taken == [talker] * 256 + [other]
    assert transport.is_read
    await others_are_read_and_answered()
    assert taken.count(talker) == 256 + 128
    endpoint.others_until = 0.0  # they have left
    await others_are_read_and_answered()
    assert taken.count(talker) == 256 + 128 + 256


async def test_a_short_turn_is_as_long_as_the_time_for_it_allows():
    talker, _ = connected(Endpoint(holds_requests=True))
    now = 100.0

    def turn_after(milliseconds: float) -> int:
        nonlocal now
        now += milliseconds / 1000
        return talker._short_turn(now)

    assert turn_after(0) == 128
    assert [turn_after(0.1) for _ in range(3)] == [256, 256, 256]
    assert [turn_after(0.2) for _ in range(2)] == [256, 256]
    assert [turn_after(1) for _ in range(3)] == [128, 128, 128]


async def test_whoever_was_slowed_down_takes_short_turns_beside_others():
    taken: list[int] = []
    endpoint = Endpoint(processors={1: lambda _, asked: taken.append(asked.opaque)}, holds_requests=True)
    (talker, _), (other, _) = connected(endpoint), connected(endpoint)
    request = encode(Command.request(1))
    talker.leave_unread(0)
    await others_are_read_and_answered()
    other.data_received(request)
    talker.data_received(request * 200)
    assert len(taken) == 1 + 128


async def test_an_answer_goes_out_before_the_next_turn_of_whoever_has_much_to_say():
    endpoint = Endpoint(processors={1: lambda _, asked: asked.reply()}, holds_requests=True)
    (talker, said), (other, transport) = connected(endpoint), connected(endpoint)
    request = encode(Command.request(1))
    talker.data_received(request * 600)
    await asyncio.sleep(0)
    other.data_received(request)
    await asyncio.sleep(0)
    assert len(transport.writes) == len(said.writes) == 1


async def test_a_server_does_not_go_on_reading_from_whoever_says_very_much():
    taken: list[int] = []
    endpoint = Endpoint(processors={1: lambda _, asked: taken.append(asked.opaque)}, holds_requests=True)
    connection, transport = connected(endpoint)
    frame = encode(Command.request(1, body=bytes(60_000)))
    connection.data_received(frame)
    assert transport.is_read
    connection.data_received(frame * 3)
    assert len(taken) == 4
    assert not transport.is_read
    await others_are_read_and_answered()
    assert transport.is_read


async def test_a_client_takes_whatever_comes():
    taken: list[int] = []
    connection, transport = connected(Endpoint(processors={1: lambda _, asked: taken.append(asked.opaque)}))
    connection.data_received(encode(Command.request(1)) * 600)
    assert len(taken) == 600
    assert transport.is_read


async def test_a_connection_that_ends_between_its_turns_takes_nothing_more():
    taken: list[int] = []
    endpoint = Endpoint(processors={1: lambda _, asked: taken.append(asked.opaque)}, holds_requests=True)
    connection, _ = connected(endpoint)
    connection.data_received(encode(Command.request(1)) * 600)
    connection.connection_lost(None)
    await others_are_read_and_answered()
    assert len(taken) == 256
