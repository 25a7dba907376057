"""Scenarios of docs/spec/broker.md 14, groups 3 and 4.1 to 4.3: sending, sending back, and messages that wait."""

from __future__ import annotations

import json
import time

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.scene_kit import GROUP, TOPIC, batch_body, loose_json, properties_text, send_ext

LEVEL_3 = 10_000
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


@pytest.mark.scenario("broker 3.1")
async def test_the_broker_picks_among_all_queues_and_says_which(client):
    await client.create_topic()
    asked = [client.ask(310, send_ext(queue_id=-1), b"%d" % number) for number in range(1000)]
    chosen = [int((await client.answer_to(opaque)).ext["queueId"]) for opaque in asked]
    assert set(chosen) == {0, 1, 2, 3}
    assert [await client.max_offset(queue_id=each) for each in range(4)] == [chosen.count(each) for each in range(4)]


@pytest.mark.scenario("broker 3.2")
@pytest.mark.parametrize("code", [10, 310])
async def test_a_send_is_answered_with_region_and_trace_and_stored_with_the_cluster(client, code):
    ext = send_ext(properties={"KEYS": "k", "WAIT": "true", "TAGS": "A"})
    if code == 10:
        ext = {LONG_NAMES[letter]: value for letter, value in ext.items()}
    for offset in range(2):  # the first makes the topic, the second takes the fast path
        reply = await client.call(code, ext, b"hello")
        assert (reply.code, reply.ext["queueOffset"], reply.ext["queueId"]) == (0, str(offset), "0")
        assert (reply.ext["MSG_REGION"], reply.ext["TRACE_ON"]) == ("DefaultRegion", "true")
        [stored] = await client.read(offset=offset)
        assert stored.body == b"hello"
        assert stored.properties == {"KEYS": "k", "TAGS": "A", "CLUSTER": "DefaultCluster"}
        assert int(reply.ext["msgId"][16:], 16) == stored.physical


@pytest.mark.scenario("broker 3.3")
@pytest.mark.limit("maxMessageSize")
async def test_the_largest_body_is_taken_and_one_byte_more_is_not(start):
    async with start("mappedFileSizeCommitLog=16m", "maxMessageSize=4194304") as scene:
        client = await scene.connect()
        await client.sent(bytes(4194304))
        for _ in range(2):
            refused = await client.put(bytes(4194305))
            assert refused.code == 13
            assert refused.remark == (
                "the message is illegal, maybe msg body or properties length not matched. "
                "msg body length limit 4194304B, msg properties length limit 32KB."
            )
            assert refused.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert await client.max_offset() == 1


@pytest.mark.scenario("broker 3.4")
async def test_a_batch_is_answered_with_all_ids_and_read_as_single_messages(client):
    reply = await client.call(320, send_ext(m="true"), batch_body(b"1", b"2", b"3"))
    assert (reply.code, reply.ext["queueOffset"]) == (0, "0")
    ids = reply.ext["msgId"].split(",")
    messages = await client.read()
    assert [(message.body, message.offset) for message in messages] == [(b"1", 0), (b"2", 1), (b"3", 2)]
    assert [int(each[16:], 16) for each in ids] == [message.physical for message in messages]


@pytest.mark.scenario("broker 3.5")
async def test_a_batch_cannot_be_delayed(client):
    reply = await client.call(320, send_ext(m="true", properties={"DELAY": 1}), batch_body(b"1"))
    assert reply.code == 13
    assert await client.max_offset() == 0


async def stored(client, body=b"m"):
    await client.sent(body)
    [message] = await client.read()
    return message


@pytest.mark.scenario("broker 3.6")
@pytest.mark.usefixtures("hurry")
async def test_a_message_that_is_sent_back_comes_again_after_ten_seconds(client, shift):
    message = await stored(client)
    msg_id = f"7F000001{client.writer.get_extra_info('peername')[1]:08X}{message.physical:016X}"
    before = time.time_ns() // 1_000_000
    assert (await client.send_back(message.physical)).code == 0
    entries = await client.call(321, {"topic": SCHEDULE, "queueId": 2, "index": 0, "count": 1})
    [entry] = entries.json["queueData"]
    assert before + LEVEL_3 <= entry["tagsCode"] <= before + LEVEL_3 + 1000
    assert await client.max_offset(RETRY) == 0
    shift.advance(10)
    again = await client.first(RETRY)
    assert (again.body, again.reconsume_times, again.queue_id) == (b"m", 1, 0)
    assert (again.properties["RETRY_TOPIC"], again.properties["ORIGIN_MESSAGE_ID"]) == (TOPIC, msg_id)


@pytest.mark.scenario("broker 3.7")
async def test_a_message_that_is_given_up_is_a_dead_letter_at_once(client):
    message = await stored(client)
    assert (await client.send_back(message.physical, delay_level=-1)).code == 0
    [dead] = await client.read(DEAD)
    assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"m", 1, 0)
    assert (await client.topics())[DEAD]["perm"] == 6
    assert (await client.topics())[DEAD]["writeQueueNums"] == 1


@pytest.mark.scenario("broker 3.8")
@pytest.mark.usefixtures("hurry")
async def test_a_message_that_always_fails_is_delivered_three_times_and_then_dead(start, shift):
    async with start("messageDelayLevel=1s 1s 1s 1s 1s") as scene:
        client = await scene.connect()
        message = await stored(client)
        deliveries = [message]
        for tries in range(2):
            assert (await client.send_back(message.physical, maxReconsumeTimes=2)).code == 0
            shift.advance(1)
            message = await client.first(RETRY, offset=tries)
            deliveries.append(message)
        assert (await client.send_back(message.physical, maxReconsumeTimes=2)).code == 0
        [dead] = await client.read(DEAD)
        assert [each.reconsume_times for each in [*deliveries, dead]] == [0, 1, 2, 3]
        assert {each.body for each in [*deliveries, dead]} == {b"m"}
        shift.advance(60)
        assert await client.max_offset(RETRY) == 2


