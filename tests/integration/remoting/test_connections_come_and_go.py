"""How connections begin and end: garbage, idleness, limits, events, and a server that closes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import Listener, Peer, eventually, request

from pyromq.errors import ConfigError, ConnectFailed, ConnectionLost
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import MAX_FRAME, encode
from pyromq.remoting import CloseReason, RemotingServer, ServerConfig, TlsConfig, TlsMode

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import Connection

ECHO, SIZE, HELD = 1, 2, 3
PROCESSORS = {
    ECHO: lambda _, asked: asked.reply(body=asked.body),
    SIZE: lambda _, asked: asked.reply(0, str(len(asked.body_bytes))),
}

# docs/spec/remoting.md 8: frames that must close the connection.
GARBAGE = {
    "length 2 GiB": "7fffffff" + "00" * 16,
    "length beyond the limit": "01000000 00000000" + "00" * 8,
    "length -1": "ffffffff",
    "length 3": "00000003 000000",
    "serialize type 2": "00000004 02000000",
    "empty JSON header": "00000004 00000000",
    "header longer than its frame": "00000006 00000009 7b7d",
    # Beyond that list:
    "length 0": "00000000",
    "header that is no JSON": "00000006 00000002 7b5d",
    "header that is no object": "00000006 00000002 5b5d",
    "binary header cut off": "00000006 01000002 0001",
    "text": b"GET / HTTP/1.1\r\n\r\n".hex(),
}


class Events:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Connection, CloseReason | None]] = []

    def connected(self, connection: Connection) -> None:
        assert not connection.closed
        self.seen.append(("connected", connection, None))

    def closed(self, connection: Connection, reason: CloseReason) -> None:
        assert connection.closed
        self.seen.append(("closed", connection, reason))

    @property
    def reasons(self) -> list[CloseReason | None]:
        return [reason for what, _, reason in self.seen if what == "closed"]


def closings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("pyromq") and r.levelno >= logging.WARNING]


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_closes_its_connection_and_no_other(start: Start, caplog, garbage: str):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events})
    async with await Peer.connect(server.address) as good, await Peer.connect(server.address) as bad:
        assert (await good.ask(request(ECHO))).code == 0
        await bad.send(bytes.fromhex(garbage))
        assert await bad.ended() == b""
        assert (await good.ask(request(ECHO))).code == 0
        assert events.reasons == [CloseReason.FAILED]
        (line,) = closings(caplog)
        assert line.startswith(f"{bad.address}: ")
        assert line.endswith("; closing")


async def test_garbage_of_one_address_has_one_line_in_the_log(start: Start, caplog):
    server = await start.server(PROCESSORS)
    for garbage in GARBAGE.values():
        async with await Peer.connect(server.address) as bad:
            await bad.send(bytes.fromhex(garbage))
            assert await bad.ended() == b""
    assert len(closings(caplog)) == 1


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_requests_in_front_of_garbage_are_answered(start: Start, garbage: str):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        asked = [request(ECHO, body=b"%d" % n) for n in range(5)]
        await peer.send(*asked, bytes.fromhex(garbage), request(ECHO, body=b"after"))
        assert [each.body for each in await peer.read_all(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert await peer.ended() == b""


async def test_garbage_from_a_server_ends_the_calls_of_a_client(start: Start):
    client = await start.client()
    async with Listener() as listener:
        call = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
        async with await listener.accept() as peer:
            await peer.read()
            await peer.send(b"\xff" * 8)
            with pytest.raises(ConnectionLost, match="frame length -1"):
                await call


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 8, 20])
async def test_a_frame_that_is_never_finished_ends_with_its_connection(start: Start, cut: int):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(ECHO), encode(request(ECHO, body=b"never"))[:cut])
        assert (await peer.read()).code == 0
    await eventually(lambda: events.reasons)
    assert events.reasons == [CloseReason.PEER]


async def test_a_peer_that_sends_and_half_closes_still_gets_its_replies(start: Start):
    server = await start.server(PROCESSORS)
    for _ in range(20):  # the bytes and the end may come in one turn of the loop, or not
        async with await Peer.connect(server.address) as peer:
            await peer.send(request(ECHO), request(ECHO))
            peer.sock.shutdown(socket.SHUT_WR)
            assert [each.code for each in await peer.read_all(2)] == [0, 0]
            assert await peer.ended() == b""


@pytest.mark.parametrize("serialize", SerializeType)
async def test_the_largest_frame_is_taken_and_one_byte_more_is_not(start: Start, serialize: SerializeType):
    server = await start.server(PROCESSORS)
    head = len(encode(request(SIZE, serialize=serialize)))
    async with await Peer.connect(server.address) as peer:
        largest = request(SIZE, serialize=serialize)
        largest.opaque = 0
        head = len(encode(largest))
        largest.body = bytes(MAX_FRAME - head)
        frame = encode(largest)
        assert len(frame) == MAX_FRAME
        assert (await peer.ask(largest)).remark == str(MAX_FRAME - head)
        await peer.send((len(frame) - 3).to_bytes(4, "big") + frame[4:100])
        assert await peer.ended() == b""


@pytest.mark.parametrize("piece", [997, 65536])
async def test_a_large_frame_in_small_pieces_takes_time_in_proportion_to_its_size(start: Start, piece: int):
    server = await start.server(PROCESSORS)
    frame = encode(request(SIZE, body=bytes(16_000_000)))
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        # Straight to the connection, since a socket would join the pieces.
        started = time.process_time()
        for start_ in range(0, len(frame), piece):
            connection.data_received(frame[start_ : start_ + piece])
        assert time.process_time() - started < TOO_LONG  # copying it anew with each piece takes minutes
        assert (await peer.read()).remark == "16000000"


async def test_a_large_frame_in_single_bytes_takes_time_in_proportion_to_its_size(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        spent = []
        for size in (50_000, 200_000):
            frame = encode(request(SIZE, body=bytes(size)))
            started = time.process_time()
            for position in range(len(frame)):
                connection.data_received(frame[position : position + 1])
            spent.append(time.process_time() - started)
            assert (await peer.read()).remark == str(size)
        assert spent[1] < 10 * spent[0]  # four times as much; sixteen times if it were quadratic


async def test_an_idle_connection_is_closed_by_the_server(start: Start, caplog):
    caplog.set_level(logging.INFO)
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events}, max_idle_seconds=0.1)
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        started = time.monotonic()
        assert await peer.ended() == b""
        assert 0.08 < time.monotonic() - started < TOO_LONG
        await eventually(lambda: events.reasons)
        assert events.reasons == [CloseReason.IDLE]
        assert "idle for 0.1 s; closing" in caplog.text


async def test_an_idle_connection_is_closed_by_the_client(start: Start):
    events = Events()
    server = await start.server(PROCESSORS)
    client = await start.client(None, {"listener": events}, max_idle_seconds=0.1)
    await client.invoke(server.address, Command.request(ECHO))
    await eventually(lambda: events.reasons)
    assert events.reasons == [CloseReason.IDLE]
    assert (await client.invoke(server.address, Command.request(ECHO))).code == 0


@pytest.mark.slow
async def test_a_connection_that_moves_is_not_idle(start: Start):
    server = await start.server(PROCESSORS, max_idle_seconds=0.5)
    async with await Peer.connect(server.address) as peer:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            assert (await peer.ask(request(ECHO))).code == 0
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_connection_that_is_only_written_to_is_not_idle_while_the_peer_reads(start: Start):
    server = await start.server(PROCESSORS, max_idle_seconds=0.5)
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            await connection.oneway(Command.request(40))
            await peer.read()
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_connection_that_is_written_to_but_never_read_from_is_idle(start: Start):
    """What is written must be taken by the peer to count; our own writing does not keep a connection alive."""
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events}, max_idle_seconds=0.2, send_buffer=4096)
    async with await Peer.connect(server.address, receive_buffer=4096) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        started = time.monotonic()
        while not connection.closed and time.monotonic() - started < 5:
            connection.send(Command.request(40, body=bytes(1000)))
            await asyncio.sleep(0.01)
        await eventually(lambda: events.reasons)
        assert events.reasons == [CloseReason.IDLE]


async def test_a_closed_connection_does_not_linger_for_a_peer_that_never_reads(start: Start):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events}, max_idle_seconds=0.2, send_buffer=4096)
    async with await Peer.connect(server.address, receive_buffer=4096) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        connection.send(Command.request(40, body=bytes(8_000_000)))
        connection.close()
        await eventually(lambda: events.reasons)
        assert events.reasons == [CloseReason.LOCAL]


async def test_closing_a_connection_ends_its_calls_although_the_peer_does_not_read(start: Start):
    server = await start.server(PROCESSORS, send_buffer=4096)
    async with await Peer.connect(server.address, receive_buffer=4096) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        call = asyncio.create_task(connection.invoke(Command.request(77, body=bytes(8_000_000)), 30))
        await eventually(lambda: connection.calls_under_way)
        connection.close()
        async with asyncio.timeout(TOO_LONG):
            with pytest.raises(ConnectionLost, match="closed here"):
                await call


async def test_a_silent_socket_is_dropped_after_the_idle_time(start: Start, caplog):
    """It has not even said whether it speaks TLS."""
    caplog.set_level(logging.INFO)
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events}, max_idle_seconds=0.1)
    async with await Peer.connect(server.address) as peer:
        started = time.monotonic()
        assert await peer.ended() == b""
        assert 0.08 < time.monotonic() - started < TOO_LONG
    assert events.seen == []
    assert "not admitted" in caplog.text


async def test_a_socket_that_leaves_without_a_byte_is_no_event(start: Start):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events})
    for reset in (False, True):
        peer = await Peer.connect(server.address)
        await eventually(lambda: any(task.get_name() == "admit" for task in asyncio.all_tasks()))
        peer.close(reset=reset)
        await eventually(lambda: not any(task.get_name() == "admit" for task in asyncio.all_tasks()))
    assert events.seen == []


@pytest.mark.slow
async def test_events_come_in_order_and_once(start: Start):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events}, max_idle_seconds=0.3)
    peers = [await Peer.connect(server.address) for _ in range(5)]
    connections = []
    for peer in peers:
        await peer.ask(request(ECHO))
        connections.append(events.seen[-1][1])
    assert [what for what, _, _ in events.seen] == ["connected"] * 5
    peers[0].close()
    await eventually(lambda: len(events.reasons) == 1)
    await peers[1].send(b"\xff" * 8)
    await eventually(lambda: len(events.reasons) == 2)
    connections[2].close()
    connections[2].close()
    await eventually(lambda: len(events.reasons) == 3)
    peers[3].close(reset=True)
    await eventually(lambda: len(events.reasons) == 4)
    await eventually(lambda: len(events.reasons) == 5)
    assert [(connection, reason) for what, connection, reason in events.seen if what == "closed"] == [
        (connections[0], CloseReason.PEER),
        (connections[1], CloseReason.FAILED),
        (connections[2], CloseReason.LOCAL),
        (connections[3], CloseReason.FAILED),
        (connections[4], CloseReason.IDLE),
    ]
    assert len(events.seen) == 10
    for peer in peers:
        peer.close()


async def test_a_client_hears_of_its_connections_too(start: Start):
    events = Events()
    server = await start.server(PROCESSORS)
    client = await start.client(None, {"listener": events})
    await client.invoke(server.address, Command.request(ECHO))
    assert [what for what, _, _ in events.seen] == ["connected"]
    client.close_connection(server.address)
    await eventually(lambda: events.reasons == [CloseReason.LOCAL])
    await client.invoke(server.address, Command.request(ECHO))
    await server.close()
    await eventually(lambda: events.reasons == [CloseReason.LOCAL, CloseReason.PEER])


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("side", ["server", "client"])
async def test_a_connection_whose_making_is_cancelled_at_the_last_moment_ends_as_any_other(
    start: Start, side: str, tls: bool
):
    """It is there already, but whoever made it is stopped before he hears of it."""

    class Cancelling(Events):
        def connected(self, connection: Connection) -> None:
            super().connected(connection)
            # Will be ready for a transport that is gone by then.
            asyncio.get_running_loop().call_soon(connection.send, Command.request(40))
            for task in asyncio.all_tasks():
                if task.get_name().startswith(("connect ", "admit")):
                    task.cancel()

    events = {"server": Events(), "client": Events(), side: Cancelling()}
    server = await start.server(PROCESSORS, {"listener": events["server"], "tls": TlsConfig(test_mode=True)})
    client = await start.client(None, {"listener": events["client"], "tls": TlsConfig(client_enable=tls)})
    with contextlib.suppress(ConnectionLost):
        await client.invoke(server.address, Command.request(ECHO), 5)
    await eventually(lambda: not server.connections and not client.endpoint.connections)
    await eventually(lambda: all(len(each.reasons) == len(each.seen) / 2 for each in events.values()))
    assert events[side].reasons == [CloseReason.LOCAL]
    gc.collect()


async def test_a_connection_that_comes_as_its_time_runs_out_is_used_or_ends(start: Start):
    class Slow(Events):
        def connected(self, connection: Connection) -> None:
            super().connected(connection)
            time.sleep(0.1)  # the time to connect passes meanwhile

    events = Slow()
    server = await start.server(PROCESSORS)
    client = await start.client(None, {"listener": events}, connect_timeout=0.05)
    try:
        connection = await client.connection(server.address)
    except ConnectFailed:
        await eventually(lambda: events.reasons)
        assert not client.endpoint.connections
    else:
        assert client.endpoint.connections == {connection}


async def test_a_server_that_closes_in_the_turn_in_which_it_accepts_leaves_no_socket(start: Start):
    server = await start.server(PROCESSORS)
    # Connected without waiting, so that the server's own turn is still to come.
    peers = [Peer(socket.create_connection(("127.0.0.1", server.port))) for _ in range(3)]
    assert server._listening is not None
    server._listening._accept()  # as the event loop would
    await server.close()
    for peer in peers:
        assert await peer.ended() == b""
        peer.close()
    gc.collect()


async def test_one_connection_more_than_allowed_is_closed_at_once(start: Start, caplog):
    server = await start.server(PROCESSORS, max_connections=2)
    async with await Peer.connect(server.address) as first:
        await first.ask(request(ECHO))
        # A socket that has said nothing yet counts as well.
        async with await Peer.connect(server.address) as silent:
            await eventually(lambda: any(task.get_name() == "admit" for task in asyncio.all_tasks()))
            for _ in range(3):
                async with await Peer.connect(server.address) as third:
                    assert await third.ended() == b""
            assert (await first.ask(request(ECHO))).code == 0
            assert (await silent.ask(request(ECHO))).code == 0
        await eventually(lambda: len(server.connections) == 1)
        async with await Peer.connect(server.address) as another:
            assert (await another.ask(request(ECHO))).code == 0
    assert closings(caplog) == ["2 connections are open; refusing more (maxConnections)"]


@pytest.mark.slow
async def test_many_connections_at_once_are_all_admitted(start: Start):
    server = await start.server(PROCESSORS)
    peers = await asyncio.gather(*(Peer.connect(server.address) for _ in range(200)))
    answers = await asyncio.gather(*(peer.ask(request(ECHO)) for peer in peers))
    assert {answer.code for answer in answers} == {0}
    assert len(server.connections) == 200
    for peer in peers:
        peer.close()


async def test_a_server_that_stops_listening_goes_on_with_those_it_has(start: Start):
    server = await start.server(PROCESSORS)
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await Peer.connect(server.address)
        assert (await peer.ask(request(ECHO))).code == 0
        server.stop_listening()


async def test_a_taken_port_is_a_clear_error(start: Start):
    server = await start.server(PROCESSORS)
    with pytest.raises(ConfigError, match=f"port {server.port} is taken; cannot listen on 127.0.0.1:{server.port}"):
        await start.server(PROCESSORS, listen_port=server.port)


@pytest.mark.parametrize("address", ["192.0.2.1", "no.such.host.invalid", "a" * 70, "::ffff:1:2:3:4:5:6:7:8"])
async def test_an_address_that_is_not_ours_is_a_clear_error(start: Start, address: str):
    with pytest.raises(ConfigError, match="cannot listen on "):
        await start.server(PROCESSORS, bind_address=address)


async def test_a_server_on_ipv6_is_reached_by_a_bracketed_address(start: Start):
    server = await start.server(PROCESSORS, bind_address="::1")
    client = await start.client()
    assert server.address == f"[::1]:{server.port}"
    assert (await client.invoke(server.address, Command.request(ECHO))).code == 0
    (connection,) = server.connections
    assert connection.peer.startswith("[::1]:")


async def test_small_frames_are_sent_without_delay(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    await client.invoke(server.address, Command.request(ECHO))
    for connection in (*server.connections, *client.endpoint.connections):
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.slow
async def test_a_server_that_closes_leaves_nothing_behind():
    """With requests under way, half-open peers, a peer that does not read, and sockets that never said a word."""
    ended: list[str] = []

    async def held(connection: Connection, command: Command) -> Command:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("held")
        return command.reply()

    large = {4: lambda _, asked: asked.reply(body=bytes(4_000_000))}
    config = ServerConfig(listen_port=0, bind_address="127.0.0.1", send_buffer=4096)
    peers = []
    async with RemotingServer(config, {**PROCESSORS, **large, HELD: held}) as server:
        for parts in (
            [],  # silent
            [b"\x16"],  # began a handshake
            [encode(request(ECHO))[:9]],  # half a frame
            [request(ECHO)],
            [request(HELD), request(HELD)],
            [request(4)],  # and does not read
        ):
            peers.append(await Peer.connect(server.address, receive_buffer=4096))
            await peers[-1].send(*parts)
        await eventually(lambda: len(server.connections) == 4 and len(server.endpoint.tasks) == 2)
        peers[3].sock.shutdown(socket.SHUT_WR)
        (connection, *_) = server.connections
        started = time.monotonic()
    assert time.monotonic() - started < TOO_LONG
    assert ended == ["held", "held"]
    assert connection.closed
    assert server.connections == frozenset()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for peer in peers:
        await peer.ended()
        peer.close()
    gc.collect()  # whatever was forgotten would warn now


async def test_a_server_without_slow_peers_closes_at_once(start: Start, monkeypatch):
    monkeypatch.setattr("pyromq.remoting.endpoint._LINGER", 3600.0)
    server = await start.server(PROCESSORS)
    client = await start.client()
    await client.invoke(server.address, Command.request(ECHO))
    async with asyncio.timeout(TOO_LONG):
        await server.close()
    await server.close()  # twice does no harm


async def test_a_server_without_tls_serves_a_peer_before_its_first_byte(start: Start):
    events = Events()
    server = await start.server(PROCESSORS, {"listener": events, "tls": TlsConfig(mode=TlsMode.DISABLED)})
    async with await Peer.connect(server.address):
        await eventually(lambda: len(events.seen) == 1)


async def test_closing_a_server_within_a_request_of_its_own_answers_that_request(start: Start):
    """A processor may ask for the end of its server, as long as it does not wait for it."""
    closing: list[asyncio.Task[None]] = []

    def stop(connection: Connection, command: Command) -> Command:
        closing.append(asyncio.create_task(server.close()))
        return command.reply(0, "bye")

    server = await start.server({ECHO: stop})
    async with await Peer.connect(server.address) as peer:
        assert (await peer.ask(request(ECHO))).remark == "bye"
        assert await peer.ended() == b""
    await closing[0]
