"""Timers: delivered when their time has come, once, whatever happens in between."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from concurrent.futures import Future
from typing import Any

import pytest
from tests.unit.broker.message_kit import Peer, send_request
from tests.unit.broker.timers.timer_kit import TimerParts, after

from pyromq.broker.timers.checkpoint import TimerProgress
from pyromq.broker.timers.delivered import NOTED_EVERY
from pyromq.protocol.batch import BatchItem, encode_batch
from pyromq.protocol.record import MessageRecord
from pyromq.store.check.store_check import Severity

DAY = 86_400_000


@pytest.fixture
def start(tmp_path):
    """Starts timers in one folder; what they are by then is closed at the end."""
    made: list[TimerParts] = []

    def starting(parts: TimerParts | None = None, **config) -> TimerParts:
        made.append(parts or TimerParts(tmp_path, **config))
        return made[-1]

    yield starting
    for parts in made[-1:]:
        wrong = [finding for finding in parts.store.check() if finding.severity is not Severity.NOTE]
        parts.close()
        assert not wrong


@pytest.fixture
async def parts(start):
    return start()


# Delivery


async def test_a_timer_is_delivered_when_its_time_has_come_and_not_before(parts):
    reply = await parts.send(b"later", after(5.2) + "\x02TAGS\x01A", queue_id=2)
    assert (reply.code, reply.ext["queueId"], reply.ext["queueOffset"]) == (0, "2", "0")
    await parts.wait(5_999)
    assert parts.bodies(2) == []
    await parts.wait(1)
    (delivered,) = parts.messages("orders", 2)
    assert (delivered.body, delivered.find_property("TAGS")) == (b"later", "A")
    assert delivered.find_property("TIMER_OUT_MS") == "1700000005000"
    assert delivered.find_property("TIMER_ENQUEUE_MS") == "1700000000000"
    assert delivered.find_property("TIMER_DEQUEUE_MS") == "1700000006000"
    assert delivered.find_property("TIMER_ROLL_TIMES") is None
    await parts.wait(60_000)
    assert parts.bodies(2) == [b"later"]


async def test_a_whole_second_is_not_rounded_up(parts):
    await parts.send(b"on time", after(5))
    await parts.wait(4_999)
    assert parts.bodies() == []
    await parts.wait(1)
    assert parts.bodies() == [b"on time"]


async def test_a_finer_precision_is_kept(start):
    parts = start(timer_precision=100)
    await parts.send(b"x", after(0.25))
    await parts.wait(299)
    assert parts.bodies() == []
    await parts.wait(1)
    assert parts.bodies() == [b"x"]


async def test_timers_come_in_the_order_of_their_times_and_those_of_a_step_in_theirs(parts):
    for number, seconds in enumerate((9, 3, 90, 9.0, 3, 200)):
        await parts.send(b"%d" % number, after(seconds))
    await parts.wait(300_000)
    assert parts.bodies() == [b"1", b"4", b"0", b"3", b"2", b"5"]


async def test_many_that_fall_due_together_are_delivered_in_parts(parts):
    for number in range(200):
        await parts.send(b"%d" % number, after(5))
    parts.now += 5_000
    steps = 0
    while len(parts.bodies()) < 200:
        await parts.send(b"in between", topic="others")
        parts.timers.step()
        steps += 1
        assert len(parts.bodies()) <= 64 * steps
    await parts.deliver()
    assert parts.bodies() == [b"%d" % number for number in range(200)]


async def test_a_time_that_has_passed_is_now(parts):
    for asked in ("TIMER_DELIVER_MS\x011600000000000", "TIMER_DELAY_SEC\x010"):
        assert (await parts.send(b"now", asked)).code == 0
    assert parts.bodies() == [b"now", b"now"]


async def test_a_level_wins_over_a_time(parts):
    await parts.send(b"x", "TIMER_DELAY_SEC\x015\x02DELAY\x013")
    (stored,) = parts.messages("SCHEDULE_TOPIC_XXXX", 2)
    assert stored.find_property("TIMER_DELAY_SEC") is None


@pytest.mark.scenario("broker 4.5")
async def test_a_time_too_far_away_is_refused(parts):
    reply = await parts.send(b"x", "TIMER_DELAY_SEC\x01259300")
    assert reply.code == 13
    assert reply.remark.startswith("timer message illegal, the delay time should not be bigger than the max delay")
    assert "recallHandle" not in reply.ext


async def test_a_batch_with_a_time_is_refused(parts):
    asked = send_request(encode_batch([BatchItem(b"m")]), after(5), code=320, batch=True)
    assert (await parts.ask(Peer(), asked)).code == 13


async def test_switched_off_timers_are_refused_with_a_sentence(start):
    parts = start(timer_wheel=False)
    reply = await parts.send(b"x", after(5))
    assert (reply.code, reply.remark) == (1, "accurate timer message is not enabled, timerWheelEnable is false")


async def test_too_many_in_one_step_are_refused(start):
    parts = start(timer_congest=2)
    for number in range(4):
        assert (await parts.send(b"%d" % number, after(5))).code == 0
    await parts.deliver()
    reply = await parts.send(b"too many", after(5))
    assert (reply.code, reply.remark[:36]) == (1, "timer message is under flow control,")
    assert (await parts.send(b"another step", after(7))).code == 0
    await parts.wait(6_000)
    assert len(parts.bodies()) == 4
    assert parts.timers.congestion(parts.now) == 1


async def test_a_timer_counts_where_it_waits_and_then_where_it_goes(parts):
    await parts.send(b"x", after(5))
    parts.sends.count()
    counters = {key: counter.value for key, counter in parts.stats._counters.items()}
    assert counters["TOPIC_PUT_NUMS", "rmq_sys_wheel_timer"] == counters["BROKER_PUT_NUMS", "DefaultCluster"] == 1
    assert ("TOPIC_PUT_NUMS", "orders") not in counters
    await parts.wait(5_000)
    counters = {key: counter.value for key, counter in parts.stats._counters.items()}
    assert counters["TOPIC_PUT_NUMS", "orders"] == 1
    assert counters["BROKER_PUT_NUMS", "DefaultCluster"] == 2


# What goes wrong


async def test_what_the_store_refuses_is_tried_until_it_takes_it_and_only_that(parts):
    for number in range(3):
        await parts.send(b"%d" % number, after(5))
    parts.now += 5_000
    parts.store.refusals["disk"] = "the disk is nearly full"
    for _ in range(5):
        parts.timers.step()
        parts.appends.flush()
    assert parts.timers.progress().step_offset == 0
    del parts.store.refusals["disk"]
    await parts.deliver()
    assert parts.bodies() == [b"0", b"1", b"2"]


async def test_a_message_that_has_become_too_long_is_delivered_all_the_same(parts):
    await parts.send(b"x" * 1000, after(5))
    parts.store.reconfigure(dataclasses.replace(parts.store.config, max_message_size=100))
    await parts.wait(5_000)
    assert [len(body) for body in parts.bodies()] == [1000]


async def test_full_properties_leave_no_room_for_bookkeeping_and_the_message_comes_all_the_same(parts):
    room = 32767 - 200
    await parts.send(b"x", after(5) + "\x02p\x01" + "v" * room)
    await parts.wait(5_000)
    (delivered,) = parts.messages("orders", 0)
    assert delivered.find_property("p") == "v" * room


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01orders\x02REAL_QID\x010",
        b"TIMER_OUT_MS\x011700000001000",
        b"TIMER_OUT_MS\x011700000001000\x02REAL_TOPIC\x01rmq_sys_wheel_timer\x02REAL_QID\x010",
        b"TIMER_OUT_MS\x011700000001000\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
        b"TIMER_OUT_MS\x011700000001000\x02REAL_TOPIC\x01orders\x02REAL_QID\x01-1",
        b"TIMER_OUT_MS\x011700000001000\x02REAL_TOPIC\x01../orders\x02REAL_QID\x010",
    ],
)
async def test_a_strange_message_in_the_timer_topic_is_passed_over(parts, properties, caplog):
    queue = parts.store.queue("rmq_sys_wheel_timer", 0)
    parts.store.put([(queue, [MessageRecord("rmq_sys_wheel_timer", b"?", properties)])])
    await parts.send(b"good", after(5))
    with caplog.at_level(logging.ERROR):
        await parts.wait(10_000)
    assert "skipping" in caplog.text
    assert parts.bodies() == [b"good"]


async def test_a_clock_that_was_set_back_neither_delivers_at_once_nor_loses(parts):
    await parts.send(b"before", after(5))
    await parts.wait(5_000)
    parts.now -= 3_600_000
    await parts.send(b"after", after(5))
    await parts.deliver()
    assert parts.bodies() == [b"before"]
    assert parts.timers.progress().earlier
    await parts.wait(5_000)
    assert parts.bodies() == [b"before", b"after"]
    await parts.wait(3_600_000)
    assert not parts.timers.progress().earlier


# Restarts


async def test_timers_survive_a_stop(start, parts):
    await parts.send(b"early", after(5))
    await parts.send(b"late", after(5_000))
    await parts.wait(5_000)
    parts = start(await parts.stopped())
    await parts.wait(10_000)
    assert parts.bodies() == [b"early"]
    await parts.wait(5_000_000)
    assert parts.bodies() == [b"early", b"late"]


async def test_what_is_overdue_after_a_stop_is_delivered_at_once(start, parts):
    await parts.send(b"later", after(5))
    parts = await parts.stopped()
    parts.now += 7 * 3_600_000
    await start(parts).deliver()
    assert parts.bodies() == [b"later"]


async def test_timers_that_nobody_noted_down_survive_the_end_of_the_broker(start, parts):
    await parts.send(b"later", after(5))
    parts = start(parts.cut_off())
    await parts.wait(5_000)
    assert parts.bodies() == [b"later"]


async def test_what_was_delivered_and_saved_is_not_delivered_again(start, parts):
    await parts.send(b"one", after(5))
    await parts.send(b"two", after(9))
    await parts.wait(5_000)
    await parts.save()
    parts = start(parts.cut_off())
    await parts.wait(60_000)
    assert parts.bodies() == [b"one", b"two"]


async def test_what_was_delivered_and_not_saved_is_not_delivered_again_however_often_it_is_killed(start, parts):
    for number in range(100):
        await parts.send(b"%d" % number, after(5 + number // 10))
    expected = []
    for second in range(5, 15):
        parts.now += 5_000 if second == 5 else 1_000
        await parts.deliver()
        expected += [b"%d" % number for number in range(10 * (second - 5), 10 * (second - 4))]
        assert parts.bodies() == expected
        if second in (6, 9):
            await parts.save()
        parts = start(parts.cut_off())
    await parts.wait(60_000)
    assert parts.bodies() == expected


async def test_a_crash_before_all_that_came_is_known_again_forgets_none_of_it(start, parts):
    for number in range(200):
        await parts.send(b"%d" % number, after(5))
    await parts.deliver()
    await parts.save()
    await parts.wait(5_000)
    parts = start(parts.cut_off())
    while not parts.timers.dirty:  # some of them are passed over, and this is noted
        parts.timers.step()
        await asyncio.sleep(0)
    await parts.save()
    parts = start(parts.cut_off())
    await parts.wait(60_000)
    assert parts.bodies() == [b"%d" % number for number in range(200)]
    assert not parts.timers._delivered


async def test_equal_timers_come_as_often_as_they_were_sent(start, parts):
    for _ in range(3):
        await parts.send(b"same", after(5))
    await parts.deliver()
    await parts.save()
    parts.now += 5_000
    parts.timers.step()
    parts.appends.flush()
    await parts.send(b"same", after(5))
    parts = start(parts.cut_off())
    await parts.wait(60_000)
    assert parts.bodies() == 4 * [b"same"]


async def test_progress_is_noted_anew_when_the_log_has_grown(parts):
    await parts.send(b"one", after(5))
    assert parts.upkeep._is_old()
    await parts.save()
    assert not parts.upkeep._is_old()
    parts.upkeep._noted -= NOTED_EVERY
    assert parts.upkeep._is_old()


async def test_a_step_that_was_interrupted_goes_on_where_it_was(start, parts):
    for number in range(200):
        await parts.send(b"%d" % number, after(5))
    await parts.deliver()
    parts.now += 5_000
    parts.timers.step()
    parts.appends.flush()
    assert len(parts.bodies()) == 64
    await parts.save()
    parts = start(parts.cut_off())
    await parts.deliver()
    assert parts.bodies() == [b"%d" % number for number in range(200)]


async def test_a_queue_that_lost_its_end_does_not_lose_what_comes_then(start, parts):
    await parts.send(b"one", after(5))
    await parts.wait(5_000)
    parts.checkpoint.save(TimerProgress(parts.now, 700, 700), parts.now)
    parts = start(parts.cut_off())
    await parts.send(b"two", after(5))
    await parts.wait(10_000)
    assert parts.bodies() == [b"one", b"two"]


async def test_another_precision_after_a_stop_changes_nothing_for_those_that_wait(start, tmp_path):
    parts = start(timer_precision=100)
    for number in range(10):
        await parts.send(b"%d" % number, after(5 + number / 10))
    await parts.wait(5_500)
    assert len(parts.bodies()) == 6
    await parts.upkeep.close()
    parts = start(parts.cut_off(timer_precision=1000))
    await parts.wait(10_000)
    assert parts.bodies() == [b"%d" % number for number in range(10)]


async def test_entries_of_rocketmq_do_not_tell_the_time_and_their_messages_do(start, parts):
    for number in range(3):
        await parts.send(b"%d" % number, after(5 + number) + "\x02TAGS\x01A")
    queue = parts.store.queue("rmq_sys_wheel_timer", 0)
    # As it would be in a store of Apache's: the hash of the tag.
    queue.tail = bytearray(b"".join(queue.entries(number, 1)[:12] + (65).to_bytes(8, "big") for number in range(3)))
    await parts.wait(6_000)
    assert parts.bodies() == [b"0", b"1"]
    parts = start(await parts.stopped())
    await parts.wait(1_000)
    assert parts.bodies() == [b"0", b"1", b"2"]


# Rolling


async def test_a_message_that_waits_for_long_is_stored_anew_and_delivered_once(parts):
    await parts.send(b"far", after(3 * 86_400))
    await parts.send(b"near", after(60))
    await parts.wait(2 * DAY - 1_000)
    assert parts.store.queue("rmq_sys_wheel_timer", 0).max_offset == 2
    await parts.wait(1_000)
    assert parts.store.queue("rmq_sys_wheel_timer", 0).max_offset == 3
    await parts.wait(DAY - 2_000)
    assert parts.bodies() == [b"near"]
    await parts.wait(2_000)
    (_, far) = parts.messages("orders", 0)
    assert (far.body, far.find_property("TIMER_ROLL_TIMES")) == (b"far", "1")
    assert far.find_property("TIMER_OUT_MS") == str(1_700_000_000_000 + 3 * DAY - 1_000)
    assert parts.timers.pending == 0


async def test_it_is_stored_anew_before_its_file_of_the_log_may_go(start):
    parts = start(store={"reserved_hours": 3})
    await parts.send(b"far", after(86_400))
    for _ in range(24):
        await parts.wait(3_600_000)
    (far,) = parts.messages("orders", 0)
    assert far.find_property("TIMER_ROLL_TIMES") == "11"


@pytest.mark.parametrize("saved", [True, False])
async def test_what_was_rolled_is_delivered_once_whether_or_not_anybody_knows(start, parts, saved):
    await parts.send(b"far", after(3 * 86_400, "key"))
    await parts.deliver()
    await parts.save()
    await parts.wait(2 * DAY)
    if saved:
        await parts.save()
    parts = start(parts.cut_off())
    await parts.wait(2 * DAY)
    assert parts.bodies() == [b"far"]


async def test_nothing_is_looked_at_again_that_lies_before_the_first_pending(start, parts):
    for number in range(300):
        await parts.send(b"%d" % number, after(5))
    await parts.send(b"last", after(60))
    await parts.wait(7_000)
    assert parts.timers.progress().first_pending == 300
    parts = start(await parts.stopped())
    await parts.wait(60_000)
    assert parts.timers.enqueued == 1
    assert parts.bodies()[-1] == b"last"


# Figures


async def test_it_tells_how_many_wait_and_how_late_it_is(parts):
    await parts.send(b"x", after(5))
    assert parts.timers.behind[1] == 1
    await parts.wait(1_000)
    assert (parts.timers.pending, parts.timers.behind) == (1, (0, 0))
    parts.now += 10_400
    assert parts.timers.behind == (10_400, 0)
    await parts.deliver()
    assert (parts.timers.pending, parts.timers.delivered, parts.timers.enqueued) == (0, 1, 1)


# What is kept


async def test_progress_is_not_saved_before_what_was_delivered_is_on_disk(parts, monkeypatch):
    await parts.send(b"x", after(5))
    await parts.wait(5_000)
    disk: Future[None] = Future()
    monkeypatch.setattr(parts.store, "flushed", lambda end: disk)
    saving = asyncio.create_task(parts.save())
    await asyncio.sleep(0.01)
    assert parts.checkpoint.load() == TimerProgress()
    disk.set_result(None)
    await saving
    assert parts.checkpoint.load() == parts.timers.progress()


async def test_a_disk_that_fails_is_said_and_tried_again(start, monkeypatch, caplog):
    parts = start(timer_flush_interval=10)
    await parts.send(b"x", after(5))
    await parts.wait(5_000)
    loop = asyncio.get_running_loop()
    saved, save = asyncio.Event(), parts.checkpoint.save
    errors = [OSError("no space left")]

    def save_at_the_second_try(*args: Any) -> None:
        if errors:
            raise errors.pop()
        save(*args)
        loop.call_soon_threadsafe(saved.set)

    monkeypatch.setattr(parts.checkpoint, "save", save_at_the_second_try)
    saving = asyncio.create_task(parts.upkeep.run())
    async with asyncio.timeout(10):
        await saved.wait()
    saving.cancel()
    assert parts.checkpoint.load() == parts.timers.progress()
    assert "no space left; trying again" in caplog.text
