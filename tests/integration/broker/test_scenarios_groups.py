"""Scenarios of docs/spec/broker.md 14, groups 8, 9 and 10: clients and their groups, offsets, queue locks."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from tests.integration.broker.command_kit import line_with, started
from tests.integration.broker.scene_kit import COMMIT, GROUP, SUBSCRIPTION, TOPIC, Client, loose_json, send_ext
from tests.ports import free_port

# Clients and groups


async def member(scene, client_id):
    client = await scene.connect()
    await client.beat(client_id)
    assert (await client.request(40)).ext == {"consumerGroup": GROUP}
    return client


@pytest.mark.scenario("broker 8.1")
async def test_both_members_hear_of_the_second_and_find_each_other(scene):
    first = await member(scene, "c1")
    second = await member(scene, "c2")
    news = await first.request(40)
    assert (news.ext, news.header["flag"]) == ({"consumerGroup": GROUP}, 2)
    assert await second.members() == ["c1", "c2"]


@pytest.mark.scenario("broker 8.2")
async def test_a_member_hears_at_once_that_the_other_was_killed(scene):
    first = await member(scene, "c1")
    second = await member(scene, "c2")
    await first.request(40)
    second.writer.transport.abort()
    async with asyncio.timeout(8):  # who is silent is looked for every ten seconds
        assert (await first.request(40)).ext == {"consumerGroup": GROUP}
    assert await first.members() == ["c1"]


@pytest.mark.scenario("broker 8.3")
@pytest.mark.usefixtures("hurry")
async def test_a_member_that_sends_no_heartbeats_is_gone_whatever_else_it_sends(scene, shift):
    silent = await member(scene, "c1")
    shift.advance(100)
    lively = await member(scene, "c2")
    assert await silent.members() == ["c1", "c2"]
    shift.advance(30)
    await silent.closed_by_server()
    assert (await lively.request(40)).ext == {"consumerGroup": GROUP}
    assert await lively.members() == ["c2"]


@pytest.mark.scenario("broker 8.4")
async def test_only_system_groups_are_made_by_themselves_when_that_is_switched_off(start):
    async with start("autoCreateSubscriptionGroup=false") as scene:
        client = await scene.connect()
        await client.sent()
        refused = await client.pull()
        assert refused.code == 26
        assert refused.remark == (
            "subscription group [g] does not exist, \nSee http://rocketmq.apache.org/docs/faq/ for further details."
        )
        assert (await client.pull(group="CID_RMQ_SYS_x")).code == 0


# Offsets


@pytest.mark.scenario("broker 9.1")
async def test_a_new_group_begins_with_the_first_of_recent_messages(client):
    for _ in range(10):
        await client.sent()
    reply = await client.committed()
    assert (reply.code, reply.ext) == (0, {"offset": "0"})


@pytest.mark.scenario("broker 9.2")
async def test_a_new_group_is_told_nothing_when_the_first_messages_are_gone(start):
    async with start(
        "mappedFileSizeCommitLog=64k",
        "fileReservedTime=0",
        "flushDiskType=SYNC_FLUSH",
        "cleanResourceInterval=100",  # a round that finds files whose queue entries are not on disk leaves them
    ) as scene:
        client = await scene.connect()
        for _ in range(10):
            await client.sent(bytes(16_000))
        assert (await client.call(329)).code == 0

        async def begins_later():
            return int((await client.call(31, {"topic": TOPIC, "queueId": 0})).ext["offset"])

        await client.until(begins_later)
        reply = await client.committed()
        assert (reply.code, reply.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


@pytest.mark.scenario("broker 9.3")
async def test_the_last_commit_counts_also_when_it_goes_back(client):
    await client.create_topic()
    await client.commit(10)
    await client.commit(4)
    assert (await client.committed()).ext == {"offset": "4"}


@pytest.mark.slow
@pytest.mark.scenario("broker 9.4")
async def test_offsets_survive_a_kill_once_they_had_the_time_to_be_saved(tmp_path):
    port = free_port()
    sets = [
        *(f"storePathRootDir={tmp_path}/store", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1", "brokerName=broker-a"),
        *(f"listenPort={port}", "mappedFileSizeCommitLog=1m", "flushConsumerOffsetInterval=50"),
    ]
    saved = tmp_path / "store" / "config" / "consumerOffset.json"

    async def connected(process):
        await asyncio.to_thread(line_with, process, "boot success")
        client = await Client.connect(port)
        assert isinstance(client, Client)
        return client

    with started(tmp_path, "broker", *sets) as process:
        client = await connected(process)
        await client.sent()
        await client.commit(7)

        async def is_saved():
            return saved.exists() and '"T@g"' in saved.read_text()

        await client.until(is_saved)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        client.writer.close()
    with started(tmp_path, "broker", *sets) as process:
        client = await connected(process)
        assert (await client.committed()).ext == {"offset": "7"}
        assert len(await client.read()) == 1
        client.writer.close()


@pytest.mark.scenario("broker 9.5")
async def test_messages_are_found_by_the_time_of_their_storing(client):
    times: list[int] = []
    for _ in range(3):
        await client.sent()
        times.append((await client.read(offset=len(times)))[0].store_time)
        await asyncio.sleep(0.02)

    async def search(timestamp):
        reply = await client.call(29, {"topic": TOPIC, "queueId": 0, "timestamp": timestamp})
        return int(reply.ext["offset"])

    assert [await search(timestamp) for timestamp in (times[1], times[0] - 1000, times[2] + 1000)] == [1, 0, 3]


@pytest.mark.scenario("broker 9.6")
async def test_an_online_group_that_is_reset_by_force_reads_from_there_again(scene, client):
    await client.create_topic(read=1, write=1)
    for number in range(3):
        await client.sent(b"%d" % number)
        await asyncio.sleep(0.005)
    stored = await client.read()
    consumer = await member(scene, "c1")
    await consumer.commit(3)
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": stored[1].store_time, "isForce": "true"}
    reply = await client.call(222, ext)
    assert (reply.code, loose_json(reply.body)) == (0, {"offsetTable": {"T@0": 1}})
    pushed = await consumer.request(220)
    assert loose_json(pushed.body) == {"offsetTable": {"T@0": 1}}
    # What a consumer does with that: it commits the new offset and goes on there.
    [offset] = loose_json(pushed.body)["offsetTable"].values()
    again = await consumer.read(offset=offset, flag=SUBSCRIPTION | COMMIT, commitOffset=offset)
    assert [message.body for message in again] == [b"1", b"2"]
    assert (await client.committed()).ext == {"offset": "1"}


@pytest.mark.scenario("broker 9.7")
async def test_a_group_that_is_offline_cannot_be_reset_through_its_members(client):
    await client.create_topic(read=1, write=1)
    await client.commit(0)
    reply = await client.call(222, {"topic": TOPIC, "group": GROUP, "timestamp": -1, "isForce": "true"})
    assert (reply.code, reply.remark) == (
        206,
        "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: -1",
    )


# Queue locks


@pytest.mark.scenario("broker 10.1")
async def test_a_queue_is_locked_by_one_client_only(scene):
    first, second = await scene.connect(), await scene.connect()
    assert await first.lock("A", 0) == [0]
    assert await second.lock("B", 0, 1) == [1]


@pytest.mark.scenario("broker 10.2")
async def test_the_lock_of_a_client_that_died_is_free_after_a_minute(scene, shift):
    first, second = await scene.connect(), await scene.connect()
    assert await first.lock("A", 0) == [0]
    first.writer.transport.abort()
    shift.advance(30)
    assert await second.lock("B", 0) == []
    shift.advance(31)
    assert await second.lock("B", 0) == [0]


class Orderly:
    """A consumer that takes a queue's messages one by one, under a lock, and commits each."""

    def __init__(self, client, name, log):
        self.client, self.name, self.log = client, name, log

    async def consume(self, queue_id, count):
        """Consume as long as the lock is held, at most `count` messages; gives how many there were."""
        done = 0
        while done < count and await self.client.lock(self.name, queue_id) == [queue_id]:
            offset = int((await self.client.committed(queue_id=queue_id)).ext["offset"])
            [message] = await self.client.read(queue_id=queue_id, offset=offset, count=1) or [None]
            if message is None:
                return done
            self.log.append((queue_id, message.offset, self.name))
            await self.client.commit(offset + 1, queue_id=queue_id)
            done += 1
        return done


