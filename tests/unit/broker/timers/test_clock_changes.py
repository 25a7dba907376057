"""Clocks that are set ahead and back: timers and delays come once, whatever else happens to the broker meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.unit.broker.timers.timer_kit import TimerParts, after

from pyromq.store.metadata.json_files import delay_offsets_file

SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000


@pytest.fixture
def start(tmp_path):
    made: list[TimerParts] = []

    def starting(parts: TimerParts | None = None) -> TimerParts:
        made.append(parts or TimerParts(tmp_path))
        return made[-1]

    yield starting
    for parts in made[-1:]:
        parts.close()


async def test_a_timer_comes_when_it_is_due_by_the_clock_as_it_is_set(start):
    parts = start()
    await parts.send(b"in an hour", after(3600))
    await parts.deliver()
    await parts.wait(DAY)
    assert parts.bodies() == [b"in an hour"]
    await parts.wait(-DAY)
    await parts.send(b"in five seconds", after(5))
    await parts.deliver()
    assert len(parts.bodies()) == 1
    await parts.wait(5 * SECOND)
    assert parts.bodies() == [b"in an hour", b"in five seconds"]


@pytest.mark.parametrize("crash", [False, True])
async def test_what_came_after_a_clock_was_set_back_does_not_come_again_after_a_restart(start, crash):
    parts = start()
    await parts.send(b"one", after(5))
    await parts.wait(DAY)
    await parts.wait(-DAY)
    await parts.send(b"two", after(5))
    await parts.wait(5 * SECOND)
    await parts.send(b"three", after(60))
    await parts.deliver()
    parts = start(parts.cut_off() if crash else await parts.stopped())
    await parts.deliver()
    assert parts.bodies() == [b"one", b"two"]
    await parts.wait(HOUR)
    parts = start(await parts.stopped())
    await parts.wait(2 * DAY)
    assert parts.bodies() == [b"one", b"two", b"three"]


async def test_a_step_that_was_begun_when_the_clock_was_set_back_ends_and_loses_nothing(start):
    parts = start()
    for number in range(100):
        await parts.send(b"%d" % number, after(5))
    await parts.deliver()
    parts.now += 5 * SECOND
    parts.timers.step()
    parts.appends.flush()
    assert len(parts.bodies()) == 64
    parts.now -= 5 * SECOND
    await parts.send(b"late", after(5))  # in the same step
    await parts.deliver()
    assert len(parts.bodies()) == 100
    parts = start(await parts.stopped())
    await parts.wait(5 * SECOND)
    assert parts.bodies() == [*(b"%d" % number for number in range(100)), b"late"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_any_jumps_and_ends_deliver_each_timer_and_each_delay_once(start, seed):
    chance = random.Random(seed)
    parts = start()
    sent: list[bytes] = []

    async def send(properties: str) -> None:
        body = b"%d" % len(sent)
        assert (await parts.send(body, properties)).code == 0
        sent.append(body)

    for _ in range(60):
        # A broker that is gone writes nothing any more.
        await parts.broker.state.topics.saved()
        match chance.choice(("send", "send", "delay", "wait", "wait", "ahead", "back", "save", "crash", "stop")):
            case "send":
                for _ in range(chance.choice((1, 5, 70))):
                    await send(after(chance.choice((1, 5, 60, 4000))))
            case "delay":
                for _ in range(chance.choice((1, 70))):
                    await send(f"DELAY\x01{chance.choice((1, 2, 5))}")
            case "wait":
                await pass_time(parts, chance.choice((0, SECOND, 10 * SECOND, 90 * SECOND)))
            case "ahead":
                await pass_time(parts, chance.choice((2 * SECOND, HOUR, DAY)))
            case "back":
                await pass_time(parts, -chance.choice((2 * SECOND, HOUR, DAY)))
            case "save":
                await parts.save()
                save_delays(parts)
            case "crash":
                parts = with_delays(start(parts.cut_off()))
            case "stop":
                save_delays(parts)
                parts = with_delays(start(await parts.stopped()))
    for _ in range(3):
        await parts.broker.state.topics.saved()
        await pass_time(parts, 60 * DAY)
        parts = with_delays(start(parts.cut_off()))
    assert Counter(parts.bodies()) == Counter(sent)


async def pass_time(parts: TimerParts, millis: int) -> None:
    await parts.wait(millis)
    await deliver_delays(parts)


def save_delays(parts: TimerParts) -> None:
    parts.store.flushed().result(10)
    delay_offsets_file(parts.store.root).save(parts.schedule.kept.snapshot())


def with_delays(parts: TimerParts) -> TimerParts:
    parts.schedule.load(delay_offsets_file(parts.store.root).load())
    return parts


async def deliver_delays(parts: TimerParts) -> None:
    for _ in range(1000):
        more = parts.schedule.step()
        parts.appends.flush()
        if not more and not parts.schedule._under_way:
            return
    raise AssertionError("the levels find no end")
