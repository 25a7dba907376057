from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyromq.client.consumer.received_message import ReceivedMessage
from pyromq.client.consumer.send_back import NEVER, UNLIMITED, SendBack
from pyromq.errors import ConnectFailed, ServerError
from pyromq.protocol import properties as props
from pyromq.protocol.message import MessageExt, MessageRecord


class Broker:
    """Takes back, or not, and remembers what it was asked."""

    def __init__(self, *, refuses=False):
        self.refuses = refuses
        self.asked = []

    async def send_back(self, address, header):
        self.asked.append((address, header))
        if self.refuses:
            raise ServerError("no")


class Sender:
    def __init__(self, *, fails=False):
        self.fails = fails
        self.sent = []

    async def send(self, topic, body, flag, properties):
        if self.fails:
            raise ConnectFailed("b")
        self.sent.append((topic, body, flag, properties))


def parts(*, refuses=False, fails=False, max_retries=16, master="10.0.0.9:1"):
    broker, sender = Broker(refuses=refuses), Sender(fails=fails)
    routes = SimpleNamespace(master=lambda name: master)
    client: Any = SimpleNamespace(calls=broker, routes=routes)
    outbox: Any = sender
    return SendBack(client, "g", outbox, max_retries), broker, sender


def received(times=0, topic="orders", **properties):
    record = MessageRecord(
        topic, b"body", props.encode(props.render(properties)), physical_offset=77, reconsume_times=times, flag=5
    )
    return ReceivedMessage(MessageExt(record, "broker-a"))


async def test_the_broker_that_has_it_takes_it_back():
    send_back, broker, sender = parts()
    assert await send_back.send(received(UNIQ_KEY="ID"), 4)
    ((address, header),) = broker.asked
    assert address == "10.0.0.9:1"
    assert (header.offset, header.group, header.delay_level, header.max_reconsume_times) == (77, "g", 4, 16)
    assert (header.origin_msg_id, header.origin_topic) == ("ID", "orders")
    assert not sender.sent


async def test_a_broker_without_a_known_address_is_asked_where_it_stored_the_message():
    send_back, broker, _ = parts(master=None)
    assert await send_back.send(received())
    assert broker.asked[0][0] == "0.0.0.0:0"


async def test_a_copy_says_where_it_comes_from_and_how_often_it_failed():
    send_back, _, sender = parts(refuses=True)
    message = received(2, UNIQ_KEY="ID", mine="1", TRAN_MSG="true", REAL_TOPIC="x", MIN_OFFSET="0")
    assert await send_back.send(message)
    ((topic, body, flag, properties),) = sender.sent
    assert (topic, body, flag) == ("%RETRY%g", b"body", 5)
    assert properties == {
        "UNIQ_KEY": "ID",
        "mine": "1",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }


async def test_a_copy_of_a_retry_keeps_its_origin_and_a_delay_that_was_asked_for_counts():
    send_back, _, sender = parts(refuses=True)
    retry = received(1, topic="%RETRY%g", RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="first", DELAY="3")
    assert await send_back.send(retry, 9)
    properties = sender.sent[0][3]
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"], properties["DELAY"]) == ("orders", "first", "9")


@pytest.mark.parametrize(("max_retries", "times"), [(3, 3), (3, 0), (0, 0), (3, 8), (UNLIMITED, 2)])
async def test_a_copy_that_is_to_be_a_dead_letter_failed_more_often_than_allowed(max_retries, times):
    send_back, _, sender = parts(refuses=True, max_retries=max_retries)
    assert await send_back.send(received(times), NEVER)
    properties = sender.sent[0][3]
    assert int(properties["RECONSUME_TIME"]) == times + 1 > int(properties["MAX_RECONSUME_TIMES"])


async def test_what_nobody_takes_is_told():
    send_back, _, _ = parts(refuses=True, fails=True)
    assert not await send_back.send(received())
