"""Looking for messages: by key, by place, in the queues. A real store, no socket."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.store.kit import FOREVER, T0, Stores, put

from pyromq.auth import Anyone, RequestGuard
from pyromq.auth.refusals import Refusals
from pyromq.broker.admin import lookup_requests
from pyromq.broker.admin.lookup_requests import LookupProcessors
from pyromq.broker.clients.connected import Clients
from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.filters.consumer_filters import Filters
from pyromq.broker.requests import RULES
from pyromq.errors import MissingField, ServerError
from pyromq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    QueryConsumeQueueResponseBody,
    QuerySubscriptionResponseBody,
    SubscriptionData,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import QueryConsumeQueue, QueryMessage, QuerySubscriptionByConsumer, ViewMessage
from pyromq.protocol.record import decode_record
from pyromq.store.format import EXT_BASE


class Peer:
    """All that processors look at of a connection."""

    peer = "192.0.2.7:5123"


PEER: Any = Peer()
OPEN = RequestGuard(RULES, Anyone(), Refusals())
SUBSCRIPTION = SubscriptionData(topic="T", sub_string="A", sub_version=3)


@pytest.fixture
def stores(tmp_path):
    stores = Stores(tmp_path)
    yield stores
    stores.finish()


@pytest.fixture
def store(stores):
    return stores.open()


@pytest.fixture
def clients():
    return Clients(lambda group, connections: None)


@pytest.fixture
def ask(store, clients):
    table = LookupProcessors(store, clients, no_filters(), OPEN).table()

    def ask(code, header, **ext):
        request = Command.request(code, header)
        request.ext = {name: text for name, text in {**header.to_ext(), **ext}.items() if text is not None}
        return table[code](PEER, request)

    return ask


def no_filters():
    return Filters(LiveConfig.of(BrokerConfig()), lambda: T0)


def go_online(clients, group="g"):
    consumer = ConsumerData(group_name=group, subscription_data_set=[SUBSCRIPTION])
    clients.heartbeat(PEER, HeartbeatData(client_id="c", consumer_data_set=[consumer]), T0)


# By key


@pytest.fixture
def query(ask):
    def query(key, topic="T", max_num=32, begin=0, end=FOREVER, **ext):
        return ask(RequestCode.QUERY_MESSAGE, QueryMessage(topic, key, max_num, begin, end), **ext)

    return query


def bodies(response):
    return [decode_record(record).body for record in response.body]


def test_a_message_is_found_by_each_of_its_keys(store, query):
    properties = b"KEYS\x01k1 k2\x02UNIQ_KEY\x01u1"
    put(store, b"other")
    put(store, b"wanted", properties=properties)
    for key in ("k1", "k2", "u1"):
        response = query(key)
        assert (response.code, bodies(response)) == (0, [b"wanted"])


def test_the_answer_tells_how_far_the_index_is(store, query):
    put(store, b"first", keys="k")
    (last,) = put(store, b"last", keys="other")
    response = query("k")
    assert response.ext == {
        "indexLastUpdateTimestamp": str(last.store_timestamp),
        "indexLastUpdatePhyoffset": str(last.physical_offset),
    }


def test_messages_come_in_the_order_of_the_log(store, query):
    put(store, b"a", b"b", keys="k")
    put(store, b"c", keys="k", queue_id=1)
    assert bodies(query("k")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "request_for",
    [
        {"key": "no"},
        {"key": "k", "topic": "U"},
        {"key": "k", "max_num": 0},
        {"key": "k", "max_num": -1},
        {"key": "k", "end": T0 - 5000},
    ],
    ids=str,
)
def test_nothing_found_is_22_with_zeros(store, query, request_for):
    put(store, b"a", keys="k")
    response = query(**request_for)
    assert (response.code, response.remark) == (22, "can not find message, maybe time range not correct")
    assert response.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    assert response.body is None


def test_without_an_index_nothing_is_found(stores, clients):
    store = stores.open(index=False)
    put(store, b"a", keys="k")
    request = Command.request(RequestCode.QUERY_MESSAGE, QueryMessage("T", "k", 32, 0, FOREVER))
    assert LookupProcessors(store, clients, no_filters(), OPEN).by_key(PEER, request).code == 22


def test_at_most_64_messages_are_returned_the_newest_of_them(store, query):
    put(store, *(b"%d" % number for number in range(70)), keys="k")
    assert bodies(query("k", max_num=1000)) == [b"%d" % number for number in range(6, 70)]
    assert bodies(query("k", max_num=3)) == [b"67", b"68", b"69"]


def test_a_query_for_a_unique_key_gets_32_whatever_it_asks_for(store, query):
    put(store, *(b"%d" % number for number in range(40)), keys="k")
    for max_num in (0, 1, 64):
        assert len(bodies(query("k", max_num=max_num, _UNIQUE_KEY_QUERY="true"))) == 32
    assert len(bodies(query("k", max_num=1, _UNIQUE_KEY_QUERY="false"))) == 1


def test_a_query_names_the_field_that_it_lacks(store, ask):
    put(store, b"a", keys="k")
    header = QueryMessage("T", "k", 1, 0, FOREVER)
    with pytest.raises(MissingField, match="key"):
        ask(RequestCode.QUERY_MESSAGE, header, key=None)
    with pytest.raises(MissingField, match="maxNum"):
        ask(RequestCode.QUERY_MESSAGE, header, maxNum="many")
    assert ask(RequestCode.QUERY_MESSAGE, header, maxNum=None, _UNIQUE_KEY_QUERY="true").code == 0


# By place


def test_a_message_is_found_by_its_place_in_the_log(store, ask):
    put(store, b"a")
    (wanted,) = put(store, b"wanted")
    response = ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(wanted.physical_offset))
    assert decode_record(response.body).body == b"wanted"


@pytest.mark.parametrize("offset", [1, -1, 10**12, -(2**63), 2**63 - 1])
def test_no_message_at_a_place_is_an_error_with_its_number(store, ask, offset):
    put(store, b"a")
    with pytest.raises(ServerError) as caught:
        ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
    assert caught.value.remark == f"can not find message by the offset, {offset}"


# In the queues


@pytest.fixture
def dump(ask):
    def dump(index=0, count=10, topic="T", queue_id=0, group=None):
        return ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue(topic, queue_id, index, count, group))

    return dump


def test_the_entries_of_a_queue_are_shown(store, dump):
    first, second = put(store, b"a", b"b", tags="A")
    body = QueryConsumeQueueResponseBody.decode(dump().body)
    assert (body.min_queue_index, body.max_queue_index) == (0, 2)
    assert [(entry.physic_offset, entry.physic_size, entry.tags_code) for entry in body.queue_data] == [
        (first.physical_offset, first.size, 65),
        (second.physical_offset, second.size, 65),
    ]
    assert body.filter_data is None
    assert body.subscription_data is None


def test_entries_are_shown_from_the_index_on_up_to_the_end_of_a_file(store, dump):
    put(store, *[b"x"] * 15)
    assert len(QueryConsumeQueueResponseBody.decode(dump(index=3, count=4).body).queue_data) == 4
    assert len(QueryConsumeQueueResponseBody.decode(dump(index=3, count=2**31 - 1).body).queue_data) == 7
    assert QueryConsumeQueueResponseBody.decode(dump(count=0).body).queue_data == []
    assert QueryConsumeQueueResponseBody.decode(dump(count=-1).body).queue_data == []


def test_one_answer_holds_so_many_entries(store, dump, monkeypatch):
    monkeypatch.setattr(lookup_requests, "MAX_ENTRIES", 5)
    put(store, *[b"x"] * 9)
    assert len(QueryConsumeQueueResponseBody.decode(dump(count=8).body).queue_data) == 5


def test_a_queue_that_does_not_exist_is_an_error_and_is_not_made(store, dump):
    for topic, queue_id in (("T", 0), ("../T", 0), ("T", -1)):
        with pytest.raises(ServerError) as caught:
            dump(topic=topic, queue_id=queue_id)
        assert caught.value.remark == f"{queue_id}@{topic} is not exist!"
    assert len(store.queues) == 0


@pytest.mark.parametrize("index", [1, -1, 2**63 - 1, -(2**63)])
def test_an_index_outside_of_the_queue_has_no_body(store, dump, index):
    put(store, b"a")
    response = dump(index=index)
    assert (response.code, response.body) == (0, None)
    assert response.remark == f"Index {index} of 0@T is not exist!"


def test_the_subscription_of_a_group_is_shown_with_the_queue(store, clients, dump):
    put(store, b"a")
    offline = QueryConsumeQueueResponseBody.decode(dump(group="g").body)
    assert (offline.filter_data, offline.subscription_data) == ("g@T is not online!", None)
    go_online(clients)
    online = QueryConsumeQueueResponseBody.decode(dump(group="g").body)
    assert (online.filter_data, online.subscription_data) == ("null", SUBSCRIPTION)


def test_an_entry_that_points_to_a_bitmap_which_is_gone_says_so(stores, store, dump):
    put(store, b"a")
    store.queue("T", 0).add(0, 100, EXT_BASE + 5)
    *_, entry = QueryConsumeQueueResponseBody.decode(dump().body).queue_data
    assert entry.msg == f"Cq extend not exist!addr: {EXT_BASE + 5}"
    stores.is_damaged()


# Subscriptions


def test_what_a_group_subscribes_is_told(clients, ask):
    header = QuerySubscriptionByConsumer("g", "T")
    offline = QuerySubscriptionResponseBody.decode(ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header).body)
    assert (offline.group, offline.topic, offline.subscription_data) == ("g", "T", None)
    go_online(clients)
    online = QuerySubscriptionResponseBody.decode(ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header).body)
    assert online.subscription_data == SUBSCRIPTION
