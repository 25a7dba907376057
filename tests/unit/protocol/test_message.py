from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from pyromq.errors import CorruptRecord, LocalProtocolError
from pyromq.protocol import compression, ids, properties, sysflag
from pyromq.protocol.message import Message, MessageExt, MessageQueue, MessageRecord

STORE = ids.encode_host("10.0.0.1", 10911)
UNIQ_KEY = "C0A8010A04D218B4AAC247B760000001"


def queue(broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic="orders", broker_name=broker_name, queue_id=queue_id)


def received(topic: str = "orders", body: bytes = b"Hello", *, sys_flag: int = 0, **props: str) -> MessageExt:
    raw = properties.encode(properties.render(props))
    record = MessageRecord(topic, body, raw, queue_id=2, queue_offset=5, sys_flag=sys_flag, store_host=STORE)
    return MessageExt(record, "broker-a")


def test_queues_of_a_topic_are_ordered_by_broker_then_id():
    queues = [queue("broker-a", 2), queue("broker-a", 10), queue("broker-b", 0)]
    shuffled = [queues[2], queues[0], queues[1]]
    assert sorted(shuffled) == queues
    assert len({*queues, queue("broker-a", 2)}) == 3


def test_a_queue_has_the_text_and_the_json_that_java_has():
    assert str(queue("broker-a", 2)) == "MessageQueue [topic=orders, brokerName=broker-a, queueId=2]"
    assert msgspec.json.encode(queue("broker-a", 2)) == b'{"brokerName":"broker-a","queueId":2,"topic":"orders"}'


def test_a_plain_message_asks_to_wait_for_the_store():
    assert Message("orders", b"x").wire_properties() == {"WAIT": "true"}
    assert Message("orders", b"x", wait_store=False).wire_properties() == {"WAIT": "false"}


def test_the_fields_of_a_message_become_properties():
    message = Message(
        "orders", b"x", tags="a", keys=["k1", "k2"], properties={"colour": "red"}, delay_level=3, shard_key="s"
    )
    assert message.wire_properties() == {
        "colour": "red",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "s",
        "WAIT": "true",
        "DELAY": "3",
    }
    assert message.properties == {"colour": "red"}


def test_keys_may_be_given_as_one_text():
    assert Message("orders", b"x", keys="k1 k2").wire_properties()["KEYS"] == "k1 k2"
    assert "KEYS" not in Message("orders", b"x", keys="").wire_properties()


def test_a_delay_and_a_time_of_delivery_are_kept_to_the_millisecond():
    assert Message("t", b"x", delay=timedelta(seconds=1.5)).wire_properties()["TIMER_DELAY_MS"] == "1500"
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert Message("t", b"x", deliver_at=at).wire_properties()["TIMER_DELIVER_MS"] == "1700000000123"


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"x", delay_level=1, delay=timedelta(seconds=1)),
        Message("t", b"x", delay=timedelta(seconds=1), deliver_at=datetime(2030, 1, 1, tzinfo=UTC)),
        Message("t", b"x", deliver_at=datetime(2030, 1, 1)),  # noqa: DTZ001  the missing zone is the point
    ],
)
def test_a_delivery_time_that_is_not_clear_is_refused(message):
    with pytest.raises(LocalProtocolError):
        message.wire_properties()


def test_a_consumer_sees_tags_keys_and_place():
    message = received(TAGS="a", KEYS="k1  k2", colour="red")
    assert message.tags == "a"
    assert message.keys == ["k1", "k2"]
    assert message.properties["colour"] == "red"
    assert message.queue == queue("broker-a", 2)
    assert (message.queue_id, message.queue_offset, message.reconsume_times) == (2, 5, 0)
    assert (message.born_timestamp, message.store_timestamp) == (0, 0)
    assert repr(message) == "<MessageExt 0A00000100002A9F0000000000000000 at orders/2:5>"


def test_a_message_without_properties_has_none():
    message = received()
    assert message.tags is None
    assert message.keys == []
    assert message.properties == {}
    assert message.transaction_id is None


def test_the_id_is_the_producers_or_else_the_place():
    assert received(UNIQ_KEY=UNIQ_KEY).msg_id == UNIQ_KEY
    assert received().msg_id == received().offset_msg_id == "0A00000100002A9F0000000000000000"


def test_a_transactional_message_has_the_id_of_its_transaction():
    assert received(UNIQ_KEY=UNIQ_KEY, TRAN_MSG="true").transaction_id == UNIQ_KEY
    assert received(UNIQ_KEY=UNIQ_KEY, TRAN_MSG="false").transaction_id is None


@pytest.mark.parametrize(
    ("topic", "props", "real"),
    [
        ("orders", {}, "orders"),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "orders"}, "orders"),
        ("%RETRY%g", {"RETRY_TOPIC": "orders", "REAL_TOPIC": "%RETRY%g"}, "orders"),
        ("%DLQ%g", {"RETRY_TOPIC": "orders"}, "orders"),
    ],
)
def test_the_real_topic_is_where_the_producer_sent_it(topic, props, real):
    assert received(topic, **props).real_topic == real


def test_the_body_is_decompressed_once_when_asked_for():
    packed = compression.compress(b"Hello" * 1000, sysflag.ZLIB)
    message = received(body=packed, sys_flag=sysflag.with_compression(0, sysflag.ZLIB))
    assert message.body == b"Hello" * 1000
    assert message.body is message.body
    assert message.record.body is packed


def test_a_body_that_cannot_be_decompressed_spoils_only_itself():
    message = received(body=b"no zlib", sys_flag=sysflag.COMPRESSED, TAGS="a")
    assert message.tags == "a"
    with pytest.raises(CorruptRecord):
        _ = message.body


def test_what_a_consumer_adds_to_the_properties_stays():
    message = received(TAGS="a")
    message.properties["MIN_OFFSET"] = "1"
    assert message.properties == {"TAGS": "a", "MIN_OFFSET": "1"}
