"""A clock that is set ahead by a day or back by an hour neither ends nor extends what clients hold by time."""

from __future__ import annotations

import pytest
from tests.integration.broker.scene_kit import GROUP, SUBSCRIPTION, SUSPEND, Shift, pull_ext

from pyromq.broker import broker as broker_module

DAY, HOUR = 86_400, 3600


@pytest.fixture
def jump(shift, monkeypatch):
    """The clock on the wall. The time that passes is `shift`."""
    jump = Shift()
    monkeypatch.setattr(broker_module, "_now", jump)
    return jump


@pytest.fixture
async def scene(start, jump):
    async with start() as scene:
        yield scene


@pytest.mark.parametrize("seconds", [DAY, -HOUR])
async def test_a_lock_is_held_for_a_minute_whatever_the_clock_says(scene, shift, jump, seconds):
    first, second = await scene.connect(), await scene.connect()
    assert await first.lock("A", 0) == [0]
    jump.advance(seconds)
    assert await second.lock("B", 0) == []
    shift.advance(61)
    assert await second.lock("B", 0) == [0]
    jump.advance(-2 * seconds)
    assert await first.lock("A", 0) == []


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("seconds", [DAY, -HOUR])
async def test_a_member_stays_for_two_minutes_whatever_the_clock_says(scene, shift, jump, seconds):
    silent, lively = await scene.connect(), await scene.connect()
    await silent.beat("c1")
    jump.advance(seconds)
    shift.advance(100)
    await lively.beat("c2")
    assert sorted(await lively.members()) == ["c1", "c2"]
    shift.advance(30)
    await silent.closed_by_server()
    assert await lively.members() == ["c2"]


async def test_the_time_of_a_heartbeat_is_shown_by_the_clock_as_it_is_set(scene, shift, jump):
    client = await scene.connect()
    body = b'{"clientID":"c1","consumerDataSet":[],"producerDataSet":[{"groupName":"makers"}]}'
    assert (await client.call(34, body=body)).code == 0
    jump.advance(HOUR)
    shift.advance(10)
    (shown,) = (await client.call(328)).json["data"]["makers"]
    assert abs(jump() - 10_000 - shown["lastUpdateTimestamp"]) < 1000


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("seconds", [DAY, -HOUR])
async def test_a_pull_is_held_for_its_time_whatever_the_clock_says(scene, jump, seconds):
    client = await scene.connect()
    await client.create_topic()
    held = client.ask(11, pull_ext(flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=300))
    jump.advance(seconds)
    assert await client.is_silent(held)
    assert (await client.answer_to(held)).code == 19
    held = client.ask(11, pull_ext(group=GROUP, flag=SUBSCRIPTION | SUSPEND))
    jump.advance(-seconds)
    await client.sent(b"new")
    assert (await client.answer_to(held)).code == 0
