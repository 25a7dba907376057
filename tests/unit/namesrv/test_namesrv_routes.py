"""The rules of the route tables: no loop, no socket, a clock made of numbers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyromq.namesrv import views
from pyromq.namesrv.routes import BROKER_EXPIRES_MS, MinBrokerChange, Registered, Registration, RouteTables
from pyromq.protocol.bodies import DataVersion, QueueData, TopicConfig

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
OTHER = "10.0.0.3:10911"
# Connections are told apart by identity, as the real ones are.
OF_MASTER, OF_SLAVE, OF_OTHER = "connection of the master", "of the slave", "of the other"
CONNECTIONS = {MASTER: OF_MASTER, SLAVE: OF_SLAVE, OTHER: OF_OTHER}


def registration(name="b", broker_id=0, address=MASTER, counter=1, topics=("T",), **more):
    topics = topics if isinstance(topics, dict) else {topic: topic_config(topic) for topic in topics}
    version = DataVersion(timestamp=1, counter=counter, state_version=more.pop("state_version", 0))
    return Registration(
        cluster=more.pop("cluster", "c1"),
        broker_name=name,
        broker_id=broker_id,
        address=address,
        ha_address=address[:-1] + "2",
        data_version=version,
        topics=topics,
        **more,
    )


def topic_config(name, perm=6, flag=0):
    return TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4, perm=perm, topic_sys_flag=flag)


def register(tables, *args, connection=None, now=0, **more):
    reg = registration(*args, **more)
    return tables.register(reg, connection if connection is not None else CONNECTIONS.get(reg.address, "another"), now)


def addresses(tables, topic="T"):
    found = views.route(tables, topic)
    return None if found is None else {data.broker_name: data.broker_addrs for data in found.broker_datas}


def route(tables, topic, **how):
    found = views.route(tables, topic, **how)
    assert found is not None
    return found


def perm(tables, topic="T", name="b"):
    return tables.topics[topic][name].perm


@pytest.fixture
def tables():
    return RouteTables()


class TestRegistration:
    def test_a_master_brings_its_topics(self, tables):
        assert register(tables) == Registered()
        found = route(tables, "T")
        assert found.broker_datas[0].broker_addrs == {0: MASTER}
        assert found.queue_datas == [QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6)]
        assert found.filter_server_table == {}

    def test_a_slave_alone_brings_no_topics(self, tables):
        register(tables, "b", 1, SLAVE)
        assert addresses(tables) is None
        assert tables.brokers["b"].addresses == {1: SLAVE}

    def test_a_slave_learns_where_its_master_is(self, tables):
        register(tables)
        assert register(tables, "b", 1, SLAVE) == Registered(MASTER, "10.0.0.1:10912")
        assert addresses(tables) == {"b": {0: MASTER, 1: SLAVE}}

    def test_a_promoted_slave_leaves_its_old_id(self, tables):
        register(tables)
        register(tables, "b", 1, SLAVE)
        tables.connection_closed(OF_MASTER)
        register(tables, "b", 0, SLAVE, 2)
        assert addresses(tables) == {"b": {0: SLAVE}}

    def test_topics_that_a_registration_leaves_out_stay(self, tables):
        register(tables)
        register(tables, counter=2, topics=["T2"])
        assert addresses(tables, "T") == addresses(tables, "T2") == {"b": {0: MASTER}}

    def test_topics_that_a_registration_leaves_out_go_when_that_is_wanted(self, tables):
        register(tables, topics=["T", "T2"])
        register(tables, "b2", 0, OTHER)
        tables.register(registration(topics=["T2"]), "c", 0, drop_absent_topics=True)
        assert addresses(tables, "T") == {"b2": {0: OTHER}}
        assert addresses(tables, "T2") == {"b": {0: MASTER}}

    def test_an_equal_data_version_changes_no_topics(self, tables):
        register(tables)
        register(tables, topics={"T": topic_config("T", perm=4), "T2": topic_config("T2")})
        assert perm(tables) == 6
        assert addresses(tables, "T2") is None

    def test_a_registration_that_repeats_itself_is_no_change(self, tables):
        register(tables, filter_servers=["f"], zone="z")
        before = tables.revision
        register(tables, filter_servers=["f"], zone="z", now=30_000)
        register(tables, counter=2, filter_servers=["f"], zone="z")  # another version, the same topics
        assert tables.revision == before

    def test_a_broker_of_an_older_state_does_not_take_a_place(self, tables):
        register(tables, state_version=5)
        assert register(tables, address=OTHER) == Registered()
        assert addresses(tables) == {"b": {0: MASTER}}
        assert OTHER not in tables.live

    def test_a_broker_of_an_equal_state_takes_the_place(self, tables):
        register(tables, state_version=5)
        register(tables, address=OTHER, state_version=5)
        assert addresses(tables) == {"b": {0: OTHER}}

    def test_filter_servers_are_kept_replaced_or_removed(self, tables):
        register(tables, filter_servers=["f1"])
        assert route(tables, "T").filter_server_table == {MASTER: ["f1"]}
        register(tables, filter_servers=None)
        assert tables.filters == {MASTER: ["f1"]}
        register(tables, filter_servers=["f2", "f3"])
        assert tables.filters == {MASTER: ["f2", "f3"]}
        register(tables, filter_servers=[])
        assert tables.filters == {}

    def test_the_cluster_of_a_broker_name_never_changes(self, tables):
        register(tables)
        register(tables, cluster="c2")
        assert tables.brokers["b"].cluster == "c1"
        assert tables.clusters == {"c1": {"b"}, "c2": {"b"}}


class TestDepartures:
    def test_a_closed_connection_takes_its_broker_along(self, tables):
        register(tables)
        departed = tables.connection_closed(OF_MASTER)
        assert (departed.addresses, departed.connections) == ([MASTER], [])
        assert (tables.topics, tables.brokers, tables.clusters, tables.live) == ({}, {}, {}, {})

    def test_an_older_connection_of_a_broker_means_nothing(self, tables):
        register(tables, connection="old")
        register(tables, connection="new")
        assert tables.connection_closed("old").addresses == []
        assert addresses(tables) == {"b": {0: MASTER}}

    def test_equal_connections_are_not_the_same_connection(self, tables):
        one, other = frozenset([1, 2]), frozenset([2, 1])
        register(tables, connection=one)
        assert tables.connection_closed(other).addresses == []
        assert addresses(tables) == {"b": {0: MASTER}}

    def test_all_brokers_of_a_connection_go_with_it(self, tables):
        register(tables, "b1", address=MASTER, connection="one")
        register(tables, "b2", address=OTHER, connection="one")
        tables.connection_closed("one")
        assert tables.brokers == {}

    def test_topics_and_perms_stay_while_a_slave_is_left(self, tables):
        register(tables)
        register(tables, "b", 1, SLAVE)
        tables.connection_closed(OF_MASTER)
        assert addresses(tables) == {"b": {1: SLAVE}}
        assert perm(tables) == 6

    def test_a_broker_that_unregisters_leaves_by_its_address(self, tables):
        register(tables)
        register(tables, address=OTHER)
        tables.unregister("b", MASTER)
        assert addresses(tables) == {"b": {0: OTHER}}
        tables.unregister("b", OTHER)
        assert (tables.topics, tables.brokers, tables.clusters, tables.live) == ({}, {}, {}, {})

    def test_whoever_unregisters_unknown_changes_nothing(self, tables):
        register(tables)
        tables.unregister("nobody", "10.9.9.9:1")
        tables.unregister("nobody", MASTER)
        tables.unregister("b", "10.9.9.9:1")
        assert addresses(tables) == {"b": {0: MASTER}}
        assert MASTER in tables.live

    def test_a_broker_that_moved_to_another_name_leaves_both(self, tables):
        register(tables, "b1", connection="one")
        register(tables, "b2", connection="two")
        tables.connection_closed("two")
        assert tables.brokers == {}


class TestExpiry:
    def test_a_silent_broker_is_dropped_after_its_time_and_not_at_it(self, tables):
        register(tables, connection="c", now=1000)
        assert tables.expire(1000 + BROKER_EXPIRES_MS).addresses == []
        departed = tables.expire(1001 + BROKER_EXPIRES_MS)
        assert (departed.addresses, departed.connections) == ([MASTER], ["c"])
        assert addresses(tables) is None

    def test_a_broker_may_ask_for_a_shorter_time(self, tables):
        register(tables, heartbeat_timeout_ms=3000)
        assert tables.expire(3000).addresses == []
        assert tables.expire(3001).addresses == [MASTER]

    @pytest.mark.parametrize("timeout", [0, -1])
    def test_a_time_that_makes_no_sense_is_the_usual_one(self, tables, timeout):
        register(tables, heartbeat_timeout_ms=timeout)
        assert tables.expire(BROKER_EXPIRES_MS).addresses == []

    def test_any_sign_of_life_postpones_the_end(self, tables):
        register(tables, heartbeat_timeout_ms=3000)
        tables.heard_of(MASTER, 2000)
        tables.heard_of("10.9.9.9:1", 2000)
        assert tables.expire(5000).addresses == []
        assert tables.expire(5001).addresses == [MASTER]

    def test_two_brokers_of_one_connection_close_it_once(self, tables):
        register(tables, "b1", address=MASTER, connection="c")
        register(tables, "b2", address=OTHER, connection="c")
        assert tables.expire(BROKER_EXPIRES_MS + 1).connections == ["c"]


class TestOperators:
    def test_a_wiped_perm_survives_registrations_until_the_version_changes(self, tables):
        register(tables, topics=["T", "T2"])
        assert tables.wipe_write_perm("b") == 2
        assert perm(tables) == 4
        register(tables, topics=["T", "T2"])
        assert perm(tables) == 4
        register(tables, counter=2, topics=["T", "T2"])
        assert perm(tables) == 6

    def test_added_perm_is_read_and_write_whatever_it_was(self, tables):
        register(tables, topics={"T": topic_config("T", perm=1)})
        assert tables.add_write_perm("b") == 1
        assert perm(tables) == 6

    def test_perms_of_a_broker_without_topics_count_nothing(self, tables):
        register(tables)
        assert tables.wipe_write_perm("nobody") == tables.add_write_perm("nobody") == 0
        assert perm(tables) == 6

    def test_a_deleted_topic_stays_away_until_the_version_changes(self, tables):
        register(tables)
        tables.delete_topic("T")
        tables.delete_topic("T")
        assert addresses(tables) is None
        register(tables)
        assert addresses(tables) is None
        register(tables, counter=2)
        assert addresses(tables) == {"b": {0: MASTER}}

    def test_a_topic_can_be_deleted_in_one_cluster(self, tables):
        register(tables, "b1", address=MASTER, cluster="c1")
        register(tables, "b2", address=OTHER, cluster="c2")
        tables.delete_topic("T", "nowhere")
        tables.delete_topic("T", "c1")
        assert addresses(tables) == {"b2": {0: OTHER}}
        tables.delete_topic("T", "c2")
        assert "T" not in tables.topics

    def test_a_topic_is_registered_by_itself_only_on_known_brokers(self, tables):
        register(tables)
        known = QueueData(broker_name="b", read_queue_nums=8, write_queue_nums=8, perm=6)
        stranger = QueueData(broker_name="stranger", read_queue_nums=8, write_queue_nums=8, perm=6)
        assert not tables.register_topic("T2", [known, stranger])
        assert addresses(tables, "T2") is None
        assert tables.register_topic("T2", [known])
        assert route(tables, "T2").queue_datas == [known]


class TestActingMaster:
    """5.x: the slave with the smallest id acts for a missing master."""

    @pytest.mark.parametrize(("enabled", "expected"), [(True, 4), (False, 6)])
    def test_a_prime_slave_brings_topics(self, tables, enabled, expected):
        register(tables, "b", 1, SLAVE, enable_acting_master=enabled)
        assert addresses(tables) == {"b": {1: SLAVE}}
        assert perm(tables) == expected

    def test_only_the_smallest_id_is_prime(self, tables):
        register(tables, "b", 1, SLAVE, topics=[], enable_acting_master=True)
        register(tables, "b", 2, OTHER, enable_acting_master=True)
        assert addresses(tables) is None

    def test_writes_end_with_the_master_and_come_back_with_it(self, tables):
        register(tables, enable_acting_master=True)
        register(tables, "b", 1, SLAVE, enable_acting_master=True)
        tables.connection_closed(OF_MASTER)
        assert perm(tables) == 4
        register(tables, enable_acting_master=True)
        assert perm(tables) == 6
        assert addresses(tables) == {"b": {0: MASTER, 1: SLAVE}}

    def test_routes_show_the_acting_master_when_that_is_wanted(self, tables):
        register(tables, enable_acting_master=True)
        register(tables, "b", 1, SLAVE, enable_acting_master=True)
        register(tables, "b", 2, OTHER, enable_acting_master=True)
        tables.unregister("b", MASTER)
        found = route(tables, "T", acting_masters=True)
        assert found.broker_datas[0].broker_addrs == {0: SLAVE, 2: OTHER}
        assert addresses(tables) == {"b": {1: SLAVE, 2: OTHER}}
        assert tables.brokers["b"].addresses == {1: SLAVE, 2: OTHER}

    def test_no_slave_acts_where_writes_are_allowed_or_nobody_asked_for_it(self, tables):
        register(tables)
        register(tables, "b", 1, SLAVE)
        tables.unregister("b", MASTER)
        assert route(tables, "T", acting_masters=True).broker_datas[0].broker_addrs == {1: SLAVE}

    def test_the_others_hear_of_a_smallest_id_that_left(self, tables):
        register(tables)
        register(tables, "b", 1, SLAVE)
        register(tables, "b", 2, OTHER)
        departed = tables.connection_closed(OF_MASTER)
        assert departed.news == [MinBrokerChange([SLAVE, OTHER], 1, SLAVE, offline_address=MASTER)]
        assert tables.unregister("b", OTHER).news == []

    def test_the_others_hear_of_a_smaller_id_that_joined(self, tables):
        assert register(tables, "b", 1, SLAVE).news is None
        assert register(tables, "b", 2, OTHER).news is None
        news = register(tables).news
        assert news == MinBrokerChange([SLAVE, OTHER], 0, MASTER, ha_address="10.0.0.1:10912")
        assert register(tables).news is None


class TestViews:
    def test_a_route_without_its_broker_is_no_route(self, tables):
        register(tables)
        del tables.brokers["b"]
        assert views.route(tables, "T") is None

    def test_a_zone_sees_its_own_masters_and_slaves_of_any(self, tables):
        register(tables, "near", address="10.0.0.1:1", zone="East")
        register(tables, "far", address="10.0.0.2:1", zone="west")
        register(tables, "nowhere", address="10.0.0.3:1")
        register(tables, "orphan", address="10.0.0.4:1", zone="west")
        register(tables, "orphan", 1, "10.0.0.5:1", zone="west")
        tables.unregister("orphan", "10.0.0.4:1")
        found = route(tables, "T", zone="EAST")
        assert [data.broker_name for data in found.broker_datas] == ["near", "orphan"]
        assert [data.broker_name for data in found.queue_datas] == ["near", "orphan"]

    def test_a_zone_without_brokers_gets_an_empty_route(self, tables):
        register(tables, zone="west")
        found = route(tables, "T", zone="east")
        assert (found.broker_datas, found.queue_datas) == ([], [])

    def test_topics_by_cluster_flag_and_system(self, tables):
        flags = {name: topic_config(name, flag=flag) for name, flag in {"N": 0, "U": 1, "S": 2, "US": 3}.items()}
        register(tables, topics=flags)
        register(tables, "b2", address=OTHER, cluster="c2", topics=["X", "N"])
        assert set(views.all_topics(tables).topic_list) == {"N", "U", "S", "US", "X"}
        assert set(views.topics_of_cluster(tables, "c2").topic_list) == {"X", "N"}
        assert views.topics_of_cluster(tables, "nope").topic_list == []
        assert set(views.unit_topics(tables).topic_list) == {"U", "US"}
        assert set(views.unit_sub_topics(tables).topic_list) == {"S", "US"}
        assert views.unit_sub_topics_outside_units(tables).topic_list == ["S"]
        system = views.system_topics(tables)
        assert set(system.topic_list) == {"c1", "b", "c2", "b2"}
        assert system.broker_addr in (MASTER, OTHER)

    def test_views_of_empty_tables_are_empty(self, tables):
        assert views.cluster_info(tables).encode() == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        assert views.system_topics(tables).encode() == b'{"topicList":[]}'
        assert views.member_group(tables, "c1", "b").broker_member_group.broker_addrs == {}


class Consistency(RuleBasedStateMachine):
    """Whatever happens, the five tables agree with each other, and `revision` moves with what routes show."""

    names = st.sampled_from(["b1", "b2"])
    ids = st.integers(0, 2)
    hosts = st.sampled_from([f"10.0.0.{n}:10911" for n in range(1, 5)])
    connections = st.sampled_from(["x", "y", "z"])

    def __init__(self):
        super().__init__()
        self.tables = RouteTables()
        self.now = 0
        self.shown = (0, self.show())

    def show(self):
        found = (views.route(self.tables, topic, acting_masters=True) for topic in ("T1", "T2", "T3"))
        return [route and route.encode() for route in found]

    @rule(
        name=names,
        broker_id=ids,
        address=hosts,
        connection=connections,
        counter=st.integers(1, 2),
        topics=st.sets(st.sampled_from(["T1", "T2", "T3"])),
        cluster=st.sampled_from(["c1", "c2"]),
        acting=st.sampled_from([None, False, True]),
        state_version=st.integers(0, 1),
        filters=st.sampled_from([None, [], ["f"]]),
    )
    def register(self, name, broker_id, address, connection, counter, topics, cluster, acting, state_version, filters):
        reg = registration(
            name,
            broker_id,
            address,
            counter,
            sorted(topics),
            cluster=cluster,
            state_version=state_version,
            enable_acting_master=acting,
            filter_servers=filters,
        )
        self.tables.register(reg, connection, self.now)

    @rule(connection=connections)
    def close(self, connection):
        self.tables.connection_closed(connection)
        assert all(live.connection != connection for live in self.tables.live.values())

    @rule(name=names, address=hosts)
    def unregister(self, name, address):
        self.tables.unregister(name, address)
        group = self.tables.brokers.get(name)
        assert group is None or address not in group.addresses.values()

    @rule(milliseconds=st.integers(1, BROKER_EXPIRES_MS))
    def wait(self, milliseconds):
        self.now += milliseconds
        self.tables.expire(self.now)

    @rule(name=names)
    def wipe(self, name):
        self.tables.wipe_write_perm(name)

    @rule(topic=st.sampled_from(["T1", "T2"]), cluster=st.sampled_from([None, "c1"]))
    def delete(self, topic, cluster):
        self.tables.delete_topic(topic, cluster)

    @invariant()
    def tables_agree(self):
        tables = self.tables
        assert all(group.addresses for group in tables.brokers.values())
        assert all(tables.clusters.values())
        assert set().union(*tables.clusters.values()) == set(tables.brokers)
        assert all(tables.topics.values())
        assert {name for by_broker in tables.topics.values() for name in by_broker} <= set(tables.brokers)
        assert set(tables.filters) <= set(tables.live)
        assert {address for group in tables.brokers.values() for address in group.addresses.values()} <= set(
            tables.live
        )

    @invariant()
    def revision_moves_with_routes(self):
        before = self.shown
        self.shown = (self.tables.revision, self.show())
        assert before[1] == self.shown[1] or before[0] != self.shown[0]


TestConsistency = Consistency.TestCase
TestConsistency.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
