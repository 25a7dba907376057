"""Scenarios of docs/spec/broker.md 14, group 6: pulling."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.scene_kit import (
    COMMIT,
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    messages_in,
    pull_ext,
    send_ext,
)

WAITING = SUSPEND | SUBSCRIPTION


async def fill(client, count, body=b"m", **properties):
    asked = [client.ask(310, send_ext(properties=properties), body) for _ in range(count)]
    for opaque in asked:
        assert (await client.answer_to(opaque)).code == 0


@pytest.mark.scenario("broker 6.1")
@pytest.mark.usefixtures("no_rounds")
@pytest.mark.parametrize("code", [11, 361])
async def test_a_held_pull_is_answered_when_a_message_arrives(scene, client, code):
    await client.create_topic()
    held = client.ask(code, pull_ext(flag=WAITING))
    assert await client.is_silent(held)
    other = await scene.connect()
    await other.sent(b"at last")
    reply = await client.answer_to(held)
    assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (0, "FOUND", "1")
    assert [message.body for message in messages_in(reply.body)] == [b"at last"]


@pytest.mark.scenario("broker 6.2")
@pytest.mark.usefixtures("hurry")
async def test_a_held_pull_ends_after_its_time_and_no_earlier(client):
    await client.create_topic()
    began = time.monotonic()
    reply = await client.pull(flag=WAITING, suspendTimeoutMillis=300)
    assert 0.3 <= time.monotonic() - began < TOO_LONG
    assert (reply.code, reply.ext["nextBeginOffset"]) == (19, "0")


@pytest.mark.scenario("broker 6.3")
async def test_a_held_pull_is_told_at_the_next_round_of_what_it_did_not_want(scene, client):
    await client.create_topic()
    held = client.ask(11, pull_ext(flag=WAITING, subscription="A"))
    assert await client.is_silent(held)
    await client.sent(b"not for it", properties={"TAGS": "B"})
    assert await client.is_silent(held)
    scene.broker._parts.pulls.expire()  # the round of every five seconds
    reply = await client.answer_to(held)
    assert (reply.code, reply.ext["nextBeginOffset"], reply.body) == (20, "1", None)


async def test_a_held_pull_gets_what_it_wants_behind_what_it_does_not(client):
    await client.create_topic()
    held = client.ask(11, pull_ext(flag=WAITING, subscription="A || C"))
    await client.sent(b"b", properties={"TAGS": "B"})
    await client.sent(b"c", properties={"TAGS": "C"})
    reply = await client.answer_to(held)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (0, "2")
    assert [message.body for message in messages_in(reply.body)] == [b"c"]


@pytest.mark.scenario("broker 6.4")
async def test_pulls_at_and_beyond_the_ends_of_a_queue(client):
    await fill(client, 10)
    replies = [await client.pull(offset=offset) for offset in (10, 11, -1)]
    assert [(reply.code, reply.remark, reply.ext["nextBeginOffset"]) for reply in replies] == [
        (19, "OFFSET_OVERFLOW_ONE", "10"),
        (21, "OFFSET_OVERFLOW_BADLY", "10"),
        (21, "OFFSET_TOO_SMALL", "0"),
    ]
    assert all((reply.ext["minOffset"], reply.ext["maxOffset"]) == ("0", "10") for reply in replies)


@pytest.mark.scenario("broker 6.5")
async def test_a_pull_of_what_never_was_leaves_an_event(client):
    await client.create_topic()
    reply = await client.pull(offset=5)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (21, "0")
    [event] = await client.read("OFFSET_MOVED_EVENT", group="operators")
    assert (event.properties["TAGS"], event.properties["KEYS"]) == (GROUP, GROUP)
    assert json.loads(event.body) == {
        "consumerGroup": GROUP,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": TOPIC},
        "offsetNew": 0,
        "offsetRequest": 5,
    }


@pytest.mark.scenario("broker 6.6")
async def test_a_pull_gets_thirty_two_messages_at_most(client):
    await fill(client, 100)
    reply = await client.pull(count=64)
    assert (len(messages_in(reply.body)), reply.ext["nextBeginOffset"]) == (32, "32")


@pytest.mark.scenario("broker 6.7")
async def test_a_pull_gets_large_messages_one_by_one(start):
    async with start("mappedFileSizeCommitLog=4m") as scene:
        client = await scene.connect()
        await fill(client, 3, bytes(200_000))
        for offset in range(3):
            reply = await client.pull(offset=offset)
            assert (len(messages_in(reply.body)), reply.ext["nextBeginOffset"]) == (1, str(offset + 1))


@pytest.mark.scenario("broker 6.8")
async def test_a_group_that_nobody_said_hello_for_cannot_pull(client):
    await client.sent()
    reply = await client.pull(flag=0)
    assert (reply.code, reply.remark) == (
        24,
        "the consumer's group info not exist\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
    )


@pytest.mark.scenario("broker 6.9")
async def test_a_pull_that_is_newer_than_the_last_heartbeat_has_to_wait_for_it(client):
    await client.sent()
    await client.beat(sub_version=7)
    assert (await client.pull(flag=0, subVersion=7)).code == 0
    reply = await client.pull(flag=0, subVersion=8)
    assert (reply.code, reply.remark) == (25, "the consumer's subscription not latest")
    await client.beat(sub_version=8)
    assert (await client.pull(flag=0, subVersion=8)).code == 0


@pytest.mark.scenario("broker 6.10")
async def test_a_pull_commits_its_offset_although_it_is_held(client):
    await fill(client, 9)
    held = client.ask(11, pull_ext(offset=9, flag=WAITING | COMMIT, commitOffset=7))
    assert (await client.committed()).ext["offset"] == "7"
    assert await client.is_silent(held)


@pytest.mark.scenario("broker 6.11")
async def test_what_is_passed_over_is_passed_over_in_steps(client):
    await fill(client, 1000, TAGS="A")
    await fill(client, 1, b"wanted", TAGS="B")
    offset, steps = 0, 0
    while (reply := await client.pull(offset=offset, subscription="B")).code == 20:
        assert int(reply.ext["nextBeginOffset"]) > offset
        assert reply.body is None
        offset = int(reply.ext["nextBeginOffset"])
        steps += 1
    assert steps >= 1
    assert (reply.code, [message.body for message in messages_in(reply.body)]) == (0, [b"wanted"])


# The order of the checks (6.2)


async def test_the_checks_of_a_pull_in_their_order(client):
    """Each request is wrong in one way more than the last one, and the new fault is what is said."""
    no_sql = "The broker does not support consumer to filter message by SQL92"
    await client.create_topic()
    await client.beat()
    faults: list[tuple[int, str, dict[str, Any]]] = [
        (24, "the consumer's subscription not exist", {"topic": "broker-a", "flag": 0}),
        (1, no_sql, {"expressionType": "SQL92", "subscription": "a > 1"}),
        (23, "parse the consumer's subscription failed", {"subscription": "|| ||"}),
        (1, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:", {"queue_id": 4}),
        (1, "queueId[-1] is illegal", {"queue_id": -1}),
        (17, "topic[U] not exist, apply first please!", {"topic": "U", "queue_id": -1}),
    ]
    for code, remark, fault in faults:
        reply = await client.pull(**fault)
        assert (reply.code, reply.remark[: len(remark)]) == (code, remark)
    assert (await client.create_topic("closed", perm=2)).code == 0
    reply = await client.pull("closed", queue_id=99)
    assert (reply.code, reply.remark) == (16, "the topic[closed] pulling message is forbidden")
    await client.call(200, body=json.dumps({"groupName": "off", "consumeEnable": False}).encode())
    reply = await client.pull("U", group="off")
    assert (reply.code, reply.remark) == (16, "subscription group no permission, off")
    await client.configure("brokerPermission=2")
    reply = await client.pull("U", group="off")
    assert (reply.code, reply.remark) == (16, "the broker[127.0.0.1] pulling message is forbidden")


async def test_a_broadcasting_group_needs_leave(client):
    await client.sent()
    await client.call(200, body=json.dumps({"groupName": GROUP, "consumeBroadcastEnable": False}).encode())
    await client.beat(model="BROADCASTING")
    reply = await client.pull(flag=0)
    assert (reply.code, reply.remark) == (16, "the consumer group[g] can not consume by broadcast way")


async def test_a_pull_asks_for_no_field_that_it_does_not_need(client):
    await client.sent()
    ext = pull_ext()
    for name in ("commitOffset", "suspendTimeoutMillis", "subVersion"):
        del ext[name]
    assert (await client.call(11, ext)).code == 0


async def test_with_lite_pulls_switched_off_only_they_are_refused(start):
    async with start("litePullMessageEnable=false") as scene:
        client = await scene.connect()
        await client.sent()
        reply = await client.call(361, pull_ext())
        assert (reply.code, reply.remark) == (16, "the broker[127.0.0.1] for lite pull consumer is forbidden")
        assert (await client.pull()).code == 0


@pytest.mark.usefixtures("hurry")
async def test_without_long_polling_a_pull_is_held_for_a_short_time(start):
    async with start("longPollingEnable=false", "shortPollingTimeMills=50") as scene:
        client = await scene.connect()
        await client.create_topic()
        async with asyncio.timeout(TOO_LONG):
            assert (await client.pull(flag=WAITING, suspendTimeoutMillis=60_000)).code == 19
