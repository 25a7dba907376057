"""Which name server a client asks, and when it asks another (docs/spec/remoting.md 7.4)."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.bounds import TOO_LONG
from tests.integration.remoting.bare import Listener
from tests.ports import free_port

from pyromq.errors import ConnectFailed, ConnectionLost, RequestTimeout
from pyromq.protocol.command import Command
from pyromq.remoting import NameServers, TlsConfig

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.remoting import RemotingServer

WHO, SILENT = 1, 2


async def some(start: Start, count: int) -> list[RemotingServer]:
    """Name servers that say which of them they are."""

    def processors(number: int):
        return {WHO: lambda _, asked: asked.reply(0, str(number)), SILENT: lambda *_: None}

    return [await start.server(processors(number)) for number in range(count)]


def dead() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


async def test_one_name_server_is_asked_and_kept(start: Start):
    servers = await some(start, 3)
    names = NameServers(await start.client(), [server.address for server in servers])
    answers = {(await names.invoke(Command.request(WHO))).remark for _ in range(10)}
    assert len(answers) == 1
    assert sum(len(server.connections) for server in servers) == 1


async def test_clients_spread_over_the_name_servers(start: Start):
    client = await start.client()
    addresses = [f"127.0.0.1:{port}" for port in range(1, 6)]
    first = {NameServers(client, addresses, random.Random(seed)).current for seed in range(100)}
    assert first == set(addresses)


async def test_the_next_is_asked_when_one_cannot_be_connected_to(start: Start):
    (server,) = await some(start, 1)
    client = await start.client()
    gone = dead()
    names = NameServers(client, [gone, server.address], random.Random(1))
    while names.current != gone:
        names = NameServers(client, [gone, server.address])
    assert (await names.invoke(Command.request(WHO))).remark == "0"
    assert names.current == server.address


async def test_an_answer_that_does_not_come_is_no_reason_to_move_on(start: Start):
    servers = await some(start, 2)
    names = NameServers(await start.client(), [server.address for server in servers])
    await names.invoke(Command.request(WHO))  # it is connected now, which takes nothing of the time for an answer
    before = names.current
    with pytest.raises(RequestTimeout):
        await names.invoke(Command.request(SILENT), 0.05)
    assert names.current == before


async def test_a_name_server_that_died_is_replaced_by_the_next_request(start: Start):
    servers = await some(start, 2)
    names = NameServers(await start.client(), [server.address for server in servers])
    first = (await names.invoke(Command.request(WHO))).remark
    await servers[int(first or 0)].close()
    try:
        second = (await names.invoke(Command.request(WHO))).remark
    except ConnectionLost:  # the request met the closing
        second = (await names.invoke(Command.request(WHO))).remark
    assert second != first


async def test_with_none_to_reach_the_error_names_them_all(start: Start):
    addresses = [dead(), dead()]
    names = NameServers(await start.client(), addresses)
    with pytest.raises(ConnectFailed, match="none can be reached") as caught:
        await names.invoke(Command.request(WHO))
    assert all(address in str(caught.value) for address in addresses)


async def test_without_addresses_the_error_names_the_setting(start: Start):
    with pytest.raises(ConnectFailed, match="set namesrvAddr"):
        await NameServers(await start.client(), []).invoke(Command.request(WHO))


async def test_callers_that_fail_together_move_on_by_one(start: Start):
    (server,) = await some(start, 1)
    client = await start.client()
    addresses = [dead(), server.address, dead()]
    for seed in range(20):
        names = NameServers(client, addresses, random.Random(seed))
        answers = await asyncio.gather(*(names.invoke(Command.request(WHO)) for _ in range(5)))
        assert {answer.remark for answer in answers} == {"0"}
        assert names.current == server.address


@pytest.mark.slow
async def test_the_deadline_covers_all_attempts_and_leaves_each_its_share(start: Start):
    client = await start.client(None, {"tls": TlsConfig(client_enable=True)})  # a bare listener never shakes hands
    (server,) = await some(start, 1)
    async with Listener() as deaf, Listener() as deaf_too:
        names = NameServers(client, [deaf.address, deaf_too.address])
        started = time.monotonic()
        with pytest.raises(ConnectFailed, match="none can be reached"):
            await names.invoke(Command.request(WHO), 0.1)
        assert 0.08 < time.monotonic() - started < TOO_LONG
        names = NameServers(client, [deaf.address, server.address], random.Random(1))
        if names.current != deaf.address:
            names._put_last(server.address)
        assert (await names.invoke(Command.request(WHO), 2.0)).remark == "0"


async def test_a_new_list_keeps_the_address_in_use(start: Start):
    servers = await some(start, 3)
    addresses = [server.address for server in servers]
    client = await start.client()
    names = NameServers(client, addresses)
    await names.invoke(Command.request(WHO))
    current = names.current
    connection = await client.connection(current or "")
    names.update([*reversed(addresses), "127.0.0.1:1", "127.0.0.1:1"])
    assert names.current == current
    assert set(names.addresses) == {*addresses, "127.0.0.1:1"}
    assert not connection.closed
    names.update([address for address in addresses if address != current])
    assert names.current != current
    assert connection.closed
    assert (await names.invoke(Command.request(WHO))).code == 0
    names.update([])
    assert names.current is None


async def test_the_same_list_in_another_order_changes_nothing(start: Start):
    names = NameServers(await start.client(), ["a:1", "b:2", "c:3"])
    before = names.addresses
    names.update(["c:3", "a:1", "b:2", "a:1"])
    assert names.addresses == before
