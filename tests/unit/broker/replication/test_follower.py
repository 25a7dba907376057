"""How a slave follows its master: when it tries again, and what a connection that is gone does not do."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from tests.bounds import TOO_LONG
from tests.unit.store.kit import small

from pyromq.broker.replication.config import ReplicationConfig
from pyromq.broker.replication.follower import Feed, Follower, Masters, Pauses
from pyromq.broker.replication.introductions import Identity
from pyromq.remoting import RemotingClient
from pyromq.store import MessageStore


def test_pauses_grow_while_the_master_sends_nothing():
    pauses = Pauses()
    assert [pauses.after(was_fed=False) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_line_that_worked_is_tried_again_soon():
    pauses = Pauses()
    for _ in range(5):
        pauses.after(was_fed=False)
    assert [pauses.after(was_fed=True), pauses.after(was_fed=False)] == [0.5, 1.0]


def on_a_line(master, scenario, folder):
    """Run `scenario` with one end of a line, at whose other end `master` is called with a writer."""

    async def connected(_, writer):
        master(writer)
        await over.wait()
        writer.close()
        await writer.wait_closed()

    async def run():
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        with MessageStore(small(folder)) as store:
            async with server, RemotingClient() as client:
                follower = Follower(
                    store,
                    client,
                    Identity("c", "b", 1, 4096, "127.0.0.1:1", "i"),
                    ReplicationConfig,
                    masters=lambda: Masters(None, None),
                    seek=lambda: None,
                    arrived=print,
                )
                address = server.sockets[0].getsockname()
                transport, feed = await asyncio.get_running_loop().create_connection(lambda: Feed(follower), *address)
                async with asyncio.timeout(TOO_LONG):
                    await scenario(feed)
                transport.close()
                over.set()

    over = asyncio.Event()
    # As `pyromq broker` runs. Here writing to a closed connection is an error, and would end the broker.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_a_connection_that_was_lost_is_not_written_to(tmp_path):
    async def scenario(feed):
        reason = await feed.ended
        feed.begin()
        feed.look(heartbeat=-1.0, silence=100.0)
        assert "closed the connection" in str(reason) or isinstance(reason, OSError)

    on_a_line(lambda writer: writer.close(), scenario, tmp_path)


def test_what_a_master_sends_unasked_is_not_kept(tmp_path):
    async def scenario(feed):
        with pytest.raises(Exception, match="before it was asked"):
            raise await feed.ended

    on_a_line(lambda writer: writer.write(bytes(12)), scenario, tmp_path)
