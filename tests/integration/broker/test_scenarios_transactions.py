"""Scenarios of docs/spec/broker.md 14, group 5: transactions, over raw frames.

Rounds of questions come every 20 ms here, and the broker's clock is set forward to what a scenario waits for.
"""

from __future__ import annotations

import json
import struct

import pytest
from tests.integration.broker.scene_kit import TOPIC, messages_in, properties_text

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PRODUCERS = "payers"
OFTEN = ("transactionCheckInterval=20", "transactionTimeOut=1000")
TIMEOUT = 1.0


async def produce(client, client_id="p1", group=PRODUCERS):
    body = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
    assert (await client.call(34, body=json.dumps(body).encode())).code == 0


async def prepare(client, shift, body=b"paid", unique="ID", queue_id=0, age=0, **properties):
    """Send a half message, born now; gives what its sender learns of its place."""
    values = {"UNIQ_KEY": unique, "TRAN_MSG": "true", "PGROUP": PRODUCERS} | properties
    born = shift() - age
    reply = await client.sent(body, queue_id=queue_id, properties=properties_text(**values), f=4, g=born)
    assert reply.ext["queueId"] == str(queue_id)
    return int(reply.ext["queueOffset"]), int(reply.ext["msgId"][16:], 16)


def end_ext(place, how, **more):
    ext = {"producerGroup": PRODUCERS, "tranStateTableOffset": place[0], "commitLogOffset": place[1]}
    return ext | {"commitOrRollback": how, "fromTransactionCheck": "false", "msgId": "ID", "transactionId": "ID"} | more


async def end(client, place, how=COMMIT, **more):
    return await client.call(37, end_ext(place, how, **more))


async def question(client):
    """The next question that the broker asks: the place that it is about, its header, and the message."""
    asked = await client.request(39)
    assert asked.header["flag"] & 2, "one-way"
    (message,) = messages_in(asked.body)
    return (int(asked.ext["tranStateTableOffset"]), int(asked.ext["commitLogOffset"])), asked.ext, message


async def a_round(client, shift):
    """Let a round go through all half messages, to the last, which has to be asked about. Gives what else was asked."""
    await prepare(client, shift, b"sentinel", age=5000)
    others: list[bytes] = []
    while True:
        renewed, _, message = await question(client)
        if message.body == b"sentinel":
            assert (await end(client, renewed, ROLLBACK)).code == 0
            return others
        others.append(message.body)


async def nothing_is_asked(client, shift):
    for _ in range(2):
        assert await a_round(client, shift) == []


@pytest.mark.scenario("broker 5.1")
async def test_a_message_is_seen_once_and_only_after_the_commit(start, shift):
    async with start(*OFTEN) as scene:
        client = await scene.connect()
        await produce(client)
        place = await prepare(client, shift, TAGS="A", KEYS="k")
        assert await client.read() == []
        assert [half.body for half in await client.read(HALF)] == [b"paid"]
        reply = await end(client, place)
        assert (reply.code, reply.remark) == (0, None)
        seen = await client.first()
        assert (seen.body, seen.sys_flag & 12, seen.properties["TAGS"]) == (b"paid", 8, "A")
        assert seen.properties.items() >= {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "REAL_TOPIC": TOPIC}.items()
        shift.advance(60)
        await nothing_is_asked(client, shift)
        assert await client.max_offset() == 1
        found = await client.call(
            12, {"topic": TOPIC, "key": "k", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**60}
        )
        assert [message.body for message in messages_in(found.body)] == [b"paid"]


@pytest.mark.scenario("broker 5.2")
async def test_a_message_that_was_rolled_back_is_never_seen_nor_asked_about(start, shift):
    async with start(*OFTEN) as scene:
        client = await scene.connect()
        await produce(client)
        assert (await end(client, await prepare(client, shift), ROLLBACK)).code == 0
        shift.advance(60)
        await nothing_is_asked(client, shift)
        assert await client.max_offset() == 0


@pytest.mark.scenario("broker 5.3")
async def test_a_producer_is_asked_and_a_commit_of_what_it_was_asked_about_works(start, shift):
    async with start(*OFTEN) as scene:
        client = await scene.connect()
        await produce(client)
        place = await prepare(client, shift, queue_id=2)
        assert await client.is_silent(client.ask(37, end_ext(place, UNKNOWN)))
        shift.advance(TIMEOUT)
        renewed, ext, message = await question(client)
        assert renewed[0] != place[0]
        assert renewed[1] != place[1]
        assert (ext["msgId"], ext["transactionId"]) == ("ID", "ID")
        assert int(ext["offsetMsgId"][16:], 16) == renewed[1]
        assert (message.topic, message.queue_id, message.body) == (TOPIC, 2, b"paid")
        assert (message.offset, message.physical) == renewed
        client.ask(37, end_ext(renewed, COMMIT, fromTransactionCheck="true"), flag=2)
        assert (await client.first(queue_id=2)).body == b"paid"


@pytest.mark.scenario("broker 5.4")
async def test_a_message_is_given_up_after_two_questions(start, shift):
    async with start(*OFTEN, "transactionCheckMax=2") as scene:
        client = await scene.connect()
        await produce(client)
        await prepare(client, shift)
        shift.advance(TIMEOUT)
        assert [(await question(client))[2].properties["TRANSACTION_CHECK_TIMES"] for _ in range(2)] == ["1", "2"]
        dead = await client.first(GIVEN_UP)
        assert (dead.body, dead.properties["REAL_TOPIC"]) == (b"paid", TOPIC)
        assert (await client.topics())[GIVEN_UP]["perm"] == 6
        await nothing_is_asked(client, shift)
        # An operator has it asked about again.
        message_id = struct.pack(">4siq", bytes((127, 0, 0, 1)), scene.port, dead.physical).hex().upper()
        assert (await client.call(323, {"msgId": message_id})).code == 0
        renewed, _, message = await question(client)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (await end(client, renewed)).code == 0
        assert (await client.first()).body == b"paid"


