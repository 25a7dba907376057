from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pyromq.client.consumer.outcomes import ACK, Retry
from pyromq.client.consumer.received_message import ReceivedMessage
from pyromq.errors import RemoteProtocolError, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.ids import encode_host
from pyromq.protocol.message import MessageExt, MessageQueue, MessageRecord


def stored(**fields):
    properties = fields.pop("properties", {})
    values: dict[str, Any] = {"topic": "orders", "body": b"x", "queue_offset": 7, "physical_offset": 1000} | fields
    return MessageExt(MessageRecord(properties=props.encode(props.render(properties)), **values), "broker-a")


class Listening:
    def __init__(self):
        self.heard = []

    def settled(self, message):
        self.heard.append(message.mark)

    async def reply(self, message, body, timeout):
        raise NotImplementedError


def test_it_has_what_was_sent_and_where_it_lies():
    message = ReceivedMessage(
        stored(
            flag=3,
            born_timestamp=1_700_000_000_123,
            store_timestamp=0,
            born_host=encode_host("10.0.0.1", 99),
            store_host=encode_host("::1", 10911),
            properties={"TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "ID", "mine": "1"},
        )
    )
    assert (message.topic, message.body, message.tags, message.keys, message.flag) == (
        *("orders", b"x", "paid", ["a", "b"], 3),
    )
    assert message.properties["mine"] == "1"
    assert message.id == "ID"
    assert (message.offset, message.commit_offset) == (7, 1000)
    assert message.queue == MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert message.stored_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert message.born_host == "10.0.0.1:99"
    assert message.store_host == "[::1]:10911"


def test_without_an_id_of_its_sender_it_has_that_of_its_place():
    message = ReceivedMessage(stored())
    assert message.id == message.offset_id


def test_a_retry_has_the_topic_that_it_was_sent_to():
    retry = stored(topic="%RETRY%g", reconsume_times=2, properties={"RETRY_TOPIC": "orders"})
    message = ReceivedMessage(retry)
    assert (message.topic, message.queue.topic, message.reconsume_times) == ("orders", "%RETRY%g", 2)


def test_a_committed_transaction_has_an_id():
    assert ReceivedMessage(stored(properties={"TRAN_MSG": "true", "UNIQ_KEY": "ID"})).transaction_id == "ID"
    assert ReceivedMessage(stored()).transaction_id is None


def test_a_time_that_no_calendar_has_is_the_peers_mistake():
    with pytest.raises(RemoteProtocolError):
        _ = ReceivedMessage(stored(born_timestamp=2**62)).born_at


def test_the_first_word_stands():
    origin = Listening()
    message = ReceivedMessage(stored(), "orders", None, origin)
    message.retry(2)
    message.ack()
    assert message.mark == Retry(2)
    assert origin.heard == [Retry(2)]


def test_messages_of_one_batch_share_a_context_others_have_their_own():
    message = ReceivedMessage(stored())
    assert message.ctx is message.ctx
    assert message.ctx.auto_commit


async def test_of_a_message_that_nobody_delivered_nothing_can_be_said():
    message = ReceivedMessage(stored())
    for say in (message.ack, message.retry, message.dead_letter):
        with pytest.raises(StateError):
            say()
    with pytest.raises(StateError):
        await message.reply(b"answer")


def test_ack_marks_a_message_as_done():
    message = ReceivedMessage(stored(), "orders", None, Listening())
    message.ack()
    assert message.mark is ACK
