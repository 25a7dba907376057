"""Messages that are sent while others are consumed belong to the same trace, through a real broker."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.life_kit import new_broker, new_name_server

from pyromq.client import Client, Consumer, Producer, StartAt
from pyromq.protocol.message import Message

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plain", [False, True])
async def test_a_trace_goes_on_through_two_services(tmp_path, plain):
    got: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with (
        new_name_server(tmp_path / "namesrv") as name_server,
        new_broker(tmp_path / "store", namesrv_addr=name_server.address),
    ):
        traced = Client(name_server.address, trace_context=True)
        async with Producer("orders", client=traced) as producer:

            async def pass_on(message):
                got.put_nowait(("first", message.properties["traceparent"]))
                await producer.send("second", message.body)

            def pass_on_in_a_thread(message):
                asyncio.run_coroutine_threadsafe(pass_on(message), loop).result()

            async def end(message):
                got.put_nowait(("second", message.properties["traceparent"]))

            first = Consumer("a", client=traced, start_at=StartAt.FIRST)
            first.subscribe("first", handler=pass_on_in_a_thread if plain else pass_on)
            second = Consumer("b", client=traced, start_at=StartAt.FIRST)
            second.subscribe("second", handler=end)
            await producer.send("first", b"x")
            await producer.send("second", b"other")
            async with first, second:
                async with asyncio.timeout(60):
                    found = [await got.get() for _ in range(3)]
    traces = [parent.split("-")[1] for topic, parent in found if topic == "first"]
    others = [parent.split("-")[1] for topic, parent in found if topic == "second"]
    assert len({*others}) == 2
    assert {*traces} < {*others}


async def test_without_the_option_messages_have_what_their_senders_gave_them(tmp_path):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with (
        new_name_server(tmp_path / "namesrv") as name_server,
        new_broker(tmp_path / "store", namesrv_addr=name_server.address),
        Producer("orders", namesrv=name_server.address) as producer,
    ):
        await producer.send(Message("t", b"kept", properties={"traceparent": given}))
        await producer.send(Message("t", b"none"))
        consumer = Consumer("a", namesrv=name_server.address, start_at=StartAt.FIRST)
        consumer.subscribe("t")
        async with consumer, asyncio.timeout(60):
            found = {}
            async for message in consumer:
                found[message.body] = message.properties.get("traceparent")
                if len(found) == 2:
                    break
    assert found == {b"kept": given, b"none": None}
