"""Deadlines, and callers that leave midway: what is left of their calls, permits, connections and tasks."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import Listener, Peer, eventually, request
from tests.ports import free_port

from pyromq.errors import ConnectFailed, ConnectionLost, LocalProtocolError, RequestTimeout, TooManyRequests
from pyromq.protocol.command import Command
from pyromq.remoting import TlsConfig

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import Connection, RemotingClient

ECHO, SILENT = 1, 2
PROCESSORS = {ECHO: lambda _, asked: asked.reply(body=asked.body), SILENT: lambda *_: None}

# A connection over TLS is not there before the peer has shaken hands; a bare listener never does.
TLS = {"tls": TlsConfig(client_enable=True)}


def only(client: RemotingClient) -> Connection:
    (connection,) = client.endpoint.connections
    return connection


async def answer(listener: Listener, remark: str) -> Peer:
    """Accept a connection and answer its first request."""
    peer = await listener.accept()
    await peer.send((await peer.read()).reply(0, remark))
    return peer


async def test_a_request_without_answer_ends_at_its_deadline(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    started = time.monotonic()
    with pytest.raises(RequestTimeout, match=r"no answer to request 2 within 0\.1 s") as caught:
        await client.invoke(server.address, Command.request(SILENT), 0.1)
    assert 0.09 <= time.monotonic() - started < TOO_LONG
    assert (caught.value.peer, caught.value.request_code, caught.value.seconds) == (server.address, SILENT, 0.1)


async def test_calls_with_different_deadlines_end_each_in_its_time(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    connection = await client.connection(server.address)
    ended: list[float] = []
    started = time.monotonic()

    async def ask(timeout: float) -> None:
        with pytest.raises(RequestTimeout):
            await connection.invoke(Command.request(SILENT), timeout)
        late = time.monotonic() - started - timeout
        assert -0.03 <= late < TOO_LONG  # uvloop reads the clock once per turn
        ended.append(timeout)

    # Not in the order of their deadlines, so that the one timer has to be set anew both ways.
    await asyncio.gather(*(ask(timeout) for timeout in (0.12, 0.03, 0.16, 0.06, 0.03, 0.09)))
    assert ended == sorted(ended)
    assert connection.calls_under_way == 0


async def test_a_reply_that_comes_after_the_deadline_is_dropped(start: Start):
    client = await start.client()
    async with Listener() as listener:
        connecting = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
        async with await answer(listener, "warm") as peer:
            await connecting
            late = asyncio.create_task(only(client).invoke(Command.request(SILENT), 0.03))
            question = await peer.read()
            with pytest.raises(RequestTimeout):
                await late
            next_one = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
            second = await peer.read()
            await peer.send(question.reply(0, "too late"), second.reply(0, "in time"))
            assert (await next_one).remark == "in time"


async def test_a_connection_that_stayed_silent_is_closed_after_a_timeout(start: Start, caplog):
    client = await start.client()
    async with Listener() as listener:
        connecting = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO), 0.05))
        async with await listener.accept() as peer:
            with pytest.raises(RequestTimeout):
                await connecting
            await peer.ended()
        assert caplog.text.count("silent for") == 1
        again = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
        async with await answer(listener, "on a new connection"):
            assert (await again).remark == "on a new connection"


async def test_a_connection_on_which_others_are_answered_survives_a_timeout(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    connection = await client.connection(server.address)

    async def busy() -> None:
        while True:
            await client.invoke(server.address, Command.request(ECHO))

    others = asyncio.create_task(busy())
    with pytest.raises(RequestTimeout):
        await client.invoke(server.address, Command.request(SILENT), 0.05)
    assert await client.connection(server.address) is connection
    others.cancel()
    with pytest.raises(asyncio.CancelledError):
        await others


async def test_the_deadline_covers_connecting(start: Start):
    client = await start.client(None, TLS)
    async with Listener() as deaf:
        started = time.monotonic()
        for send in (client.invoke, client.oneway):
            with pytest.raises(ConnectFailed, match=rf"{deaf.address}: no connection within 0\.05 s"):
                await send(deaf.address, Command.request(ECHO), 0.05)
        assert 0.09 < time.monotonic() - started < TOO_LONG


async def test_connecting_takes_no_longer_than_the_connect_timeout(start: Start):
    client = await start.client(None, TLS, connect_timeout=0.05)
    async with Listener() as deaf:
        started = time.monotonic()
        with pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"):
            await client.invoke(deaf.address, Command.request(ECHO), 30)
        assert 0.04 < time.monotonic() - started < TOO_LONG


async def test_a_refused_connection_is_an_error_that_says_so(start: Start):
    async with Listener() as listener:
        address = listener.address
    client = await start.client()
    with pytest.raises(ConnectFailed, match=rf"{address}: cannot connect: .*refused"):
        await client.invoke(address, Command.request(ECHO))


@pytest.mark.parametrize(
    "address", ["", "nohost", ":9876", "host:", "host:0", "host:65536", "host:x", "host:-1", "host:٣", "[]:80"]
)
async def test_a_malformed_address_is_a_typed_error(start: Start, address: str):
    client = await start.client()
    with pytest.raises(LocalProtocolError, match="is not an address of the form host:port"):
        await client.invoke(address, Command.request(ECHO))


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "with\0null", "no.such.host.invalid", "\ud800"])
async def test_a_host_that_cannot_exist_is_a_typed_error(start: Start, host: str):
    client = await start.client()
    with pytest.raises(ConnectFailed, match="cannot connect"):
        await client.invoke(f"{host}:9876", Command.request(ECHO))


async def test_a_cancelled_invoke_leaves_no_call_and_no_permit_behind(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client(async_permits=1)
    connection = await client.connection(server.address)
    asking = asyncio.create_task(client.invoke(server.address, Command.request(SILENT)))
    await eventually(lambda: connection.calls_under_way)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert connection.calls_under_way == 0
    assert (await client.invoke(server.address, Command.request(ECHO), 1)).code == 0


async def test_an_invoke_cancelled_while_it_waits_for_a_permit_takes_none(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client(async_permits=1)
    connection = await client.connection(server.address)
    first = asyncio.create_task(connection.invoke(Command.request(SILENT)))
    await eventually(lambda: connection.calls_under_way)
    second = asyncio.create_task(connection.invoke(Command.request(SILENT)))
    third = asyncio.create_task(connection.invoke(Command.request(ECHO)))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    assert (await third).code == 0
    assert connection.calls_under_way == 0
    await asyncio.gather(first, second, return_exceptions=True)
    assert not client.endpoint.calls.locked()


async def test_a_caller_that_leaves_at_the_very_deadline_leaves_no_error_behind(start: Start):
    """Its call may have failed in the same turn; nobody will ever look at that error."""
    server = await start.server(PROCESSORS)
    client = await start.client()
    connection = await client.connection(server.address)
    asking = asyncio.create_task(connection.invoke(Command.request(SILENT), 5))
    await eventually(lambda: connection.calls_under_way)
    connection.close()  # fails the call, and before its caller hears of it …
    asking.cancel()  # … the caller leaves
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking
    gc.collect()  # an error that was never looked at would be reported here


async def test_a_cancelled_oneway_that_waits_for_a_permit_takes_none(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client(oneway_permits=1)
    connection = await client.connection(server.address)
    await client.endpoint.oneways.acquire()
    telling = asyncio.create_task(connection.oneway(Command.request(SILENT)))
    await asyncio.sleep(0)
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    client.endpoint.oneways.release()
    await connection.oneway(Command.request(SILENT), 1)
    assert not client.endpoint.oneways.locked()


def attempts() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("connect ")]


async def test_a_cancelled_connection_attempt_ends(start: Start):
    client = await start.client(None, TLS, connect_timeout=60)
    async with Listener() as deaf:
        connecting = asyncio.create_task(client.connection(deaf.address))
        await eventually(attempts)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await eventually(lambda: not attempts())


async def test_an_attempt_that_nobody_waits_for_any_more_ends(start: Start):
    client = await start.client(None, TLS, connect_timeout=60)
    async with Listener() as deaf:
        with pytest.raises(ConnectFailed, match=r"no connection within 0\.02 s"):
            await client.connection(deaf.address, 0.02)
        await eventually(lambda: not attempts())


async def test_an_attempt_goes_on_for_those_who_still_wait(start: Start):
    client = await start.client(None, TLS, connect_timeout=60)
    async with Listener() as deaf:
        patient = asyncio.create_task(client.connection(deaf.address, 0.2))
        await eventually(attempts)
        with pytest.raises(ConnectFailed):
            await client.connection(deaf.address, 0.02)
        assert len(attempts()) == 1
        with pytest.raises(ConnectFailed, match=r"within 0\.2 s"):
            await patient


async def test_callers_share_one_attempt_and_one_of_them_may_leave(start: Start):
    client = await start.client()
    async with Listener() as listener:
        callers = [asyncio.create_task(client.connection(listener.address)) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        first, second = await asyncio.gather(*callers[1:])
        assert first is second
        assert callers[0].cancelled()
        async with await listener.accept():
            with pytest.raises(BlockingIOError):
                listener.sock.accept()


async def test_callers_that_share_a_failed_attempt_all_hear_of_it(start: Start):
    async with Listener() as listener:
        address = listener.address
    client = await start.client()
    results = await asyncio.gather(*(client.connection(address) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectFailed] * 3


async def test_a_failed_attempt_is_not_remembered(start: Start):
    client = await start.client()
    port = free_port()
    with pytest.raises(ConnectFailed):
        await client.connection(f"127.0.0.1:{port}")
    await start.server(PROCESSORS, listen_port=port)
    assert (await client.invoke(f"127.0.0.1:{port}", Command.request(ECHO))).code == 0


async def test_closing_a_client_ends_its_calls_with_connection_lost(start: Start):
    server = await start.server(PROCESSORS)
    client = await start.client()
    connection = await client.connection(server.address)
    asking = asyncio.create_task(client.invoke(server.address, Command.request(SILENT)))
    await eventually(lambda: connection.calls_under_way)
    await client.close()
    with pytest.raises(ConnectionLost, match="closed here"):
        await asking


async def test_closing_a_client_is_no_cancellation_for_those_who_connect(start: Start):
    client = await start.client(None, TLS)
    async with Listener() as deaf:
        connecting = asyncio.create_task(client.invoke(deaf.address, Command.request(ECHO)))
        await eventually(attempts)
        await client.close()
        with pytest.raises(ConnectFailed, match="this client is closed"):
            await connecting
        with pytest.raises(ConnectFailed, match="this client is closed"):
            await client.connection(deaf.address)


async def test_a_lost_connection_ends_its_calls_at_once(start: Start):
    client = await start.client()
    async with Listener() as listener:
        calls = [asyncio.create_task(client.invoke(listener.address, Command.request(SILENT), 30)) for _ in range(3)]
        peer = await listener.accept()
        await peer.read_all(3)
        started = time.monotonic()
        peer.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(result) for result in results] == [f"{listener.address}: closed by the peer"] * 3
        assert len({id(result) for result in results}) == 3
        assert time.monotonic() - started < TOO_LONG


async def test_a_peer_that_says_no_more_ends_the_calls_although_it_has_not_taken_all_of_them(start: Start):
    client = await start.client()
    async with Listener(receive_buffer=65536) as listener:
        connection = await client.connection(listener.address)
        call = asyncio.create_task(connection.invoke(Command.request(ECHO, body=bytes(8_000_000)), 30))
        async with await listener.accept() as peer:
            await eventually(lambda: connection.transport.get_write_buffer_size())
            peer.sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(5):
                with pytest.raises(ConnectionLost, match="closed by the peer"):
                    await call


async def test_a_reset_connection_says_so(start: Start):
    client = await start.client()
    async with Listener() as listener:
        call = asyncio.create_task(client.invoke(listener.address, Command.request(SILENT)))
        peer = await listener.accept()
        await peer.read()
        peer.close(reset=True)
        with pytest.raises(ConnectionLost, match="reset by peer"):
            await call


async def test_a_lost_connection_is_forgotten_and_the_next_request_makes_a_new_one(start: Start):
    client = await start.client()
    async with Listener() as listener:
        for round_ in range(2):
            call = asyncio.create_task(client.invoke(listener.address, Command.request(ECHO)))
            async with await answer(listener, f"round {round_}"):
                assert (await call).remark == f"round {round_}"
            await eventually(lambda: not client.endpoint.connections)


@pytest.mark.parametrize("kind", ["calls", "oneways"])
async def test_without_a_permit_in_time_nothing_is_sent(start: Start, kind: str):
    server = await start.server(PROCESSORS)
    client = await start.client(async_permits=1, oneway_permits=1)
    connection = await client.connection(server.address)
    permits = getattr(client.endpoint, kind)
    await permits.acquire()
    started = time.monotonic()
    with pytest.raises(TooManyRequests, match="too many requests in flight"):
        await (connection.invoke if kind == "calls" else connection.oneway)(Command.request(ECHO), 0.05)
    assert 0.04 <= time.monotonic() - started < TOO_LONG
    assert connection.calls_under_way == 0
    permits.release()
    await (connection.invoke if kind == "calls" else connection.oneway)(Command.request(ECHO), 1)


async def test_no_more_requests_are_under_way_than_there_are_permits(start: Start):
    client = await start.client(async_permits=3)
    async with Listener() as listener:
        calls = [asyncio.create_task(client.invoke(listener.address, Command.request(ECHO))) for _ in range(5)]
        async with await listener.accept() as peer:
            asked = await peer.read_all(3)
            assert only(client).calls_under_way == 3
            await peer.send(asked[0].reply())
            asked.append(await peer.read())
            assert only(client).calls_under_way == 3
            for command in asked[1:]:
                await peer.send(command.reply())
            await peer.send((await peer.read()).reply())
            assert [(await call).code for call in calls] == [0] * 5
        assert not client.endpoint.calls.locked()


async def test_permits_come_back_however_a_request_ends(start: Start):
    class Refusing:
        refuse = False

        def before_request(self, peer: str, request: Command) -> None:
            if self.refuse:
                raise LocalProtocolError("refused here")

        def after_response(self, peer: str, request: Command, response: Command | None) -> None: ...

    hook = Refusing()
    server = await start.server(PROCESSORS)
    client = await start.client(None, {"hooks": [hook]}, async_permits=1, oneway_permits=1, max_frame=1024)
    connection = await client.connection(server.address)
    too_large = Command.request(ECHO, body=bytes(2000))
    for send in (connection.invoke, connection.oneway):
        with pytest.raises(LocalProtocolError, match="larger than 1024"):
            await send(too_large)
        hook.refuse = True
        with pytest.raises(LocalProtocolError, match="refused here"):
            await send(Command.request(ECHO))
        hook.refuse = False
        await send(Command.request(ECHO))
    with pytest.raises(RequestTimeout):
        await connection.invoke(Command.request(SILENT), 0.02)
    connection.close()
    for send in (connection.invoke, connection.oneway):
        with pytest.raises(ConnectionLost):
            await send(Command.request(ECHO))
    assert connection.calls_under_way == 0
    assert not client.endpoint.calls.locked()
    assert not client.endpoint.oneways.locked()


async def test_a_server_has_few_permits_for_what_it_asks_itself(start: Start):
    server = await start.server(PROCESSORS, async_permits=1, oneway_permits=1)
    async with await Peer.connect(server.address) as peer:
        await peer.ask(request(ECHO))
        (connection,) = server.connections
        waiting = asyncio.create_task(connection.invoke(Command.request(77)))
        question = await peer.read()
        with pytest.raises(TooManyRequests):
            await connection.invoke(Command.request(77), 0.02)
        # Its own requests are limited, not those it receives.
        assert (await peer.ask(request(ECHO))).code == 0
        await peer.send(question.reply())
        assert (await waiting).code == 0
