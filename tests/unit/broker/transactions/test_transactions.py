"""How transactions begin and end: half messages, commits, rollbacks, and messages that are resumed."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec.structs import replace
from tests.unit.broker.message_kit import STORE_HOST, Peer, request, send_request
from tests.unit.broker.transactions.transaction_kit import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OP,
    ROLLBACK,
    UNKNOWN,
    Transactions,
    end_request,
)

from pyromq.broker.config import BrokerConfig
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.headers import ResumeCheckHalfMessage
from pyromq.protocol.ids import encode_offset_message_id
from pyromq.protocol.record import MessageRecord
from pyromq.store import PutResult, PutStatus


@pytest.fixture
async def parts(tmp_path):
    made = Transactions(tmp_path)
    made.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.close()


# Prepare


async def test_a_half_message_is_stored_where_nobody_consumes_it(parts):
    asked = send_request(b"paid", "TRAN_MSG\x01true\x02PGROUP\x01shop\x02WAIT\x01true", queue_id=2, sys_flag=5)
    reply = await parts.ask(Peer(), asked)
    assert (reply.code, reply.ext["queueId"], reply.ext["queueOffset"]) == (0, "2", "0")
    (half,) = parts.messages(HALF, 0)
    assert reply.ext["msgId"] == half.offset_msg_id
    assert (half.find_property("REAL_TOPIC"), half.find_property("REAL_QID"), half.sys_flag) == ("orders", "2", 1)
    assert half.find_property("WAIT") is None
    assert (parts.seen, parts.decided) == ([], [])
    assert parts.topics.get(HALF).write_queue_nums == 1
    assert parts.topics.get(OP) is None


async def test_the_queue_that_the_broker_picks_is_kept(parts):
    for _ in range(5):
        half = await parts.prepare(queue_id=-1)
        await parts.end(half)
    halves = parts.messages(HALF, 0)
    assert {half.find_property("REAL_QID") for half in halves} <= {"0", "1", "2", "3"}
    assert sorted(parts.seen) == [b"paid"] * 5


async def test_a_delay_begins_with_the_commit(parts):
    half = await parts.prepare(b"later", DELAY=3)
    assert parts.messages("SCHEDULE_TOPIC_XXXX", 2) == []
    parts.now += 5000
    assert (await parts.end(half)).code == 0
    (parked,) = parts.messages("SCHEDULE_TOPIC_XXXX", 2)
    assert parked.sys_flag & 12 == 8
    assert parts.store.queue("SCHEDULE_TOPIC_XXXX", 2).entry(0)[2] == parts.now + 10_000
    assert parts.decided == ["0"]
    parts.now += 10_000
    parts.schedule.step()
    await asyncio.sleep(0)
    (seen,) = parts.messages("orders", 1)
    assert (seen.body, seen.find_property("REAL_TOPIC"), seen.sys_flag & 12) == (b"later", "orders", 8)


async def test_so_does_the_time_of_a_timer(parts):
    half = await parts.prepare(b"later", TIMER_DELAY_SEC=5)
    assert parts.messages("rmq_sys_wheel_timer", 0) == []
    assert (await parts.end(half)).code == 0
    (parked,) = parts.messages("rmq_sys_wheel_timer", 0)
    assert (parked.body, parked.sys_flag & 12, parked.find_property("REAL_TOPIC")) == (b"later", 8, "orders")
    assert (parts.seen, parts.decided) == ([], ["0"])


async def test_a_half_message_whose_delay_is_no_number_is_refused(parts):
    reply = await parts.send(b"x", "TRAN_MSG\x01true\x02PGROUP\x01shop\x02DELAY\x01soon")
    assert reply.code == 1
    assert parts.messages(HALF, 0) == []


async def test_transactions_can_be_refused(tmp_path):
    parts = Transactions(tmp_path, config=BrokerConfig(broker_ip1="10.0.0.1", reject_transaction=True))
    half = await parts.send(b"x", "TRAN_MSG\x01true\x02PGROUP\x01shop")
    assert (half.code, half.remark) == (16, "the broker[10.0.0.1] sending transaction message is forbidden")
    parts.close()


async def test_a_retried_message_that_was_a_transaction_once_is_none_now(parts):
    parts.groups.get("billing")
    text = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02DELAY\x013"
    asked = send_request(b"again", text, topic="%RETRY%billing", reconsume_times=2)
    assert (await parts.ask(Peer(), asked)).code == 0
    assert parts.messages(HALF, 0) == []
    assert len(parts.messages("SCHEDULE_TOPIC_XXXX", 2)) == 1


# End


async def test_a_commit_stores_the_message_and_right_behind_it_the_op_record(parts):
    first, second = await parts.prepare(b"one", TAGS="A"), await parts.prepare(b"two")
    assert (await parts.end(first)).code == 0
    (message,) = parts.messages("orders", 1)
    assert (message.body, message.sys_flag & 12, message.prepared_transaction_offset) == (b"one", 8, first.physical)
    assert (message.find_property("PGROUP"), message.find_property("TAGS")) == ("shop", "A")
    (op,) = parts.messages(OP, 0)
    assert op.physical_offset == message.physical_offset + message.store_size
    assert (op.body, op.find_property("TAGS"), op.store_host) == (b"0", "d", STORE_HOST)
    assert (await parts.end(second)).code == 0
    assert parts.seen == [b"one", b"two"]
    assert parts.decided == ["0", "1"]


async def test_a_rollback_stores_the_op_record_only(parts):
    half = await parts.prepare()
    reply = await parts.end(half, ROLLBACK)
    assert (reply.code, reply.remark) == (0, None)
    assert (parts.seen, parts.decided) == ([], ["0"])


async def test_many_ends_in_one_turn_are_one_write_and_each_op_record_follows_its_message(parts):
    halves = [await parts.prepare(b"%d" % number) for number in range(5)]
    writes = 0
    write = parts.store.log.write

    def counting(data):
        nonlocal writes
        writes += 1
        write(data)

    parts.store.log.write = counting
    peer = Peer()
    for half in halves:
        parts.processors[37](peer, end_request(half.offset, half.physical, COMMIT))
    parts.processors[37](peer, end_request(halves[0].offset, halves[0].physical, ROLLBACK))
    await asyncio.sleep(0)
    parts.store.log.write = write
    assert writes == 1
    assert [reply.code for reply in peer.replies] == [0] * 6
    ops = {op.physical_offset: op.body for op in parts.messages(OP, 0)}
    for message in parts.messages("orders", 1):
        assert ops[message.physical_offset + message.store_size] == message.body


async def test_a_producer_that_does_not_know_gets_no_answer(parts):
    half = await parts.prepare()
    assert await parts.end(half, UNKNOWN) is None
    assert (parts.seen, parts.decided) == ([], [])


@pytest.mark.parametrize("how", [77, -1, 4, 16])
async def test_an_end_that_is_none_is_refused(parts, how):
    half = await parts.prepare()
    reply = await parts.end(half, how)
    assert (reply.code, reply.remark) == (1, "commitOrRollback field wrong")


async def test_an_end_must_fit_a_half_message(parts):
    first, second = await parts.prepare(), await parts.prepare()
    plain = await parts.send(b"x", "PGROUP\x01shop\x02REAL_TOPIC\x01orders\x02REAL_QID\x010")
    not_half = int(plain.ext["msgId"][16:], 16)
    refusals = [
        await parts.end(first, group="other"),
        await parts.ask(Peer(), end_request(5, first.physical, COMMIT)),
        await parts.ask(Peer(), end_request(first.offset, second.physical, COMMIT)),
        await parts.ask(Peer(), end_request(first.offset, first.physical + 1, COMMIT)),
        await parts.ask(Peer(), end_request(0, not_half, COMMIT)),
        await parts.ask(Peer(), end_request(0, 2**62, ROLLBACK)),
        await parts.ask(Peer(), end_request(0, -1, ROLLBACK)),
    ]
    assert {reply.code for reply in refusals} == {1}
    assert [reply.remark for reply in refusals] == [
        "The producer group wrong",
        "The transaction state table offset wrong",
        "The transaction state table offset wrong",
        *["Find prepared transaction message failed"] * 4,
    ]
    missing = request(37, ResumeCheckHalfMessage("x"))  # no field of an end
    assert (await parts.ask(Peer(), missing)).code == 1
    assert parts.decided == []


async def test_a_committed_message_cannot_be_committed_once_more_by_its_own_place(parts):
    half = await parts.prepare(queue_id=0)
    await parts.end(half)
    (message,) = parts.messages("orders", 0)
    again = await parts.ask(Peer(), end_request(0, message.physical_offset, COMMIT))
    assert again.remark == "Find prepared transaction message failed"
    assert parts.seen == [b"paid"]


async def test_a_half_message_for_no_topic_cannot_be_committed(parts):
    record = MessageRecord(HALF, b"x", b"PGROUP\x01shop", born_host=STORE_HOST, store_host=STORE_HOST)
    [result] = parts.store.put([(parts.store.queue(HALF, 0), (record,))])
    reply = await parts.ask(Peer(), end_request(0, result.physical_offset, COMMIT))
    assert reply.code == 1
    assert (await parts.ask(Peer(), end_request(0, result.physical_offset, ROLLBACK))).code == 0
    assert parts.decided == ["0"]


async def test_an_end_too_late_is_left_to_the_answer(parts):
    half = await parts.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS=30)
    parts.now += 30_001
    assert (await parts.end(half)).code == 604
    assert parts.seen == []
    assert (await parts.end(half, from_transaction_check=True)).code == 0
    assert parts.seen == [b"paid"]


async def test_stored_transactions_are_counted(parts):
    await parts.end(await parts.prepare())
    await parts.end(await parts.prepare(), ROLLBACK)
    parts.sends.count()
    counters = {key: counter.value for key, counter in parts.stats._counters.items()}
    (message,) = parts.messages("orders", 1)
    assert counters["TOPIC_PUT_NUMS", HALF] == 2
    assert counters["TOPIC_PUT_NUMS", "orders"] == 1
    assert counters["TOPIC_PUT_SIZE", "orders"] == message.store_size
    assert counters["BROKER_PUT_NUMS", "DefaultCluster"] == 3


# What the store does not take


async def test_a_message_that_has_become_too_long_is_committed_all_the_same(parts):
    half, small = await parts.prepare(b"x" * 1000), await parts.prepare(b"small")
    parts.store.reconfigure(dataclasses.replace(parts.store.config, max_message_size=100))
    assert (await parts.end(half)).code == 0
    assert (await parts.end(small)).code == 0
    assert [len(body) for body in parts.seen] == [1000, 5]
    assert parts.decided == ["0", "1"]
    first, op = parts.messages("orders", 1)[0], parts.messages(OP, 0)[0]
    assert op.physical_offset == first.physical_offset + first.store_size


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_what_a_store_refuses_is_not_decided(parts, how):
    half = await parts.prepare()
    parts.store.refusals["disk"] = "the disk is nearly full"
    reply = await parts.end(half, how)
    assert (reply.code, reply.remark) == (14, "Service not available now.")
    del parts.store.refusals["disk"]
    assert parts.decided == []
    assert (await parts.end(half)).code == 0
    assert parts.seen == [b"paid"]


async def test_an_op_record_is_never_stored_without_its_message(parts, monkeypatch):
    """Not even when it is the first of a new file, and the disk did not take the end of the old one."""
    half = await parts.prepare()
    (record,) = parts.messages(HALF, 0)
    filler = MessageRecord("filler", b"", born_host=STORE_HOST, store_host=STORE_HOST)
    left = parts.store.log.room() - record.store_size - filler.store_size  # enough for the message, not for both
    parts.store.put([(parts.store.queue("filler", 0), [replace(filler, body=bytes(left))])])
    write = parts.store.log.write
    failed: list[bytes] = []

    def failing_once(data):
        if not failed:
            failed.append(data)
            raise OSError(28, "No space left on device")
        write(data)

    monkeypatch.setattr(parts.store.log, "write", failing_once)
    reply = await parts.end(half)
    assert (reply.code, reply.remark) == (1, "UNKNOWN_ERROR")
    assert b"paid" in failed[0]
    assert b"OP_HALF" not in failed[0]
    assert parts.decided == []
    assert (await parts.end(half)).code == 0
    assert parts.messages("orders", 1)[0].body == b"paid"
    assert parts.decided == ["0"]


async def test_an_op_record_that_was_not_stored_behind_its_message_is_owed(parts, monkeypatch):
    half = await parts.prepare()
    put = parts.store.put

    def without_room(units):
        return [*put(units[:-1]), PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, error="no file")]

    with monkeypatch.context() as broken:
        broken.setattr(parts.store, "put", without_room)
        broken.setattr(parts.store, "put_again", lambda unit: [PutResult(PutStatus.UNKNOWN_ERROR, error="no disk")])
        assert (await parts.end(half)).code == 0
    assert (parts.seen, parts.decided) == ([b"paid"], [])
    await parts.round()
    assert parts.decided == ["0"]
    assert parts.position == (1, 1)


# Resuming


async def test_any_message_can_be_resumed_as_a_half_message(parts):
    half = await parts.prepare()
    (record,) = parts.messages(HALF, 0)
    reply = await parts.ask(Peer(), request(323, ResumeCheckHalfMessage(record.offset_msg_id)))
    assert reply.code == 0
    again = parts.messages(HALF, 0)[1]
    assert (again.body, again.find_property("TRANSACTION_CHECK_TIMES")) == (b"paid", "0")
    assert half.offset != again.queue_offset
    assert parts.topics.get(GIVEN_UP) is None


@pytest.mark.parametrize("message_id", ["", "x", encode_offset_message_id(STORE_HOST, 12345)])
async def test_what_is_not_there_cannot_be_resumed(parts, message_id):
    reply = await parts.ask(Peer(), request(323, ResumeCheckHalfMessage(message_id)))
    remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
    assert (reply.code, reply.remark) == (1, remark)


async def test_a_store_that_takes_nothing_resumes_nothing(parts):
    reply = await parts.send(b"x")
    parts.store.refusals["disk"] = "the disk is nearly full"
    refused = await parts.ask(Peer(), request(323, ResumeCheckHalfMessage(reply.ext["msgId"])))
    assert (refused.code, refused.remark) == (1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
    del parts.store.refusals["disk"]
