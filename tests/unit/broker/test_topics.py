"""The rules of topics: built-in ones, names, automatic creation, changes and versions. No loop, no file."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.topics import TopicTable
from pyromq.errors import ServerError
from pyromq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType
from pyromq.protocol.names import TEMPLATE_TOPIC, dlq_topic, retry_topic

NOW = 1_700_000_000_000


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def settings(**changes):
    return LiveConfig.of(BrokerConfig(broker_name="broker-a", **changes))


DEFAULTS = settings()


def table(**changes):
    return TopicTable(settings(**changes), Clock())


def topic(name, queues=4, **more):
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more)


def shapes(topics):
    return {each.topic_name: (each.read_queue_nums, each.write_queue_nums, each.perm) for each in topics}


# Built-in topics


def test_a_fresh_broker_has_exactly_the_built_in_topics():
    assert shapes(table()) == {
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


def test_settings_close_and_add_built_in_topics():
    topics = shapes(
        table(
            auto_create_topic=False,
            cluster_topic=False,
            broker_topic=False,
            trace_topic_enable=True,
            trace_topic_name="traces",
        )
    )
    assert "TBW102" not in topics
    assert topics["DefaultCluster"] == (16, 16, 1)
    assert topics["broker-a"] == (1, 1, 1)
    assert topics["traces"] == (1, 1, 6)


@pytest.mark.parametrize(
    "name",
    [
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("DefaultCluster", "DefaultCluster_REPLY_TOPIC", "broker-a", "rmq_sys_wheel_timer"),
    ],
)
def test_system_topics_are_those_of_the_list_those_of_the_start_and_those_of_the_prefix(name):
    assert table(auto_create_topic=False).is_system(name)


def test_a_topic_that_came_later_is_no_system_topic():
    topics = table()
    topics.update(topic("orders"))
    assert not topics.is_system("orders")
    assert not topics.is_system("RMQ_SYS_x")


def test_clients_may_not_send_to_eight_topics():
    refused = [
        *("rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster"),
        *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
    ]
    topics = table()
    assert not any(map(topics.may_send, refused))
    assert all(map(topics.may_send, ["TBW102", "DefaultCluster", "rmq_sys_x", "orders", "%RETRY%g"]))


# Names


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("größe", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../x", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("." * 128, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_a_bad_name_is_refused_with_its_remark(name, remark):
    with pytest.raises(ServerError) as refused:
        table().check_name(name)
    assert refused.value.remark == remark


def test_a_good_name_is_taken():
    for name in ("a", "a" * 127, "%RETRY%a|b-c_D9"):
        table().check_name(name)


# Automatic creation


def test_a_send_to_a_new_topic_makes_it_after_the_default_topic():
    topics = table()
    made = topics.for_send("orders", TEMPLATE_TOPIC, 4)
    assert made == topic("orders", 4, perm=6)
    assert topics.get("orders") is made


def test_a_topic_that_exists_is_used_as_it_is():
    topics = table()
    topics.update(known := topic("orders", 2, perm=4))
    version = topics.data_version
    assert topics.for_send("orders", TEMPLATE_TOPIC, 4) is known
    assert topics.data_version == version


@pytest.mark.parametrize(("wanted", "given"), [(4, 4), (100, 8), (0, 0), (-3, 0)])
def test_a_made_topic_has_as_many_queues_as_wanted_but_no_more_than_the_default_topic(wanted, given):
    made = table().for_send("orders", TEMPLATE_TOPIC, wanted)
    assert (made.read_queue_nums, made.write_queue_nums) == (given, given)


def test_nothing_is_made_without_automatic_creation():
    assert table(auto_create_topic=False).for_send("orders", TEMPLATE_TOPIC, 4) is None


def test_any_topic_that_others_may_inherit_from_can_be_the_default_topic():
    topics = table(auto_create_topic=False)
    assert topics.for_send("orders", "DefaultCluster", 4) == topic("orders", 4, perm=6)


def test_nothing_is_made_after_a_topic_that_is_missing_or_cannot_be_inherited_from():
    topics = table()
    assert topics.for_send("orders", "no-such-topic", 4) is None
    assert topics.for_send("orders", "BenchmarkTest", 4) is None
    assert "orders" not in topics


def test_a_made_topic_inherits_filter_type_and_perm_but_not_the_right_to_inherit():
    topics = table()
    topics.update(topic("mother", 3, perm=5, topic_filter_type=TopicFilterType.MULTI_TAG))
    made = topics.for_send("child", "mother", 9)
    assert made == topic("child", 3, perm=4, topic_filter_type=TopicFilterType.MULTI_TAG)


@pytest.mark.parametrize(
    ("name", "unit_mode", "flag"),
    [("orders", False, 0), ("orders", True, 1), ("%RETRY%g", False, 0), ("%RETRY%g", True, 2)],
)
def test_the_unit_flag_follows_the_mode_of_the_sender(name, unit_mode, flag):
    assert table().for_send(name, TEMPLATE_TOPIC, 4, unit_mode).topic_sys_flag == flag
    if name.startswith("%RETRY%"):
        assert table(auto_create_topic=False).for_send(name, TEMPLATE_TOPIC, 4, unit_mode).topic_sys_flag == flag


def test_a_send_to_a_retry_topic_makes_it_even_where_nothing_else_is_made():
    assert table().for_send("%RETRY%g", TEMPLATE_TOPIC, 4) == topic("%RETRY%g", 4)
    assert table(auto_create_topic=False).for_send("%RETRY%g", TEMPLATE_TOPIC, 4) == topic("%RETRY%g", 1)


def test_a_default_topic_left_over_from_another_setting_is_closed_by_the_first_send():
    topics = table(auto_create_topic=False)
    topics.load(saved(topic(TEMPLATE_TOPIC, 8, perm=7)))
    assert topics.for_send("orders", TEMPLATE_TOPIC, 4) is None
    assert topics.get(TEMPLATE_TOPIC).perm == 6


def test_a_closed_default_topic_is_open_again_when_automatic_creation_is_switched_on():
    topics = table()
    topics.load(saved(topic(TEMPLATE_TOPIC, 4, perm=6)))
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 4, perm=7)

    live = settings(auto_create_topic=False)
    topics = TopicTable(live, Clock())
    topics.load(saved(topic(TEMPLATE_TOPIC, 4, perm=6)))
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 4, perm=6)
    live.config = dataclasses.replace(live.config, auto_create_topic=True)
    topics.apply_settings()
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 4, perm=7)
    assert topics.for_send("orders", TEMPLATE_TOPIC, 9) == topic("orders", 4)


def test_a_missing_default_topic_is_made_when_automatic_creation_is_switched_on():
    live = settings(auto_create_topic=False)
    topics = TopicTable(live, Clock())
    topics.apply_settings()
    assert TEMPLATE_TOPIC not in topics
    live.config = dataclasses.replace(live.config, auto_create_topic=True)
    topics.apply_settings()
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 8, perm=7)


def test_settings_that_change_nothing_leave_the_version_alone():
    topics = table()
    topics.apply_settings()
    assert topics.data_version == DataVersion(counter=0, timestamp=NOW)


def test_a_retry_topic_is_made_once_with_the_queues_of_the_group():
    topics = table()
    made = topics.ensure_retry("g", 1)
    assert made == topic("%RETRY%g", 1, perm=6)
    assert topics.ensure_retry("g", 3, unit_mode=True) is made
    assert topics.ensure_retry("h", 3, unit_mode=True) == topic("%RETRY%h", 3, topic_sys_flag=2)


def test_dead_letters_go_to_a_topic_with_one_queue():
    topics = table()
    assert topics.ensure_dlq("g") == topic("%DLQ%g", 1, perm=6)
    assert (retry_topic("g"), dlq_topic("g")) == ("%RETRY%g", "%DLQ%g")


# Changes


def test_every_change_moves_the_version_and_is_told():
    topics = table()
    told: list[str | None] = []
    topics.changed = told.append
    clock = topics._clock
    steps = [
        (lambda: topics.update(topic("a")), "a"),
        (lambda: topics.for_send("b", TEMPLATE_TOPIC, 4), "b"),
        (lambda: topics.ensure_retry("g", 1), "%RETRY%g"),
        (lambda: topics.ensure_dlq("g"), "%DLQ%g"),
        (lambda: topics.set_order_topics(["a"]), "a"),
        (lambda: topics.set_order_topics(["b", "%DLQ%g"]), None),
        (lambda: topics.delete("a"), "a"),
        (topics.touch, None),
    ]
    for number, (step, name) in enumerate(steps, 1):
        clock.now = NOW + number
        topics.dirty = False
        step()
        assert told == [name]
        assert topics.data_version == DataVersion(counter=number, timestamp=NOW + number)
        assert topics.dirty
        told.clear()


def test_what_changes_nothing_is_not_told():
    topics = table()
    topics.update(replace(topic("a"), order=True))
    version, topics.dirty = topics.data_version, False
    topics.changed = pytest.fail
    topics.set_order_topics({"a"})
    assert topics.delete("no-such-topic") is False
    topics.ensure("a", 9)
    assert topics.data_version == version
    assert not topics.dirty


def test_order_topics_are_those_the_name_server_says_and_no_others():
    topics = table()
    for name in "abc":
        topics.update(topic(name))
    topics.set_order_topics({"a", "b", "elsewhere"})
    assert [each.topic_name for each in topics if each.order] == ["a", "b"]
    topics.set_order_topics({"b"})
    assert [each.topic_name for each in topics if each.order] == ["b"]
    assert "elsewhere" not in topics


def test_a_topic_that_changes_is_another_object_and_one_that_does_not_is_the_same():
    topics = table()
    topics.update(topic("a"))
    topics.update(topic("b"))
    a, b = topics.get("a"), topics.get("b")
    topics.set_order_topics({"a"})
    assert topics.get("a") is not a
    assert topics.get("b") is b


def test_topics_may_be_deleted_while_somebody_walks_through_them():
    topics = table()
    for each in topics:
        topics.delete(each.topic_name)
    assert len(topics) == 0


# The file


def saved(*topics, counter=5):
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=counter, timestamp=7, state_version=2),
        topic_config_table={each.topic_name: each for each in topics},
    )


def test_saved_topics_replace_built_in_ones():
    topics = table()
    topics.load(saved(topic("BenchmarkTest", 2), topic("orders", 3)))
    assert topics.get("BenchmarkTest") == topic("BenchmarkTest", 2)
    assert topics.get("orders") == topic("orders", 3)
    assert topics.get("SELF_TEST_TOPIC") == topic("SELF_TEST_TOPIC", 1)


def test_a_saved_topic_named_like_a_built_in_one_stays_a_system_topic_and_others_do_not_become_one():
    topics = table()
    topics.load(saved(topic("BenchmarkTest", 2), topic("orders", 3)))
    assert topics.is_system("BenchmarkTest")
    assert not topics.is_system("orders")


def test_the_version_goes_on_from_the_saved_one():
    topics = table()
    topics.load(saved(*topics))
    assert topics.data_version == DataVersion(counter=5, timestamp=7, state_version=2)
    assert not topics.dirty
    topics.update(topic("orders"))
    assert topics.data_version == DataVersion(counter=6, timestamp=NOW, state_version=2)


def test_the_version_moves_when_there_is_more_than_was_saved():
    topics = table()
    topics.load(saved(topic("orders")))
    assert topics.data_version.counter == 6
    assert topics.dirty


def test_the_version_moves_when_the_default_topic_is_opened_again():
    topics = table()
    topics.load(saved(*(replace(each, perm=6) if each.topic_name == TEMPLATE_TOPIC else each for each in topics)))
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 8, perm=7)
    assert topics.data_version.counter == 6
    assert topics.dirty


def test_a_snapshot_does_not_change_any_more():
    topics = table()
    topics.update(topic("orders"))
    snapshot = topics.snapshot()
    topics.delete("orders")
    assert snapshot.topic_config_table["orders"] == topic("orders")
    assert snapshot.data_version.counter == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("update"), st.sampled_from("abc"), st.integers(0, 3)),
            st.tuples(st.just("delete"), st.sampled_from("abc")),
            st.tuples(st.just("send"), st.sampled_from("abc"), st.integers(-1, 9)),
            st.tuples(st.just("order"), st.frozensets(st.sampled_from("abc"))),
        ),
        max_size=12,
    )
)
def test_a_table_loaded_from_a_snapshot_is_equal_and_the_version_counts_the_changes(steps):
    topics = TopicTable(DEFAULTS, Clock())
    told: list[str | None] = []
    topics.changed = told.append
    for step in steps:
        match step:
            case "update", name, queues:
                topics.update(topic(name, queues))
            case "delete", name:
                topics.delete(name)
            case "send", name, queues:
                assert topics.for_send(name, TEMPLATE_TOPIC, queues) is topics.get(name) is not None
            case "order", names:
                topics.set_order_topics(names)
                assert all(each.order == (each.topic_name in names) for each in topics)
    assert topics.data_version.counter == len(told)
    again = TopicTable(DEFAULTS, Clock())
    again.load(topics.snapshot())
    assert again.snapshot() == topics.snapshot()
    assert not again.dirty


# What a slave takes over


def masters_table(*topics, counter=7):
    version = DataVersion(counter=counter, timestamp=NOW - 5)
    return TopicConfigSerializeWrapper(
        data_version=version, topic_config_table={each.topic_name: each for each in topics}
    )


def test_a_slave_takes_over_the_topics_and_the_version_of_its_master():
    topics = table()
    topics.update(topic("mine"))
    told: list[str | None] = []
    topics.changed = told.append
    topics.dirty = False
    masters = masters_table(topic("theirs", 9), topic(TEMPLATE_TOPIC, 2))
    assert topics.take_over(masters)
    assert "mine" not in topics
    assert topics.get("theirs") == topic("theirs", 9)
    assert topics.get(TEMPLATE_TOPIC) == topic(TEMPLATE_TOPIC, 2)
    assert "SELF_TEST_TOPIC" in topics  # built in, although the master lacks it
    assert topics.data_version == masters.data_version
    assert (topics.dirty, told) == (True, [None])


def test_nothing_is_taken_over_from_a_master_with_the_same_version():
    topics = table()
    topics.take_over(masters_table(topic("theirs")))
    topics.dirty = False
    assert not topics.take_over(masters_table(topic("others")))
    assert (topics.dirty, "theirs" in topics, "others" in topics) == (False, True, False)


def test_a_topic_that_is_the_same_on_both_sides_stays_the_same_object():
    topics = table()
    known = topics.ensure("T", 4)
    topics.take_over(masters_table(topic("T", 4), topic("U")))
    assert topics.get("T") is known


@pytest.mark.parametrize("counter", [0, 1, 2, 3, 50])
def test_after_a_take_over_everything_is_told_whatever_version_somebody_has(counter):
    topics = table()
    for name in "ABC":
        topics.update(topic(name))
    known = [0, 1, 2, topics.data_version.counter]
    topics.take_over(masters_table(topic("T"), counter=counter))
    assert [topics.changed_since(each) for each in [*known, counter]] == [None] * 5


def test_what_was_taken_over_is_not_taken_back():
    topics = table()
    topics.update(topic("T", 4))
    topics.take_over(masters_table(topic("T", 9)))
    topics.writing()
    topics.take_back()
    assert topics.get("T") == topic("T", 9)
