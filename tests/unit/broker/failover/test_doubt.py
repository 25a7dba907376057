"""Whether a log may lack what its broker acknowledged: the rule, and the file that remembers it."""

from __future__ import annotations

import errno

import pytest

from pyromq.broker.failover.doubt import BOOT_FILE, Doubt, Traces, is_doubtful
from pyromq.errors import StoreError
from pyromq.store.config import FlushDiskType
from pyromq.store.disk import Disk
from pyromq.testing.disk import FaultyDisk

ASYNC, SYNC = FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH
STOPPED = Traces(crashed=False, lacks_confirmed=False, is_emptied=False)
CRASHED = STOPPED._replace(crashed=True)


class Machine(FaultyDisk):
    """A machine that can start anew."""

    boot: str | None = "one"

    def boot_id(self) -> str | None:
        return self.boot


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def after(tmp_path, machine):
    """Starts a broker after the last run left these traces."""

    def start(found, flush=ASYNC):
        doubt = Doubt(tmp_path / BOOT_FILE, machine, flush)
        doubt.load(found)
        return doubt

    return start


@pytest.mark.parametrize(
    ("kept", "boot", "found", "doubtful"),
    [
        ("one#ASYNC_FLUSH", "one", STOPPED, False),
        ("one#ASYNC_FLUSH", "two", STOPPED, False),  # a clean stop leaves nothing in memory
        ("one#ASYNC_FLUSH", "one", CRASHED, False),  # a killed process leaves everything in memory
        ("one#ASYNC_FLUSH", "two", CRASHED, True),
        ("one#SYNC_FLUSH", "two", CRASHED, False),
        ("one#ASYNC_FLUSH", None, CRASHED, True),
        ("unknown#ASYNC_FLUSH", None, CRASHED, True),  # a system without boot ids
        (None, "one", CRASHED, True),  # a run of Apache's, or of an older version
        (None, "one", STOPPED, False),
        ("garbage", "one", CRASHED, True),
        ("", "one", CRASHED, True),
        ("doubtful", "one", STOPPED, True),
        ("doubtful", "one", CRASHED, True),
        (None, "one", STOPPED._replace(is_emptied=True), True),
        ("one#ASYNC_FLUSH", "one", STOPPED._replace(is_emptied=True), False),  # nothing was ever sent to it
        ("one#SYNC_FLUSH", "one", STOPPED._replace(lacks_confirmed=True), True),
    ],
)
def test_the_rule(kept, boot, found, doubtful):
    assert is_doubtful(kept, boot, found) is doubtful


def test_a_new_broker_is_sure(after, tmp_path):
    assert not after(STOPPED).exists
    assert (tmp_path / BOOT_FILE).read_text() == "one#ASYNC_FLUSH"


def test_a_doubt_outlives_everything_but_its_end(after, machine, caplog):
    after(STOPPED)
    machine.boot = "two"
    assert after(CRASHED).exists
    assert "does not become master" in caplog.text
    assert after(CRASHED).exists  # killed before it had caught up
    doubt = after(STOPPED)  # or stopped
    assert doubt.exists
    doubt.end()
    assert not doubt.exists
    assert not after(CRASHED).exists
    machine.boot = "three"
    assert after(CRASHED).exists


def test_the_flush_of_the_last_run_counts_not_that_of_this_one(after, machine):
    after(STOPPED)
    machine.boot = "two"
    doubt = after(CRASHED, SYNC)
    assert doubt.exists
    doubt.end()
    machine.boot = "three"
    assert not after(CRASHED).exists


def test_it_is_on_disk_before_anybody_is_told(after, machine):
    after(STOPPED)
    machine.boot = "two"
    syncs, folders = machine.syncs, machine.folder_syncs
    doubt = after(CRASHED)
    assert (machine.syncs, machine.folder_syncs) == (syncs + 1, folders + 1)
    doubt.end()
    doubt.end()
    assert (machine.syncs, machine.folder_syncs) == (syncs + 2, folders + 2)


def test_nothing_is_written_if_nothing_changed(after, machine):
    after(STOPPED)
    writes = machine.writes
    after(CRASHED)
    assert machine.writes == writes


def test_a_full_disk_keeps_nobody_from_starting_but_the_next_crash_is_doubtful(after, machine, tmp_path):
    after(STOPPED)
    machine.boot = "two"
    machine.fail_writes(errno.ENOSPC, BOOT_FILE)
    assert not after(STOPPED).exists
    assert not (tmp_path / BOOT_FILE).exists()
    assert after(CRASHED).exists


def test_a_doubt_whose_end_cannot_be_written_down_comes_back(after, machine):
    after(STOPPED)
    machine.boot = "two"
    doubt = after(CRASHED)
    machine.fail_writes(errno.ENOSPC, BOOT_FILE)
    with pytest.raises(OSError, match="No space"):
        doubt.end()
    machine.heal()
    assert after(STOPPED).exists


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(after, tmp_path):
    (tmp_path / BOOT_FILE).mkdir()
    with pytest.raises(StoreError, match=BOOT_FILE):
        after(STOPPED)


def test_a_machine_has_the_same_boot_id_until_it_starts_anew():
    first = Disk().boot_id()
    assert first is None or len(first) == 36
    assert Disk().boot_id() == first
