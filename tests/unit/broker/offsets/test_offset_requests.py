"""Requests about offsets, answered by the real tables and a real store; the connection is only a name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.message_kit import assembled

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.offsets.consumer_offsets import NOTHING_TO_CORRECT
from pyromq.errors import MissingField, QueryNotFound
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, TopicConfig
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

NOW = 1_700_000_000_000
LIVE = LiveConfig.of(BrokerConfig(broker_name="broker-a"))


class Peer:
    peer = "10.0.0.1:5000"


PEER: Any = Peer()  # all that a processor looks at


class Broker:
    """All that these requests need, and a clock to store messages by."""

    def __init__(self, root, memory=1 << 30):
        self.now = NOW
        config = StoreConfig(
            root=str(root), commit_log_file_size=4096, consume_queue_file_size=400, hash_slots=10, index_entries=40
        )
        self.store = MessageStore(config, clock=lambda: self.now / 1000, memory=memory)
        self.store.open()
        parts = assembled(LIVE, self.store, lambda: NOW)
        self.topics, self.clients, self.offsets = parts.tables.topics, parts.tables.clients, parts.tables.offsets
        self.topics.update(TopicConfig(topic_name="T"))
        self.table = parts.processors

    def ask(self, code, **fields):
        ext = {name: str(value) for name, value in fields.items()}
        return self.table[code](PEER, Command(code=code, opaque=7, ext=ext))

    def offset(self, code, **fields):
        reply = self.ask(code, **fields)
        assert (reply.code, reply.opaque) == (0, 7)
        return int(reply.ext["offset"])

    def put(self, topic="T", queue_id=0, count=1, body=b"hello"):
        queue = self.store.queue(topic, queue_id)
        records = [MessageRecord(topic, body, queue_id=queue_id)] * count
        self.store.put([(queue, [record]) for record in records])
        return queue


@pytest.fixture
async def broker(tmp_path):
    broker = Broker(tmp_path)
    yield broker
    broker.store.close()


def body(reply):
    assert reply.code == 0
    return fastjson.loads(reply.body_bytes)


# Committed offsets: 14, 15, 43


async def test_an_offset_that_was_committed_is_answered(broker):
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=1, commitOffset=12)
    assert broker.offset(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=1) == 12


@pytest.mark.scenario("broker 9.3")
async def test_a_smaller_offset_is_taken_too(broker):
    for offset in (10, 4):
        reply = broker.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=offset)
        assert (reply.code, reply.ext) == (0, None)
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=0) == 4


@pytest.mark.scenario("broker 9.1")
async def test_a_new_group_begins_with_the_first_of_a_few_recent_messages(broker):
    broker.put(count=10)
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=0) == 0


async def test_a_new_group_begins_at_zero_of_a_queue_that_is_empty_or_does_not_exist(broker):
    broker.store.queue("T", 0)
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=0) == 0
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=1) == 0
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=-1) == 0
    assert broker.store.queues.find("T", 1) is None


@pytest.mark.scenario("broker 9.2")
async def test_a_new_group_finds_nothing_once_the_first_messages_are_deleted(broker):
    queue = broker.put(count=10, body=bytes(1000))
    segment = broker.store.log.drop_oldest()
    segment.delete()
    queue.correct_min(broker.store.log.start)
    assert queue.min_offset > 0
    with pytest.raises(QueryNotFound) as refused:
        broker.ask(14, consumerGroup="g", topic="T", queueId=0)
    assert refused.value.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_a_new_group_finds_nothing_in_a_queue_whose_first_message_is_not_in_memory_any_more(tmp_path):
    broker = Broker(tmp_path, memory=0)
    broker.put(count=3)
    with pytest.raises(QueryNotFound):
        broker.ask(14, consumerGroup="g", topic="T", queueId=0)
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=1) == 0
    broker.store.close()


async def test_who_does_not_want_a_zero_gets_none(broker):
    broker.put()
    with pytest.raises(QueryNotFound) as refused:
        broker.ask(14, consumerGroup="g", topic="T", queueId=0, setZeroIfNotFound="false")
    assert refused.value.remark == "Not found, do not set to zero, maybe this group boot first"
    assert broker.offset(14, consumerGroup="g", topic="T", queueId=0, setZeroIfNotFound="true") == 0


async def test_a_negative_offset_counts_as_none(broker):
    broker.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=-1)
    with pytest.raises(QueryNotFound):
        broker.ask(14, consumerGroup="g", topic="T", queueId=0, setZeroIfNotFound="false")


@pytest.mark.parametrize(
    ("code", "fields", "missing"),
    [
        (14, {"consumerGroup": "g", "topic": "T"}, "queueId"),
        (14, {"consumerGroup": "g", "topic": "T", "queueId": "1.0"}, "queueId"),
        (15, {"consumerGroup": "g", "topic": "T", "queueId": 0}, "commitOffset"),
        (15, {"topic": "T", "queueId": 0, "commitOffset": 1}, "consumerGroup"),
        (29, {"topic": "T", "queueId": 0}, "timestamp"),
        (30, {"queueId": 0}, "topic"),
        (31, {"topic": "T"}, "queueId"),
        (32, {"topic": "T"}, "queueId"),
        (308, {"topic": "T"}, "compareGroup"),
        (314, {"srcGroup": "g"}, "destGroup"),
    ],
)
async def test_a_request_without_a_field_that_it_needs_says_which(broker, code, fields, missing):
    with pytest.raises(MissingField) as refused:
        broker.ask(code, **fields)
    assert refused.value.field == missing
    assert not broker.offsets.dirty


async def test_all_offsets_are_the_content_of_their_file_with_a_version(broker):
    broker.ask(15, consumerGroup="g", topic="T", queueId=0, commitOffset=5)
    broker.ask(15, consumerGroup="g", topic="T", queueId=1, commitOffset=6)
    reply = await broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    version = b'"dataVersion":{"counter":0,"timestamp":0}'
    assert reply.body_bytes == b"{" + version + b',"offsetTable":{"T@g":{"0":5,"1":6}}}'


# Queues: 29 to 32


async def test_the_ends_of_a_queue(broker):
    queue = broker.put(count=10, body=bytes(1000))
    broker.store.log.drop_oldest().delete()
    queue.correct_min(broker.store.log.start)
    assert broker.offset(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0) == 10
    assert broker.offset(RequestCode.GET_MIN_OFFSET, topic="T", queueId=0) == queue.min_offset > 0


async def test_a_queue_that_does_not_exist_has_its_ends_at_zero_and_does_not_come_to_be(broker):
    assert broker.offset(30, topic="T", queueId=0, committed="true") == 0
    assert broker.offset(31, topic="T", queueId=0) == 0
    assert broker.offset(29, topic="T", queueId=0, timestamp=NOW) == 0
    assert broker.ask(32, topic="T", queueId=0).ext == {"timestamp": "-1"}
    assert broker.store.queues.find("T", 0) is None


async def test_the_earliest_store_time_is_that_of_the_first_message(broker):
    broker.store.queue("T", 1)
    broker.put()
    broker.now += 1000
    broker.put()
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert broker.ask(code, topic="T", queueId=0).ext == {"timestamp": str(NOW)}
    assert broker.ask(code, topic="T", queueId=1).ext == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("boundary", "at", "offset"),
    [
        (None, 2, 3),
        (None, 1, 0),
        (None, 3, 3),
        (None, 0, 0),
        (None, 9, 5),
        ("LOWER", 2, 3),
        ("nonsense", 2, 3),
        ("UPPER", 2, 2),
        ("upper", 1, 2),
        ("UPPER", 3, 4),
        ("UPPER", 0, 0),
        ("UPPER", 9, 4),
    ],
)
async def test_an_offset_is_searched_by_time(broker, boundary, at, offset):
    for seconds in (1, 1, 1, 3, 3):
        broker.now = NOW + seconds * 1000
        broker.put()
    fields = {"topic": "T", "queueId": 0, "timestamp": NOW + at * 1000}
    if boundary is not None:
        fields["boundaryType"] = boundary
    assert broker.offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields) == offset


# Corrections: 308


async def test_corrections_leave_out_groups_that_are_named_and_offsets_that_are_gone(broker):
    queue = broker.put(count=10, body=bytes(1000))
    broker.store.log.drop_oldest().delete()
    queue.correct_min(broker.store.log.start)
    for group, offset in (("gone", 0), ("a", 8), ("b", 9), ("ignored", 7), ("also", 7)):
        broker.offsets.commit(group, "T", 0, offset)
    broker.offsets.commit("a", "T", 1, 3)
    reply = broker.ask(RequestCode.QUERY_CORRECTION_OFFSET, topic="T", compareGroup="none", filterGroups="ignored,also")
    assert reply.body_bytes == b'{"correctionOffsets":{"0":8,"1":3}}'
    reply = broker.ask(308, topic="T", compareGroup="ignored", filterGroups="ignored,also")
    assert body(reply) == {"correctionOffsets": {"0": NOTHING_TO_CORRECT, "1": 3}}
    assert body(broker.ask(308, topic="U", compareGroup="a")) == {"correctionOffsets": {}}


# Clones: 314


@pytest.fixture
async def source(broker):
    """A group with offsets in three topics, one of which was deleted."""
    for topic in ("T", "U"):
        broker.topics.update(TopicConfig(topic_name=topic))
    for topic in ("T", "U", "deleted"):
        broker.offsets.commit("source", topic, 0, 5)
    return broker


def clone(broker, **fields):
    reply = broker.ask(RequestCode.CLONE_GROUP_OFFSET, srcGroup="source", destGroup="target", **fields)
    assert reply.code == 0
    return sorted(broker.offsets.topics_of("target"))


def subscribe(broker, *topics):
    subscriptions = [SubscriptionData(topic=topic) for topic in topics]
    consumer = ConsumerData(group_name="source", subscription_data_set=subscriptions)
    broker.clients.heartbeat(PEER, HeartbeatData(client_id="c", consumer_data_set=[consumer]), NOW)


async def test_the_offsets_of_one_topic_are_cloned(source):
    assert clone(source, topic="T") == ["T"]
    assert source.offsets.get("target", "T", 0) == 5


@pytest.mark.parametrize("fields", [{}, {"topic": ""}, {"topic": " "}])
async def test_without_a_topic_those_of_all_topics_that_exist_are_cloned(source, fields):
    assert clone(source, **fields) == ["T", "U"]


async def test_a_topic_that_the_online_group_does_not_subscribe_is_left_out(source):
    subscribe(source, "U")
    assert clone(source) == ["U"]
    assert clone(source, topic="T") == ["U"]


async def test_a_clone_for_offline_use_does_not_look_at_subscriptions(source):
    subscribe(source, "U")
    assert clone(source, offline="true") == ["T", "U"]


async def test_a_group_without_offsets_has_nothing_to_clone(broker):
    assert clone(broker) == []
    assert not broker.offsets.dirty
