"""Topics that are deleted on the master, and made again: the queues of a slave become those of its master."""

from __future__ import annotations

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import MASTER, SLAVE, caught_up, end
from tests.integration.broker.scene_kit import TOPIC

pytestmark = pytest.mark.slow


def queues(scene):
    """What the queues of the topic hold, by number."""
    found = scene.broker._parts.context.store.queues.of_topic(TOPIC)
    return {
        queue.queue_id: bytes(queue.entries(queue.min_offset, queue.max_offset)) for queue in found if queue.max_offset
    }


async def same_queues(master, slave):
    """Wait until the slave has the log, and the same queues."""
    await caught_up(master, slave)

    async def same():
        return queues(slave) == queues(master)

    await eventually(same)


async def send(client, *queue_ids):
    for queue_id in queue_ids:
        await client.sent(b"x", queue_id=queue_id)


async def delete(client):
    assert (await client.call(215, {"topic": TOPIC})).code == 0


async def begin_anew(client, *queue_ids):
    """Delete the topic, make it again, and send to these queues."""
    await delete(client)
    await client.create_topic()
    await send(client, *queue_ids)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 0, 0, 1, 1, 2], [0, 0]),
        ([0, 0, 0], [0]),
        ([0, 0], [0, 0, 0]),
        ([0, 0], [1, 0]),  # the first new message is where none was before
        ([0, 1], [2, 2, 1]),
        ([0, 1], []),
    ],
)
async def test_a_topic_that_was_made_again_has_the_new_messages_only(group, before, after):
    async with group.broker("master", MASTER) as master:
        client = await master.connect()
        async with group.broker("slave", *SLAVE) as slave:
            await send(client, *before)
            await same_queues(master, slave)
            await begin_anew(client, *after)
            await same_queues(master, slave)
            assert sum(len(queue) for queue in queues(slave).values()) == 20 * len(after)
        async with group.broker("slave", *SLAVE) as slave:
            assert queues(slave) == queues(master)
            await send(client, 0, 1)
            await same_queues(master, slave)


@pytest.mark.parametrize("before", [[0, 0, 0, 1, 1], [1, 1]])
async def test_a_slave_that_was_away_forgets_the_old_messages_too(group, before):
    async with group.broker("master", MASTER) as master:
        client = await master.connect()
        async with group.broker("slave", *SLAVE) as slave:
            await send(client, *before)
            await same_queues(master, slave)
        await send(client, 0, 1, 2)  # old messages that the slave has yet to get
        await begin_anew(client, 0, 0)
        async with group.broker("slave", *SLAVE) as slave:
            await same_queues(master, slave)


async def test_a_fresh_slave_of_an_old_log_has_the_new_messages_only(group):
    async with group.broker("master", MASTER) as master:
        client = await master.connect()
        await send(client, 0, 0, 1, 1)
        await begin_anew(client, 0)
        await begin_anew(client, 2, 0)
        async with group.broker("slave", *SLAVE) as slave:
            await same_queues(master, slave)
        async with group.broker("slave", *SLAVE) as slave:
            await same_queues(master, slave)


async def test_a_topic_that_is_gone_is_gone_on_the_slave(group):
    async with group.broker("master", MASTER) as master:
        client = await master.connect()
        async with group.broker("slave", *SLAVE) as slave:
            await send(client, 0, 1)
            await same_queues(master, slave)
            await delete(client)
            await same_queues(master, slave)
            assert queues(slave) == {}
        # Its messages do not come back, whoever is master.
        async with group.broker("slave", MASTER) as promoted:
            assert queues(promoted) == {}
            assert TOPIC not in (await (await promoted.connect()).call(21)).json["topicConfigTable"]


async def test_the_first_message_of_a_topic_made_again_is_served_at_once(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    slave = await group.start("slave", *SLAVE, "slaveSyncInterval=3600000")  # only the log tells it
    reader = await slave.connect()
    await send(client, 0, 0)
    await caught_up(master, slave)
    before = end(master)
    await delete(client)
    await client.create_topic()
    await client.sent(b"new", queue_id=0)
    await caught_up(master, slave)
    assert end(slave) > before
    assert queues(slave) == queues(master)
    assert slave.broker._parts.context.store.queue(TOPIC, 0).max_offset == 1
    await slave.broker._parts.metadata.copy(f"127.0.0.1:{master.port}")
    assert (await reader.first()).body == b"new"
