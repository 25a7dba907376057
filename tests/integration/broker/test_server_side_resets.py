"""Offsets that the broker resets by itself, with nobody online or in spite of those who are (docs/spec/broker.md 9)."""

from __future__ import annotations

import pytest
from tests.integration.broker.scene_kit import COMMIT, GROUP, SUBSCRIPTION, SUSPEND, TOPIC, loose_json, pull_ext

ON = "useServerSideResetOffset=true"


@pytest.fixture
async def scene(start):
    async with start(ON) as scene:
        yield scene


@pytest.fixture
async def client(scene):
    """A client of a broker with ten messages in queue 0 of two, all of them consumed."""
    client = await scene.connect()
    await client.create_topic(read=2, write=2)
    for number in range(10):
        await client.sent(b"%d" % number)
    await client.read()
    await client.commit(10)
    return client


async def reset(client, timestamp=0, **more):
    return await client.call(222, {"topic": TOPIC, "group": GROUP, "timestamp": timestamp, "isForce": "true"} | more)


@pytest.mark.scenario("broker 9.7")
async def test_an_offline_group_is_reset_and_its_next_pull_is_told(client):
    reply = await reset(client)
    assert reply.code == 0
    assert loose_json(reply.body) == {"offsetTable": {"T@0": 0, "T@1": 0}}
    assert (await client.committed()).ext == {"offset": "0"}
    told = await client.pull(offset=10)
    assert (told.code, told.remark) == (21, "OFFSET_RESET")
    assert (told.ext["nextBeginOffset"], told.ext["minOffset"], told.ext["maxOffset"]) == ("0", "0", "10")
    # Once, and then it reads from there.
    assert (await client.read(offset=0))[0].body == b"0"
    # Other queues have their own marks.
    assert (await client.pull(queue_id=1)).code == 21


async def test_what_a_member_commits_before_it_has_heard_does_not_undo_a_reset(client):
    await reset(client)
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 10}
    reply = await client.call(15, ext)
    assert (reply.code, reply.remark) == (0, "Offset has been previously reset")
    assert (await client.committed()).ext == {"offset": "0"}
    # Neither does what the pull carries that hears of it.
    assert (await client.pull(offset=10, flag=SUBSCRIPTION | COMMIT, commitOffset=10)).code == 21
    assert (await client.committed()).ext == {"offset": "0"}
    await client.commit(3)
    assert (await client.committed()).ext == {"offset": "3"}


async def test_other_groups_commit_and_pull_as_before(client):
    await reset(client)
    await client.commit(7, group="other")
    assert (await client.committed(group="other")).ext == {"offset": "7"}
    assert len(await client.read(group="other", offset=7)) == 3


async def test_a_pull_that_is_held_is_answered_so_that_its_client_hears(client, scene):
    held = client.ask(11, pull_ext(offset=10, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=60_000))
    assert await client.is_silent(held)
    await reset(await scene.connect())
    assert (await client.answer_to(held)).code == 19
    assert (await client.pull(offset=10)).code == 21


async def test_one_queue_can_be_set_to_an_offset(client):
    reply = await reset(client, queueId=0, offset=4)
    assert loose_json(reply.body) == {"offsetTable": {"T@0": 4}}
    assert (await client.pull(offset=10)).ext["nextBeginOffset"] == "4"
    assert (await client.pull(queue_id=1)).code == 19


async def test_the_end_of_the_queue_is_a_time_too(client):
    await client.commit(2)
    reply = await reset(client, timestamp=-1)
    assert loose_json(reply.body) == {"offsetTable": {"T@0": 10, "T@1": 0}}


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "nowhere"}, 17, "Topic nowhere does not exist"),
        ({"group": "nobody"}, 26, "Group nobody does not exist"),
        ({"queueId": 0, "offset": 12}, 1, "Target offset 12 not in consume queue range [0-10]"),
        ({"queueId": 9}, 1, "queueId[9] is illegal, topic:[T]"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(client, more, code, remark):
    reply = await reset(client, **more)
    assert (reply.code, reply.remark) == (code, remark)
    assert (await client.committed()).ext == {"offset": "10"}
    assert (await client.pull(offset=10)).code == 19


@pytest.mark.parametrize(
    "gone", [(215, {"topic": TOPIC}), (207, {"groupName": GROUP}), (207, {"groupName": GROUP, "removeOffset": "true"})]
)
async def test_what_is_deleted_leaves_no_mark_behind(client, gone):
    await reset(client)
    assert (await client.call(*gone)).code == 0
    if gone[0] == 215:
        await client.create_topic(read=2, write=2)
    assert (await client.pull(offset=0)).code in (0, 19)
    await client.commit(0)


async def test_with_the_setting_off_again_marks_mean_nothing_and_the_consumers_are_asked(client):
    await reset(client)
    assert (await client.configure("useServerSideResetOffset=false")).code == 0
    await client.commit(5)
    assert (await client.committed()).ext == {"offset": "5"}
    assert len(await client.read(offset=5)) == 5
    await client.commit(0, queue_id=1)
    assert (await reset(client)).code == 206
