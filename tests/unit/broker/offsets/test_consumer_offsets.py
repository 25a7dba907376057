"""What groups committed, and what follows from it. No loop, no file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.offsets.consumer_offsets import NOTHING_TO_CORRECT, ConsumerOffsets
from pyromq.protocol.bodies import ConsumerOffsetTable, DataVersion


def offsets(**groups):
    """`offsets(g={"T": {0: 5}})`"""
    table = ConsumerOffsets()
    for group, topics in groups.items():
        for topic, queues in topics.items():
            for queue_id, offset in queues.items():
                table.commit(group, topic, queue_id, offset)
    table.dirty = False
    return table


def test_a_committed_offset_is_found_and_others_are_not():
    table = offsets(g={"T": {0: 5}})
    assert table.get("g", "T", 0) == 5
    assert table.get("g", "T", 1) is None
    assert table.get("g", "U", 0) is None
    assert table.get("h", "T", 0) is None


def test_an_offset_of_zero_is_not_none():
    assert offsets(g={"T": {0: 0}}).get("g", "T", 0) == 0


def test_the_last_commit_counts_and_going_back_leaves_a_line(caplog):
    table = offsets(g={"T": {0: 10}})
    assert not caplog.records
    table.commit("g", "T", 0, 4)
    assert table.get("g", "T", 0) == 4
    assert [record.getMessage() for record in caplog.records] == ["group g goes back in topic T queue 0: from 10 to 4"]


def test_only_a_new_value_makes_the_table_dirty():
    table = offsets(g={"T": {0: 10}})
    table.commit("g", "T", 0, 10)
    assert not table.dirty
    table.commit("g", "T", 0, 11)
    assert table.dirty


def test_a_negative_offset_is_none():
    table = offsets(g={"T": {0: 10}})
    table.commit("g", "T", 0, -1)
    table.commit("h", "T", 0, -1)
    assert table.get("g", "T", 0) is None
    assert table.of("g", "T") == {}
    assert table.groups() == ["g"]


def test_who_has_offsets_where():
    table = offsets(g={"T": {0: 1, 1: 2}, "U": {0: 3}}, h={"T": {0: 4}})
    assert table.of("g", "T") == {0: 1, 1: 2}
    assert table.of("x", "T") == {}
    assert table.topics_of("g") == ["T", "U"]
    assert table.topics_of("x") == []
    assert table.groups_of("T") == ["g", "h"]
    assert table.groups_of("x") == []


def test_what_is_asked_for_can_be_changed_without_harm():
    table = offsets(g={"T": {0: 1}})
    table.of("g", "T")[0] = 99
    assert table.get("g", "T", 0) == 1


def test_a_group_and_a_topic_can_be_forgotten():
    table = offsets(g={"T": {0: 1}, "U": {0: 3}}, h={"T": {0: 4}})
    table.remove_topic("T")
    assert table.dirty
    assert table.topics_of("g") == ["U"]
    assert table.groups() == ["g"]
    table.remove_group("g")
    assert table.groups() == []


def test_forgetting_what_is_not_there_changes_nothing():
    table = offsets(g={"T": {0: 1}})
    table.remove_group("x")
    table.remove_topic("x")
    assert not table.dirty


def test_a_clone_stands_where_its_source_does_and_goes_on_by_itself():
    table = offsets(g={"T": {0: 1, 1: 2}, "U": {0: 3}}, h={"T": {2: 9}})
    table.clone("g", "h", "T")
    assert table.of("h", "T") == {0: 1, 1: 2}
    assert table.dirty
    table.commit("h", "T", 0, 7)
    assert table.get("g", "T", 0) == 1
    assert table.topics_of("h") == ["T"]


def test_a_clone_of_nothing_changes_nothing():
    table = offsets(h={"T": {2: 9}})
    table.clone("g", "h", "T")
    assert table.of("h", "T") == {2: 9}
    assert not table.dirty


# Correction (308)


def test_the_correction_is_the_smallest_offset_of_any_group():
    table = offsets(g={"T": {0: 5, 1: 9}}, h={"T": {0: 7, 1: 3}}, i={"U": {0: 1}})
    assert table.correction("T", "nobody", (), lambda _: 0) == {0: 5, 1: 3}


def test_groups_that_are_ignored_do_not_count_and_are_not_forgotten():
    table = offsets(g={"T": {0: 5}}, h={"T": {0: 7}})
    assert table.correction("T", "nobody", {"g"}, lambda _: 0) == {0: 7}
    assert table.get("g", "T", 0) == 5
    assert not table.dirty


def test_an_offset_below_the_start_of_its_queue_does_not_count():
    table = offsets(g={"T": {0: 5, 1: 5}}, h={"T": {0: 7}})
    assert table.correction("T", "nobody", (), {0: 6, 1: 6}.__getitem__) == {0: 7}
    assert table.correction("T", "nobody", (), {0: 7, 1: 5}.__getitem__) == {0: 7, 1: 5}


def test_a_queue_in_which_the_compared_group_is_behind_needs_no_correction():
    table = offsets(g={"T": {0: 5, 1: 9, 2: 1}}, h={"T": {0: 7, 1: 3}})
    assert table.correction("T", "g", {"g"}, lambda _: 0) == {0: NOTHING_TO_CORRECT, 1: 3}
    assert table.correction("T", "g", (), lambda _: 0) == {0: 5, 1: 3, 2: 1}


# The file


def test_a_snapshot_joins_topic_and_group():
    table = offsets(g={"T": {0: 1}, "%RETRY%g": {0: 2}})
    assert table.snapshot() == ConsumerOffsetTable(offset_table={"T@g": {0: 1}, "%RETRY%g@g": {0: 2}})


def test_a_snapshot_does_not_change_any_more():
    table = offsets(g={"T": {0: 1}})
    snapshot = table.snapshot()
    table.commit("g", "T", 0, 2)
    assert snapshot.offset_table == {"T@g": {0: 1}}


def test_loading_replaces_everything():
    table = offsets(g={"T": {0: 1}})
    table.load(ConsumerOffsetTable(offset_table={"U@h@x": {0: 2}}))
    assert table.groups() == ["h@x"]
    assert table.topics_of("h@x") == ["U"]
    assert not table.dirty


def test_what_is_loaded_is_not_shared():
    saved = ConsumerOffsetTable(offset_table={"T@g": {0: 1}})
    table = ConsumerOffsets()
    table.load(saved)
    table.commit("g", "T", 0, 2)
    assert saved.offset_table == {"T@g": {0: 1}}


def test_a_name_without_a_group_is_dropped_with_a_line(caplog):
    table = ConsumerOffsets()
    table.load(ConsumerOffsetTable(offset_table={"T": {0: 1}, "U@g": {0: 2}}))
    assert table.groups() == ["g"]
    assert "'T'" in caplog.text


def test_the_version_of_a_5x_file_is_kept():
    version = DataVersion(counter=3, timestamp=4, state_version=5)
    table = ConsumerOffsets()
    table.load(ConsumerOffsetTable(data_version=version))
    assert table.snapshot().data_version == version


names = st.sampled_from(["a", "b", "%RETRY%a"])


@given(st.lists(st.tuples(names, names, st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_the_table_agrees_with_a_plain_dict_and_survives_its_file(commits):
    table, model = ConsumerOffsets(), {}
    for group, topic, queue_id, offset in commits:
        table.commit(group, topic, queue_id, offset)
        model[group, topic, queue_id] = offset
    again = ConsumerOffsets()
    again.load(table.snapshot())
    for each in (table, again):
        assert {key: each.get(*key) for key in model} == model
        for name in ("a", "b", "%RETRY%a"):
            assert set(each.topics_of(name)) == {topic for group, topic, _ in model if group == name}
            assert set(each.groups_of(name)) == {group for group, topic, _ in model if topic == name}
    assert table.dirty == bool(model)


def test_offsets_of_the_master_win_and_those_that_it_lacks_stay():
    table = offsets(g={"T": {0: 10, 1: 4}}, h={"T": {0: 2}})
    table.merge(ConsumerOffsetTable(offset_table={"T@g": {0: 3, 2: 1}, "U@i": {0: 8}, "no separator": {0: 1}}))
    assert table.of("g", "T") == {0: 3, 1: 4, 2: 1}
    assert table.of("h", "T") == {0: 2}
    assert table.of("i", "U") == {0: 8}
    assert sorted(table.groups()) == ["g", "h", "i"]
    assert table.dirty


def test_offsets_that_the_master_has_as_well_leave_the_table_clean():
    table = offsets(g={"T": {0: 10, 1: 4}})
    table.merge(ConsumerOffsetTable(offset_table={"T@g": {0: 10}}))
    assert not table.dirty
    version = DataVersion(counter=3)
    table.merge(ConsumerOffsetTable(data_version=version, offset_table={}))
    assert table.dirty
    assert table.snapshot().data_version == version
