"""Our pull consumers against Apache's brokers of both lines."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache_scene import Counted, Scene, scene_of
from tests.interop.received_by_us import cut_off

from pyromq.client import (
    PullConsumer,
    StartAt,
)
from pyromq.errors import PyroMQError, StateError
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.interop.apache_with_client import Apache

    from pyromq.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

SOON = 20.0


@pytest.fixture
async def scene(apache: Apache, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with scene_of(apache, request.node.name) as scene:
        yield scene


@pytest.mark.scenario("client 51")
@pytest.mark.scenario("client 53")
async def test_what_was_polled_comes_again_unless_it_was_committed(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(6)
    hook = Counted(scene.topic)

    def client() -> Client:
        return scene.apache.client(stream=True, hooks=[hook])

    def member(client: Client) -> PullConsumer:
        return PullConsumer(scene.group, {scene.topic: "*"}, client=client, pull_batch=2, start_at=StartAt.FIRST)

    async def polled(consumer: PullConsumer, count: int) -> list[str]:
        bodies: list[str] = []
        async with asyncio.timeout(SOON):
            while len(bodies) < count:
                bodies += [message.body.decode() for message in await consumer.poll(max=count - len(bodies))]
        return bodies

    killed = client()
    crashed = await member(killed).start()
    assert await polled(crashed, 2) == ["0", "1"]
    await cut_off(killed)
    with contextlib.suppress(PyroMQError):
        await crashed.close()
    async with member(client()) as again:
        assert await polled(again, 4) == ["0", "1", "2", "3"]
        await again.commit()
    async with member(client()) as at_last:
        assert await polled(at_last, 2) == ["4", "5"]
    assert RequestCode.PULL_MESSAGE in hook.codes
    assert RequestCode.LITE_PULL_MESSAGE not in hook.codes


@pytest.mark.scenario("client 52")
async def test_seeking_and_assigning(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    await scene.send_numbers(10, 2)
    with pytest.raises(StateError):
        PullConsumer(scene.group, {scene.topic: "*"}, namesrv=scene.apache.namesrv).assign([scene.queue()])
    consumer = PullConsumer(scene.group, client=scene.apache.client(stream=True), start_at=StartAt.FIRST)
    consumer.assign([scene.queue(0)])

    async def read(count: int) -> list[str]:
        bodies: list[str] = []
        async with asyncio.timeout(SOON):
            while len(bodies) < count:
                bodies += [message.body.decode() for message in await consumer.poll()]
        return bodies

    async with consumer:
        assert await read(5) == ["0", "2", "4", "6", "8"]
        for outside in (-1, 6):
            with pytest.raises(PyroMQError):
                await consumer.seek(scene.queue(0), outside)
        await consumer.seek(scene.queue(0), 3)
        assert await read(2) == ["6", "8"]
        await consumer.seek(scene.queue(0), StartAt.FIRST)
        assert await read(5) == ["0", "2", "4", "6", "8"]
        found = await consumer.pull(scene.queue(1), 2, 2)
        assert [message.body for message in found.messages] == [b"5", b"7"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (4, 0, 5)
