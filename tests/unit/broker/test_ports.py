"""The ports of a broker: which requests go where, and that three of them are found together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from pyromq.broker.ports import Ports
from pyromq.broker.send import message_limit
from pyromq.errors import ConfigError
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.remoting import RemotingClient, ServerConfig, TlsConfig

CONFIG = ServerConfig(listen_port=0, bind_address="127.0.0.1")


class Nobody:
    def connected(self, connection):
        pass

    def closed(self, connection, reason):
        pass


def new_ports(config=CONFIG, ha_port=0):
    return Ports(config, ha_port, Nobody(), TlsConfig(), lambda: message_limit(4 << 20))


async def test_ports_of_the_systems_choice_lie_together_however_many_brokers_there_are():
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(new_ports()) for _ in range(40)]
        numbers = [number for ports in opened for number in (ports.port, ports.port - 2, ports.ha_port)]
        assert all(ports.ha_port == ports.port + 1 for ports in opened)
        assert len(set(numbers)) == len(numbers)


async def test_a_request_is_served_from_the_moment_on_that_somebody_serves_it():
    async with new_ports() as ports, RemotingClient() as client:
        ports.serve({RequestCode.HEART_BEAT: lambda _, request: request.reply(remark="served")})
        ports.listen()
        for port in (ports.port, ports.port - 2):
            reply = await client.invoke(f"127.0.0.1:{port}", Command.request(RequestCode.HEART_BEAT))
            assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, "served")
        assert len(ports.clients) == 2


async def test_ports_are_taken_and_refuse_connections_until_somebody_listens():
    async with new_ports() as ports:
        for port in (ports.port, ports.port - 2, ports.ha_port):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises(ConfigError, match="is taken"):
                async with new_ports(ServerConfig(listen_port=port, bind_address="127.0.0.1")):
                    pass
        ports.listen()
        for port in (ports.port, ports.port - 2, ports.ha_port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()


async def test_who_is_connected_stays_so_when_nobody_else_is_taken():
    async with new_ports() as ports, RemotingClient() as client:
        ports.serve({RequestCode.HEART_BEAT: lambda _, request: request.reply()})
        ports.listen()
        address = f"127.0.0.1:{ports.port}"
        await client.invoke(address, Command.request(RequestCode.HEART_BEAT))
        ports.stop_listening()
        await client.invoke(address, Command.request(RequestCode.HEART_BEAT))
        for port in (ports.port, ports.port - 2, ports.ha_port):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)


async def test_requests_under_way_are_waited_for():
    done = asyncio.Event()

    async def slow(connection, request):
        await done.wait()
        return request.reply(remark="late")

    async with new_ports() as ports, RemotingClient() as client:
        ports.serve({RequestCode.HEART_BEAT: slow})
        ports.listen()
        asking = asyncio.create_task(client.invoke(f"127.0.0.1:{ports.port}", Command.request(RequestCode.HEART_BEAT)))
        while not ports.clients:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        await ports.finish(0.05)
        assert not asking.done()
        asyncio.get_running_loop().call_later(0.01, done.set)
        await ports.finish(5)
        assert (await asking).remark == "late"
