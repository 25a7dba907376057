"""Messages that wait for each other, with a sender that only notes what it is given."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.client.producer.linger import Linger
from pyromq.client.producer.outgoing import prepare
from pyromq.client.producer.send_result import SendResult, SendStatus
from pyromq.errors import RequestTimeout
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue(broker_name="a", queue_id=1, topic="T")
TARGET = cast("Any", SimpleNamespace(topic="T"))
FORM = cast("Any", SimpleNamespace(broker="a", queue_text="1"))


class NotingSender:
    def __init__(self):
        self.sent = []
        self.first = asyncio.Event()

    def start(self, outgoing, target, only, timeout, end):
        self.sent.append(SimpleNamespace(outgoing=outgoing, target=target, only=only, timeout=timeout, end=end))
        self.first.set()


@pytest.fixture
async def sender():
    return NotingSender()


def lingering(sender, seconds=60.0, **limits):
    return Linger(sender.start, seconds, **limits)


class Ended:
    def __init__(self):
        self.result: SendResult | None = None
        self.error: BaseException | None = None

    def __call__(self, result, error):
        self.result, self.error = result, error


def add(linger, body=b"x", target=TARGET, only=None, timeout=3.0, wait_store=True):
    end = Ended()
    message = Message("T", body, wait_store=wait_store)
    linger.add(prepare(message, 1 << 22), target, only, timeout, end, wait_store=wait_store)
    return end


async def test_messages_to_one_topic_leave_together_and_get_results_of_their_own(sender):
    linger = lingering(sender)
    ends = [add(linger, body) for body in (b"a", b"b", b"c")]
    assert sender.sent == []
    linger.send_all()
    (batch,) = sender.sent
    assert batch.outgoing.code == 320
    assert [item.body for item in decode_batch(batch.outgoing.body)] == [b"a", b"b", b"c"]
    batch.end(SendResult(SendStatus.SEND_OK, batch.outgoing.message_id, "P,Q,R", QUEUE, 40, region="hz"), None)
    results = [end.result for end in ends]
    assert [result.offset for result in results] == [40, 41, 42]
    assert [result.offset_id for result in results] == ["P", "Q", "R"]
    assert ",".join(result.id for result in results) == batch.outgoing.message_id
    assert {result.region for result in results} == {"hz"}


async def test_the_error_of_a_batch_is_that_of_each_message(sender):
    linger = lingering(sender)
    ends = [add(linger), add(linger)]
    linger.send_all()
    error = RequestTimeout("a:1", 320, 3)
    sender.sent[0].end(None, error)
    assert [end.error for end in ends] == [error, error]


async def test_a_batch_that_the_broker_keeps_undivided_has_one_place(sender):
    linger = lingering(sender)
    ends = [add(linger), add(linger)]
    linger.send_all()
    sender.sent[0].end(SendResult(SendStatus.SEND_OK, "id", "P", QUEUE, 40), None)
    assert [(end.result.offset_id, end.result.offset) for end in ends if end.result] == [("P", 40), ("P", 41)]


async def test_a_batch_leaves_when_its_time_has_come(sender):
    linger = lingering(sender, 0.001)
    add(linger)
    add(linger)
    async with asyncio.timeout(5):
        await sender.first.wait()
    assert len(sender.sent) == 1


async def test_a_batch_leaves_when_it_is_full(sender):
    linger = lingering(sender, max_bytes=1000)
    for _ in range(5):
        add(linger, b"x" * 300)
    assert [entry.outgoing.is_batch for entry in sender.sent] == [True, True]
    assert all(len(entry.outgoing.body) <= 1000 for entry in sender.sent)
    linger.send_all()
    assert len(sender.sent) == 3


async def test_a_single_message_leaves_as_what_it_is(sender):
    linger = lingering(sender)
    add(linger)
    linger.send_all()
    assert sender.sent[0].outgoing.code == 310


async def test_different_queues_topics_and_wait_flags_do_not_share_a_batch(sender):
    linger = lingering(sender)
    other = cast("Any", SimpleNamespace(topic="U"))
    for settings in ({}, {"only": FORM}, {"target": other}, {"wait_store": False}):
        add(linger, **cast("Any", settings))
        add(linger, **cast("Any", settings))
    linger.send_all()
    assert [entry.outgoing.is_batch for entry in sender.sent] == [True] * 4
    assert [entry.outgoing.properties for entry in sender.sent] == ["WAIT\x01true"] * 3 + ["WAIT\x01false"]
    assert [entry.only for entry in sender.sent] == [None, FORM, None, None]


async def test_what_waits_for_a_queue_can_be_let_go_first(sender):
    linger = lingering(sender)
    add(linger, only=FORM)
    add(linger)
    linger.send_waiting(TARGET, FORM)
    assert [entry.only for entry in sender.sent] == [FORM]
    linger.send_all()


async def test_a_batch_has_the_time_of_its_most_impatient_message(sender):
    linger = lingering(sender)
    add(linger, timeout=3.0)
    add(linger, timeout=1.0)
    linger.send_all()
    assert 0.5 < sender.sent[0].timeout <= 1.0