@pytest.mark.scenario("broker 5.5")
async def test_an_end_must_name_group_and_both_offsets(client, shift):
    offset, physical = place = await prepare(client, shift)
    refusals = [
        await end(client, place, producerGroup="others"),
        await end(client, (offset + 1, physical)),
        await end(client, (offset, physical + 10_000)),
    ]
    assert [(reply.code, reply.remark) for reply in refusals] == [
        (1, "The producer group wrong"),
        (1, "The transaction state table offset wrong"),
        (1, "Find prepared transaction message failed"),
    ]
    assert (await end(client, place)).code == 0


@pytest.mark.scenario("broker 5.6")
async def test_who_does_not_know_gets_no_answer_and_who_says_nonsense_a_refusal(client, shift):
    place = await prepare(client, shift)
    assert await client.is_silent(client.ask(37, end_ext(place, UNKNOWN)))
    wrong = await end(client, place, 77)
    assert wrong.code == 1
    assert "commitOrRollback field wrong" in wrong.remark


@pytest.mark.scenario("broker 5.7")
async def test_what_was_committed_is_not_asked_about_after_a_restart(start, shift):
    async with start() as scene:
        client = await scene.connect()
        await end(client, await prepare(client, shift, b"one"))
        await prepare(client, shift, b"two", "ID2")
    shift.advance(60)
    async with start(*OFTEN) as scene:
        client = await scene.connect()
        await produce(client)
        renewed, _, message = await question(client)
        assert message.body == b"two"
        await end(client, renewed)
        await nothing_is_asked(client, shift)
        assert [message.body for message in await client.read()] == [b"one", b"two"]


@pytest.mark.scenario("broker 5.8")
async def test_another_producer_of_the_group_is_asked_when_the_first_has_died(start, shift):
    async with start(*OFTEN) as scene:
        first, second = await scene.connect(), await scene.connect()
        await produce(first, "A")
        await prepare(first, shift)
        await first.close()
        await produce(second, "B")
        shift.advance(TIMEOUT)
        renewed, _, message = await question(second)
        assert message.body == b"paid"
        assert (await end(second, renewed, fromTransactionCheck="true")).code == 0
        assert (await second.first()).body == b"paid"


@pytest.mark.scenario("broker 5.9")
async def test_a_producer_is_not_asked_before_the_time_that_it_set_and_then_is(start, shift):
    async with start(*OFTEN, "transactionCheckMax=2") as scene:
        client = await scene.connect()
        await produce(client)
        await prepare(client, shift, CHECK_IMMUNITY_TIME_IN_SECONDS=30)
        for _ in range(5):
            shift.advance(5)
            await nothing_is_asked(client, shift)
        shift.advance(5)
        _, _, message = await question(client)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"


# Beyond the scenarios


async def test_a_delay_begins_with_the_commit(start, shift, hurry):
    async with start("messageDelayLevel=1s 5s") as scene:
        client = await scene.connect()
        place = await prepare(client, shift, DELAY=2)
        assert (await end(client, place)).code == 0
        assert await client.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1
        assert await client.read() == []
        shift.advance(5)
        seen = await client.first()
        assert (seen.body, seen.sys_flag & 12) == (b"paid", 8)


async def test_transactions_can_be_refused_at_run_time(client, shift):
    place = await prepare(client, shift)
    await client.configure("rejectTransactionMessage=true")
    text = properties_text(TRAN_MSG="true", PGROUP=PRODUCERS)
    refused = await client.put(properties=text, g=shift())
    assert (refused.code, refused.remark) == (16, "the broker[127.0.0.1] sending transaction message is forbidden")
    assert (await end(client, place)).code == 0


async def test_sync_flush_answers_an_end_when_it_is_on_disk(start, shift):
    async with start("flushDiskType=SYNC_FLUSH") as scene:
        client = await scene.connect()
        places = [await prepare(client, shift, b"%d" % number) for number in range(3)]
        asked = [client.ask(37, end_ext(place, how)) for place, how in zip(places, (8, 12, 8), strict=True)]
        assert [(await client.answer_to(opaque)).code for opaque in asked] == [0, 0, 0]
        assert [message.body for message in await client.read()] == [b"0", b"2"]
        assert await client.max_offset(OP) == 3


async def test_a_killed_round_leaves_nothing_behind(start, shift):
    """The broker stops while questions are being asked; the next one goes on, and asks about each once more only."""
    async with start() as scene:
        client = await scene.connect()
        for number in range(300):
            await prepare(client, shift, b"%d" % number, f"ID{number}")
    shift.advance(60)
    async with start("transactionCheckInterval=10") as scene:
        client = await scene.connect()
        await produce(client)
        await question(client)
    async with start("transactionCheckInterval=10", "transactionCheckMax=100") as scene:
        client = await scene.connect()
        await produce(client)
        asked: dict[bytes, tuple[int, int]] = {}
        while len(asked) < 300:
            place, _, message = await question(client)
            asked[message.body] = place
        for place in asked.values():
            client.ask(37, end_ext(place, COMMIT, fromTransactionCheck="true"), flag=2)
        await client.until(lambda: complete(client))
        await a_round(client, shift)  # what was asked before they were committed
        await nothing_is_asked(client, shift)
        assert await client.max_offset() == 300


async def complete(client):
    return await client.max_offset() >= 300
