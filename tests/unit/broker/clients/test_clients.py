"""The rules of who is connected: no loop, no socket, a clock made of numbers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyromq.broker.clients.connected import CLIENT_EXPIRES_MS, Clients
from pyromq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from pyromq.protocol.command import Language


class FakeConnection:
    """Told apart by identity, as the real ones are."""

    def __init__(self, peer):
        self.peer = peer

    def __repr__(self):
        return self.peer


def connection(peer="10.0.0.1:5000"):
    return FakeConnection(peer)


def subscription(topic="T", version=1, expression="*"):
    return SubscriptionData(topic=topic, sub_version=version, sub_string=expression)


def consumer(group="g", *topics, model=MessageModel.CLUSTERING, **more):
    wanted = [topic if isinstance(topic, SubscriptionData) else subscription(topic) for topic in topics or ("T",)]
    return ConsumerData(group_name=group, message_model=model, subscription_data_set=wanted, **more)


def heartbeat(*consumers, producers=(), client_id="c1", **more):
    return HeartbeatData(
        client_id=client_id,
        consumer_data_set=list(consumers),
        producer_data_set=[ProducerData(name) for name in producers],
        **more,
    )


class Told(list[tuple[str, list[FakeConnection]]]):
    """Who was told to rebalance, and of which group."""

    def notify(self, group, connections):
        self.append((group, connections))

    def take(self):
        news = list(self)
        self.clear()
        return news


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def clients(told):
    return Clients(told.notify)


@pytest.fixture
def first():
    return connection("10.0.0.1:5001")


@pytest.fixture
def second():
    return connection("10.0.0.2:5002")


def subscriptions(clients, group="g"):
    return {topic: data.sub_string for topic, data in clients.consumer_group(group).subscriptions.items()}


def members(clients, group="g"):
    live = clients.consumer_group(group)
    return None if live is None else list(live.connections)


class TestJoining:
    def test_a_heartbeat_makes_a_client_known(self, clients, first):
        clients.heartbeat(first, heartbeat(consumer()), 7, language=Language.GO, version=317)
        info = clients.find_consumer("g", "c1")
        assert (info.connection, info.client_id, info.last_update) == (first, "c1", 7)
        assert (info.language, info.version) == (Language.GO, 317)
        assert clients.find_consumer("g", "c2") is None
        assert clients.find_consumer("other", "c1") is None

    def test_all_members_are_told_of_a_new_one_and_so_is_it(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        assert told.take() == [("g", [first])]
        clients.heartbeat(second, heartbeat(consumer(), client_id="c2"), 0)
        assert told.take() == [("g", [first, second])]

    def test_nobody_is_told_of_a_heartbeat_that_says_nothing_new(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        told.take()
        clients.heartbeat(first, heartbeat(consumer()), 30_000)
        assert told == []
        assert clients.find_consumer("g", "c1").last_update == 30_000

    def test_a_group_that_wants_no_news_gets_none(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(consumer("g"), consumer("loud")), 0, quiet={"g"})
        assert told.take() == [("loud", [first])]
        clients.heartbeat(second, heartbeat(consumer("g"), client_id="c2"), 0, quiet={"g"})
        assert told == []
        assert members(clients) == [first, second]

    def test_two_connections_with_one_id_are_two_members(self, clients, first, second):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        clients.heartbeat(second, heartbeat(consumer()), 0)
        assert members(clients) == [first, second]
        # One of them may be half dead: whoever joined last is the one to talk to.
        assert clients.find_consumer("g", "c1").connection is second

    def test_a_connection_may_change_its_id(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer(), producers=["p"], client_id="old"), 0)
        told.take()
        clients.heartbeat(first, heartbeat(consumer(), producers=["p"], client_id="new"), 0)
        assert told == []
        assert clients.find_consumer("g", "old") is None
        assert clients.find_consumer("g", "new").connection is first
        assert clients.producer_connection("old") is None
        assert clients.producer_connection("new") is first

    def test_the_last_heartbeat_says_how_the_group_consumes(self, clients, first, second):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        last = consumer(
            model=MessageModel.BROADCASTING,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        )
        clients.heartbeat(second, heartbeat(last, client_id="c2"), 0)
        group = clients.consumer_group("g")
        assert group.message_model is MessageModel.BROADCASTING
        assert group.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    def test_a_heartbeat_without_groups_leaves_no_trace(self, clients, first):
        clients.heartbeat(first, heartbeat(), 0)
        assert clients.expire(CLIENT_EXPIRES_MS * 2) == []


class TestSubscriptions:
    def test_they_belong_to_the_group(self, clients, first, second):
        clients.heartbeat(first, heartbeat(consumer("g", "T", "U")), 0)
        clients.heartbeat(second, heartbeat(consumer("g", "T", "U"), client_id="c2"), 0)
        assert clients.consumer_group("g").subscriptions.keys() == {"T", "U"}
        assert clients.subscribers("U") == ["g"]
        assert clients.subscribers("V") == []

    def test_a_higher_version_replaces_and_tells_nobody(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer("g", subscription("T", 5, "A"))), 0)
        told.take()
        clients.heartbeat(first, heartbeat(consumer("g", subscription("T", 6, "B"))), 0)
        assert subscriptions(clients) == {"T": "B"}
        assert told == []

    @pytest.mark.parametrize("version", [4, 5])
    def test_a_lower_or_equal_version_changes_nothing(self, clients, first, second, version):
        clients.heartbeat(first, heartbeat(consumer("g", subscription("T", 5, "A"))), 0)
        clients.heartbeat(second, heartbeat(consumer("g", subscription("T", version, "B"))), 0)
        assert subscriptions(clients) == {"T": "A"}

    def test_a_topic_more_is_news(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer("g", "T")), 0)
        told.take()
        clients.heartbeat(first, heartbeat(consumer("g", "T", "U")), 0)
        assert told == [("g", [first])]

    def test_a_topic_that_is_not_named_any_more_is_gone_and_that_is_news(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer("g", "T", "U")), 0)
        told.take()
        clients.heartbeat(first, heartbeat(consumer("g", "U")), 0)
        assert subscriptions(clients) == {"U": "*"}
        assert told == [("g", [first])]

    def test_members_with_different_topics_take_them_from_each_other(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(consumer("g", "T")), 0)
        clients.heartbeat(second, heartbeat(consumer("g", "U"), client_id="c2"), 0)
        assert subscriptions(clients) == {"U": "*"}
        told.take()
        clients.heartbeat(first, heartbeat(consumer("g", "T")), 0)
        assert subscriptions(clients) == {"T": "*"}
        assert told == [("g", [first, second])]

    def test_a_heartbeat_that_leaves_them_out_on_purpose_keeps_them(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer("g", "T")), 0)
        told.take()
        without = ConsumerData(group_name="g", message_model=MessageModel.CLUSTERING)
        clients.heartbeat(first, heartbeat(without, without_sub=True), 1)
        assert subscriptions(clients) == {"T": "*"}
        assert told == []

    def test_the_next_life_of_a_group_begins_without_them(self, clients, first, second):
        clients.heartbeat(first, heartbeat(consumer("g", subscription("T", 9, "A"))), 0)
        clients.closed(first)
        clients.heartbeat(second, heartbeat(consumer("g", subscription("T", 1, "B"))), 0)
        assert subscriptions(clients) == {"T": "B"}


class TestProducers:
    def test_they_are_found_by_group_and_by_id(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(producers=["p", "q"]), 0)
        clients.heartbeat(second, heartbeat(producers=["p"], client_id="c2"), 0)
        assert list(clients.producer_group("p")) == [first, second]
        assert list(clients.producer_group("q")) == [first]
        assert clients.producers.keys() == {"p", "q"}
        assert clients.producer_connection("c2") is second
        assert told == []

    def test_an_unknown_one_is_none(self, clients, first):
        assert clients.producer_group("p") is None
        assert clients.producer_connection("c1") is None
        clients.heartbeat(first, heartbeat(consumer()), 0)
        assert clients.producer_connection("c1") is None

    def test_after_a_reconnect_the_new_connection_counts(self, clients, first, second):
        clients.heartbeat(first, heartbeat(producers=["p"]), 0)
        clients.heartbeat(second, heartbeat(producers=["p"]), 0)
        assert clients.producer_connection("c1") is second
        clients.closed(first)
        assert clients.producer_connection("c1") is second

    def test_of_two_with_one_id_the_other_remains(self, clients, first, second):
        clients.heartbeat(first, heartbeat(producers=["p"]), 0)
        clients.heartbeat(second, heartbeat(producers=["p"]), 0)
        clients.closed(second)
        assert clients.producer_connection("c1") is first

    def test_leaving_one_group_keeps_the_others(self, clients, first):
        clients.heartbeat(first, heartbeat(producers=["p", "q"]), 0)
        clients.unregister(first, "p", None)
        assert clients.producer_group("p") is None
        assert clients.producer_connection("c1") is first
        clients.unregister(first, "q", None)
        assert clients.producer_connection("c1") is None


class TestLeaving:
    def test_unregistering_leaves_the_named_group_only(self, clients, told, first, second):
        for each, client_id in ((first, "c1"), (second, "c2")):
            clients.heartbeat(each, heartbeat(consumer("g"), consumer("h"), client_id=client_id), 0)
        told.take()
        clients.unregister(first, None, "g")
        assert members(clients, "g") == [second]
        assert members(clients, "h") == [first, second]
        assert told == [("g", [second])]

    def test_a_quiet_group_is_left_without_a_word(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        clients.heartbeat(second, heartbeat(consumer()), 0)
        told.take()
        clients.unregister(first, None, "g", quiet={"g"})
        assert members(clients) == [second]
        assert told == []

    def test_unregistering_what_is_unknown_changes_nothing(self, clients, told, first, second):
        clients.unregister(first, "p", "g")
        clients.heartbeat(first, heartbeat(consumer()), 0)
        told.take()
        clients.unregister(second, None, "g")
        clients.unregister(first, "p", "other")
        clients.unregister(first, None, None)
        assert members(clients) == [first]
        assert told == []

    def test_a_closed_connection_is_out_of_all_groups_at_once(self, clients, told, first, second):
        for each, client_id in ((first, "c1"), (second, "c2")):
            both = heartbeat(consumer("g"), consumer("h"), producers=["p"], client_id=client_id)
            clients.heartbeat(each, both, 0)
        told.take()
        clients.closed(first)
        assert sorted(told) == [("g", [second]), ("h", [second])]
        assert list(clients.producer_group("p")) == [second]
        assert clients.producer_connection("c1") is None
        clients.closed(first)

    def test_with_its_last_member_a_group_is_gone_and_nobody_is_told(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        told.take()
        clients.closed(first)
        assert clients.consumer_group("g") is None
        assert clients.subscribers("T") == []
        assert told == []


class TestExpiry:
    def test_a_silent_client_goes_and_its_connection_is_to_be_closed(self, clients, told, first, second):
        clients.heartbeat(first, heartbeat(consumer(), producers=["p"]), 0)
        clients.heartbeat(second, heartbeat(consumer(), client_id="c2"), 1)
        told.take()
        assert clients.expire(CLIENT_EXPIRES_MS) == []
        assert clients.expire(CLIENT_EXPIRES_MS + 1) == [first]
        assert members(clients) == [second]
        assert clients.producer_group("p") is None
        assert told == [("g", [second])]
        clients.closed(first)
        assert told == [("g", [second])]

    def test_a_heartbeat_puts_it_off(self, clients, first):
        clients.heartbeat(first, heartbeat(consumer()), 0)
        clients.heartbeat(first, heartbeat(consumer()), 100_000)
        assert clients.expire(100_000 + CLIENT_EXPIRES_MS) == []

    def test_who_speaks_for_another_group_keeps_its_connection(self, clients, told, first):
        clients.heartbeat(first, heartbeat(consumer("g"), consumer("h")), 0)
        clients.heartbeat(first, heartbeat(consumer("h")), 100_000)
        told.take()
        assert clients.expire(CLIENT_EXPIRES_MS + 1) == []
        assert clients.consumer_group("g") is None
        assert members(clients, "h") == [first]


GROUPS = st.sets(st.sampled_from("gh"))
CONNECTIONS = st.integers(0, 3)


class AnyOrder(RuleBasedStateMachine):
    """Whatever clients do, the tables say what a plain list of (connection, kind, group) says."""

    def __init__(self):
        super().__init__()
        self.connections = [connection(str(number)) for number in range(4)]
        self.clients = Clients(self.notified)
        self.now = 0
        self.seen: dict[tuple[int, str, str], int] = {}
        self.ids: dict[int, str] = {}

    def notified(self, group, connections):
        assert connections == members(self.clients, group)

    @rule(number=CONNECTIONS, consumers=GROUPS, producers=GROUPS, client_id=st.sampled_from(["a", "b"]))
    def beat(self, number, consumers, producers, client_id):
        data = heartbeat(*map(consumer, consumers), producers=producers, client_id=client_id)
        self.clients.heartbeat(self.connections[number], data, self.now)
        for group in consumers:
            self.seen[number, "consumer", group] = self.now
        for group in producers:
            self.seen[number, "producer", group] = self.now
        if producers:
            self.ids[number] = client_id

    @rule(number=CONNECTIONS, consumer_group=st.sampled_from("gh"), producer_group=st.sampled_from("gh"))
    def unregister(self, number, consumer_group, producer_group):
        self.clients.unregister(self.connections[number], producer_group, consumer_group)
        self.seen.pop((number, "consumer", consumer_group), None)
        self.seen.pop((number, "producer", producer_group), None)

    @rule(number=CONNECTIONS)
    def close(self, number):
        self.clients.closed(self.connections[number])
        self.seen = {key: when for key, when in self.seen.items() if key[0] != number}

    @rule(step=st.sampled_from([1, 50_000, CLIENT_EXPIRES_MS + 1]))
    def time_passes(self, step):
        self.now += step
        before = {key[0] for key in self.seen}
        self.seen = {key: when for key, when in self.seen.items() if self.now - when <= CLIENT_EXPIRES_MS}
        silent = before - {key[0] for key in self.seen}
        assert set(self.clients.expire(self.now)) == {self.connections[number] for number in silent}

    @invariant()
    def the_tables_agree(self):
        for group in "gh":
            expected = {number for number, kind, name in self.seen if (kind, name) == ("consumer", group)}
            assert {int(each.peer) for each in members(self.clients, group) or ()} == expected
            expected = {number for number, kind, name in self.seen if (kind, name) == ("producer", group)}
            assert {int(each.peer) for each in self.clients.producer_group(group) or ()} == expected
        for client_id in "ab":
            owners = {number for number, kind, _ in self.seen if kind == "producer" and self.ids[number] == client_id}
            found = self.clients.producer_connection(client_id)
            assert (found is None) == (not owners)
            assert found is None or int(found.peer) in owners


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=30, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
