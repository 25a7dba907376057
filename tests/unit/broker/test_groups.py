"""The rules of subscription groups. No loop, no file."""

from __future__ import annotations

import pytest

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.groups import GroupTable
from pyromq.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper

NOW = 1_700_000_000_000


def table(**changes):
    return GroupTable(LiveConfig.of(BrokerConfig(broker_name="broker-a", **changes)), lambda: NOW)


def group(name, **more):
    return SubscriptionGroupConfig(group_name=name, **more)


def test_a_fresh_broker_has_exactly_the_built_in_groups():
    assert {each.group_name for each in table()} == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }


def test_a_group_is_made_with_its_first_use():
    groups = table()
    told: list[str] = []
    groups.changed = told.append
    made = groups.get("g")
    assert made == group("g")
    assert groups.get("g") is groups.find("g") is made
    assert told == ["g"]
    assert groups.data_version == DataVersion(counter=1, timestamp=NOW)
    assert groups.dirty


def test_looking_for_a_group_does_not_make_it():
    groups = table()
    assert groups.find("g") is None
    assert "g" not in groups
    assert not groups.dirty


def test_without_automatic_creation_only_groups_of_the_system_are_made():
    groups = table(auto_create_group=False)
    assert groups.get("g") is None
    assert groups.get("CID_RMQ_SYS_x") == group("CID_RMQ_SYS_x")
    groups.update(group("g"))
    assert groups.get("g") == group("g")


@pytest.mark.parametrize("name", ["", " ", "a b", "a@b", "größe", "a/b", "g" * 256, "CID_RMQ_SYS_ x"])
def test_a_group_that_clients_would_refuse_is_not_made(name):
    groups = table()
    assert groups.get(name) is None
    assert name not in groups


def test_a_group_may_have_255_characters():
    assert table().get("g" * 255) is not None


def test_a_group_is_set_whole_and_deleted():
    groups = table()
    groups.update(group("g", retry_max_times=3))
    groups.update(group("g", retry_queue_nums=2))
    assert groups.find("g") == group("g", retry_queue_nums=2)
    told: list[str] = []
    groups.changed = told.append
    assert groups.delete("g") is True
    assert groups.delete("g") is False
    assert groups.find("g") is None
    assert told == ["g"]
    assert groups.data_version.counter == 3


def test_saved_groups_replace_built_in_ones_and_the_version_goes_on():
    groups = table()
    tools = group("TOOLS_CONSUMER", consume_enable=False)
    groups.load(
        SubscriptionGroupWrapper(
            data_version=DataVersion(counter=9, timestamp=8),
            subscription_group_table={"TOOLS_CONSUMER": tools, "g": group("g")},
        )
    )
    assert groups.find("TOOLS_CONSUMER") == tools
    assert len(groups) == 8
    # The other built-in groups are more than was saved.
    assert groups.data_version == DataVersion(counter=10, timestamp=NOW)
    assert groups.dirty


def test_a_table_loaded_from_a_snapshot_is_equal():
    groups = table()
    groups.get("g")
    snapshot = groups.snapshot()
    groups.delete("g")
    again = table()
    again.load(snapshot)
    assert again.snapshot() == snapshot
    assert "g" in again
    assert not again.dirty


def test_what_a_group_is_forbidden_by_a_5x_broker_is_kept_until_the_group_is_deleted():
    groups = table()
    forbidden = {"g": {"orders": 1}, "h": {"orders": 1}}
    groups.load(SubscriptionGroupWrapper(forbidden_table=forbidden, subscription_group_table={"g": group("g")}))
    groups.update(group("g", retry_max_times=1))
    assert groups.snapshot().forbidden_table == forbidden
    groups.delete("g")
    assert groups.snapshot().forbidden_table == {"h": {"orders": 1}}


def test_groups_may_be_deleted_while_somebody_walks_through_them():
    groups = table()
    for each in groups:
        groups.delete(each.group_name)
    assert len(groups) == 0


def test_a_slave_takes_over_the_groups_and_the_version_of_its_master():
    groups = table()
    groups.update(group("mine"))
    told: list[str | None] = []
    groups.changed = told.append
    groups.dirty = False
    masters = SubscriptionGroupWrapper(
        data_version=DataVersion(counter=7, timestamp=NOW - 5),
        forbidden_table={"theirs": {"T": 1}},
        subscription_group_table={"theirs": group("theirs", retry_max_times=3)},
    )
    assert groups.take_over(masters)
    assert "mine" not in groups
    assert groups.find("theirs") == group("theirs", retry_max_times=3)
    assert "TOOLS_CONSUMER" in groups  # built in, although the master lacks it
    assert groups.snapshot().forbidden_table == {"theirs": {"T": 1}}
    assert groups.data_version == masters.data_version
    assert (groups.dirty, told) == (True, [None])
    groups.dirty = False
    assert not groups.take_over(masters)
    assert not groups.dirty
