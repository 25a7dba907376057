"""Pulls on masters and slaves over real sockets: which broker they are sent to next (docs/spec/ha.md 6)."""

from __future__ import annotations

import json

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import MASTER, SLAVE, caught_up
from tests.integration.broker.scene_kit import COMMIT, GROUP, SUBSCRIPTION, TOPIC, messages_in

pytestmark = pytest.mark.slow

SLAVE_READS = "slaveReadEnable=true"
MESSAGE = 10_000
# 40 % of it are 20 messages of that size, 30 % are 15.
MEMORY = 50 * MESSAGE


def with_memory(scene, memory=MEMORY):
    """Give the broker a machine with so little memory that a few messages are a lot."""
    store = scene.broker._parts.context.store
    store.reader._memory = memory
    store.reader.reconfigure(store.config)
    return scene


async def pair(group, *sets, slave=()):
    """A master and its slave, which knows the topic, and a client of each."""
    master = with_memory(await group.start("master", MASTER, *sets))
    follower = with_memory(await group.start("slave", *SLAVE, *sets, *slave))
    follower.broker._parts.tables.topics.ensure(TOPIC, 4)
    return master, follower, await master.connect(), await follower.connect()


async def fill(client, count):
    for _ in range(count):
        await client.sent(b"x" * MESSAGE)


def suggested(reply):
    return reply.ext["suggestWhichBrokerId"]


@pytest.mark.scenario("ha 17")
async def test_a_reader_far_behind_is_sent_to_the_slave_and_back_when_it_has_caught_up(group):
    master, slave, client, reader = await pair(group, SLAVE_READS)
    await fill(client, 60)
    await caught_up(master, slave)
    assert suggested(await client.pull(offset=0)) == "1"
    offset, answers = 0, []
    while offset < 60:
        reply = await reader.pull(offset=offset)
        assert reply.code == 0
        answers.append((60 - offset, suggested(reply)))
        offset = int(reply.ext["nextBeginOffset"])
    assert answers[0][1] == "1"
    assert answers[-1][1] == "0"
    assert suggested(await client.pull(offset=60)) == "0"


async def test_a_slave_sends_readers_back_later_than_its_master_sends_them_away(group):
    master, slave, client, reader = await pair(group, SLAVE_READS)
    await fill(client, 60)
    await caught_up(master, slave)
    # The last entry that is looked at is one behind those that are given.
    near = {"offset": 60 - 19, "maxMsgNums": 1}
    assert suggested(await client.pull(**near)) == "0"
    assert suggested(await reader.pull(**near)) == "1"


async def test_the_group_says_which_brokers_are_meant(group):
    client = await with_memory(await group.start("master", MASTER, SLAVE_READS)).connect()
    body = {"groupName": GROUP, "brokerId": 3, "whichBrokerWhenConsumeSlowly": 2}
    assert (await client.call(200, body=json.dumps(body).encode())).code == 0
    await fill(client, 60)
    assert suggested(await client.pull(offset=0)) == "2"
    assert suggested(await client.pull(offset=59)) == "3"


async def test_without_the_setting_everybody_is_sent_to_the_master(group):
    master, slave, client, reader = await pair(group)
    await fill(client, 60)
    await caught_up(master, slave)
    for each in (client, reader):
        reply = await each.pull(offset=0)
        assert (reply.code, suggested(reply)) == (0, "0")
    assert (await client.configure(SLAVE_READS)).code == 0
    assert suggested(await client.pull(offset=0)) == "1"


async def test_a_change_at_run_time_leaves_a_slave_its_smaller_share(group):
    slave = with_memory(await group.start("slave", *SLAVE))
    reader, store = await slave.connect(), slave.broker._parts.context.store
    assert store.config.memory_ratio == 30
    assert (await reader.configure("accessMessageInMemoryMaxRatio=60")).code == 0
    assert store.config.memory_ratio == 50
    assert store.reader.limits.recent == MEMORY // 2


@pytest.mark.scenario("ha 18")
async def test_a_slave_does_not_correct_offsets_that_it_may_merely_not_have_yet(group):
    master, slave, client, reader = await pair(group)
    await fill(client, 3)
    await caught_up(master, slave)
    beyond = await reader.pull(offset=10)
    assert (beyond.code, beyond.ext["nextBeginOffset"], beyond.remark) == (20, "10", "OFFSET_OVERFLOW_BADLY")
    empty = await reader.pull(offset=10, queue_id=1)
    assert (empty.code, empty.ext["nextBeginOffset"]) == (20, "10")
    at_end = await reader.pull(offset=3)
    assert (at_end.code, at_end.ext["nextBeginOffset"]) == (19, "3")
    assert (await client.pull(offset=10)).code == 21


async def test_a_slave_that_is_told_to_corrects_offsets_and_leaves_its_log_alone(group):
    master, slave, client, reader = await pair(group, slave=["offsetCheckInSlave=true"])
    await fill(client, 3)
    await caught_up(master, slave)
    reply = await reader.pull(offset=10)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (21, "3")
    await client.sent()
    await caught_up(master, slave)
    assert group.log("slave") == group.log("master")


async def test_a_pull_commits_nothing_on_a_slave(group):
    master, slave, client, reader = await pair(group)
    await fill(client, 3)
    await caught_up(master, slave)
    reply = await reader.pull(flag=COMMIT | SUBSCRIPTION, commitOffset=2)
    assert len(messages_in(reply.body)) == 3
    assert slave.broker._parts.tables.offsets.get(GROUP, TOPIC, 0) is None
    await client.pull(flag=COMMIT | SUBSCRIPTION, commitOffset=2)
    assert master.broker._parts.tables.offsets.get(GROUP, TOPIC, 0) == 2


@pytest.mark.scenario("ha 15")
async def test_offsets_that_are_committed_on_a_slave_survive_its_restart(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await fill(client, 3)
    async with group.broker("slave", *SLAVE) as slave:
        await caught_up(master, slave)
        slave.broker._parts.tables.topics.ensure(TOPIC, 4)
        await (await slave.connect()).commit(2)
    async with group.broker("slave", *SLAVE) as slave:
        reader = await slave.connect()

        async def known():
            return (await reader.committed()).ext.get("offset") == "2"

        await eventually(known)


async def test_queue_locks_and_pops_are_refused_by_a_slave(group):
    master, slave, client, reader = await pair(group)
    await client.sent()
    await caught_up(master, slave)
    assert await client.lock("c1", 0) == [0]
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}
    body = json.dumps({"clientId": "c2", "consumerGroup": GROUP, "mqSet": [queue]}).encode()
    refused = await reader.call(41, body=body)
    assert (refused.code, "is a slave" in refused.remark) == (14, True)
    for code in (200050, 200051, 200151, 200053):
        assert (await reader.call(code, {})).code == 14
