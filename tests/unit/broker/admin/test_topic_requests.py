"""Requests about topics and groups, answered by the real tables; the connection is only a name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pyromq.broker.admin.topic_requests import ConsumptionProcessors, GroupProcessors, TopicProcessors
from pyromq.broker.clients.connected import Clients
from pyromq.broker.config import BrokerConfig, BrokerRole, LiveConfig
from pyromq.broker.context import Tables
from pyromq.broker.filters.consumer_filters import Filters
from pyromq.broker.groups import GroupTable
from pyromq.broker.kept_files import BrokerState
from pyromq.broker.offsets.consumer_offsets import ConsumerOffsets
from pyromq.broker.topics import TopicTable
from pyromq.errors import MissingField, RemoteProtocolError, ServerError, SubscriptionGroupNotExist, TopicNotFound
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicFilterType,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, StoreConfig

NOW = 1_700_000_000_000
MAX_QUEUES = BrokerConfig().max_queues_per_topic
SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
ORDERS = {"topic": "orders", "readQueueNums": 4, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}


class Peer:
    peer = "10.0.0.1:5000"


PEER: Any = Peer()  # all that a processor looks at


class Broker:
    """The tables with their files, and all processors of this module. Notes what happened in which order."""

    def __init__(self, root, **changes):
        self.root = root
        live = LiveConfig.of(BrokerConfig(broker_name="broker-a", **changes))
        self.topics = TopicTable(live, lambda: NOW)
        self.groups = GroupTable(live, lambda: NOW)
        self.offsets = ConsumerOffsets()
        self.clients = Clients(lambda group, connections: None)
        self.state = BrokerState(root, live, self.topics, self.groups, self.offsets)
        self.settled = 0
        self.queues_deleted: list[str] = []
        topics = TopicProcessors(
            self.topics,
            live,
            settled=self.settle,
            delete_queues=self.queues_deleted.append,
            deleted=dict,
        )
        groups = GroupProcessors(self.groups, self.offsets, live, saved=self.state.groups.saved)
        tables = Tables(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            filters=Filters(live, lambda: NOW),
            clients=self.clients,
        )
        consumption = ConsumptionProcessors(tables, "192.0.2.1:10911")
        self.table = topics.table() | groups.table() | consumption.table()

    async def settle(self):
        await self.state.topics.saved()
        self.settled += 1

    async def ask(self, code, body=None, **fields):
        ext = {name: str(value) for name, value in fields.items()}
        reply: Any = self.table[code](PEER, Command(code=code, opaque=7, ext=ext, body=body))
        if inspect.isawaitable(reply):
            reply = await reply
        assert (reply.code, reply.opaque, reply.remark) == (0, 7, None)
        return reply

    async def refusal(self, error, code, body=None, **fields):
        with pytest.raises(error) as refused:
            await self.ask(code, body, **fields)
        return refused.value.remark

    def saved(self, name):
        return fastjson.loads((self.root / "config" / name).read_bytes())


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def content(reply):
    return fastjson.loads(reply.body_bytes)


# Topics: 17


async def test_an_operator_makes_a_topic_which_is_saved_and_registered_before_the_answer(broker):
    await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **ORDERS)
    assert broker.topics.get("orders") == TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=2)
    assert broker.saved("topics.json")["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    assert broker.settled == 1


async def test_an_operator_replaces_a_whole_topic(broker):
    await broker.ask(17, **ORDERS | {"topicSysFlag": 1})
    await broker.ask(17, **ORDERS | {"perm": 4, "topicFilterType": "MULTI_TAG"})
    assert broker.topics.get("orders") == TopicConfig(
        topic_name="orders",
        read_queue_nums=4,
        write_queue_nums=2,
        perm=4,
        topic_filter_type=TopicFilterType.MULTI_TAG,
    )
    assert broker.topics.data_version.counter == 2


async def test_queue_numbers_and_perm_may_be_strange(broker):
    await broker.ask(17, **ORDERS | {"readQueueNums": -1, "writeQueueNums": 0, "perm": 99})
    made = broker.topics.get("orders")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (-1, 0, 99)


async def test_a_topic_that_would_stop_the_broker_is_refused(broker):
    for name in ("readQueueNums", "writeQueueNums"):
        remark = await broker.refusal(ServerError, 17, **ORDERS | {name: MAX_QUEUES + 1})
        assert remark == f"The topic[orders] can have at most {MAX_QUEUES} queues (maxQueuesPerTopic)."
    await broker.ask(17, **ORDERS | {"readQueueNums": MAX_QUEUES})


async def test_order_and_attributes_stay_as_they_are(broker):
    broker.topics.update(TopicConfig(topic_name="orders", order=True, attributes={"message.type": "FIFO"}))
    await broker.ask(17, **ORDERS | {"order": "false"})
    assert broker.topics.get("orders").order
    assert broker.topics.get("orders").attributes == {"message.type": "FIFO"}
    await broker.ask(17, **ORDERS | {"topic": "new", "order": "true"})
    assert not broker.topics.get("new").order


@pytest.mark.scenario("broker 2.6")
@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_x", "DefaultCluster"])
@pytest.mark.parametrize("code", [17, 215])
async def test_a_system_topic_cannot_be_changed_or_deleted(broker, code, name):
    before = broker.topics.snapshot()
    remark = await broker.refusal(ServerError, code, **ORDERS | {"topic": name})
    assert remark == f"The topic[{name}] is conflict with system topic."
    assert broker.topics.snapshot() == before
    assert broker.queues_deleted == []


@pytest.mark.parametrize("code", [17, 215])
async def test_a_topic_needs_a_name_that_is_allowed(broker, code):
    assert await broker.refusal(ServerError, code, **ORDERS | {"topic": ""}) == "The specified topic is blank."
    assert "illegal characters" in await broker.refusal(ServerError, code, **ORDERS | {"topic": "../x"})
    assert "longer than" in await broker.refusal(ServerError, code, **ORDERS | {"topic": "a" * 128})
    assert broker.queues_deleted == []


@pytest.mark.parametrize("missing", ["topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType"])
async def test_a_request_for_a_topic_says_what_it_lacks(broker, missing):
    with pytest.raises(MissingField) as refused:
        await broker.ask(17, **{name: value for name, value in ORDERS.items() if name != missing})
    assert refused.value.field == missing
    assert "orders" not in broker.topics


async def test_a_filter_type_that_does_not_exist_is_refused(broker):
    remark = await broker.refusal(ServerError, 17, **ORDERS | {"topicFilterType": "NO_TAG"})
    assert remark == "topicFilterType = [NO_TAG] value invalid"
    assert "orders" not in broker.topics


async def test_a_slave_changes_nothing(tmp_path):
    broker = Broker(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1)
    broker.topics.update(TopicConfig(topic_name="orders"))
    version = broker.topics.data_version
    body = SubscriptionGroupConfig(group_name="g").encode()
    assert await broker.refusal(ServerError, 17, **ORDERS) == SLAVE
    assert await broker.refusal(ServerError, 215, topic="orders") == SLAVE
    assert await broker.refusal(ServerError, 200, body) == SLAVE
    assert await broker.refusal(ServerError, 207, groupName="TOOLS_CONSUMER") == SLAVE
    assert broker.topics.data_version == version
    assert "g" not in broker.groups
    assert "TOOLS_CONSUMER" in broker.groups


# Topics: 215


async def test_a_deleted_topic_is_gone_with_its_queues_but_its_offsets_stay(broker):
    broker.topics.update(TopicConfig(topic_name="orders"))
    broker.offsets.commit("g", "orders", 0, 5)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
    assert "orders" not in broker.topics
    assert "orders" not in broker.saved("topics.json")["topicConfigTable"]
    assert broker.queues_deleted == ["orders"]
    assert broker.offsets.get("g", "orders", 0) == 5
    assert broker.settled == 1


async def test_a_topic_that_does_not_exist_can_be_deleted(broker):
    version = broker.topics.data_version
    await broker.ask(215, topic="orders")
    assert broker.topics.data_version == version
    assert broker.queues_deleted == ["orders"]


@pytest.mark.scenario("broker 12.4")
async def test_a_topic_that_is_made_again_begins_at_zero_and_old_offsets_remain(tmp_path):
    broker = Broker(tmp_path)
    config = StoreConfig(
        root=str(tmp_path), commit_log_file_size=4096, consume_queue_file_size=400, hash_slots=10, index_entries=40
    )
    with MessageStore(config) as store:
        processors = TopicProcessors(
            broker.topics,
            LiveConfig.of(BrokerConfig()),
            settled=broker.settle,
            delete_queues=store.queues.delete_topic,
            deleted=lambda: store.deleted_topics,
        )
        broker.table |= processors.table()
        await broker.ask(17, **ORDERS)
        store.put([(store.queue("orders", 0), [MessageRecord("orders", b"hello")])])
        broker.offsets.commit("g", "orders", 0, 1)
        await broker.ask(215, topic="orders")
        assert store.queues.find("orders", 0) is None
        await broker.ask(17, **ORDERS)
        assert store.queue("orders", 0).max_offset == 0
        assert broker.offsets.get("g", "orders", 0) == 1


# Topics: 21, 305, 351


@pytest.mark.scenario("broker 2.1")
async def test_all_topics_are_listed_with_their_version(broker):
    reply = content(await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert reply["dataVersion"] == {"counter": 0, "timestamp": NOW}
    assert {
        name: (each["readQueueNums"], each["writeQueueNums"], each["perm"])
        for name, each in reply["topicConfigTable"].items()
    } == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
    }


async def test_system_topics_are_listed_without_those_of_users(broker):
    broker.topics.update(TopicConfig(topic_name="orders"))
    listed = content(await broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
    assert {"TBW102", "DefaultCluster", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"} <= set(listed)
    assert "orders" not in listed


async def test_one_topic_is_shown_and_an_unknown_one_is_not(broker):
    await broker.ask(17, **ORDERS)
    reply = await broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="orders")
    assert TopicConfig.decode(reply.body_bytes) == broker.topics.get("orders")
    remark = await broker.refusal(TopicNotFound, 351, topic="other")
    assert remark == "No topic in this broker. topic: other"


# Groups: 200, 201, 207, 352


async def test_an_operator_sets_a_group_which_is_saved_before_the_answer(broker):
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g","retryMaxTimes":3}')
    assert broker.groups.find("g") == SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    assert broker.saved("subscriptionGroup.json")["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
    await broker.ask(200, b'{"groupName":"g","consumeEnable":false}')
    assert broker.groups.find("g") == SubscriptionGroupConfig(group_name="g", consume_enable=False)


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b"{}", b'{"groupName":null}', b'{"groupName":["g"'])
async def test_a_group_that_cannot_be_read_is_refused(broker, body):
    with pytest.raises(RemoteProtocolError):
        await broker.ask(200, body)
    assert not broker.groups.dirty


async def test_a_group_without_a_name_or_with_too_many_queues_is_refused(broker):
    assert await broker.refusal(ServerError, 200, b'{"groupName":" "}') == "The specified group is blank."
    too_many = f'{{"groupName":"g","retryQueueNums":{MAX_QUEUES + 1}}}'.encode()
    assert "at most" in await broker.refusal(ServerError, 200, too_many)
    assert not broker.groups.dirty


async def test_all_groups_are_listed_with_their_version(broker):
    broker.groups.get("g")
    reply = content(await broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    assert reply["dataVersion"] == {"counter": 1, "timestamp": NOW}
    assert reply["subscriptionGroupTable"]["g"] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": "g",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert len(reply["subscriptionGroupTable"]) == 8


async def test_a_deleted_group_keeps_its_offsets(broker):
    broker.groups.get("g")
    broker.offsets.commit("g", "orders", 0, 5)
    await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")
    assert "g" not in broker.groups
    assert "g" not in broker.saved("subscriptionGroup.json")["subscriptionGroupTable"]
    assert broker.offsets.get("g", "orders", 0) == 5


@pytest.mark.parametrize("name", ["removeOffset", "cleanOffset"])
async def test_a_group_is_deleted_with_its_offsets_if_asked_to(broker, name):
    broker.groups.get("g")
    broker.offsets.commit("g", "orders", 0, 5)
    broker.offsets.commit("h", "orders", 0, 6)
    await broker.ask(207, groupName="g", **{name: "true"})
    assert broker.offsets.groups() == ["h"]


async def test_a_group_that_does_not_exist_can_be_deleted(broker):
    await broker.ask(207, groupName="g")
    assert not broker.groups.dirty


async def test_one_group_is_shown_and_made_for_it_where_that_is_allowed(tmp_path):
    broker = Broker(tmp_path)
    reply = await broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")
    assert SubscriptionGroupConfig.decode(reply.body_bytes) == broker.groups.find("g")
    broker = Broker(tmp_path, auto_create_group=False)
    assert await broker.refusal(SubscriptionGroupNotExist, 352, group="g") == "No group in this broker"


# Who consumes what: 300, 343


def subscribe(broker, group, *topics):
    subscriptions = [SubscriptionData(topic=topic) for topic in topics]
    consumer = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    broker.clients.heartbeat(PEER, HeartbeatData(client_id="c", consumer_data_set=[consumer]), NOW)


async def test_who_consumes_a_topic_is_who_subscribes_it_and_who_ever_did(broker):
    subscribe(broker, "online", "orders", "bills")
    broker.offsets.commit("offline", "orders", 0, 5)
    broker.offsets.commit("online", "orders", 0, 5)
    broker.offsets.commit("other", "else", 0, 5)
    reply = await broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
    assert reply.body_bytes == b'{"groupList":["offline","online"]}'
    assert content(await broker.ask(300, topic="bills")) == {"groupList": ["online"]}
    assert content(await broker.ask(300, topic="nothing")) == {"groupList": []}


async def test_the_topics_of_a_group_are_those_it_has_offsets_in(broker):
    broker.offsets.commit("g", "orders", 0, 5)
    broker.offsets.commit("g", "%RETRY%g", 0, 5)
    reply = await broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g")
    assert reply.body_bytes == b'{"brokerAddr":"192.0.2.1:10911","topicList":["%RETRY%g","orders"]}'
    assert content(await broker.ask(343, group="h"))["topicList"] == []
