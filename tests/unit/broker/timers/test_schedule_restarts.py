"""Delay levels over a restart: other settings, and a power failure, cost no message."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.message_kit import Parts

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
