"""Trace records of clients of several versions as events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyromq.admin.messages.traces import events
from pyromq.protocol.message import MessageExt
from pyromq.protocol.record import MessageRecord


def trace(*records):
    body = "".join("\x01".join(map(str, fields)) + "\x02" for fields in records)
    return MessageExt(MessageRecord("RMQ_SYS_TRACE_TOPIC", body.encode(), born_host=bytes([127, 0, 0, 1, 0, 0, 0, 9])))


PUB = ("Pub", 1000, "R", "makers", "orders", "ID1", "red", "k1 k2", "10.0.0.1:10911", 12, 3, 0, "OFF", "true")
BEFORE = ("SubBefore", 2000, "R", "billing", "REQ", "ID1", 0, "k1 k2")
AFTER = ("SubAfter", "REQ", "ID1", 7, "true", "k1 k2", 0, 2007, "billing")


def test_a_message_that_was_sent_and_consumed():
    publish, consume = events([trace(PUB), trace(BEFORE, AFTER)], "ID1")
    assert (publish.event, publish.group, publish.status, publish.cost_ms) == ("publish", "makers", "success", 3)
    assert (publish.topic, publish.tags, publish.size, publish.offset_id) == ("orders", "red", 12, "OFF")
    assert publish.client == "127.0.0.1:9"
    assert (consume.event, consume.group, consume.status, consume.cost_ms) == ("consume", "billing", "success", 7)


def test_events_are_found_by_a_key_too_and_those_of_others_are_left_out():
    other = ("Pub", 1000, "R", "makers", "orders", "ID2", "null", "null", "b", 1, 1, 0, "OFF", "true")
    assert [event.id for event in events([trace(PUB, other)], "k2")] == ["ID1"]
    assert events([trace(other)], "null") == []


def test_a_consumer_that_did_not_say_how_it_ended_has_no_status():
    [consume] = events([trace(BEFORE)], "ID1")
    assert (consume.status, consume.cost_ms, consume.retries) == (None, None, 0)


def test_a_failed_consumption_says_how():
    after = ("SubAfter", "REQ", "ID1", 7, "false", "k1", 2)
    assert events([trace(BEFORE, after)], "ID1")[0].status == "exception"
    older = ("SubAfter", "REQ", "ID1", 7, "false")
    assert events([trace(BEFORE, older)], "ID1")[0].status == "failed"


def test_an_older_client_writes_no_offset_id_and_a_newer_one_its_address():
    [older] = events([trace((*PUB[:12], "true"))], "ID1")
    assert (older.status, older.offset_id) == ("success", None)
    [newer] = events([trace((*PUB, "10.1.1.1"))], "ID1")
    assert (newer.status, newer.client) == ("success", "10.1.1.1")


def test_what_was_traced_twice_is_shown_once():
    assert len(events([trace(PUB), trace(PUB)], "ID1")) == 1


def test_transactions_and_recalls_are_events():
    end = ("EndTransaction", 5, "R", "makers", "orders", "ID1", "null", "k", "b", 2, "TX", "COMMIT_MESSAGE", "false")
    recall = ("Recall", 6, "R", "makers", "orders", "ID1", "false")
    assert [(each.event, each.status) for each in events([trace(end, recall)], "ID1")] == [
        ("end transaction", "COMMIT_MESSAGE"),
        ("recall", "failed"),
    ]


@given(st.lists(st.binary(max_size=60)), st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"]))
def test_any_bytes_in_the_trace_topic_end_in_a_list(parts, kind):
    body = b"\x02".join(kind.encode() + b"\x01" + part for part in parts)
    assert isinstance(events([MessageExt(MessageRecord("T", body))], "ID1"), list)
