"""The journal: what was told is there after any crash, and a file that cannot be trusted stops the start."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import zlib
from contextlib import asynccontextmanager

import pytest

from pyromq.controller import journal as journal_module
from pyromq.controller.decisions import Peer, Turns
from pyromq.controller.journal import Journal, JournalFile
from pyromq.controller.replicas import (
    AlterSyncStateSetEvent,
    ApplyBrokerIdEvent,
    CleanBrokerDataEvent,
    ElectMasterEvent,
    UpdateBrokerAddressEvent,
)
from pyromq.errors import ConfigError, NotDecided

ME = Peer("n0", "127.0.0.1:9878")


def apply_id(broker_id, name="b"):
    address = f"h{broker_id}:1"
    return ApplyBrokerIdEvent(
        broker_name=name,
        cluster_name="c",
        broker_address=address,
        new_broker_id=broker_id,
        register_check_code=f"{address};7",
    )


def master(broker_id, name="b"):
    return ElectMasterEvent(broker_name=name, new_master_broker_id=broker_id)


STORY = [
    apply_id(1),
    master(1),
    apply_id(2),
    AlterSyncStateSetEvent(broker_name="b", new_sync_state_set=frozenset({1, 2})),
    master(2),
    ElectMasterEvent(broker_name="b", new_master_elected=False),
    UpdateBrokerAddressEvent(broker_name="b", cluster_name="c", broker_address="new:1", broker_id=2),
    apply_id(1, "other"),
    CleanBrokerDataEvent(broker_name="b", broker_id_set_to_clean=frozenset({1})),
    apply_id(1, "gone"),
    CleanBrokerDataEvent(broker_name="gone"),
]


@asynccontextmanager
async def opened(folder):
    journal = Journal(folder, ME)
    ready = asyncio.Event()
    running = asyncio.create_task(journal.run(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    try:
        if running.done():
            await running
        yield journal
    finally:
        running.cancel()
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)


async def written(folder, events=STORY):
    """Decide all events; returns the groups."""
    async with opened(folder) as journal:
        for event in events:
            await journal.decide(event)
        return dict(journal.groups)


async def test_what_was_decided_is_there_again(tmp_path):
    groups = await written(tmp_path)
    assert list(groups) == ["b", "other"]
    group = groups["b"]
    assert (group.master, group.master_epoch, group.in_sync, group.set_epoch) == (None, 3, [2], 3)
    assert (group.address_of(2), group.next_id) == ("new:1", 3)
    async with opened(tmp_path) as journal:
        assert journal.groups == groups
        assert (journal.is_leader, journal.leader, journal.peers) == (True, ME, [ME])
        await journal.decide(master(2))
    async with opened(tmp_path) as journal:
        assert (journal.groups["b"].master, journal.groups["b"].master_epoch) == (2, 4)
    assert not journal.is_leader


async def test_a_line_is_the_event_as_rocketmq_writes_it(tmp_path):
    await written(tmp_path, STORY[:2])
    _, first, second = (tmp_path / "journal").read_text().splitlines()
    text = (
        '{"n":1,"event":{"eventType":"APPLY_BROKER_ID_EVENT","brokerName":"b","clusterName":"c",'
        '"brokerAddress":"h1:1","newBrokerId":1,"registerCheckCode":"h1:1;7"},"masterEpoch":0,"setEpoch":0}'
    )
    assert first == f"{zlib.crc32(text.encode()):08x} {text}"
    assert second.endswith('"newMasterBrokerId":1,"newMasterElected":true},"masterEpoch":1,"setEpoch":1}')


async def test_the_last_line_may_be_torn_anywhere(tmp_path, caplog):
    await written(tmp_path, STORY[:4])
    path = tmp_path / "journal"
    content = path.read_bytes()
    start = content.rindex(b"\n", 0, -1) + 1
    for cut in (start + 1, start + 9, len(content) - 1):
        path.write_bytes(content[:cut])
        caplog.clear()
        async with opened(tmp_path) as journal:
            assert journal.groups["b"].in_sync == [1]
        assert f"ends in {cut - start} bytes of a decision that nobody was told" in caplog.text
        assert path.read_bytes() == content[:start]
    # blocks that never reached the disk, within the line and behind it
    for torn in (content[: start + 20] + bytes(30) + content[start + 50 :], content[: start + 20] + bytes(4000)):
        path.write_bytes(torn)
        async with opened(tmp_path) as journal:
            assert journal.groups["b"].in_sync == [1]
    # and it goes on from there
    async with opened(tmp_path) as journal:
        await journal.decide(STORY[3])
    assert path.read_bytes() == content


@pytest.mark.slow
async def test_a_flipped_bit_anywhere_stops_the_start(tmp_path):
    await written(tmp_path, STORY[:4])
    path = tmp_path / "journal"
    content = path.read_bytes()
    for position in range(len(content) - 1):  # without its line end, the last line is a torn one
        broken = bytearray(content)
        broken[position] ^= 1
        path.write_bytes(broken)
        file = JournalFile(tmp_path)
        with pytest.raises(ConfigError, match="journal is damaged in line"):
            file.open()
        file.close()


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (lambda lines: lines[1:], "line 1: no journal begins like this"),
        (lambda lines: lines[:2] + lines[3:], "line 3: decision 3 follows decision 1"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2: decision 2 follows decision 0"),
        (lambda lines: [b"\n", *lines], "line 1: the checksum does not fit"),
        (lambda lines: [], r"\(it is empty\)"),
        (lambda lines: [lines[0][:-5]], "line 1: the line is incomplete"),
        (lambda lines: [bytes(900)], "line 1: the line is incomplete"),
        (lambda lines: [*lines[:-1], lines[-1].replace(b"b", b"c")], "line 5: the checksum does not fit"),
    ],
)
async def test_a_damaged_journal_says_where(damage, how, tmp_path):
    await written(tmp_path, STORY[:4])
    path = tmp_path / "journal"
    content = b"".join(damage(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"journal is damaged .*{how}\. Restore it from a copy"):
        async with opened(tmp_path):
            pass
    assert path.read_bytes() == content


async def test_epochs_that_do_not_follow_are_damage(tmp_path):
    await written(tmp_path, STORY[:2])
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines()
    text = lines[2][9:].replace(b'"masterEpoch":1', b'"masterEpoch":8')
    path.write_bytes(b"\n".join([*lines[:2], b"%08x %b" % (zlib.crc32(text), text), b""]))
    with pytest.raises(ConfigError, match=r"line 3: it leads to epochs \(1, 1\), not 8 and 1"):
        async with opened(tmp_path):
            pass


async def test_many_events_become_the_groups_they_led_to(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_MANY_EVENTS", 10)
    path = tmp_path / "journal"
    async with opened(tmp_path) as journal:
        await journal.decide(apply_id(1))
        await journal.decide(apply_id(2))
        for number in range(60):
            await journal.decide(master(1 + number % 2))
            assert len(path.read_bytes().splitlines()) < 20
        groups = dict(journal.groups)
    assert groups["b"].master_epoch == 60
    async with opened(tmp_path) as journal:
        assert journal.groups == groups
    assert not path.with_name("journal.new").exists()


async def test_a_new_file_that_was_never_finished_does_no_harm(tmp_path):
    groups = await written(tmp_path)
    (tmp_path / "journal.new").write_bytes(b"half a file")
    async with opened(tmp_path) as journal:
        assert journal.groups == groups


@contextlib.contextmanager
def full_disk(size):
    """No file of this process may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_decision_that_cannot_be_saved_is_not_made(tmp_path):
    path = tmp_path / "journal"
    async with opened(tmp_path) as journal:
        await journal.decide(apply_id(1))
        before = path.read_bytes()
        with full_disk(len(before) + 20):
            for _ in range(2):
                with pytest.raises(NotDecided, match="the decision could not be saved: File too large"):
                    await journal.decide(master(1))
        assert path.read_bytes() == before
        assert journal.groups["b"].master is None
        await journal.decide(master(1))
        groups = dict(journal.groups)
    async with opened(tmp_path) as journal:
        assert journal.groups == groups
        assert journal.groups["b"].master_epoch == 1


