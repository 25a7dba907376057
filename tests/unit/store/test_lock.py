"""The lock on a store: one process at a time, and once in that process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from pyromq.errors import StoreError
from pyromq.store.lock import StoreLock

HOLD = """
import sys
from pathlib import Path
from pyromq.errors import StoreError
from pyromq.store.lock import StoreLock
try:
    lock = StoreLock(Path(sys.argv[1]))
except StoreError as exc:
    print(exc, flush=True)
    sys.exit(1)
print("locked", flush=True)
sys.stdin.read()
"""

# What Java's FileChannel.tryLock(0, 1, false) asks of the system.
HOLD_AS_JAVA = """
import fcntl, os, sys
fd = os.open(sys.argv[1] + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_process(root, code=HOLD):
    """Another process that locks `root`; what it says first, and its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        process.communicate()


@pytest.mark.scenario("store 26")
@pytest.mark.parametrize("code", [HOLD, HOLD_AS_JAVA], ids=["PyroMQ", "RocketMQ"])
def test_a_store_that_another_process_uses_is_refused(tmp_path, code):
    with another_process(tmp_path, code) as (said, pid):
        assert said == "locked"
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(StoreError, match=rf"{tmp_path} is in use by another process \(pid {pid}\)"):
            StoreLock(tmp_path)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    StoreLock(tmp_path).close()


@pytest.mark.scenario("store 26")
def test_our_store_is_refused_to_another_process_until_it_is_closed(tmp_path):
    with StoreLock(tmp_path):
        with another_process(tmp_path) as (said, _):
            assert said == f"{tmp_path} is in use by another process (pid {os.getpid()})"
        # The refused attempt of this process must not cost us the lock.
        with pytest.raises(StoreError, match="in use by this process"):
            StoreLock(tmp_path)
        with another_process(tmp_path) as (said, _):
            assert "in use by another process" in said
    with another_process(tmp_path) as (said, _):
        assert said == "locked"


def test_the_same_store_by_another_path_is_refused_too(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    with StoreLock(tmp_path / "store"), pytest.raises(StoreError, match="in use by this process"):
        StoreLock(tmp_path / "link")


def test_the_file_says_lock_and_stays(tmp_path):
    lock = StoreLock(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    lock.close()
    lock.close()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    with StoreLock(tmp_path):
        pass


def test_two_stores_have_two_locks(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with StoreLock(tmp_path / "a"), StoreLock(tmp_path / "b"):
        pass


def test_a_folder_that_is_not_there_is_an_error_with_its_path(tmp_path):
    with pytest.raises(StoreError, match=f"cannot open {tmp_path}/none/lock: No such file"):
        StoreLock(tmp_path / "none")
