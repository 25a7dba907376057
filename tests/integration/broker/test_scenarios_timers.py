"""Scenarios of docs/spec/broker.md 14, groups 4.4 to 4.6, and what else a broker does with messages that wait."""

from __future__ import annotations

import base64
import time

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.scene_kit import TOPIC, send_ext

TIMERS = "rmq_sys_wheel_timer"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
FINE = "timerPrecisionMs=100"
RECALL = "recallMessageEnable=true"


async def figures(client) -> dict[str, str]:
    table: dict[str, str] = (await client.call(28)).json["table"]
    return table


async def recall(client, handle, topic=TOPIC):
    return await client.call(370, {"producerGroup": "producers", "topic": topic, "recallHandle": handle})


@pytest.mark.slow
@pytest.mark.scenario("broker 4.4")
async def test_a_timer_is_delivered_in_its_time_and_not_before(client, shift):
    began = shift()
    reply = await client.sent(b"later", queue_id=2, properties={"TIMER_DELAY_SEC": 5, "TAGS": "A"})
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("2", "0")
    shift.advance(4)  # of the five; the rest is waited for
    message = await client.first(queue_id=2, subscription="A")
    assert 5_000 <= shift() - began <= 5_000 + 1000 * TOO_LONG
    assert message.body == b"later"
    assert int(message.properties["TIMER_OUT_MS"]) % 1000 == 0
    assert message.properties["REAL_TOPIC"] == TOPIC


@pytest.mark.scenario("broker 4.5")
async def test_a_timer_of_more_than_three_days_is_refused(client):
    reply = await client.put(properties={"TIMER_DELAY_SEC": 259_300})
    assert reply.code == 13
    assert "should not be bigger than the max delay 259200000ms" in reply.remark
    assert (reply.ext["MSG_REGION"], reply.ext["TRACE_ON"]) == ("DefaultRegion", "true")


@pytest.mark.scenario("broker 4.6")
async def test_a_recalled_timer_is_never_delivered(start, shift):
    async with start(RECALL) as scene:
        client = await scene.connect()
        sent = await client.sent(b"taken back", properties={"TIMER_DELAY_SEC": 10, "UNIQ_KEY": "AC1101"})
        await client.sent(b"kept", properties={"TIMER_DELAY_SEC": 11, "UNIQ_KEY": "AC1102"})
        handle = sent.ext["recallHandle"]
        version, topic, broker, _, key = base64.urlsafe_b64decode(handle).decode().split(" ")
        assert (version, topic, broker, key) == ("v1", TOPIC, "broker-a", "AC1101")
        shift.advance(1)
        other = await recall(client, handle, "broker-a")
        assert (other.code, other.remark) == (604, "recall failed, topic not match")
        reply = await recall(client, handle)
        assert (reply.code, reply.ext["msgId"]) == (0, "AC1101")
        shift.advance(11)
        assert (await client.first()).body == b"kept"
        assert await client.max_offset() == 1


async def test_recalls_are_refused_by_default(client):
    sent = await client.sent(properties={"TIMER_DELAY_SEC": 10, "UNIQ_KEY": "AC1101"})
    reply = await recall(client, sent.ext["recallHandle"])
    assert (reply.code, reply.remark) == (16, "recall failed, operation is forbidden")


async def test_nobody_may_send_to_the_timer_topic(client):
    reply = await client.put(topic=TIMERS)
    assert (reply.code, reply.remark) == (16, f"Sending message to topic[{TIMERS}] is forbidden.")
    await client.sent(properties={"TIMER_DELAY_SEC": 10})
    assert (await client.put(topic=TIMERS)).code == 16


async def test_timers_come_once_however_often_the_broker_stops(start, shift):
    async with start(FINE) as scene:
        client = await scene.connect()
        await client.sent(b"one", properties={"TIMER_DELAY_MS": 100})
        await client.sent(b"two", properties={"TIMER_DELAY_SEC": 3600})
        assert (await client.first()).body == b"one"
    async with start(FINE) as scene:
        client = await scene.connect()
        shift.advance(3601)
        assert (await client.first(offset=1)).body == b"two"
    async with start(FINE) as scene:
        client = await scene.connect()
        await client.sent(b"three", properties={"TIMER_DELAY_MS": 100})
        assert (await client.first(offset=2)).body == b"three"
        assert await client.max_offset() == 3


async def test_a_thousand_due_together_come_in_order_while_others_send(start, shift):
    async with start(FINE) as scene:
        client, other = await scene.connect(), await scene.connect()
        ext = send_ext(properties={"TIMER_DELAY_SEC": 10})
        asked = [client.ask(310, ext, b"%d" % number) for number in range(1000)]
        for opaque in asked:
            assert (await client.answer_to(opaque)).code == 0
        shift.advance(10)
        slowest = 0.0  # of the processor's time, which is the broker's and the client's; others may have it meanwhile
        while await client.max_offset() < 1000:
            began = time.process_time()
            await other.sent(topic="others")
            slowest = max(slowest, time.process_time() - began)
        assert slowest < 0.25
        bodies: list[bytes] = []
        while len(bodies) < 1000:
            bodies += [message.body for message in await client.read(offset=len(bodies))]
        assert bodies == [b"%d" % number for number in range(1000)]


async def test_the_overview_tells_of_timers(start, shift):
    async with start(FINE) as scene:
        client = await scene.connect()
        await client.sent(properties={"TIMER_DELAY_SEC": 60})

        async def waits():
            table = await figures(client)
            return (table["timerCongestNum"], table["timerOffsetBehind"]) == ("1", "0")

        await client.until(waits)
        shift.advance(61)
        await client.first()
        table = await figures(client)
        assert (table["timerCongestNum"], table["timerReadBehind"]) == ("0", "0")
        assert float(table["timerDequeueTps"]) >= 0


# Delay levels


@pytest.mark.usefixtures("hurry")
async def test_delayed_messages_count_where_they_wait_and_where_they_go(client, shift):
    await client.sent(properties={"DELAY": 3})
    shift.advance(10)
    await client.first()

    async def total(item, key):
        reply = await client.call(315, {"statsName": item, "statsKey": key})
        return reply.json["statsMinute"]["sum"] if reply.code == 0 else None

    async def counted():
        shift.advance(10)
        return await total("TOPIC_PUT_NUMS", TOPIC)

    assert await client.until(counted) == 1
    assert await total("TOPIC_PUT_NUMS", SCHEDULE) == 1
    assert await total("QUEUE_PUT_NUMS", f"{SCHEDULE}@2") == 1
    assert await total("QUEUE_GET_NUMS", f"{SCHEDULE}@2@SCHEDULE_CONSUMER") == 1
    assert await total("GROUP_GET_NUMS", f"{SCHEDULE}@SCHEDULE_CONSUMER") == 1
    assert await total("BROKER_PUT_NUMS", "DefaultCluster") == 2
