"""Offsets that no message has, committed by any request: as 5.5.0, the broker keeps them, and nobody is misled by them.

A reader who asks there is sent back to the end of the queue, so what comes next is read; a negative offset is none.
"""

from __future__ import annotations

import json

import pytest
from tests.integration.broker.pop_kit import pop
from tests.integration.broker.scene_kit import COMMIT, GROUP, SUBSCRIPTION, SUSPEND, TOPIC, loose_json

BEYOND = [6, 10**12, 2**63 - 1]
NEGATIVE = [-1, -(2**63)]


@pytest.fixture
async def client(scene):
    """Of a group that exists, with five messages in a queue."""
    client = await scene.connect()
    await client.beat(topics=(TOPIC,))
    for number in range(5):
        await client.sent(b"%d" % number)
    yield client
    await client.commit(0)  # `pyromq check` complains of the others, which it should


def commit_ext(offset, group=GROUP, topic=TOPIC):
    return {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}


async def commit_directly(client, offset):
    assert (await client.call(15, commit_ext(offset))).code == 0


async def commit_one_way(client, offset):
    client.ask(15, commit_ext(offset), flag=2)
    await client.call(26)


async def commit_with_a_pull(client, offset):
    flag = COMMIT | SUSPEND | SUBSCRIPTION
    assert (await client.pull(offset=0, flag=flag, commitOffset=offset)).code == 0


COMMITS = pytest.mark.parametrize("commit", [commit_directly, commit_one_way, commit_with_a_pull])


async def stored(client):
    return await client.call(14, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": "false"})


@COMMITS
@pytest.mark.parametrize("offset", BEYOND)
async def test_a_reader_beyond_the_end_is_sent_back_to_it_and_misses_nothing(client, commit, offset):
    await commit(client, offset)
    assert (await stored(client)).ext == {"offset": str(offset)}
    reply = await client.pull(offset=offset)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (21, "5")
    await client.sent(b"next")
    assert [message.body for message in await client.read(offset=5)] == [b"next"]


@COMMITS
@pytest.mark.parametrize("offset", NEGATIVE)
async def test_a_negative_offset_takes_the_group_back_to_none(client, commit, offset):
    await client.commit(3)
    await commit(client, offset)
    assert (await stored(client)).code == 22
    reply = await client.pull(offset=offset)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (21, "0")


@pytest.mark.parametrize("offset", BEYOND)
async def test_a_pop_behind_the_end_goes_on_with_what_comes_next(client, offset):
    await client.commit(offset)
    assert await pop(client, 0) == []
    await client.sent(b"next")
    (one,) = await pop(client, 0)
    assert one.message.body == b"next"


@pytest.mark.parametrize("offset", NEGATIVE)
async def test_a_pop_before_the_beginning_begins_with_the_first(client, offset):
    await client.commit(offset)
    assert [one.message.offset for one in await pop(client, 0)] == list(range(5))


@pytest.mark.parametrize("offset", BEYOND + NEGATIVE)
async def test_figures_can_be_had_of_a_group_that_stands_nowhere(client, offset):
    await client.commit(offset)
    table = loose_json((await client.call(208, {"consumerGroup": GROUP, "topic": TOPIC})).body)["offsetTable"]
    assert table[f"{TOPIC}@0"]["brokerOffset"] == 5
    assert table[f"{TOPIC}@0"]["consumerOffset"] == max(offset, 0)
    for code in (303, 317):
        assert (await client.call(code, {"topic": TOPIC, "group": GROUP, "isOrder": "false"})).code == 0


async def test_a_topic_that_does_not_exist_has_no_offsets(client):
    reply = await client.call(15, commit_ext(3, topic="nowhere"))
    assert (reply.code, reply.remark) == (17, "Topic nowhere not exist!")
    client.ask(15, commit_ext(3, topic="nowhere"), flag=2)
    assert "nowhere" not in (await client.call(43)).body.decode()


async def test_a_group_is_made_with_its_first_commit(client):
    await client.commit(3, group="new")
    assert "new" in (await client.call(201)).json["subscriptionGroupTable"]
    reply = await client.call(15, commit_ext(3, group="no name"))
    assert (reply.code, reply.remark) == (26, "Group no name not exist!")


async def test_a_group_that_may_not_be_made_has_no_offsets(start):
    async with start("autoCreateSubscriptionGroup=false") as scene:
        client = await scene.connect()
        await client.sent()
        reply = await client.call(15, commit_ext(3, group="nobody"))
        assert (reply.code, reply.remark) == (26, "Group nobody not exist!")
        client.ask(15, commit_ext(3, group="nobody"), flag=2)
        assert "nobody" not in (await client.call(43)).body.decode()


async def test_a_reset_by_the_broker_goes_to_an_offset_of_the_queue_only(start):
    async with start("useServerSideResetOffset=true") as scene:
        client = await scene.connect()
        await client.beat(topics=(TOPIC,))
        for number in range(5):
            await client.sent(b"%d" % number)
        for offset in (7, 2**63 - 1, -2):
            ext = {"topic": TOPIC, "group": GROUP, "timestamp": -1, "isForce": "true", "queueId": 0, "offset": offset}
            reply = await client.call(222, ext)
            assert (reply.code, reply.remark) == (1, f"Target offset {offset} not in consume queue range [0-5]")
        assert (await stored(client)).code == 22


async def test_a_file_of_offsets_that_no_message_has_is_taken_as_it_is(start, tmp_path):
    async with start() as scene:
        client = await scene.connect()
        await client.beat(topics=(TOPIC,))
        for number in range(5):
            await client.sent(b"%d" % number)
    table = {f"{TOPIC}@{GROUP}": {0: 10**12, 1: -7}}
    (tmp_path / "store/config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    async with start() as scene:
        client = await scene.connect()
        assert (await stored(client)).ext == {"offset": str(10**12)}
        assert (await client.pull(offset=10**12)).ext["nextBeginOffset"] == "5"
        await client.commit(2)
        assert (await stored(client)).ext == {"offset": "2"}
