"""How a slave of a group follows its master: what a connection that is gone does not do."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from tests.bounds import TOO_LONG
from tests.unit.store.kit import small

from pyromq.broker.failover.config import FailoverConfig
from pyromq.broker.failover.following import Following, _Feed
from pyromq.broker.replication.config import ReplicationConfig
from pyromq.store import MessageStore
from pyromq.store.metadata.epochs import EpochTable


async def reported_after_the_end(folder):
    """A master hangs up while its slave compares the logs, and then the slave reports."""

    async def connected(_, writer):
        writer.transport.abort()

    async def paused(work):
        return work()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    with MessageStore(small(folder)) as store:
        following = Following(
            store,
            EpochTable(folder / "epochs", store.disk),
            lambda: None,
            own_id=2,
            config=FailoverConfig,
            replication=ReplicationConfig,
            arrived=print,
            paused=paused,
        )
        async with server, asyncio.timeout(TOO_LONG):
            address = server.sockets[0].getsockname()
            _, feed = await asyncio.get_running_loop().create_connection(lambda: _Feed(following), *address)
            await asyncio.wait([feed._ended])
            feed.begin(0)
            await feed.over()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_gone_takes_no_report(tmp_path, loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(reported_after_the_end(tmp_path))
