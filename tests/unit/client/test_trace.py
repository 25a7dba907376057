"""Trace records: their exact texts, and how they are put together into messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq.client import trace
from pyromq.client.hooks import ConsumeContext, ConsumeReturn, EndTransactionContext, MessageType, SendContext
from pyromq.client.producer.send_result import SendResult, SendStatus, TxState
from pyromq.client.trace import Record, TraceHook, segments
from pyromq.protocol.message import Message, MessageExt, MessageRecord
from pyromq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")


def sent(*messages, status=SendStatus.SEND_OK, message_id="ID", trace_on=True, topic="orders"):
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic=topic)
    return SendContext(
        group="makers",
        client_id="me",
        messages=messages,
        message_id=message_id,
        queue=queue,
        address="10.0.0.1:10911",
        message_type=MessageType.NORMAL,
        body_length=5,
        oneway=False,
        started_ms=1700000000000,
        cost_ms=7,
        result=SendResult(status, message_id, "OFFSETID", queue, 3, region="hz"),
        trace_on=trace_on,
    )


def hook():
    client = cast("Any", SimpleNamespace(trace=True))
    return TraceHook(client, "makers", "PRODUCE")


@pytest.mark.scenario("client 26")
def test_the_record_of_a_send_has_rocketmqs_fields_in_its_order():
    context = sent(Message("orders", b"12345", tags="TagA", keys=["k1", "k2"]))
    expected = [
        "Pub", "1700000000000", "hz", "makers", "orders", "ID", "TagA", "k1 k2", "10.0.0.1:10911", "5", "7", "0",
        "OFFSETID", "true",
    ]  # fmt: skip
    assert trace.pub(context) == Record("\x01".join(expected) + "\x02", ("ID", "k1", "k2"))


def test_what_is_missing_reads_null_and_what_was_not_confirmed_is_no_success():
    text = trace.pub(sent(Message("orders", b"x"), status=SendStatus.FLUSH_DISK_TIMEOUT)).text
    assert text.rstrip("\x02").split("\x01")[6:8] == ["null", "null"]
    assert text.endswith("\x01false\x02")


def test_a_batch_is_one_record_found_by_each_of_its_ids():
    record = trace.pub(sent(Message("orders", b"x", tags="a"), Message("orders", b"y"), message_id="ID1,ID2"))
    assert record.text.split("\x01")[5:8] == ["ID1,ID2", "null", "null"]
    assert record.keys == ("ID1", "ID2")


@pytest.mark.scenario("client 26")
def test_the_record_of_a_decision_has_rocketmqs_fields_in_its_order():
    context = EndTransactionContext(
        group="makers",
        topic="orders",
        tags=None,
        keys="k",
        region="hz",
        message_id="ID",
        transaction_id="TX",
        address="10.0.0.1:10911",
        state=TxState.UNKNOWN,
        from_check=True,
    )
    expected = [
        "EndTransaction", "9", "hz", "makers", "orders", "ID", "null", "k", "10.0.0.1:10911", "2", "TX", "UNKNOW",
        "true",
    ]  # fmt: skip
    assert trace.ended(context, 9) == Record("\x01".join(expected) + "\x02", ("ID", "k"))


def test_the_record_of_a_recall():
    assert trace.recalled(9, "hz", "makers", "orders", "ID", True).text == (
        "Recall\x019\x01hz\x01makers\x01orders\x01ID\x01true\x02"
    )


@pytest.mark.scenario("client 26")
def test_the_records_of_a_consumption_have_rocketmqs_fields_in_their_order(monkeypatch):
    times = iter((1000, 1025))
    monkeypatch.setattr(trace, "_now_ms", lambda: next(times))
    monkeypatch.setattr(trace, "make_uniq_key", lambda: "REQUEST")
    properties = b"UNIQ_KEY\x01ID\x02KEYS\x01k\x02MSG_REGION\x01hz"
    quiet = b"UNIQ_KEY\x01OTHER\x02TRACE_ON\x01false"
    messages = [MessageExt(MessageRecord("orders", b"x", text, reconsume_times=2)) for text in (properties, quiet)]
    context = ConsumeContext(group="readers", queue=QUEUE, messages=messages)
    tracing = hook()
    tracing.before_consume(context)
    context.success, context.returned = True, ConsumeReturn.SUCCESS
    tracing.after_consume(context)
    tracing.after_consume(context)
    assert [record.text for record in tracing._waiting] == [
        "SubBefore\x011000\x01hz\x01readers\x01REQUEST\x01ID\x012\x01k\x02",
        "SubAfter\x01REQUEST\x01ID\x0112\x01true\x01k\x010\x011025\x01readers\x02",
    ]
    assert {record.keys for record in tracing._waiting} == {("ID", "k")}


def test_what_is_not_to_be_traced_is_not():
    tracing = hook()
    failed = sent(Message("orders", b"x"))
    failed.result = None
    quiet = sent(Message("orders", b"x"), trace_on=False)
    of_traces = sent(Message("RMQ_SYS_TRACE_TOPIC", b"x"), topic="RMQ_SYS_TRACE_TOPIC")
    for context in (failed, quiet, of_traces):
        tracing.after_send(context)
    assert not tracing._waiting


@pytest.mark.scenario("client 26")
def test_when_too_many_records_wait_more_are_dropped_and_counted():
    tracing = hook()
    for _ in range(1030):
        tracing.after_send(sent(Message("orders", b"x")))
    assert len(tracing._waiting) == 1024
    assert tracing.dropped == 6


def test_records_fill_messages_up_to_their_limit():
    records = [Record(str(number % 10) * 1000, (f"key{number}",)) for number in range(300)]
    made = list(segments(records))
    assert [len(body) for body, _ in made] == [118_000, 118_000, 64_000]
    assert " ".join(keys for _, keys in made).split() == [f"key{number}" for number in range(300)]


def test_the_keys_of_a_message_stay_within_what_properties_may_take():
    made = list(segments([Record("x", ("k" * 99 + str(number),)) for number in range(1000)]))
    assert all(len(keys) <= 30_000 for _, keys in made)
    assert sum(len(body) for body, _ in made) == 1000


def test_a_record_larger_than_a_message_goes_alone():
    assert [len(body) for body, _ in segments([Record("x" * 200_000, ()), Record("y", ())])] == [200_000, 1]


def test_nothing_to_trace_makes_no_message():
    assert list(segments([])) == []
