"""Peers that do not read: what they can make us hold is bounded, and nothing is lost once they read again."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import Listener, Peer, eventually, request

from pyromq.errors import ConnectionLost, RequestTimeout, TooManyRequests
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.frame import encode
from pyromq.remoting import TlsConfig

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import Connection

KiB, MiB = 1024, 1024 * 1024
ECHO, LARGE, HELD = 1, 2, 3
REPLY = 200 * KiB

# A client that may buffer 256 KiB sends requests of 100: what the transport holds, what one tick adds, and the frame
# that went over the mark.
BOUND = 2 * 256 * KiB + 101 * KiB

TLS_CLIENT = {"tls": TlsConfig(client_enable=True)}


def unsent(connection: Connection) -> int:
    return connection.transport.get_write_buffer_size()


@pytest.mark.slow
@pytest.mark.parametrize("serialize", SerializeType)
async def test_a_peer_that_does_not_read_its_replies_is_not_read_from(start: Start, serialize: SerializeType):
    processed = 0

    def large(connection: Connection, command: Command) -> Command:
        nonlocal processed
        processed += 1
        return command.reply(0, str(processed), body=bytes(REPLY))

    server = await start.server({LARGE: large}, send_buffer=64 * KiB, high_water=1 * MiB)
    async with await Peer.connect(server.address, receive_buffer=64 * KiB) as peer:
        asked = [request(LARGE, serialize=serialize) for _ in range(300)]
        await peer.send(*asked)
        await eventually(lambda: processed)
        (connection,) = server.connections
        await eventually(lambda: not connection.transport.is_reading())
        await asyncio.sleep(0.05)
        assert processed * REPLY < 8 * MiB
        assert unsent(connection) <= 1 * MiB + 2 * REPLY
        # It may send more, as long as somebody takes it.
        before = processed
        peer.sock.send(encode(request(LARGE)))
        await asyncio.sleep(0.02)
        assert processed == before
        answers = await peer.read_all(301)
        assert [answer.opaque for answer in answers[:300]] == [command.opaque for command in asked]
        assert [answer.remark for answer in answers] == [str(n + 1) for n in range(301)]
        assert connection.transport.is_reading()


async def test_one_that_does_not_read_does_not_keep_others_from_being_served(start: Start):
    server = await start.server(
        {LARGE: lambda _, asked: asked.reply(body=bytes(REPLY)), ECHO: lambda _, asked: asked.reply()}
    )
    async with await Peer.connect(server.address) as deaf, await Peer.connect(server.address) as other:
        await deaf.send(*(request(LARGE) for _ in range(300)))
        for _ in range(20):
            assert (await other.ask(request(ECHO))).code == 0


@pytest.mark.limit("maxUnsentBytes")
async def test_a_peer_that_does_not_read_is_cut_off_when_late_replies_pile_up(start: Start, caplog):
    go = asyncio.Event()

    async def held(connection: Connection, command: Command) -> Command:
        await go.wait()
        return command.reply(body=bytes(1 * MiB))

    server = await start.server({HELD: held}, max_unsent=40 * MiB, send_buffer=64 * KiB)
    async with await Peer.connect(server.address, receive_buffer=64 * KiB) as peer:
        await peer.send(*(request(HELD) for _ in range(100)))
        await eventually(lambda: len(server.endpoint.tasks) == 100)
        (connection,) = server.connections
        go.set()
        await eventually(lambda: connection.closed)
        await eventually(lambda: not server.connections and not server.endpoint.tasks)
        records = [record for record in caplog.records if record.name.startswith("pyromq")]
        (line,) = [record.getMessage() for record in records if record.levelno >= logging.WARNING]
        assert line.startswith(f"{peer.address}: peer does not read; 4")


@pytest.mark.slow
async def test_a_single_frame_larger_than_the_limit_does_not_cut_a_peer_off(start: Start):
    server = await start.server(
        {LARGE: lambda _, asked: asked.reply(body=bytes(60 * MiB))}, max_unsent=16 * MiB, max_frame=64 * MiB
    )
    client = await start.client(max_frame=64 * MiB)
    assert len((await client.invoke(server.address, Command.request(LARGE), TOO_LONG)).body_bytes) == 60 * MiB


async def test_oneway_requests_to_a_server_that_does_not_read_wait_and_then_fail(start: Start):
    client = await start.client(high_water=256 * KiB)
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        sent = 0

        async def tell() -> None:
            nonlocal sent
            while sent < 1000:
                await connection.oneway(Command.request(ECHO, body=bytes(100 * KiB)), 0.05)
                sent += 1

        with pytest.raises(TooManyRequests, match="does not read what is sent to it"):
            await tell()
        assert unsent(connection) <= BOUND
        assert not client.endpoint.oneways.locked()
        async with await listener.accept() as peer:
            # The one that failed was not sent, and the next ones are.
            telling = asyncio.create_task(connection.oneway(Command.request(ECHO, body=b"last")))
            told = await peer.read_all(sent + 1)
            await telling
            assert {len(command.body_bytes) for command in told[:-1]} == {100 * KiB}
            assert told[-1].body == b"last"


@pytest.mark.slow
async def test_requests_to_a_server_that_does_not_read_wait_outside_of_the_buffer(start: Start):
    client = await start.client(high_water=256 * KiB)
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        body = bytes(100 * KiB)
        calls = [asyncio.create_task(connection.invoke(Command.request(ECHO, body=body), TOO_LONG)) for _ in range(200)]
        await eventually(lambda: connection.calls_under_way)
        await asyncio.sleep(0.05)
        assert unsent(connection) <= BOUND
        assert connection.calls_under_way < 100
        async with await listener.accept() as peer:
            for _ in range(200):
                await peer.send((await peer.read()).reply())
                assert unsent(connection) <= BOUND
            assert {(await call).code for call in calls} == {0}


async def test_a_request_that_could_not_be_written_in_time_ends_at_its_deadline(start: Start):
    client = await start.client(high_water=64 * KiB)
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        calls = [
            asyncio.create_task(client.invoke(listener.address, Command.request(ECHO, body=bytes(1 * MiB)), 0.2))
            for _ in range(30)
        ]
        started = time.monotonic()
        results = await asyncio.gather(*calls, return_exceptions=True)
        # The first to give up closes the silent connection; so the others hear of that.
        assert {type(result) for result in results} <= {RequestTimeout, ConnectionLost}
        assert RequestTimeout in {type(result) for result in results}
        assert 0.15 < time.monotonic() - started < TOO_LONG
        assert connection.closed
        assert not client.endpoint.calls.locked()


@pytest.mark.parametrize("method", ["invoke", "oneway"])
async def test_a_sender_cancelled_while_it_waits_for_the_peer_to_read_leaves_nothing(start: Start, method: str):
    client = await start.client(high_water=64 * KiB, async_permits=1, oneway_permits=1)
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        connection.send(Command.request(ECHO, body=bytes(15 * MiB)))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(getattr(connection, method)(Command.request(ECHO)))
        await asyncio.sleep(0.02)
        assert connection.calls_under_way == 0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert connection.calls_under_way == 0
        assert not client.endpoint.calls.locked()
        assert not client.endpoint.oneways.locked()


@pytest.mark.parametrize("method", ["invoke", "oneway"])
async def test_a_sender_that_waits_hears_when_the_connection_ends(start: Start, method: str):
    client = await start.client(high_water=64 * KiB)
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        connection.send(Command.request(ECHO, body=bytes(15 * MiB)))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(getattr(connection, method)(Command.request(ECHO), 30))
        await asyncio.sleep(0.02)
        (await listener.accept()).close(reset=True)
        with pytest.raises(ConnectionLost):
            await waiting


@pytest.mark.slow
@pytest.mark.parametrize("client_options", [None, TLS_CLIENT], ids=["plain", "TLS"])
async def test_two_ends_that_both_have_much_to_say_do_not_wait_for_each_other(
    start: Start, client_options: dict[str, Any] | None
):
    """The server holds requests back while its replies are not read; so the client must read whatever happens."""
    server = await start.server(
        {ECHO: lambda _, asked: asked.reply(body=asked.body)}, high_water=64 * KiB, send_buffer=64 * KiB
    )
    client = await start.client(None, client_options, high_water=64 * KiB)
    body = bytes(512 * KiB)
    calls = [client.invoke(server.address, Command.request(ECHO, body=body), TOO_LONG) for _ in range(64)]
    assert {len(answer.body_bytes) for answer in await asyncio.gather(*calls)} == {len(body)}


async def test_a_server_that_asks_much_and_reads_nothing_is_cut_off_by_the_client(start: Start, caplog):
    client = await start.client({ECHO: lambda _, asked: asked.reply(body=bytes(1 * MiB))})
    async with Listener(receive_buffer=64 * KiB) as listener:
        connection = await client.connection(listener.address)
        async with await listener.accept() as peer:
            for _ in range(100):
                await peer.send(request(ECHO))
            await eventually(lambda: connection.closed)
        assert "peer does not read" in caplog.text


async def test_a_peer_over_tls_that_does_not_read_is_not_read_from(start: Start):
    processed = 0

    def large(connection: Connection, command: Command) -> Command:
        nonlocal processed
        processed += 1
        return command.reply(0, str(processed), body=bytes(REPLY))

    server = await start.server({LARGE: large}, send_buffer=64 * KiB)
    client = await start.client(None, TLS_CLIENT)
    connection = await client.connection(server.address)
    connection.transport.pause_reading()
    calls = [asyncio.create_task(connection.invoke(Command.request(LARGE), 20)) for _ in range(150)]
    await eventually(lambda: processed)
    (served,) = server.connections
    await eventually(lambda: not served.transport.is_reading())
    await asyncio.sleep(0.05)
    assert processed * REPLY < 10 * MiB
    connection.transport.resume_reading()
    assert [(await call).remark for call in calls] == [str(n + 1) for n in range(150)]


SERVER = """
import asyncio, sys
import uvloop
from pyromq.remoting import RemotingServer, ServerConfig

async def main():
    config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
    async with RemotingServer(config, {2: lambda _, asked: asked.reply(body=bytes(200 * 1024))}) as server:
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

loop = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.SelectorEventLoop
with asyncio.Runner(loop_factory=loop) as runner:
    runner.run(main())
"""


@pytest.mark.slow
@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_ten_peers_that_ask_for_gigabytes_and_read_nothing_cost_megabytes(loop: str):
    with subprocess.Popen(  # noqa: ASYNC220  # nothing else runs in this loop meanwhile
        [sys.executable, "-c", SERVER, loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None

        def resident() -> int:
            status = Path(f"/proc/{server.pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]) * KiB

        address = f"127.0.0.1:{int(server.stdout.readline())}"
        async with await Peer.connect(address) as peer:
            await peer.ask(request(LARGE))
            before = resident()
            deaf = [await Peer.connect(address) for _ in range(10)]
            for one in deaf:
                await one.send(*(request(LARGE) for _ in range(1000)))  # 200 MB of replies each
            await asyncio.sleep(0.2)
            await peer.ask(request(LARGE))
            assert resident() - before < 64 * MiB
            for one in deaf:
                one.close()
        server.communicate("\n", timeout=TOO_LONG)
