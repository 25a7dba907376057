"""A slave that cut its log, copied the rest once more and lost power: its queues and its index lack nothing."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.store.kit import message, small

from pyromq.store import MessageStore
from pyromq.store.check.store_check import Severity
from pyromq.testing import Clock
from pyromq.testing.power import RecordingDisk, abandon

MESSAGES = 120


def master_with_messages(folder, clock):
    with MessageStore(small(folder), clock=clock) as store:
        queue = store.queue("T", 0)
        results = []
        for number in range(MESSAGES):
            results += store.put([(queue, [message(b"m" * 100, keys=f"k{number}")])])
            clock.advance(10)
        data = b"".join(bytes(segment.view) for segment in store.log.segments)[: store.log.end]
        return data, [int(result.physical_offset) for result in results]


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 50, MESSAGES - 1])
def test_what_was_cut_off_and_copied_again_is_read_again_after_a_power_failure(tmp_path, keep):
    clock = Clock()
    data, places = master_with_messages(tmp_path / "master", clock)
    root = tmp_path / "slave"
    root.mkdir()
    disk = RecordingDisk(root)
    slave = MessageStore(small(root), disk=disk, clock=clock)
    slave.open()
    slave.append_copy(0, data)
    cut = places[keep]
    slave.truncate(cut)
    slave.append_copy(cut, data[cut:])
    slave.log.sync(0)
    abandon(slave)
    for seed in range(8):
        after = tmp_path / f"after{seed}"
        disk.lose_power(after, Random(seed))
        with MessageStore(small(after), clock=clock) as store:
            assert store.log.end == len(data)
            assert store.queue("T", 0).max_offset == MESSAGES
            assert [str(found) for found in store.check() if found.severity is not Severity.NOTE] == []
