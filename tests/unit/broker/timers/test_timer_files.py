"""RocketMQ's files of pending timers, read as RocketMQ reads them: from the slots of the wheel, back along the log."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pytest
from tests.unit.broker.timers.timer_kit import TimerParts, after

from pyromq.protocol.record import decode_record

SLOT = struct.Struct(">qqqii")
UNIT = struct.Struct(">iqiqiqiiq")
THEIRS = struct.Struct(">7q")
SLOTS = 2 * 7 * 86_400
DAY = 86_400_000


class Found(NamedTuple):
    due: int
    magic: int
    body: bytes


@pytest.fixture
async def parts(tmp_path):
    return TimerParts(tmp_path, timer_log_file_size=1024)


def units(parts: TimerParts) -> dict[int, tuple[int, ...]]:
    """By position; a file ends with what is no unit."""
    found = {}
    for file in sorted((parts.folder / "timerlog").iterdir()):
        data = file.read_bytes()
        assert len(data) == 1024
        for at in range(0, len(data) - UNIT.size + 1, UNIT.size):
            unit = UNIT.unpack_from(data, at)
            if unit[0] != UNIT.size:
                break
            found[int(file.name) + at] = unit
    return found


def read(parts: TimerParts) -> list[Found]:
    """What RocketMQ finds from the time of the checkpoint on, slot by slot."""
    log = units(parts)
    wheel = (parts.folder / "timerwheel").read_bytes()
    assert len(wheel) == SLOTS * SLOT.size
    done_before = THEIRS.unpack(parts.checkpoint.path.read_bytes()[:56])[0]
    found = []
    used = np.flatnonzero(np.frombuffer(wheel, np.int64)[::4]).tolist()
    for number, first, last, timers, _ in sorted(SLOT.unpack_from(wheel, at * SLOT.size) for at in used):
        if number * 1000 < done_before:
            continue
        slot: list[Found] = []
        position = last
        while position != -1:
            _, previous, magic, written, delay, physical, size, _, _ = log[position]
            assert (written + delay) // 1000 == number
            assert (previous == -1) == (position == first)
            body = decode_record(parts.store.log.read(physical, size)).body
            slot.insert(0, Found(number * 1000, magic, body))
            position = previous
        assert timers == sum(-1 if each.magic & 4 else 1 for each in slot)
        found += slot
    return found


async def test_everything_that_waits_is_in_the_wheel(parts):
    for number in range(50):
        await parts.send(b"%d" % number, after(10 + number % 7))
    await parts.wait(1_000)
    await parts.upkeep.close()
    assert read(parts) == [
        Found(parts.now // 1000 * 1000 + (8 + late) * 1000, 1, b"%d" % number)
        for late in range(7)
        for number in range(late, 50, 7)
    ]
    theirs = THEIRS.unpack(parts.checkpoint.path.read_bytes()[:56])
    # Nineteen units to a file of 1024 bytes.
    assert theirs[:4] == (parts.now, 2 * 1024 + (50 - 2 * 19) * 52, 50, 50)
    parts.close()


async def test_rocketmq_goes_on_in_the_queue_behind_what_was_delivered(parts):
    await parts.send(b"far", after(100))
    for number in range(5):
        await parts.send(b"%d" % number, after(5))
    await parts.wait(6_000)
    await parts.upkeep.close()
    assert [each.body for each in read(parts)] == [b"far"]
    last = list(units(parts).values())[-1]
    assert decode_record(parts.store.log.read(last[5], last[6])).queue_offset == 5
    assert last[3] + last[4] < parts.now
    parts.close()


async def test_recalls_and_what_waits_for_very_long_are_marked(parts):
    reply = await parts.send(b"taken back", after(60, "key"))
    await parts.send(b"two and a half days", after(2.5 * 86_400))
    await parts.send(b"three days", after(3 * 86_400))
    await parts.recall(reply.ext["recallHandle"])
    await parts.deliver()
    await parts.upkeep.close()
    now = parts.now
    assert read(parts) == [
        Found(now + 59_000, 1, b"taken back"),
        Found(now + 59_000, 1 | 4, b"0"),
        Found(now + DAY, 1 | 2, b"two and a half days"),
        Found(now + 2 * DAY, 1 | 2, b"three days"),
    ]
    parts.close()


async def test_when_nothing_waits_there_are_no_files(parts):
    await parts.send(b"x", after(5))
    await parts.deliver()
    await parts.upkeep.close()
    assert len(read(parts)) == 1
    await parts.wait(5_000)
    await parts.upkeep.close()
    assert not (parts.folder / "timerlog").exists()
    assert not (parts.folder / "timerwheel").exists()
    assert THEIRS.unpack(parts.checkpoint.path.read_bytes()[:56])[:4] == (parts.now, 0, 1, 1)
    parts.close()


async def test_a_broker_that_never_saw_a_timer_writes_nothing(parts):
    await parts.deliver()
    await parts.upkeep.close()
    assert not parts.checkpoint.path.exists()
    parts.close()
