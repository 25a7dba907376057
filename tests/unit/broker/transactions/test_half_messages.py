"""The rules for half messages and op records, by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pyromq.broker.transactions.half_messages import (
    Verdict,
    as_sent,
    check_times,
    comes_too_late,
    committed,
    given_up,
    is_half,
    is_same,
    objection,
    origin,
    prepared,
    renewed,
    resumed,
    verdict,
)
from pyromq.broker.transactions.op_records import Decided, offsets_in, op_record
from pyromq.protocol import properties as props
from pyromq.protocol.headers import EndTransaction
from pyromq.protocol.record import MessageRecord

BORN = 1_700_000_000_000
HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


def parsed(record: MessageRecord) -> dict[str, str]:
    return props.parse(props.decode(record.properties))


def half_message(body: bytes = b"paid", offset: int = 7, **properties: Any) -> MessageRecord:
    sent = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "ID", "TAGS": "A"}
    record = MessageRecord("orders", body, queue_id=3, flag=5, sys_flag=0x10D, born_timestamp=BORN, reconsume_times=1)
    half = prepared(record, sent)
    # Also what no sender may set.
    more = "".join(f"\x02{name}\x01{value}" for name, value in properties.items())
    return replace(half, queue_offset=offset, physical_offset=5000, properties=half.properties + more.encode())


@pytest.mark.parametrize(
    ("properties", "times", "expected"),
    [
        ({"TRAN_MSG": "true"}, 0, True),
        ({"TRAN_MSG": "TRUE"}, 0, True),
        ({"TRAN_MSG": "false"}, 0, False),
        ({"TRAN_MSG": "1"}, 0, False),
        ({}, 0, False),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 0, True),
        ({"TRAN_MSG": "true"}, 2, True),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 2, False),
        ({"TRAN_MSG": "true", "DELAY": "x"}, 2, True),
    ],
)
def test_a_half_message_is_one_that_says_so_and_is_not_being_retried(properties, times, expected):
    assert is_half(properties, times) is expected


def test_a_half_message_keeps_everything_and_where_it_is_for():
    half = half_message()
    assert (half.topic, half.queue_id, half.body, half.flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"paid", 5)
    assert half.sys_flag == 0x101
    assert (half.born_timestamp, half.reconsume_times) == (BORN, 1)
    sent = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "ID", "TAGS": "A"}
    assert parsed(half) == sent | {"REAL_TOPIC": "orders", "REAL_QID": "3"}


def test_what_a_sender_copied_from_another_transaction_does_not_count():
    stale = {"TRANSACTION_CHECK_TIMES": "14", "TRAN_PREPARED_QUEUE_OFFSET": "3", "REAL_TOPIC": "old", "REAL_QID": "9"}
    half = prepared(MessageRecord("orders", b"paid", queue_id=2), stale | {"TRAN_MSG": "true"})
    assert parsed(half) == {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "2"}


def test_a_committed_message_is_the_one_that_was_sent():
    half = half_message()
    message = committed(half, HOST)
    assert message is not None
    assert (message.topic, message.queue_id, message.body, message.flag) == ("orders", 3, b"paid", 5)
    assert message.sys_flag == 0x109
    assert (message.born_timestamp, message.reconsume_times, message.prepared_transaction_offset) == (BORN, 1, 5000)
    assert message.properties == half.properties


@pytest.mark.parametrize(
    "wrong",
    [{"REAL_TOPIC": ""}, {"REAL_TOPIC": "a b"}, {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"}, {"REAL_QID": "-1"}],
)
def test_a_half_message_that_is_for_no_topic_cannot_be_committed(wrong):
    text = props.render({"REAL_TOPIC": "orders", "REAL_QID": "3"} | wrong)
    half = MessageRecord("RMQ_SYS_TRANS_HALF_TOPIC", b"x", props.encode(text))
    assert committed(half, HOST) is None
    assert as_sent(half) is half


def test_every_copy_names_the_first_place_and_counts_only_questions():
    first = half_message()
    assert origin(first) == 7
    second = renewed(first, HOST, 1)
    assert (origin(second), check_times(second)) == (7, 1)
    third = renewed(second, HOST, 1)  # spared
    assert (origin(third), check_times(third)) == (7, 1)
    assert is_same(first, third)
    assert parsed(third).items() >= parsed(first).items()
    assert (as_sent(third).topic, as_sent(third).queue_id) == ("orders", 3)
    spared = renewed(first, HOST, 0)
    assert "TRANSACTION_CHECK_TIMES" not in parsed(spared)


def test_two_messages_are_not_the_same_because_one_says_so():
    assert not is_same(half_message(offset=7), half_message(b"other", offset=9, TRAN_PREPARED_QUEUE_OFFSET=7))
    assert not is_same(half_message(), half_message(offset=8))


def test_a_resumed_message_begins_anew():
    asked = renewed(renewed(half_message(), HOST, 14), HOST, 15)
    dead = given_up(asked, HOST)
    assert (dead.topic, dead.queue_id, dead.properties) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0, asked.properties)
    again = resumed(dead, HOST)
    assert (again.topic, check_times(again)) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert parsed(again)["REAL_TOPIC"] == "orders"
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in parsed(again)
    plain = resumed(MessageRecord("T", b"x", queue_id=4, prepared_transaction_offset=9), HOST)
    assert (parsed(plain)["REAL_TOPIC"], parsed(plain)["REAL_QID"]) == ("T", "4")


@pytest.mark.parametrize(
    ("group", "offset", "physical", "expected"),
    [
        ("shop", 7, 5000, None),
        ("other", 8, 5001, "The producer group wrong"),
        ("shop", 8, 5001, "The transaction state table offset wrong"),
        ("shop", 7, 5001, "The commit log offset wrong"),
    ],
)
def test_an_end_must_name_group_and_both_offsets(group, offset, physical, expected):
    assert objection(half_message(), EndTransaction(group, offset, physical, 8, "ID")) == expected


# When to ask


def judged(age: int, **properties: Any) -> Verdict:
    limits: dict[str, Any] = {"timeout": 6000, "check_max": 15, "kept": 3_600_000}
    return verdict(half_message(**properties), BORN + age, **limits)


@pytest.mark.parametrize(
    ("age", "properties", "expected"),
    [
        (0, {}, Verdict.WAIT),
        (5_999, {}, Verdict.WAIT),
        (6_000, {}, Verdict.ASK),
        (-1, {}, Verdict.ASK),  # a sender whose clock is ahead
        (3_600_001, {}, Verdict.GIVE_UP),
        (60_000, {"TRANSACTION_CHECK_TIMES": 14}, Verdict.ASK),
        (60_000, {"TRANSACTION_CHECK_TIMES": 15}, Verdict.GIVE_UP),
        (60_000, {"TRANSACTION_CHECK_TIMES": "x"}, Verdict.ASK),
        (0, {"CHECK_IMMUNITY_TIME_IN_SECONDS": 30}, Verdict.SPARE),
        (29_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": 30}, Verdict.SPARE),
        (30_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": 30}, Verdict.ASK),
        (1_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": 1}, Verdict.ASK),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": -1}, Verdict.SPARE),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": -1}, Verdict.ASK),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "x"}, Verdict.SPARE),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "x"}, Verdict.ASK),
    ],
)
def test_a_producer_is_asked_when_its_message_is_old_enough_and_not_for_ever(age, properties, expected):
    assert judged(age, **properties) is expected


@pytest.mark.parametrize(
    ("age", "immunity", "expected"),
    [(60_000, None, False), (30_000, "30", False), (30_001, "30", True), (6_000, "1", False), (6_001, "1", True)],
)
def test_an_end_after_the_time_that_the_producer_asked_for_comes_too_late(age, immunity, expected):
    half = half_message(**({} if immunity is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity}))
    assert comes_too_late(half, 6000, BORN + age) is expected


# Op records


def test_an_op_record_is_that_of_rocketmq():
    op = op_record(12, BORN, HOST)
    assert (op.topic, op.queue_id, op.body) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"12")
    assert parsed(op) == {"TAGS": "d", "WAIT": "true"}
    assert (op.born_timestamp, op.born_host, op.store_host, op.sys_flag) == (BORN, HOST, HOST, 0)
    assert offsets_in(op) == [12]


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"12,13,17,", [12, 13, 17]), (b"", []), (b",", []), (b"-1,x,1.5, 4,5", [5]), (b"9" * 20, [])],
)
def test_op_records_of_5_x_name_several_offsets(body, expected):
    assert offsets_in(MessageRecord("O", body, b"TAGS\x01d")) == expected


def test_a_record_with_another_tag_says_nothing():
    assert offsets_in(MessageRecord("O", b"12", b"TAGS\x01x")) == []


@given(st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_what_was_read_of_the_op_queue_agrees_with_a_set(ops, start, length):
    decided = Decided(start, start + length, 100)
    for offsets in ops:
        decided.read(offsets)
    named = {offset for offsets in ops for offset in offsets}
    for offset in range(start, start + length):
        assert decided.is_open(offset) is (offset not in named)
        after = next((each for each in range(offset, start + length) if each not in named), start + length)
        assert decided.next_open(offset) == after
    assert decided.op_offset == 100 + len(ops)
    for offset in range(45):
        needed = decided.op_offset_for(offset)
        assert all(max(each, default=-1) < offset for each in ops[: needed - 100])
        assert needed == 100 + len(ops) or max(ops[needed - 100]) >= offset
