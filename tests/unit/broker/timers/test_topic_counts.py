"""How many timers wait for each topic (61)."""

from __future__ import annotations

import json

import pytest
from tests.unit.broker.message_kit import Peer
from tests.unit.broker.timers.timer_kit import TimerParts, after

from pyromq.broker.timers.topic_counts import TopicCounts
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.command import Command

DAY = 86_400_000


@pytest.fixture
async def parts(tmp_path):
    parts = TimerParts(tmp_path)
    parts.topics.update(TopicConfig(topic_name="bills", read_queue_nums=4, write_queue_nums=4))
    yield parts
    parts.close()


async def counts(parts):
    reply = await parts.ask(Peer(), Command.request(61))
    return {topic: metric["count"] for topic, metric in json.loads(reply.body_bytes)["timingCount"].items()}


async def test_timers_count_until_they_are_delivered(parts):
    assert await counts(parts) == {}
    for seconds in (5, 10, 10):
        await parts.send(b"later", after(seconds))
    await parts.send(b"later", after(10), topic="bills")
    await parts.send(b"at once")
    await parts.deliver()
    assert await counts(parts) == {"orders": 3, "bills": 1}
    await parts.wait(6000)
    assert await counts(parts) == {"orders": 2, "bills": 1}
    await parts.send(b"later", after(100))
    await parts.deliver()
    assert await counts(parts) == {"orders": 3, "bills": 1}
    await parts.wait(6000)
    assert await counts(parts) == {"orders": 1}


async def test_a_recalled_timer_does_not_count(parts):
    reply = await parts.send(b"later", after(50, key="k1"))
    await parts.send(b"later", after(50, key="k2"))
    await parts.recall(reply.ext["recallHandle"])
    await parts.deliver()
    assert await counts(parts) == {"orders": 1}
    await parts.wait(60_000)
    assert await counts(parts) == {}


async def test_the_version_changes_with_the_counts_and_only_then(parts):
    table = TopicCounts(parts.timers, lambda: parts.now).table
    empty = await table()
    await parts.send(b"later", after(50))
    await parts.deliver()
    first = await table()
    assert first.data_version.counter == empty.data_version.counter + 1
    parts.now += 1000
    assert await table() is first
    await parts.send(b"later", after(50), topic="bills")
    await parts.deliver()
    second = await table()
    assert second.data_version.counter == first.data_version.counter + 1
    assert second.timing_count["orders"] == first.timing_count["orders"]  # when that changed, too
    assert second.timing_count["bills"].time_stamp == parts.now


async def test_timers_that_were_stored_again_count_once(tmp_path):
    parts = TimerParts(tmp_path, store={"reserved_hours": 3})
    for number in range(3):
        await parts.send(b"later", after(86_400, key=f"k{number}"))
    await parts.deliver()
    assert await counts(parts) == {"orders": 3}
    await parts.wait(3 * 3_600_000)
    assert parts.timers.first_pending >= 3
    assert await counts(parts) == {"orders": 3}
    parts = await parts.stopped()
    await parts.deliver()
    assert await counts(parts) == {"orders": 3}
    await parts.wait(DAY)
    assert await counts(parts) == {}
    parts.close()


async def test_it_reads_many_in_small_steps(parts):
    for number in range(1200):
        await parts.send(b"later", after(60 + number % 7))
    await parts.deliver()
    assert await counts(parts) == {"orders": 1200}
    await parts.wait(65_000)
    assert await counts(parts) == {"orders": parts.timers.pending}
    assert parts.timers.pending < 1200
