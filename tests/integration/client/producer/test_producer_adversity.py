"""A producer while connections break and the broker restarts: nothing hangs, and what was acknowledged is stored."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.client.producer.mock_kit import until
from tests.integration.client.producer.reading_kit import stored

from pyromq.client.producer.producer import Producer
from pyromq.errors import PyroMQError


async def acknowledged(futures):
    """The ids of those that were stored; every one must have ended, well or with an error of ours."""
    ended = await asyncio.gather(*futures, return_exceptions=True)
    failures = [each for each in ended if isinstance(each, BaseException)]
    assert all(isinstance(each, PyroMQError) for each in failures), failures
    return {each.id for each in ended if not isinstance(each, BaseException)}


@pytest.mark.slow
@pytest.mark.parametrize("linger", [0.0, 0.002])
async def test_over_a_restart_of_the_broker_acknowledged_messages_stay_and_later_ones_arrive(cluster, linger):
    await cluster.create_topic("orders")
    async with Producer("makers", namesrv=cluster.namesrv, linger=linger, timeout=5, retries=50) as producer:
        futures = []

        async def keep_submitting():
            while True:
                futures.append(await producer.submit("orders", b"x"))
                await asyncio.sleep(0)

        submitting = asyncio.create_task(keep_submitting())
        await until(lambda: len(futures) >= 50)
        await cluster.restart_broker()
        known = len(futures)
        await until(lambda: len(futures) >= known + 50 or submitting.done())
        submitting.cancel()
        await asyncio.wait([submitting])
        ids = await acknowledged(futures)
        after = await producer.send("orders", b"after")
        assert (producer._window.count, producer._pending) == (0, set())
    found = {each.msg_id for each in await stored(cluster, "orders")}
    assert ids <= found
    assert after.id in found


async def test_messages_under_way_on_a_connection_that_breaks_are_sent_again(cluster):
    await cluster.create_topic("orders")
    async with Producer("makers", namesrv=cluster.namesrv) as producer:
        await producer.send("orders", b"first")
        futures = [await producer.submit("orders", b"%d" % number) for number in range(100)]
        cluster.cut_connections()
        ids = await acknowledged(futures)
    # A message whose answer was lost may be there twice, and with the same id.
    found = {each.msg_id for each in await stored(cluster, "orders")}
    assert ids <= found
    assert len(ids) == 100