@pytest.mark.scenario("broker 3.9")
async def test_a_group_without_retry_queues_gets_nothing_back(client):
    message = await stored(client)
    assert (await client.call(200, body=json.dumps({"groupName": GROUP, "retryQueueNums": 0}).encode())).code == 0
    end = await physical_end(client)
    assert (await client.send_back(message.physical)).code == 0
    assert await physical_end(client) == end
    assert RETRY not in await client.topics()


async def physical_end(client):
    return (await client.call(28)).json["table"]["commitLogMaxOffset"]


@pytest.mark.scenario("broker 3.10")
async def test_a_message_that_was_tried_sixteen_times_is_a_dead_letter(client):
    await client.sent(b"15", RETRY, j=15)
    await client.sent(b"16", RETRY, j=16)
    assert [message.body for message in await client.read(RETRY)] == [b"15"]
    assert [message.body for message in await client.read(DEAD)] == [b"16"]


async def test_the_delay_of_a_dead_letter_does_not_count(client):
    await client.sent(b"16", RETRY, j=16, properties={"DELAY": 3})
    assert [message.body for message in await client.read(DEAD)] == [b"16"]


# Delays


@pytest.mark.slow
@pytest.mark.scenario("broker 4.1")
async def test_a_delayed_message_is_delivered_in_its_time_and_not_before(client):
    began = time.time()
    reply = await client.sent(b"later", queue_id=2, properties={"DELAY": 1, "TAGS": "A"})
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("2", "0")
    message = await client.first(queue_id=2, subscription="A")
    assert 1.0 <= time.time() - began < 5.0, "as late as the next level"
    assert message.body == b"later"
    wanted = {"REAL_TOPIC": TOPIC, "REAL_QID": "2", "DELAY": "1"}
    assert {name: message.properties[name] for name in wanted} == wanted


@pytest.mark.scenario("broker 4.2")
async def test_what_fell_due_while_the_broker_was_stopped_is_delivered_once_soon_after(start, shift):
    async with start() as scene:
        client = await scene.connect()
        await client.sent(b"later", properties={"DELAY": 3})
    shift.advance(15)
    began = time.monotonic()
    async with start() as scene:
        client = await scene.connect()
        assert (await client.first()).body == b"later"
        assert time.monotonic() - began < TOO_LONG
    async with start() as scene:
        client = await scene.connect()
        scene.broker._parts.schedule.step()
        assert await client.max_offset() == 1


@pytest.mark.scenario("broker 4.3")
async def test_the_entry_of_a_delayed_message_has_the_time_of_its_delivery(client):
    await client.sent(properties={"DELAY": 2, "TAGS": "A"})
    entries = await client.call(321, {"topic": SCHEDULE, "queueId": 1, "index": 0, "count": 8})
    [entry] = loose_json(entries.body)["queueData"]
    [parked] = await client.read(SCHEDULE, 1)
    assert entry["tagsCode"] == parked.store_time + 5000
    assert (entry["physicOffset"], parked.properties["REAL_TOPIC"]) == (parked.physical, TOPIC)


@pytest.mark.usefixtures("hurry")
async def test_a_delay_beyond_the_last_level_is_the_last_level(client, shift):
    await client.sent(properties=properties_text(DELAY=99))
    assert await client.max_offset(SCHEDULE, 17) == 1
    shift.advance(2 * 3600)
    assert (await client.first()).properties["DELAY"] == "18"


@pytest.mark.parametrize("delay", ["soon", "1_0", "٣", " 1"])
async def test_a_delay_that_is_no_number_is_refused(client, delay):
    reply = await client.put(properties={"DELAY": delay})
    assert reply.code == 1
    assert "DELAY" in reply.remark


# The order of the checks (3.1)


async def test_the_checks_of_a_send_in_their_order(client):
    await client.create_topic()
    reply = await client.put(queue_id=4)
    assert (reply.code, reply.remark[:33]) == (1, "request queueId[4] is illegal, To")
    reply = await client.put(topic="U", queue_id=4, default_topic="missing")
    assert (reply.code, reply.remark[:18]) == (17, "topic[U] not exist")
    reply = await client.put(topic=SCHEDULE, queue_id=99)
    assert (reply.code, reply.remark) == (16, f"Sending message to topic[{SCHEDULE}] is forbidden.")
    later = int(time.time() * 1000) + 60_000
    assert (await client.configure(f"startAcceptSendRequestTimeStamp={later}")).code == 0
    for topic in (TOPIC, "a b"):
        reply = await client.put(topic=topic)
        assert (reply.code, reply.remark[:32]) == (1, "broker unable to service, until ")
        assert reply.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    await client.configure("startAcceptSendRequestTimeStamp=0")
    await client.sent()


async def test_nobody_answers_what_was_sent_one_way(client):
    for ext in (send_ext(), send_ext("a b"), send_ext(queue_id=99), {}):
        client.ask(310, ext, b"m", flag=2)
    client.ask(9999, flag=2)
    client.ask(11, flag=2)
    await client.first()
    assert await client.max_offset() == 1
    assert client.answered == {}


@pytest.mark.parametrize("batch", ["true", "TRUE"])
async def test_the_flag_and_not_the_code_makes_a_batch(client, batch):
    await client.sent(b"makes the topic")
    reply = await client.call(310, send_ext(m=batch), batch_body(b"1", b"2"))
    assert reply.code == 0
    assert [message.body for message in await client.read(offset=1)] == [b"1", b"2"]
