"""Delay levels over a restart: other settings, a crash, and a power failure cost no message and repeat none."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.message_kit import Parts

from pyromq.broker.timers.delivered import NOTED_EVERY
from pyromq.protocol.bodies import DelayOffsetTable
from pyromq.store.metadata.json_files import delay_offsets_file

MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture
def start(tmp_path):
    made: list[Parts] = []

    def starting(levels: str) -> Parts:
        """A broker with these levels, in the same folder and at the same time as the one before."""
        before = made.pop() if made else None
        if before is not None:
            before.close()
        parts = Parts(tmp_path, delay_levels=levels)
        if before is not None:
            parts.now = before.now
            parts.schedule.load(before.schedule.snapshot())
        made.append(parts)
        return parts

    yield starting
    for parts in made:
        parts.close()


async def deliver(parts: Parts, millis: int = 0) -> list[bytes]:
    parts.now += millis
    for _ in range(50):
        more = parts.schedule.step()
        await asyncio.sleep(0)
        if not more and not parts.schedule._under_way:
            break
    return [record.body for record in parts.messages("orders", 0)]


async def three_levels(parts: Parts) -> None:
    for level in (1, 2, 3):
        await parts.send(b"level %d" % level, f"DELAY\x01{level}")


async def test_what_waits_in_levels_that_are_gone_comes_in_its_time(start):
    await three_levels(start("1m 1h 2h"))
    parts = start("1m")
    assert await deliver(parts, MINUTE) == [b"level 1"]
    assert await deliver(parts, HOUR - MINUTE - 1) == [b"level 1"]
    assert await deliver(parts, 1) == [b"level 1", b"level 2"]
    assert await deliver(parts, HOUR) == [b"level 1", b"level 2", b"level 3"]
    parts = start("1m 1h 2h")
    assert len(await deliver(parts, 3 * HOUR)) == 3


async def test_what_waits_in_a_level_that_is_longer_now_comes_when_it_was_promised(start):
    await three_levels(start("1m 1h 2h"))
    assert await deliver(start("5h 5h 5h"), MINUTE) == [b"level 1"]


async def test_what_waits_in_a_level_that_is_shorter_now_comes_at_once(start):
    await three_levels(start("1m 1h 2h"))
    assert await deliver(start("1s 1s 3h")) == [b"level 1", b"level 2"]


async def test_a_level_is_not_said_to_be_done_before_its_messages_are_on_disk(start, monkeypatch):
    parts = start("1m 1h 2h")
    await three_levels(parts)
    parts.store.flushed().result(10)
    flusher = parts.store.flusher
    monkeypatch.setattr(flusher, "flushed", int(parts.store.log.end))
    monkeypatch.setattr(parts.store, "flushed", lambda: None)  # the disk takes its time
    await deliver(parts, MINUTE)
    kept = parts.schedule.kept
    kept.dirty = False
    assert kept.snapshot().offset_table == {}
    assert kept.dirty
    assert parts.schedule.snapshot().offset_table == {1: 1}
    monkeypatch.setattr(flusher, "flushed", int(parts.store.log.end))
    kept.dirty = False
    assert kept.snapshot().offset_table == {1: 1}
    assert not kept.dirty


async def test_deliveries_count_for_the_level_and_for_the_topic(start):
    parts = start("1m 1h 2h")
    await three_levels(parts)
    await deliver(parts, 2 * HOUR)
    parts.sends.count()
    counts = {f"{item} {key}": counter.value for (item, key), counter in parts.stats._counters.items()}
    assert counts["QUEUE_GET_NUMS SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER"] == 1
    assert counts["QUEUE_PUT_NUMS SCHEDULE_TOPIC_XXXX@2"] == 1
    assert counts["GROUP_GET_NUMS SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"] == 3
    assert counts["TOPIC_PUT_NUMS SCHEDULE_TOPIC_XXXX"] == counts["TOPIC_PUT_NUMS orders"] == 3
    assert counts["BROKER_PUT_NUMS DefaultCluster"] == 6


@pytest.fixture
def crash(tmp_path):
    """A broker that is cut off: it goes on with the file of offsets as it was when `save` was called the last time."""
    made: list[Parts] = []

    def crashed(parts: Parts | None = None) -> Parts:
        if parts is not None:
            made.pop().close()
        again = Parts(tmp_path, delay_levels="1s 5s 10s")
        made.append(again)
        if parts is not None:
            again.now = parts.now
        again.schedule.load(delay_offsets_file(tmp_path).load())
        return again

    yield crashed
    for parts in made:
        parts.close()


def save(parts: Parts) -> None:
    parts.store.flushed().result(10)
    kept = parts.schedule.kept
    kept.dirty = False
    delay_offsets_file(parts.store.root).save(kept.snapshot())


async def test_a_broker_that_is_killed_again_and_again_delivers_each_message_once(crash):
    parts = crash()
    for number in range(90):
        await parts.send(b"%d" % number, f"DELAY\x01{1 + number % 3}\x02UNIQ_KEY\x01{number}")
    for millis in (0, 1000, 0, 4000, 0, 0, 5000, 0):
        await deliver(parts, millis)
        if millis == 4000:
            save(parts)
        parts = crash(parts)
    bodies = await deliver(parts, HOUR)
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(90)]


async def test_a_level_goes_on_in_the_middle_of_what_was_delivered(crash):
    parts = crash()
    for number in range(100):
        await parts.send(b"%d" % number, "DELAY\x011")
    save(parts)
    parts.now += 1000
    parts.schedule.step()
    parts.appends.flush()
    assert len(parts.messages("orders", 0)) == 64
    parts = crash(parts)
    assert parts.schedule.offsets == {1: 64}
    assert await deliver(parts) == [b"%d" % number for number in range(100)]


async def test_equal_messages_come_as_often_as_they_were_sent(crash):
    parts = crash()
    for _ in range(3):
        await parts.send(b"same", "DELAY\x011")
    await deliver(parts, 1000)
    save(parts)
    for _ in range(2):
        await parts.send(b"same", "DELAY\x011")
    parts = crash(parts)
    assert await deliver(parts, 1000) == 5 * [b"same"]


async def test_what_looks_delivered_but_was_sent_is_not_taken_for_it(crash):
    parts = crash()
    await parts.send(b"later", "UNIQ_KEY\x01k\x02DELAY\x011")
    await parts.send(b"later", "UNIQ_KEY\x01k\x02REAL_TOPIC\x01orders\x02REAL_QID\x010")
    parts = crash(parts)
    assert await deliver(parts, 1000) == [b"later", b"later"]


async def test_a_table_of_rocketmq_says_nothing_about_the_log(crash, tmp_path):
    parts = crash()
    await three_levels(parts)
    await deliver(parts, 1000)
    save(parts)
    delay_offsets_file(tmp_path).save(DelayOffsetTable(offset_table={1: 1}))
    assert '"logTable"' not in (tmp_path / "config/delayOffset.json").read_text()
    parts = crash(parts)
    assert await deliver(parts, 10_000) == [b"level 1", b"level 2", b"level 3"]


async def test_a_place_where_no_record_begins_is_not_read_from(crash, tmp_path, caplog):
    parts = crash()
    await three_levels(parts)
    delay_offsets_file(tmp_path).save(DelayOffsetTable(log_table={1: 4, 2: 4, 3: 4}))
    parts = crash(parts)
    assert "stopped searching" in caplog.text
    assert await deliver(parts, 1000) == [b"level 1"]


async def test_the_place_in_the_log_is_noted_anew_when_the_log_has_grown(crash):
    parts = crash()
    kept = parts.schedule.kept
    assert not kept.dirty, "nobody ever delayed a message"
    await three_levels(parts)
    assert kept.dirty
    save(parts)
    assert not kept.dirty
    kept._noted -= NOTED_EVERY
    assert kept.dirty