@pytest.mark.scenario("broker 10.3")
async def test_two_orderly_consumers_keep_the_order_also_when_one_is_killed(scene, client, shift):
    asked = [client.ask(310, send_ext(queue_id=number % 2), b"m") for number in range(40)]
    for opaque in asked:
        await client.answer_to(opaque)
    log: list[tuple[int, int, str]] = []
    first = Orderly(await scene.connect(), "A", log)
    second = Orderly(await scene.connect(), "B", log)

    async def consume_both(consumer, *queue_ids):
        for _ in range(10):
            for queue_id in queue_ids:
                await consumer.consume(queue_id, 1)

    await asyncio.gather(consume_both(first, 0, 1), consume_both(second, 1, 0))
    assert len(log) == 20
    holders = {queue_id: {name for queue, _, name in log if queue == queue_id} for queue_id in range(2)}
    assert holders == {0: {"A"}, 1: {"B"}}
    first.client.writer.transport.abort()
    assert await second.consume(0, 20) == 0  # the lock of the dead still holds
    shift.advance(61)
    await second.consume(0, 20)
    await second.consume(1, 20)
    for queue_id in range(2):
        assert [offset for queue, offset, _ in log if queue == queue_id] == list(range(20))


async def test_only_the_owner_unlocks(scene):
    client = await scene.connect()
    await client.lock("A", 0)
    await client.lock("B", 0, code=42)
    assert await client.lock("B", 0) == []
    await client.lock("A", 0, code=42)
    assert await client.lock("B", 0) == [0]


async def test_a_group_is_quiet_about_its_members_if_that_is_asked_for(scene, client):
    body = json.dumps({"groupName": GROUP, "notifyConsumerIdsChangedEnable": False}).encode()
    assert (await client.call(200, body=body)).code == 0
    first = await scene.connect()
    await first.beat("c1")
    other = await scene.connect()
    await other.beat("c2", groups=("other",))
    assert (await other.request(40)).ext == {"consumerGroup": "other"}
    await first.call(26)
    assert first.asked == []
