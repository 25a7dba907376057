"""POP over real sockets (docs/spec/broker.md 6.7): what is popped is acknowledged, or comes back."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.integration.broker.pop_kit import (
    ACK,
    BATCH_ACK,
    CHANGE,
    NOTIFY,
    PEEK,
    POLLING,
    POP,
    QUICK,
    RETRY,
    RETRY_V2,
    REVIVE,
    ack,
    ack_ext,
    batch_of,
    bodies,
    change,
    pop,
    pop_ext,
    popped,
)
from tests.integration.broker.scene_kit import GROUP, TOPIC, messages_in, send_ext

from pyromq.protocol.record import MessageRecord


@pytest.fixture
async def quick(start):
    async with start(*QUICK) as scene:
        yield await scene.connect()


async def test_a_pop_takes_messages_of_all_queues_and_each_once(client):
    for number in range(8):
        await client.sent(b"m%d" % number, queue_id=number % 4)
    first = await pop(client, count=5)
    second = await pop(client)
    assert len(first) == 5
    assert bodies(first + second) == [b"m%d" % number for number in range(8)]
    assert await pop(client) == []


async def test_the_answer_says_where_messages_are_from_as_rocketmq_does(client, shift):
    for body in (b"a", b"b", b"c"):
        await client.sent(body, queue_id=2)
    await pop(client, 2, count=1)
    began = shift()
    reply = await client.call(POP, pop_ext(2, count=1, invisible=1234))
    assert (reply.code, reply.remark) == (0, "FOUND")
    assert began <= int(reply.ext["popTime"]) <= shift()
    assert 0 <= int(reply.ext["reviveQid"]) < 8
    assert {name: reply.ext[name] for name in ("invisibleTime", "restNum", "startOffsetInfo", "msgOffsetInfo")} == {
        "invisibleTime": "1234",
        "restNum": "1",
        "startOffsetInfo": "0 2 1",
        "msgOffsetInfo": "0 2 1",
    }
    assert "orderCountInfo" not in reply.ext


@pytest.mark.slow
async def test_what_is_not_acknowledged_comes_back_and_what_is_does_not(quick):
    for body in (b"kept", b"lost", b"also lost"):
        await quick.sent(body, queue_id=1, properties={"TAGS": "A", "mine": "yes"})
    first = await pop(quick, invisible=1500)
    await ack(quick, *(one for one in first if one.message.body == b"kept"))
    again = await pop(quick, poll=10_000)
    assert bodies(again) == [b"also lost", b"lost"]
    message, handle = again[0].message, again[0].handle.split(" ")
    assert (message.topic, message.reconsume_times) == (TOPIC, 1)
    assert (message.properties["mine"], message.properties["ORIGIN_GROUP"]) == ("yes", GROUP)
    assert message.properties["1ST_POP_TIME"] == first[0].handle.split(" ")[1]
    assert handle[4:7] == ["1", "broker-a", "0"]
    assert (await quick.topics())[RETRY]["readQueueNums"] == 1
    await ack(quick, *again)
    assert await pop(quick, poll=2500) == []


async def test_a_message_that_comes_back_again_and_again_counts_how_often(quick):
    await quick.sent(b"stubborn")
    for times in range(3):
        (one,) = await pop(quick, invisible=100, poll=10_000)
        assert one.message.reconsume_times == times
    assert one.message.properties["1ST_POP_TIME"] < one.handle.split(" ")[1]


@pytest.mark.slow
async def test_many_acknowledge_with_one_request(quick):
    for number in range(40):
        await quick.sent(b"%02d" % number, queue_id=number % 4)
    some = [*await pop(quick, invisible=1500), *await pop(quick, invisible=1500)]
    assert len(some) == 40
    await quick.call(BATCH_ACK, body=batch_of(*(one for one in some if one.message.body != b"07")))
    assert bodies(await pop(quick, poll=10_000)) == [b"07"]


async def test_acks_that_arrive_together_are_one_record(client):
    for number in range(3):
        await client.sent(b"%d" % number)
    await ack(client, *await pop(client, 0))
    checkpoint, acks = await client.read("rmq_sys_wheel_timer")
    assert (checkpoint.properties["TAGS"], acks.properties["TAGS"]) == ("ck", "bAck")
    assert checkpoint.properties["REAL_TOPIC"] == REVIVE
    said = json.loads(checkpoint.body)
    wanted = {"so": 0, "n": 3, "d": [0, 1, 2], "q": 0, "t": TOPIC, "c": GROUP, "bn": "broker-a", "bm": 0}
    assert {name: said[name] for name in wanted} == wanted
    assert json.loads(acks.body)["aol"] == [0, 1, 2]


@pytest.mark.slow
async def test_a_longer_time_keeps_a_message_away_and_a_shorter_brings_it_back_sooner(quick):
    await quick.sent(b"longer", queue_id=0)
    await quick.sent(b"shorter", queue_id=1)
    (longer,) = await pop(quick, 0, invisible=500)
    (shorter,) = await pop(quick, 1, invisible=60_000)
    await change(quick, longer, 60_000)
    await change(quick, shorter, 200)
    (back,) = await pop(quick, poll=10_000)
    assert back.message.body == b"shorter"
    assert await pop(quick, poll=1500) == []


@pytest.mark.slow
async def test_a_changed_message_that_is_acknowledged_never_comes_back(quick):
    await quick.sent(b"done", queue_id=0)
    (one,) = await pop(quick, 0, invisible=500)
    await ack(quick, await change(quick, one, 800))
    assert await pop(quick, poll=2500) == []


async def test_a_suspended_message_comes_back_without_having_been_tried(quick):
    await quick.sent(b"not yet")
    (one,) = await pop(quick)
    assert (await quick.call(CHANGE, ack_ext(one, invisibleTime=50, suspend="true"))).code == 0
    (again,) = await pop(quick, poll=10_000)
    assert (again.message.body, again.message.reconsume_times) == (b"not yet", 0)


async def test_a_pop_waits_for_a_message(scene, client):
    await client.create_topic()
    other = await scene.connect()
    waiting = other.ask(POP, pop_ext(poll=10_000))
    assert await other.is_silent(waiting)
    await client.sent(b"at last", queue_id=3)
    (one,) = popped(await other.answer_to(waiting))
    assert one.message.body == b"at last"


async def test_of_several_that_wait_one_gets_a_message_and_the_longest_first(scene, client):
    await client.create_topic()
    waiting = []
    for _ in range(3):
        other = await scene.connect()
        waiting.append((other, other.ask(POP, pop_ext(poll=10_000))))
        assert await other.is_silent(waiting[-1][1])
    assert (await client.call(POLLING, pop_ext())).ext["pollingNum"] == "3"
    await client.sent(b"one")
    first, opaque = waiting[0]
    assert bodies(popped(await first.answer_to(opaque))) == [b"one"]
    for other, opaque in waiting[1:]:
        assert await other.is_silent(opaque)
    assert (await client.call(POLLING, pop_ext())).ext["pollingNum"] == "2"


async def test_a_pop_of_one_queue_is_not_woken_by_another(scene, client):
    await client.create_topic()
    other = await scene.connect()
    waiting = other.ask(POP, pop_ext(1, poll=10_000))
    await other.is_silent(waiting)
    await client.sent(b"elsewhere", queue_id=2)
    assert await other.is_silent(waiting)
    await client.sent(b"here", queue_id=1)
    assert bodies(popped(await other.answer_to(waiting))) == [b"here"]


async def test_a_pop_that_waits_in_vain_is_told_so_in_time(client, shift):
    await client.create_topic()
    began = shift()
    reply = await client.call(POP, pop_ext(poll=200))
    assert (reply.code, reply.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert 190 <= shift() - began < 2000
    assert reply.ext["restNum"] == "0"


@pytest.mark.limit("maxPopPollingSize")
async def test_when_too_many_wait_the_next_is_told_so(start):
    async with start("maxPopPollingSize=2") as scene:
        client = await scene.connect()
        await client.create_topic()
        gone = await scene.connect()
        for each in (client, gone):
            await each.is_silent(each.ask(POP, pop_ext(poll=10_000)))
        assert (await client.call(POP, pop_ext(poll=10_000))).code == 209
        await gone.close()
        waiting = client.ask(POP, pop_ext(poll=10_000))
        assert await client.is_silent(waiting)


@pytest.mark.limit("popPollingSize")
async def test_when_too_many_of_a_group_wait_for_a_queue_the_next_is_told_so(start):
    async with start("popPollingSize=1") as scene:
        client = await scene.connect()
        await client.create_topic()
        waiting = [client.ask(POP, pop_ext(poll=10_000)) for _ in range(2)]
        assert (await client.call(POP, pop_ext(poll=10_000))).code == 209
        assert await client.is_silent(client.ask(POP, pop_ext(poll=10_000, consumerGroup="other")))
        assert await client.is_silent(waiting[0])


async def test_pops_select_by_tags_and_by_sql(start):
    async with start("enablePropertyFilter=true") as scene:
        client = await scene.connect()
        for number in range(6):
            await client.sent(b"%d" % number, properties={"TAGS": "AB"[number % 2], "n": number})
        assert bodies(await pop(client, exp="A")) == [b"0", b"2", b"4"]
        assert await pop(client, exp="A") == []
        some = await pop(client, exp="n > 3", expType="SQL92", consumerGroup="other")
        assert bodies(some) == [b"4", b"5"]


async def test_a_pop_finds_the_one_message_it_wants_behind_thousands(start):
    async with start("enablePropertyFilter=true") as scene:
        client = await scene.connect()
        unwanted = [send_ext(properties={"TAGS": "A", "n": number}) for number in range(2000)]
        opaques = [client.ask(310, ext, b"x") for ext in unwanted]
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == 0
        await client.sent(b"wanted", properties={"TAGS": "B"})
        assert bodies(await pop(client, exp="B", poll=10_000)) == [b"wanted"]


async def test_a_new_group_starts_with_the_first_message_while_all_are_recent(client):
    await client.sent(b"old")
    assert bodies(await pop(client, initMode=1)) == [b"old"]


async def test_groups_do_not_see_each_other(client):
    await client.sent(b"for all")
    assert bodies(await pop(client)) == bodies(await pop(client, consumerGroup="other")) == [b"for all"]


# Looking


async def test_peeking_takes_nothing(client):
    await client.sent(b"there")
    reply = await client.call(PEEK, pop_ext())
    assert (reply.code, reply.ext["restNum"]) == (0, "1")
    assert [message.body for message in messages_in(reply.body)] == [b"there"]
    assert bodies(await pop(client)) == [b"there"]
    assert (await client.call(PEEK, pop_ext())).code == 19


async def test_a_notification_comes_as_soon_as_there_is_something(scene, client):
    await client.create_topic()
    other = await scene.connect()
    waiting = other.ask(NOTIFY, pop_ext(poll=10_000))
    assert await other.is_silent(waiting)
    await client.sent(b"news")
    reply = await other.answer_to(waiting)
    assert (reply.code, reply.ext["hasMsg"]) == (0, "true")
    assert (await client.call(NOTIFY, pop_ext())).ext["hasMsg"] == "true"
    await pop(client)
    assert (await client.call(NOTIFY, pop_ext(poll=100))).ext["hasMsg"] == "false"


# In order


async def test_a_queue_read_in_order_gives_nothing_more_until_all_is_acknowledged(client):
    for body in (b"1", b"2", b"3"):
        await client.sent(body, queue_id=0)
    reply = await client.call(POP, pop_ext(0, count=2, order="true"))
    assert (reply.ext["reviveQid"], reply.ext["orderCountInfo"]) == ("999", "0 0 0")
    one, two = popped(reply)
    assert await pop(client, 0, order="true") == []
    await ack(client, two)
    assert await pop(client, 0, order="true") == []
    assert (await client.committed()).ext["offset"] == "0"
    waiting = client.ask(POP, pop_ext(0, order="true", poll=10_000))
    await ack(client, one)
    assert bodies(popped(await client.answer_to(waiting))) == [b"3"]
    assert (await client.committed()).ext["offset"] == "2"


async def test_in_order_messages_come_back_in_their_queue_and_count(client):
    await client.sent(b"1")
    await client.sent(b"2")
    await pop(client, 0, count=1, order="true", invisible=300)
    reply = await client.call(POP, pop_ext(0, order="true", poll=10_000, invisible=60_000))
    assert bodies(popped(reply)) == [b"1", b"2"]
    assert reply.ext["orderCountInfo"] == "0 qo0%0 1;0 0 0"


async def test_the_same_attempt_gets_the_same_messages_again(client):
    await client.sent(b"1")
    first = await client.call(POP, pop_ext(0, order="true", attemptId="a"))
    again = await client.call(POP, pop_ext(0, order="true", attemptId="a"))
    assert bodies(popped(first)) == bodies(popped(again)) == [b"1"]
    assert await pop(client, 0, order="true", attemptId="b") == []


async def test_the_time_of_a_message_in_order_can_be_changed(client):
    await client.sent(b"1")
    (one,) = await pop(client, 0, order="true", invisible=60_000)
    waiting = client.ask(POP, pop_ext(0, order="true", poll=10_000))
    assert await client.is_silent(waiting)
    await change(client, one, 100)
    assert bodies(popped(await client.answer_to(waiting))) == [b"1"]


async def test_order_and_offsets_survive_a_restart(start):
    async with start() as scene:
        client = await scene.connect()
        for body in (b"1", b"2"):
            await client.sent(body)
        (one,) = await pop(client, 0, count=1, order="true")
    async with start() as scene:
        client = await scene.connect()
        assert await pop(client, 0, order="true") == []
        await ack(client, one)
        assert bodies(await pop(client, 0, order="true")) == [b"2"]


# Over the end of a broker


@pytest.mark.slow
async def test_what_is_popped_comes_back_after_a_restart_and_what_is_acknowledged_does_not(start):
    async with start(*QUICK) as scene:
        client = await scene.connect()
        for body in (b"kept", b"lost"):
            await client.sent(body)
        some = await pop(client, invisible=3000)
        await ack(client, *(one for one in some if one.message.body == b"kept"))
    async with start(*QUICK) as scene:
        client = await scene.connect()
        assert await pop(client) == []
        again = await pop(client, poll=10_000, invisible=60_000)
        assert bodies(again) == [b"lost"]
        await ack(client, *again)
    async with start(*QUICK) as scene:
        assert await pop(await scene.connect(), poll=1500) == []


@pytest.mark.slow
async def test_an_ack_may_come_after_a_restart(start):
    async with start(*QUICK) as scene:
        client = await scene.connect()
        await client.sent(b"done")
        some = await pop(client, invisible=2000)
    async with start(*QUICK) as scene:
        client = await scene.connect()
        await ack(client, *some)
        assert await pop(client, poll=3500) == []


# Names and dead letters


async def test_retry_topics_of_both_names_are_popped_from(start):
    async with start(*QUICK) as scene:
        client = await scene.connect()
        await client.sent(b"old name")
        await pop(client, invisible=50)
        await client.first(RETRY)
    async with start(*QUICK, "enableRetryTopicV2=true", "popFromRetryProbability=0") as scene:
        client = await scene.connect()
        await client.sent(b"new name")
        assert bodies(await pop(client, count=1, invisible=50)) == [b"new name"]
        await client.first(RETRY_V2)
        found = await pop(client)
        assert {(one.message.body, one.topic) for one in found} == {(b"old name", RETRY), (b"new name", RETRY_V2)}
        await ack(client, *found)


async def test_after_the_groups_maximum_a_message_is_a_dead_letter(quick):
    group = {"groupName": GROUP, "retryMaxTimes": 1}
    assert (await quick.call(200, body=json.dumps(group).encode())).code == 0
    await quick.sent(b"hopeless", properties={"KEYS": "k"})
    for times in range(2):
        (one,) = await pop(quick, invisible=50, poll=10_000)
        assert one.message.reconsume_times == times
    dead = await quick.first(f"%DLQ%{GROUP}")
    assert (dead.body, dead.reconsume_times, dead.properties["KEYS"]) == (b"hopeless", 2, "k")
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    assert await pop(quick, poll=500) == []


async def test_a_client_may_make_a_popped_message_a_dead_letter_itself(quick):
    await quick.sent(b"bad")
    (one,) = await pop(quick)
    assert (await quick.send_back(one.message.physical, -1)).code == 0
    await ack(quick, one)
    assert (await quick.first(f"%DLQ%{GROUP}")).body == b"bad"


# What is refused


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "unknown"}, 17),
        ({"queueId": 4}, 29),
        ({"queueId": -2}, 29),
        ({"maxMsgNums": 33}, 29),
        ({"maxMsgNums": 0}, 29),
        ({"invisibleTime": -1}, 29),
        ({"invisibleTime": 2**62}, 29),
        ({"exp": "||"}, 23),
        ({"exp": "a >", "expType": "SQL92"}, 23),
        ({"bornTime": 1}, 210),
        ({"consumerGroup": "g" * 200, "topic": TOPIC}, 0),
        ({"consumerGroup": "g" * 250}, 29),
        ({"consumerGroup": "bad/group"}, 26),
        ({"topic": RETRY + "x"}, 17),
    ],
)
async def test_pops_are_refused_with_a_code(client, more, code):
    await client.sent(b"x")
    assert (await client.call(POP, pop_ext() | more)).code == code


async def test_a_broker_without_timers_refuses_pops(start):
    async with start("timerWheelEnable=false") as scene:
        client = await scene.connect()
        await client.sent(b"x")
        reply = await client.call(POP, pop_ext())
        assert reply.code == 1
        assert "timerWheelEnable" in reply.remark


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"offset": 17}, 208),
        ({"offset": -1}, 208),
        ({"queueId": 9}, 13),
        ({"topic": "unknown"}, 17),
        ({"extraInfo": ""}, 13),
        ({"extraInfo": "0 1 2"}, 13),
        ({"extraInfo": "a b c d e f g h"}, 13),
        ({"extraInfo": f"0 {2**62} {2**62} 0 0 broker-a 0 0"}, 13),
        ({"extraInfo": "0 1 1 8 0 broker-a 0 0"}, 13),
        ({"extraInfo": "0 1 1 -1 0 broker-a 0 0"}, 13),
        ({"extraInfo": "0 1 1 0 0 broker\x02TAGS\x01ck 0 0"}, 13),
        ({"consumerGroup": "a\x01b"}, 13),
        ({"consumerGroup": "g" * 256}, 13),
    ],
)
@pytest.mark.parametrize("request_code", [ACK, CHANGE])
async def test_bad_acks_are_refused_with_a_code(client, more, code, request_code):
    await client.sent(b"x")
    (one,) = await pop(client)
    reply = await client.call(request_code, ack_ext(one, invisibleTime=1000) | more)
    assert reply.code == code, reply


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"acks":[]}',
        b'{"acks":[{"b":"*","t":"T","c":"g"}]}',
        b'{"acks":[{"b":"AQ==","r":"7","t":"T","c":"g"}]}',
        b'{"acks":[{"b":"AQ==","rq":77,"t":"T","c":"g"}]}',
        b'{"acks":[{"b":"AQ==","t":"T","c":"g"}],"brokerName":"a\\u0002b"}',
        b'{"acks":[{"b":"AQ==","it":9223372036854775807,"pt":9223372036854775807,"t":"T","c":"g"}]}',
        b'{"acks":[{"b":"' + b"A" * 40_000 + b'","t":"T","c":"g"}]}',
    ],
)
async def test_bad_batches_are_refused_with_a_code(client, body):
    await client.sent(b"x")
    assert (await client.call(BATCH_ACK, body=body)).code in (13, 208)
    assert await client.read("rmq_sys_wheel_timer") == []


async def test_nobody_sends_to_the_revive_topic(client):
    assert (await client.put(topic=REVIVE)).code != 0


@pytest.mark.slow
async def test_garbage_in_the_revive_topic_is_passed_over(start, caplog):
    async with start(*QUICK) as scene:
        client = await scene.connect()
        await client.sent(b"lost")
        appends = scene.broker._parts.context.appends
        for queue_id in range(8):
            queue = scene.broker._parts.context.store.queue(REVIVE, queue_id)
            for tag, body in ((b"ck", b"{"), (b"ck", b'{"n":99999,"t":"T","c":"g"}'), (b"ack", b"[]"), (b"x", b"")):
                record = MessageRecord(REVIVE, body, b"TAGS\x01" + tag, queue_id=queue_id)
                appends.put(queue, (record,), lambda results: None)
        await pop(client, invisible=1500)
        assert bodies(await pop(client, poll=10_000)) == [b"lost"]
        assert "record at" in caplog.text


# Who consumes what


async def test_the_mode_of_a_group_is_kept_and_its_members_are_told(start):
    ask = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c1", "strategyName": "AVG"}
    body = json.dumps(ask | {"messageModel": "CLUSTERING"}).encode()
    async with start() as scene:
        client = await scene.connect()
        await client.create_topic()
        await client.beat()
        pulls = (await client.call(400, body=body)).json["messageQueueAssignments"]
        assert [(each["messageQueue"]["queueId"], each["mode"]) for each in pulls] == [(n, "PULL") for n in range(4)]
        mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
        assert (await client.call(401, body=json.dumps(mode).encode())).code == 0
        refused = json.dumps(mode | {"topic": "%RETRY%g"}).encode()
        assert (await client.call(401, body=refused)).code == 16
        assert (await client.call(401, body=json.dumps(mode | {"topic": "unknown"}).encode())).code == 17
    async with start() as scene:
        client = await scene.connect()
        await client.beat()
        (only,) = (await client.call(400, body=body)).json["messageQueueAssignments"]
        assert (only["messageQueue"], only["mode"]) == (
            {"brokerName": "broker-a", "queueId": -1, "topic": TOPIC},
            "POP",
        )
        assert (await client.call(402)).json["messageRequestModeMap"][TOPIC][GROUP] == mode


async def test_pops_that_wait_are_answered_when_the_broker_stops(start):
    async with start() as scene:
        client = await scene.connect()
        await client.create_topic()
        waiting = client.ask(POP, pop_ext(poll=60_000))
        looking = client.ask(NOTIFY, pop_ext(poll=60_000))
        await client.is_silent(waiting)
        stopping = asyncio.create_task(scene.broker._parts.finish(1))
        assert (await client.answer_to(waiting)).code == 210
        assert (await client.answer_to(looking)).ext["hasMsg"] == "false"
        await stopping


async def test_a_reset_offset_is_obeyed(client):
    for body in (b"1", b"2"):
        await client.sent(body)
    await ack(client, *await pop(client, 0))
    await client.commit(1)
    assert bodies(await pop(client, 0)) == [b"2"]


async def test_a_deleted_topic_leaves_nothing_to_pop(client):
    await client.sent(b"gone")
    waiting = client.ask(POP, pop_ext(poll=10_000, consumerGroup="other", exp="none"))
    await client.is_silent(waiting)
    assert (await client.call(215, {"topic": TOPIC})).code == 0
    assert (await client.answer_to(waiting)).code == 210
    assert (await client.call(POP, pop_ext())).code == 17
