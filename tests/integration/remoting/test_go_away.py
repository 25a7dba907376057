"""A 5.x server that shuts down asks its clients to go away (docs/spec/remoting.md 7.5)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.remoting.bare import Listener, eventually

from pyromq.errors import ConnectFailed
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.command import Command

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

ASK = 1


async def test_a_request_is_sent_once_more_on_a_new_connection_under_a_new_number(start: Start):
    client = await start.client()
    async with Listener() as listener:
        asking = asyncio.create_task(client.invoke(listener.address, Command.request(ASK, body=b"question")))
        async with await listener.accept() as old:
            first = await old.read()
            await old.send(first.reply(ResponseCode.GO_AWAY, "please go away"))
            async with await listener.accept() as new:
                second = await new.read()
                assert (second.body, second.code) == (first.body, first.code)
                assert second.opaque != first.opaque
                await new.send(second.reply(0, "here I am"))
                assert (await asking).remark == "here I am"
                assert await old.ended() == b""
                # From now on the new one is used.
                asking = asyncio.create_task(client.invoke(listener.address, Command.request(ASK)))
                await new.send((await new.read()).reply(0, "still here"))
                assert (await asking).remark == "still here"


async def test_a_second_refusal_is_the_answer(start: Start):
    client = await start.client()
    async with Listener() as listener:
        asking = asyncio.create_task(client.invoke(listener.address, Command.request(ASK)))
        for _ in range(2):
            peer = await listener.accept()
            await peer.send((await peer.read()).reply(ResponseCode.GO_AWAY, "please go away"))
            await asyncio.sleep(0)
            peer.close()
        answer = await asking
        assert (answer.code, answer.remark) == (1500, "please go away")


async def test_a_server_that_is_gone_already_is_an_error(start: Start):
    client = await start.client()
    async with Listener() as listener:
        asking = asyncio.create_task(client.invoke(listener.address, Command.request(ASK)))
        async with await listener.accept() as peer:
            listener.sock.close()
            await peer.send((await peer.read()).reply(ResponseCode.GO_AWAY))
            with pytest.raises(ConnectFailed):
                await asking


async def test_others_who_wait_on_the_old_connection_still_get_their_answer(start: Start):
    client = await start.client()
    async with Listener() as listener:
        served = asyncio.create_task(client.invoke(listener.address, Command.request(ASK, body=b"served")))
        async with await listener.accept() as old:
            first = await old.read()
            refused = asyncio.create_task(client.invoke(listener.address, Command.request(ASK, body=b"refused")))
            await old.send((await old.read()).reply(ResponseCode.GO_AWAY))
            async with await listener.accept() as new:
                await new.send((await new.read()).reply(0, "new"))
                assert (await refused).remark == "new"
                await old.send(first.reply(0, "old"))
                assert (await served).remark == "old"


async def test_many_who_are_sent_away_at_once_share_the_new_connection(start: Start):
    client = await start.client()
    async with Listener() as listener:
        asking = [asyncio.create_task(client.invoke(listener.address, Command.request(ASK))) for _ in range(20)]
        async with await listener.accept() as old:
            for command in await old.read_all(20):
                await old.send(command.reply(ResponseCode.GO_AWAY))
            async with await listener.accept() as new:
                for command in await new.read_all(20):
                    await new.send(command.reply(0, "new"))
                assert {(await each).remark for each in asking} == {"new"}
                assert await old.ended() == b""
                await eventually(lambda: len(client.endpoint.connections) == 1)
