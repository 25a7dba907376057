"""Brokers whose roles a controller decides (docs/spec/controller.md 11)."""

from __future__ import annotations

import shutil
import time

import pytest
from tests.integration.broker.failover.group_kit import in_sync, is_master, is_slave, member
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import end

from pyromq.protocol.names import HALF_TOPIC


@pytest.mark.slow
@pytest.mark.scenario("controller 2")
async def test_the_first_broker_becomes_master_and_takes_messages(group):
    broker = await group.start("a")
    await is_master(broker)
    client = await broker.connect()
    await client.sent(b"hello", queue_id=0)
    assert [message.body for message in await client.read(queue_id=0)] == [b"hello"]
    assert (group.folder / "a/brokerIdentity").read_text() == "DefaultCluster#g#1"
    assert (group.folder / "a/epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0"]


@pytest.mark.slow
async def test_a_master_has_the_topic_without_which_masters_of_5_5_0_hang(group):
    """One that is deposed while it creates it waits for itself, for 90 s; slaves copy it from their master."""
    broker = await group.start("a")
    await is_master(broker)

    async def there():
        return HALF_TOPIC in broker.broker._parts.tables.topics

    await eventually(there)


@pytest.mark.slow
@pytest.mark.scenario("controller 3")
async def test_the_second_follows_and_joins_the_in_sync_set(group):
    first = await group.start("a")
    await is_master(first)
    client = await first.connect()
    await client.sent(b"before")
    second = await group.start("b")
    await is_slave(second)
    await in_sync(first, 1, 2)
    await client.sent(b"after")

    async def same():
        return end(first) == end(second)

    await eventually(same)
    assert group.log("a") == group.log("b")
    # Times are shown by the clock on the wall.
    since = second.broker._parts.replication.status.info().ha_client_runtime_info.since_timestamp
    assert abs(time.time() * 1000 - since) < 600_000


@pytest.mark.slow
@pytest.mark.scenario("controller 5", "controller 6")
async def test_a_slave_takes_over_and_the_old_master_comes_back_as_its_slave(group):
    first = await group.start("a")
    await is_master(first)
    second = await group.start("b")
    await in_sync(first, 1, 2)
    client = await first.connect()
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        await client.sent(body, queue_id=0)
    await group.stop("a")
    await is_master(second)
    client = await second.connect()
    assert [message.body for message in await client.read(queue_id=0)] == bodies
    await client.sent(b"new", queue_id=0)
    third = await group.start("a")
    await is_slave(third)
    await in_sync(second, 1, 2)
    await client.sent(b"newer", queue_id=0)

    async def same():
        return end(third) == end(second)

    await eventually(same)
    assert group.log("a") == group.log("b")
    epochs = [(group.folder / name / "epochFileCheckpoint").read_text() for name in "ab"]
    assert epochs[0] == epochs[1]


@pytest.mark.slow
async def test_a_slave_copies_no_settings_from_a_broker_that_is_not_its_master_yet(group):
    """An empty broker that was put in the place of a master has no topics, and nobody should forget theirs for it."""
    master = await group.start("a")
    await is_master(master)
    client = await master.connect()
    await client.create_topic()
    slave = await group.start("b")
    await is_slave(slave)
    parts = slave.broker._parts
    await parts.metadata.copy(master.broker.address)
    known = set(parts.tables.topics._topics)
    assert known == set(master.broker._parts.tables.topics._topics)

    fenced = await group.start("c", "controllerAddr=127.0.0.1:1")
    await parts.metadata.copy(fenced.broker.address)
    assert set(parts.tables.topics._topics) == known


@pytest.mark.slow
async def test_a_topic_that_a_new_master_never_heard_of_has_the_queues_of_new_topics(group):
    """Slaves copy topics every few seconds; producers of a younger one use queues that have no message yet."""
    first = await group.start("a")
    await is_master(first)
    second = await group.start("b", "slaveSyncInterval=600000")
    await in_sync(first, 1, 2)
    client = await first.connect()
    await client.sent(b"one", topic="young", queue_id=0)
    await group.stop("a")
    await is_master(second)
    client = await second.connect()
    await client.sent(b"two", topic="young", queue_id=3)


@pytest.mark.slow
async def test_a_new_master_knows_a_young_topic(group):
    """It would restore it by its queues, with as many as new topics have."""
    sets = ("slaveSyncInterval=600000",)
    old = await group.start("a", *sets)
    await is_master(old)
    new = await group.start("b", *sets)
    await is_slave(new)
    await in_sync(old, 1, 2)
    client = await old.connect()
    await client.create_topic("young", read=9, write=9)
    await client.sent(topic="young")

    async def knows():
        topic = new.broker._parts.tables.topics.get("young")
        return topic is not None and topic.read_queue_nums == 9

    await eventually(knows)
    await group.stop("a")
    await is_master(new)
    assert await knows()


@pytest.mark.slow
async def test_a_stop_waits_for_clients_but_not_for_brokers_and_controllers(group):
    master = await group.start("a", "drainSeconds=25")
    await is_master(master)
    slave = await group.start("b", "drainSeconds=25")
    await is_slave(slave)
    await in_sync(master, 1, 2)

    async def copies():
        return HALF_TOPIC in slave.broker._parts.tables.topics

    await eventually(copies)
    began = time.monotonic()
    await group.stop("a")
    await is_master(slave)
    await group.stop("b")
    assert time.monotonic() - began < 20


@pytest.mark.slow
async def test_a_broker_whose_log_was_lost_is_in_doubt_until_it_has_caught_up(group, caplog):
    """Somebody replaced the disk of the log; the rest of the store is on another one."""
    first = await group.start("a")
    await is_master(first)
    await group.start("b")
    await in_sync(first, 1, 2)
    await (await first.connect()).sent(b"hello")
    boot = group.folder / "b/brokerBoot"
    before = boot.read_text()
    assert before.endswith("#ASYNC_FLUSH")
    await group.stop("b")
    await in_sync(first, 1)
    shutil.rmtree(group.folder / "b/commitlog")
    caplog.clear()
    second = await group.start("b")
    assert "does not become master before it has caught up" in caplog.text
    await in_sync(first, 1, 2)

    async def sure():
        return boot.read_text() == before and not member(second).membership.is_doubtful

    await eventually(sure)
    assert group.log("a") == group.log("b")


@pytest.mark.slow
async def test_a_broker_in_doubt_that_is_alone_in_the_set_is_master_at_once(group):
    first = await group.start("a")
    await is_master(first)
    await group.stop("a")
    (group.folder / "a/brokerBoot").write_text("doubtful")
    again = await group.start("a")
    await is_master(again)
    await (await again.connect()).sent(b"goes on")
    assert (group.folder / "a/brokerBoot").read_text().endswith("#ASYNC_FLUSH")
