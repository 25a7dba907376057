"""The proxy that other tests break lines with does what it says."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import Peer, eventually, request

from pyromq.errors import ConnectionLost, RequestTimeout
from pyromq.protocol.command import Command
from pyromq.protocol.frame import encode
from pyromq.remoting import split_address
from pyromq.testing import Proxy
from pyromq.testing.proxy import Way

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import RemotingClient, RemotingServer

ECHO, SILENT = 1, 2


@pytest.fixture
async def server(start: Start) -> RemotingServer:
    return await start.server({ECHO: lambda _, asked: asked.reply(body=asked.body), SILENT: lambda *_: None})


@pytest.fixture
async def proxy(server: RemotingServer, cleanup: AsyncExitStack) -> Proxy:
    return await cleanup.enter_async_context(Proxy(server.address))


@pytest.fixture
async def client(start: Start) -> RemotingClient:
    return await start.client()


async def test_bytes_pass_through_in_both_directions(proxy: Proxy, client: RemotingClient):
    body = bytes(range(256)) * 10_000
    assert (await client.invoke(proxy.address, Command.request(ECHO, body=body))).body == body
    assert proxy.connections == 1


async def test_a_cut_line_is_reset_on_both_ends_and_can_be_made_again(
    proxy: Proxy, client: RemotingClient, server: RemotingServer
):
    await client.invoke(proxy.address, Command.request(ECHO))
    waiting = asyncio.create_task(client.invoke(proxy.address, Command.request(SILENT)))
    await eventually(lambda: next(iter(client.endpoint.connections)).calls_under_way)
    proxy.cut()
    with pytest.raises(ConnectionLost):
        await waiting
    await eventually(lambda: not server.connections and not proxy.connections)
    assert (await client.invoke(proxy.address, Command.request(ECHO))).code == 0


async def test_a_paused_line_holds_everything_and_loses_nothing(proxy: Proxy, client: RemotingClient):
    connection = await client.connection(proxy.address)
    proxy.pause()
    with pytest.raises(RequestTimeout):
        await connection.invoke(Command.request(ECHO), 0.05)
    waiting = asyncio.create_task(connection.invoke(Command.request(ECHO, body=b"late")))
    await asyncio.sleep(0.02)
    proxy.resume()
    assert (await waiting).body == b"late"


@pytest.mark.parametrize("way", Way)
async def test_a_line_can_be_silent_one_way(way: Way, proxy: Proxy, client: RemotingClient, server: RemotingServer):
    connection = await client.connection(proxy.address)
    await connection.invoke(Command.request(ECHO))
    before = next(iter(server.connections)).received
    proxy.pause(way)
    waiting = asyncio.create_task(connection.invoke(Command.request(ECHO, body=b"late"), TOO_LONG))
    if way is Way.BACK:
        await eventually(lambda: next(iter(server.connections)).received > before)
    await asyncio.sleep(0.02)
    assert (next(iter(server.connections)).received > before) is (way is Way.BACK)
    assert not waiting.done()
    proxy.resume()
    assert (await waiting).body == b"late"


async def test_a_slow_line_takes_its_time(proxy: Proxy, client: RemotingClient):
    proxy.delay(0.05)
    started = time.monotonic()
    await client.invoke(proxy.address, Command.request(ECHO))
    assert 0.09 < time.monotonic() - started < TOO_LONG
    proxy.delay(3600.0)
    proxy.restore()
    await client.invoke(proxy.address, Command.request(ECHO), TOO_LONG)


async def test_a_garbled_line_spoils_one_piece(proxy: Proxy, client: RemotingClient):
    proxy.garble()
    with pytest.raises(ConnectionLost):
        await client.invoke(proxy.address, Command.request(ECHO))
    assert (await client.invoke(proxy.address, Command.request(ECHO))).code == 0


async def test_a_refusing_proxy_closes_new_connections_and_keeps_the_others(proxy: Proxy, client: RemotingClient):
    connection = await client.connection(proxy.address)
    await connection.invoke(Command.request(ECHO))
    proxy.refuse()
    async with await Peer.connect(proxy.address) as peer:
        assert await peer.ended() == b""
    assert (await connection.invoke(Command.request(ECHO))).code == 0
    proxy.restore()
    async with await Peer.connect(proxy.address) as peer:
        assert (await peer.ask(request(ECHO))).code == 0


async def test_the_end_of_one_side_is_passed_on_to_the_other(proxy: Proxy, server: RemotingServer):
    async with await Peer.connect(proxy.address) as peer:
        await peer.ask(request(ECHO))
    await eventually(lambda: not server.connections)
    async with await Peer.connect(proxy.address) as peer:
        await peer.ask(request(ECHO))
        await server.close()
        assert await peer.ended() == b""
        # Nobody listens there any more.
        async with await Peer.connect(proxy.address) as late:
            assert await late.ended() == b""
    await eventually(lambda: not proxy.connections)


async def test_a_target_that_dies_while_sending_leaves_a_part_and_can_be_connected_to_again(proxy: Proxy):
    asked = request(ECHO, body=b"x" * 1000)
    proxy.end_after(500)
    reader, writer = await asyncio.open_connection(*split_address(proxy.address))
    writer.write(encode(asked))
    assert len(await reader.read()) == 500
    writer.close()
    async with await Peer.connect(proxy.address) as again:
        assert (await again.ask(asked)).code == 0
