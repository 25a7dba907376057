"""The files that hold a broker's id: their text, what is refused, and what a failing disk leaves."""

from __future__ import annotations

import errno

import pytest

from pyromq.broker.failover.identity import Claim, IdentityFiles
from pyromq.errors import ConfigError, StoreError
from pyromq.testing.disk import FaultyDisk

CLAIM = Claim(3, "127.0.0.1:46200;1794788328386")


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def files(tmp_path, disk):
    return IdentityFiles(tmp_path / "store" / "brokerIdentity", "DefaultCluster", "broker-a", disk)


def text(path):
    return path.read_bytes().decode()


def test_a_new_broker_has_neither(files):
    assert files.read() is None
    assert files.read_claim() is None


def test_the_texts_are_those_of_rocketmq(files):
    files.keep_claim(CLAIM)
    assert text(files.claim_path) == "DefaultCluster#broker-a#3#127.0.0.1:46200;1794788328386"
    assert files.claim_path.name == "brokerIdentity-temp"
    assert files.read_claim() == CLAIM
    files.keep(1)
    assert text(files.path) == "DefaultCluster#broker-a#1"
    assert files.read() == 1


def test_the_claim_goes_once_the_id_is_kept(files):
    files.keep_claim(CLAIM)
    files.keep(3)
    assert sorted(path.name for path in files.path.parent.iterdir()) == ["brokerIdentity"]


def test_both_files_are_on_disk_before_anybody_is_told(files, disk):
    files.keep_claim(CLAIM)
    assert (disk.syncs, disk.folder_syncs) == (1, 2)  # the new folder in its parent, and the new file in the folder
    files.keep(3)
    assert (disk.syncs, disk.folder_syncs) == (2, 3)


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs"])
def test_a_failing_disk_leaves_the_old_file(files, disk, fault):
    files.keep(1)
    getattr(disk, fault)(errno.ENOSPC, "brokerIdentity")
    with pytest.raises(OSError, match="space"):
        files.keep(2)
    disk.heal()
    assert files.read() == 1
    assert sorted(path.name for path in files.path.parent.iterdir()) == ["brokerIdentity"]


def test_an_id_that_cannot_be_kept_keeps_the_claim(files, disk):
    files.keep_claim(CLAIM)
    disk.fail_syncs()
    with pytest.raises(OSError, match="error"):
        files.keep(3)
    assert files.read() is None
    assert files.read_claim() == CLAIM


@pytest.mark.scenario("controller 19")
@pytest.mark.parametrize("content", ["Other#broker-a#1", "DefaultCluster#broker-b#1"])
def test_a_file_of_another_broker_is_refused_by_name(files, content):
    files.path.parent.mkdir()
    files.path.write_text(content)
    with pytest.raises(StoreError, match=r"brokerIdentity belongs to broker .* brokerName"):
        files.read()


def test_a_claim_of_another_broker_is_refused_by_name(files):
    files.path.parent.mkdir()
    files.claim_path.write_text("Other#broker-a#1#127.0.0.1:1;2")
    with pytest.raises(StoreError, match="brokerIdentity-temp belongs to broker broker-a of cluster Other"):
        files.read_claim()


@pytest.mark.parametrize(
    "content",
    [b"", b"DefaultCluster#broker-a", b"DefaultCluster#broker-a#x", b"DefaultCluster#broker-a#0", b"\xff\x00"],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(files, content):
    files.path.parent.mkdir()
    files.path.write_bytes(content)
    with pytest.raises(StoreError, match=r"brokerIdentity is damaged: .* move it away"):
        files.read()


@pytest.mark.parametrize("content", [b"", b"DefaultCluster#broker-a#3", b"DefaultCluster#broker-a#x#h:1;2", b"\xff"])
def test_a_damaged_claim_is_as_good_as_none(files, content):
    files.path.parent.mkdir()
    files.claim_path.write_bytes(content)
    assert files.read_claim() is None


def test_a_line_end_that_an_editor_left_does_no_harm(files):
    files.path.parent.mkdir()
    files.path.write_text("DefaultCluster#broker-a#7\n")
    assert files.read() == 7


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(files):
    files.path.mkdir(parents=True)
    with pytest.raises(StoreError, match="brokerIdentity cannot be read"):
        files.read()


@pytest.mark.parametrize(("cluster", "broker"), [("C#1", "b"), ("C", "b#1")])
def test_names_that_break_the_format_are_refused(tmp_path, cluster, broker):
    with pytest.raises(ConfigError, match=r"must not contain #"):
        IdentityFiles(tmp_path / "brokerIdentity", cluster, broker)
