"""A master that its controllers cannot reach, while producers can."""

from __future__ import annotations

import pytest
from tests.integration.broker.failover.group_kit import in_sync, is_master, is_slave
from tests.integration.broker.life_kit import eventually

from pyromq.testing.proxy import Proxy

NOT_AVAILABLE = 14


async def bodies(client):
    """All messages of a queue."""
    found: list[bytes] = []
    while messages := await client.read(queue_id=0, offset=len(found)):
        found += [message.body for message in messages]
    return found


@pytest.mark.slow
@pytest.mark.scenario("ha 22")
@pytest.mark.scenario("controller 11")
@pytest.mark.parametrize("how", ["silent", "cut"])
async def test_a_master_without_a_controller_takes_nothing_and_another_does(group, how):
    async with Proxy(group.controller.address) as way:
        first = await group.start("a", f"controllerAddr={way.address}")
        await is_master(first)
        second = await group.start("b")
        await in_sync(first, 1, 2)
        client = await first.connect()
        await client.sent(b"before", queue_id=0)
        if how == "silent":
            way.pause()
        else:
            way.refuse()
            way.cut()
        taken_after: list[bytes] = []

        async def refused():
            # Whatever is taken until then is on both brokers: nothing is acknowledged that the other lacks.
            reply = await client.put(b"after", queue_id=0)
            if reply.code == 0:
                taken_after.append(b"after")
            return reply.code == NOT_AVAILABLE

        await eventually(refused)
        await is_master(second)
        # Never two that take messages: the first has been refusing since before the second could begin.
        assert (await client.put(b"too late", queue_id=0)).code != 0
        other = await second.connect()
        await other.sent(b"new", queue_id=0)
        found = await bodies(other)
        assert found[: 1 + len(taken_after)] == [b"before", *taken_after]
        assert found[-1] == b"new"
        way.restore()
        way.resume()
        await is_slave(first)
        await in_sync(second, 1, 2)
        # By now it passes on what clients still send it.
        await client.sent(b"passed on", queue_id=0)
        assert (await bodies(other))[-1] == b"passed on"
