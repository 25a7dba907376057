"""Rounds of questions about transactions that nobody has ended, over restarts and crashes."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.broker.message_kit import STORE_HOST, Peer, request
from tests.unit.broker.transactions.transaction_kit import (
    COMMIT,
    GIVEN_UP,
    HALF,
    INTERVAL,
    OP,
    ROLLBACK,
    SECOND,
    TIMEOUT,
    Producer,
    Transactions,
    end_request,
)

from pyromq.broker.config import BrokerConfig
from pyromq.broker.transactions import check_back
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.headers import ResumeCheckHalfMessage
from pyromq.protocol.record import MessageRecord


def made(folder, **config):
    parts = Transactions(folder, config=BrokerConfig(broker_name="broker-a", broker_ip1="10.0.0.1", **config))
    parts.topics.update(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
    return parts


@pytest.fixture
async def parts(tmp_path):
    parts = made(tmp_path)
    yield parts
    if not parts.store.refusals:  # it was not restarted
        parts.close()


@pytest.fixture
def producer(parts):
    producer = Producer()
    parts.join(producer)
    return producer


async def test_a_producer_is_asked_about_the_newest_copy_and_its_answer_counts(parts, producer):
    half = await parts.prepare(b"paid", TAGS="A")
    await parts.round()
    ((header, message),) = producer.asked
    copy = parts.messages(HALF, 0)[1]
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert (header.tran_state_table_offset, header.commit_log_offset) != (half.offset, half.physical)
    unique = copy.find_property("UNIQ_KEY")
    assert (header.msg_id, header.transaction_id, header.offset_msg_id) == (unique, unique, copy.offset_msg_id)
    assert (message.topic, message.queue_id, message.body) == ("orders", 1, b"paid")
    assert (message.queue_offset, message.physical_offset) == (1, copy.physical_offset)
    assert message.find_property("TRANSACTION_CHECK_TIMES") == "1"
    assert (await parts.answer(producer.asked[0])).code == 0
    assert parts.seen == [b"paid"]
    await parts.round()
    assert len(producer.asked) == 1
    assert parts.position == (2, 2)


async def test_nobody_is_asked_about_what_was_decided(parts, producer):
    for how in (COMMIT, ROLLBACK) * 50:
        await parts.end(await parts.prepare(), how)
    await parts.round()
    assert producer.asked == []
    assert parts.position == (100, 100)


async def test_a_young_message_waits_and_those_behind_it_too(parts, producer):
    await parts.prepare(b"old")
    parts.now += TIMEOUT
    await parts.prepare(b"young")
    await parts.round(after=TIMEOUT - 1)
    assert [message.body for _, message in producer.asked] == [b"old"]
    assert parts.position == (1, 0)  # its op record names what is done with, but was not looked at
    await parts.round(after=1)
    assert [message.body for _, message in producer.asked] == [b"old", b"young", b"old"]


async def test_the_order_of_decisions_does_not_matter(parts, producer):
    halves = [await parts.prepare(b"%d" % number) for number in range(200)]
    shuffled = halves[:]
    random.Random(1).shuffle(shuffled)
    for half in shuffled[:-3]:
        await parts.end(half, ROLLBACK)
    await parts.round()
    asked = {int(message.body) for _, message in producer.asked}
    assert asked == {half.offset for half in shuffled[-3:]}
    assert parts.position[0] == 200


async def test_a_message_is_given_up_after_so_many_questions(tmp_path):
    parts = made(tmp_path, transaction_check_max=2)
    producer = Producer()
    parts.join(producer)
    half = await parts.prepare()
    for _ in range(5):
        await parts.round()
    assert len(producer.asked) == 2
    (dead,) = parts.messages(GIVEN_UP, 0)
    assert (dead.body, dead.find_property("TRANSACTION_CHECK_TIMES")) == (b"paid", "2")
    assert dead.find_property("REAL_TOPIC") == "orders"
    assert parts.topics.get(GIVEN_UP).read_queue_nums == 1
    assert parts.position[0] == 3
    # Its producer may still decide it.
    assert (await parts.end(half)).code == 0
    assert parts.seen == [b"paid"]
    parts.close()


async def test_a_message_is_given_up_when_the_log_would_soon_be_deleted(parts, producer):
    await parts.prepare()
    await parts.round(after=72 * 3600 * SECOND + 1)
    assert producer.asked == []
    assert [dead.body for dead in parts.messages(GIVEN_UP, 0)] == [b"paid"]


async def test_a_producer_that_does_not_want_to_be_asked_yet_is_not_and_that_costs_no_question(tmp_path):
    parts = made(tmp_path, transaction_check_max=2)
    producer = Producer()
    parts.join(producer)
    await parts.prepare(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS=30)
    await parts.prepare(b"plain")
    for _ in range(14):
        await parts.round(after=2 * SECOND)
    assert {message.body for _, message in producer.asked} == {b"plain"}
    producer.asked.clear()
    for _ in range(5):
        await parts.round(after=2 * SECOND)
    assert [message.body for _, message in producer.asked] == [b"slow", b"slow"]
    assert [message.find_property("TRANSACTION_CHECK_TIMES") for _, message in producer.asked] == ["1", "2"]
    parts.close()


async def test_questions_go_round_among_the_producers_of_the_group(parts):
    producers = [Producer(f"10.0.0.{number}:1") for number in range(3)]
    parts.join(*producers)
    stranger = Producer("10.0.0.9:1")
    parts.join(stranger, group="other")
    for _ in range(6):
        await parts.prepare()
    await parts.round()
    assert [len(producer.asked) for producer in producers] == [2, 2, 2]
    assert stranger.asked == []


async def test_a_producer_that_does_not_take_a_question_is_passed_over(parts):
    gone, here = Producer("10.0.0.1:1"), Producer("10.0.0.2:1")
    parts.join(gone, here)
    gone.closed = True
    for _ in range(4):
        await parts.prepare()
    await parts.round()
    assert len(here.asked) == 4


async def test_without_a_producer_it_is_asked_later(parts, caplog):
    await parts.prepare()
    await parts.round()
    assert "no producer of ['shop'] answers transaction checks" in caplog.text
    producer = Producer()
    parts.join(producer)
    await parts.round()
    assert [message.find_property("TRANSACTION_CHECK_TIMES") for _, message in producer.asked] == ["2"]


async def test_a_resumed_message_is_asked_about_again(tmp_path):
    parts = made(tmp_path, transaction_check_max=1)
    producer = Producer()
    parts.join(producer)
    await parts.prepare()
    for _ in range(3):
        await parts.round()
    (dead,) = parts.messages(GIVEN_UP, 0)
    assert (await parts.ask(Peer(), request(323, ResumeCheckHalfMessage(dead.offset_msg_id)))).code == 0
    await parts.round()
    assert len(producer.asked) == 2
    assert (await parts.answer(producer.asked[1])).code == 0
    assert parts.seen == [b"paid"]
    parts.close()


# Ends by the first offsets, of messages that have copies by then


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("restart", [False, True])
async def test_an_end_that_names_the_first_place_counts_for_the_newest_copy(parts, producer, rounds, how, restart):
    half = await parts.prepare()
    for _ in range(rounds):
        await parts.round()
    if restart:
        parts = parts.again()
        parts.join(producer)
    assert (await parts.end(half, how)).code == 0
    asked = len(producer.asked)
    for _ in range(3):
        await parts.round()
    assert len(producer.asked) == asked
    assert parts.seen == ([b"paid"] if how == COMMIT else [])
    assert parts.messages(GIVEN_UP, 0) == []
    parts.close()


@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_an_answer_and_an_end_by_the_first_place_make_one_message(parts, producer, rounds):
    half = await parts.prepare()
    await parts.round()
    assert (await parts.end(half)).code == 0
    for _ in range(rounds):
        await parts.round()
    assert (await parts.answer(producer.asked[0])).code == 0
    assert parts.seen == [b"paid"]
    half = await parts.prepare(b"two")
    await parts.round()
    assert (await parts.answer(producer.asked[-1])).code == 0
    for _ in range(rounds):
        await parts.round()
    assert (await parts.end(half, ROLLBACK)).code == 0
    assert parts.seen == [b"paid", b"two"]
    assert len(parts.decided) == 2 + 2  # each renewed, each decided


async def test_an_end_that_could_not_be_stored_can_be_said_again_of_a_copy(parts, producer):
    await parts.prepare()
    await parts.round()
    parts.store.refusals["disk"] = "the disk is nearly full"
    assert (await parts.answer(producer.asked[0])).code == 14
    del parts.store.refusals["disk"]
    assert (await parts.answer(producer.asked[0])).code == 0
    assert parts.seen == [b"paid"]


# Restarts and crashes


@pytest.mark.parametrize("crash", [False, True])
async def test_what_was_decided_stays_so_over_a_restart(parts, producer, crash):
    for how in (COMMIT, ROLLBACK):
        await parts.end(await parts.prepare(), how)
    again = parts.again(crash=crash)
    again.join(producer)
    await again.round()
    await again.round()
    assert producer.asked == []
    assert again.seen == [b"paid"]
    again.close()


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_offsets_that_were_not_saved_make_no_second_copy(parts, producer, rounds):
    saved = parts.offsets.snapshot()
    await parts.prepare(b"a")
    await parts.prepare(b"b")
    for _ in range(rounds):
        await parts.round()
    again = parts.again(saved=saved, crash=True)
    again.join(producer)
    producer.asked.clear()
    await again.round()
    assert sorted(message.body for _, message in producer.asked) == [b"a", b"b"]
    for question in producer.asked:
        await again.answer(question)
    assert sorted(again.seen) == [b"a", b"b"]
    again.close()


async def test_offsets_beyond_the_log_are_taken_back(parts, producer):
    for _ in range(3):
        await parts.end(await parts.prepare(), ROLLBACK)
    await parts.round()
    saved = parts.offsets.snapshot()
    saved.offset_table[f"{HALF}@CID_RMQ_SYS_TRANS"][0] = 50
    saved.offset_table[f"{OP}@CID_RMQ_SYS_TRANS"][0] = 50
    again = parts.again(saved=saved)
    again.join(producer)
    assert again.position == (3, 3)
    await again.prepare()
    await again.round()
    assert len(producer.asked) == 1
    again.close()


@pytest.mark.parametrize("delay", [{}, {"DELAY": 1}])
async def test_a_commit_whose_op_record_a_crash_took_is_not_asked_about(parts, producer, delay):
    await parts.prepare(b"other")
    await parts.end(await parts.prepare(b"paid", **delay))
    again = parts.without_last_op()
    again.join(producer)
    assert again.decided == ["1"]
    producer.asked.clear()
    await again.round()
    assert [message.body for _, message in producer.asked] == [b"other"]
    again.close()


async def test_so_it_is_with_the_commit_of_a_copy(parts, producer):
    await parts.prepare()
    await parts.round()
    await parts.answer(producer.asked.pop())
    again = parts.without_last_op()
    again.join(producer)
    assert again.decided == ["0", "1"]
    await again.round()
    assert producer.asked == []
    assert again.seen == [b"paid"]
    again.close()


async def test_so_it_is_with_a_commit_by_the_first_place(parts, producer):
    half = await parts.prepare()
    await parts.round()
    producer.asked.clear()
    await parts.end(half)
    again = parts.without_last_op()
    again.join(producer)
    assert again.decided == ["0", "1"]
    await again.round()
    assert producer.asked == []
    again.close()


async def test_a_copy_whose_op_record_a_crash_took_replaces_the_older_one(parts, producer):
    saved = parts.offsets.snapshot()
    await parts.prepare()
    await parts.round()
    again = parts.without_last_op(saved)
    again.join(producer)
    assert again.decided == ["0"]
    producer.asked.clear()
    await again.round()
    assert [message.find_property("TRANSACTION_CHECK_TIMES") for _, message in producer.asked] == ["2"]
    again.close()


async def test_a_rollback_that_a_crash_took_is_asked_about_again(parts, producer):
    await parts.end(await parts.prepare(), ROLLBACK)
    again = parts.without_last_op()
    again.join(producer)
    await again.round()
    assert len(producer.asked) == 1
    again.close()


async def test_a_message_that_was_sent_back_is_not_taken_for_a_commit(parts, producer):
    """Its place in the log, 0, is that of a half message that nobody has decided."""
    half = await parts.prepare()
    assert half.physical == 0
    record = MessageRecord("orders", b"paid", sys_flag=8, born_host=STORE_HOST, store_host=STORE_HOST)
    parts.store.put([(parts.store.queue("orders", 0), (record,))])
    again = parts.again(crash=True)
    assert again.decided == []
    again.close()


# Files of RocketMQ


async def test_op_records_of_5_x_are_honoured(parts, producer):
    for _ in range(4):
        await parts.prepare()
    op = MessageRecord(OP, b"0,2,3,", b"TAGS\x01d\x02", born_host=STORE_HOST, store_host=STORE_HOST)
    parts.store.put([(parts.store.queue(OP, 0), (op,))])
    await parts.round()
    assert [header.tran_state_table_offset for header, _ in producer.asked] == [4]
    assert len(parts.messages(HALF, 0)) == 5
    assert parts.position == (4, 1)


async def test_an_op_record_that_names_what_was_never_there_holds_nothing_up(parts, producer):
    await parts.end(await parts.prepare())
    for body in (b"4000000000000000000", b"x", b""):
        op = MessageRecord(OP, body, b"TAGS\x01d", born_host=STORE_HOST, store_host=STORE_HOST)
        parts.store.put([(parts.store.queue(OP, 0), (op,))])
    await parts.end(await parts.prepare())
    await parts.prepare()
    await parts.round()
    await parts.round()
    assert parts.position[1] >= 5
    assert len(producer.asked) == 2


# A store in trouble, and much to do


async def test_a_round_that_cannot_write_ends_and_the_next_goes_on(parts, producer):
    await parts.prepare()
    parts.store.refusals["disk"] = "the disk is nearly full"
    await parts.round()
    assert producer.asked == []
    assert parts.position == (0, 0)
    del parts.store.refusals["disk"]
    await parts.round()
    assert len(producer.asked) == 1


async def test_a_message_whose_properties_leave_no_room_for_a_copy_is_given_up(parts, producer):
    await parts.prepare(b"full", filler="x" * 32_650)
    await parts.prepare(b"next")
    (half, _) = parts.messages(HALF, 0)
    assert len(half.properties) > 32_720
    await parts.round()
    assert [message.body for _, message in producer.asked] == [b"next"]
    assert [dead.body for dead in parts.messages(GIVEN_UP, 0)] == [b"full"]


async def test_others_have_their_turn_during_a_long_round(parts, producer, monkeypatch):
    monkeypatch.setattr(check_back, "_AT_ONCE", 10)
    for number in range(150):
        half = await parts.prepare(b"%d" % number)
        if number % 30:
            await parts.end(half, ROLLBACK)
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    await parts.round()
    running.cancel()
    assert len(producer.asked) == 5
    assert turns >= 145 / 10
    assert parts.position[0] == 150


async def test_a_round_ends_after_a_minute(parts, producer, monkeypatch):
    for _ in range(100):
        await parts.prepare()
    step = check_back.Round.step

    def slowly(walk, now):
        parts.now += 20 * SECOND
        return step(walk, now)

    monkeypatch.setattr(check_back.Round, "step", slowly)
    await parts.round()
    assert 0 < len(producer.asked) < 100
    assert parts.position[0] == len(producer.asked)


async def test_a_decision_of_the_same_turn_is_known_to_the_round(parts, producer):
    half = await parts.prepare()
    parts.now += INTERVAL
    parts.processors[37](Peer(), end_request(half.offset, half.physical, COMMIT))
    await parts.check_back.round()
    assert producer.asked == []
    assert parts.seen == [b"paid"]


async def test_without_transactions_a_round_leaves_no_trace(parts):
    await parts.round()
    assert parts.topics.get(HALF) is None
    assert parts.position == (None, None)