async def test_after_a_failed_sync_the_file_is_written_anew(tmp_path, monkeypatch):
    def failing(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "journal"
    async with opened(tmp_path) as journal:
        await journal.decide(apply_id(1))
        node = path.stat().st_ino
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", failing)
            with pytest.raises(NotDecided, match="Input/output error"):
                await journal.decide(master(1))
            with pytest.raises(NotDecided, match="Input/output error"):
                await journal.decide(master(1))
        assert journal.groups["b"].master is None
        await journal.decide(master(1))
        assert path.stat().st_ino != node
        assert journal.groups["b"].master_epoch == 1
    async with opened(tmp_path) as journal:
        assert journal.groups["b"].master_epoch == 1


async def test_two_controllers_do_not_share_a_folder(tmp_path):
    async with opened(tmp_path):
        with pytest.raises(ConfigError, match="is used by another controller"):
            async with opened(tmp_path):
                pass


async def test_decisions_on_one_group_follow_each_other_and_see_each_other(tmp_path):
    async with opened(tmp_path) as journal:
        await journal.decide(apply_id(1))
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(journal.decide(master(1)))
            await asyncio.sleep(0)
            with pytest.raises(NotDecided, match="another decision on b is under way"):
                await journal.decide(master(1))
            other = tasks.create_task(journal.decide(apply_id(1, "other")))
        assert (first.result().master_epoch, other.result().next_id) == (1, 2)
        turns = Turns(journal)
        seen = []

        def verdict(group):
            seen.append(group.master_epoch)
            return master(1)

        await asyncio.gather(*(turns.decide("b", verdict) for _ in range(10)))
        assert seen == list(range(1, 11))


async def test_who_stops_waiting_leaves_nothing_half_done(tmp_path):
    async with opened(tmp_path) as journal:
        await journal.decide(apply_id(1))
        asking = asyncio.create_task(journal.decide(master(1)))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        # Decisions are made in order, so this one follows it.
        await journal.decide(apply_id(1, "other"))
        assert journal.groups["b"].master == 1
        await journal.decide(master(1))
    with pytest.raises(NotDecided, match="stopping"):
        await journal.decide(master(1))
    async with opened(tmp_path) as journal:
        assert journal.groups["b"].master_epoch == 2
