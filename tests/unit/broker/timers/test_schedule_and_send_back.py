"""Delayed messages come back when they are due, and messages that were sent back come again, later each time."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from tests.unit.broker.message_kit import Parts, Peer, request

from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.bodies.offsets import DelayOffsetTable
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.headers import ConsumerSendMessageBack
from pyromq.protocol.record import MessageRecord
from pyromq.store import PutStatus


@pytest.fixture
async def parts(tmp_path):
    made = Parts(tmp_path)
    made.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.close()


async def deliver(parts: Parts) -> None:
    """Let the schedule do all there is to do at this time."""
    for _ in range(50):
        more = parts.schedule.step()
        await asyncio.sleep(0)
        if not more and not parts.schedule._under_way:
            break


async def test_a_delayed_message_is_delivered_when_its_time_has_come_and_not_before(parts):
    await parts.send(b"later", "DELAY\x013\x02TAGS\x01A", queue_id=2)
    parts.now += 9_999
    await deliver(parts)
    assert parts.messages("orders", 2) == []
    parts.now += 1
    await deliver(parts)
    (delivered,) = parts.messages("orders", 2)
    assert delivered.body == b"later"
    assert delivered.find_property("TAGS") == "A"
    assert parts.schedule.offsets == {3: 1}
    await deliver(parts)
    assert len(parts.messages("orders", 2)) == 1


async def test_levels_do_not_wait_for_each_other(parts):
    await parts.send(b"long", "DELAY\x015")
    await parts.send(b"short", "DELAY\x011")
    parts.now += 1_000
    await deliver(parts)
    assert [record.body for record in parts.messages("orders", 0)] == [b"short"]


async def test_many_that_fall_due_together_are_delivered_in_order(parts):
    for number in range(200):
        await parts.send(b"%d" % number, "DELAY\x011")
    parts.now += 1_000
    await deliver(parts)
    assert [record.body for record in parts.messages("orders", 0)] == [b"%d" % number for number in range(200)]
    assert parts.schedule.offsets == {1: 200}


async def test_a_clock_that_was_set_back_does_not_delay_for_longer(parts):
    await parts.send(b"later", "DELAY\x012")
    parts.now -= 3_600_000
    await deliver(parts)
    assert [record.body for record in parts.messages("orders", 0)] == [b"later"]


async def test_a_level_does_not_move_on_past_a_message_that_was_not_stored(parts):
    await parts.send(b"later", "DELAY\x011")
    parts.now += 1_000
    parts.store.refusals["disk"] = "the disk is nearly full"
    await deliver(parts)
    assert parts.schedule.offsets == {}
    del parts.store.refusals["disk"]
    await deliver(parts)
    assert [record.body for record in parts.messages("orders", 0)] == [b"later"]


async def test_a_message_that_has_become_too_long_is_delivered_all_the_same(parts):
    await parts.send(b"x" * 1000, "DELAY\x011")
    await parts.send(b"small", "DELAY\x011")
    parts.store.reconfigure(dataclasses.replace(parts.store.config, max_message_size=100))
    parts.now += 1_000
    await deliver(parts)
    assert sorted(len(record.body) for record in parts.messages("orders", 0)) == [5, 1000]
    assert parts.schedule.offsets == {1: 2}
    [refused] = parts.store.put([(parts.store.queue("orders", 0), [MessageRecord("orders", bytes(1000))])])
    assert refused.status is PutStatus.MESSAGE_ILLEGAL


async def test_where_the_levels_are_survives_a_restart(parts):
    await parts.send(b"one", "DELAY\x011")
    parts.now += 1_000
    await deliver(parts)
    saved = DelayOffsetTable.decode(parts.schedule.snapshot().encode())
    parts.schedule.load(saved)
    await deliver(parts)
    assert len(parts.messages("orders", 0)) == 1


def send_back(offset: int, **fields: Any):
    values: dict[str, Any] = {"offset": offset, "group": "billing", "delay_level": 0} | fields
    return request(36, ConsumerSendMessageBack(**values))


async def test_a_message_sent_back_comes_again_through_the_retry_topic(parts):
    await parts.send(b"hard", "TAGS\x01A")
    (original,) = parts.messages("orders", 0)
    assert (await parts.ask(Peer(), send_back(original.physical_offset))).code == 0
    parts.now += 10_000  # the third level
    await deliver(parts)
    (again,) = parts.messages("%RETRY%billing", 0)
    assert again.body == b"hard"
    assert again.reconsume_times == 1
    assert again.find_property("RETRY_TOPIC") == "orders"
    assert again.find_property("ORIGIN_MESSAGE_ID") == original.offset_msg_id

    assert (await parts.ask(Peer(), send_back(again.physical_offset))).code == 0
    parts.now += 30_000  # one level more
    await deliver(parts)
    twice = parts.messages("%RETRY%billing", 0)[1]
    assert twice.reconsume_times == 2
    assert twice.find_property("RETRY_TOPIC") == "orders"
    assert twice.find_property("ORIGIN_MESSAGE_ID") == original.offset_msg_id


async def test_a_message_sent_back_too_often_or_for_good_is_a_dead_letter(parts):
    await parts.send(b"hopeless")
    (original,) = parts.messages("orders", 0)
    for fields in ({"max_reconsume_times": 0}, {"delay_level": -1}):
        assert (await parts.ask(Peer(), send_back(original.physical_offset, **fields))).code == 0
    dead = parts.messages("%DLQ%billing", 0)
    assert [record.body for record in dead] == [b"hopeless"] * 2
    assert dead[0].reconsume_times == 1


async def test_a_group_without_retry_queues_gets_nothing_back(parts):
    parts.groups.update(SubscriptionGroupConfig(group_name="billing", retry_queue_nums=0))
    assert (await parts.ask(Peer(), send_back(0))).code == 0
    assert parts.topics.get("%RETRY%billing") is None


async def test_sending_back_what_is_not_there_is_refused(parts):
    await parts.send(b"x")
    reply = await parts.ask(Peer(), send_back(7))
    assert (reply.code, reply.remark) == (1, "look message by offset failed, 7")
