"""Where a dead letter came from, and what is sent of it once more."""

from __future__ import annotations

from pyromq.admin.messages.dead_letters import dead_letter_topic, origin_id, origin_topic, sent_again
from pyromq.protocol import properties as props
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import MessageRecord


def letter(**properties):
    text = props.render(properties)
    return MessageExt(MessageRecord("%DLQ%billing", b"body", text.encode(), flag=3))


def test_the_topic_that_a_consumer_gave_it_back_from_is_where_it_came_from():
    assert origin_topic(letter(RETRY_TOPIC="orders")) == "orders"
    assert origin_topic(letter(RETRY_TOPIC="%RETRY%billing", DLQ_ORIGIN_TOPIC="orders")) == "orders"
    assert origin_topic(letter(DLQ_ORIGIN_TOPIC="%RETRY%billing")) is None
    assert origin_topic(letter()) is None


def test_the_id_of_its_sender_comes_first():
    assert origin_id(letter(UNIQ_KEY="U", ORIGIN_MESSAGE_ID="O")) == "U"
    assert origin_id(letter(ORIGIN_MESSAGE_ID="O")) == "O"
    assert origin_id(letter()) == letter().offset_msg_id


def test_what_the_sender_said_is_sent_again_and_what_brokers_added_is_not():
    properties = {
        "UNIQ_KEY": "U", "TAGS": "red", "KEYS": "a b", "region": "eu", "RETRY_TOPIC": "orders", "DELAY": "3",
        "MIN_OFFSET": "0", "__SHARDINGKEY": "s1", "RECONSUME_TIME": "16", "ORIGIN_GROUP": "billing", "CLUSTER": "c",
    }  # fmt: skip
    message = sent_again(letter(**properties), "orders")
    assert (message.topic, message.body, message.flag) == ("orders", b"body", 3)
    assert (message.tags, list(message.keys), message.shard_key) == ("red", ["a", "b"], "s1")
    assert message.properties == {"region": "eu", "REPLAY_OF": "U"}
    assert message.delay_level == 0


def test_a_group_may_be_named_by_its_topic():
    assert dead_letter_topic("billing") == dead_letter_topic("%DLQ%billing") == "%DLQ%billing"
