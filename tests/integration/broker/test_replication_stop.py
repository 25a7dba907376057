"""A master that stops: its slaves get the rest first."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import MASTER, end


@pytest.mark.slow
async def test_a_slave_that_is_behind_gets_the_rest_before_its_master_is_gone(group, deaf):
    life = group.broker("master", MASTER)
    master = await life.__aenter__()
    client = await master.connect()
    await client.sent()
    slave = await deaf(master, report=end(master))

    async def follows():
        return [link for link in master.broker._parts.replication.master.links if link.position is not None]

    await eventually(follows)
    begin = end(master)
    for _ in range(160):  # more than the buffers of a connection hold
        await client.sent(b"x" * 100_000)
    size = end(master)
    stopping = asyncio.create_task(life.__aexit__(None, None, None))
    reached = begin
    while reached < size:
        offset, data = await slave.frame()
        assert offset == reached
        reached += len(data)
    slave.report(reached)
    assert await slave.is_closed()
    await stopping
