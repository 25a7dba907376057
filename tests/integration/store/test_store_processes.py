"""Stores in processes of their own: killed, locked out, without rights, without descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.unit.store.kit import FOREVER, bodies, files_of, message, numbered, put

from pyromq.errors import StoreError
from pyromq.store import MessageStore, PutStatus

WRITER = Path(__file__).with_name("writer.py")
SETTINGS = {"commit_log_file_size": 4096, "consume_queue_file_size": 200, "hash_slots": 20, "index_entries": 100}


def run(code: str, *arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.slow
@pytest.mark.scenario("store 5")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_whatever_a_killed_process_acknowledged_is_there(stores, flush):
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    acknowledged = 0
    for lines in (1, 20, 57):
        process = subprocess.Popen(
            [sys.executable, str(WRITER), str(stores.root), flush, *settings], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout:
            for _ in range(lines):
                acknowledged = int(process.stdout.readline())
            process.kill()
            for line in process.stdout:
                acknowledged = int(line) if line.endswith("\n") else acknowledged
        process.wait(TOO_LONG)
        assert (stores.root / "abort").exists()
        copy = stores.folder / f"after {lines}"
        subprocess.run(["cp", "-r", str(stores.root), str(copy)], check=True)
        store = stores.start(stores.config(root=copy))
        found = bodies(store)
        # Of what came after the last word some may be there, in order.
        assert len(found) >= acknowledged
        assert found == numbered(0, len(found))
        assert len(store.query("T", f"k{acknowledged - 1}", 1, 0, FOREVER)) == 1
        assert put(store, b"next")[0].queue_offset == len(found)
        stores.close(store)


@pytest.mark.slow
@pytest.mark.scenario("store 26")
def test_another_process_is_refused_and_changes_nothing(stores, store):
    put(store, *numbered(0, 20))
    before = files_of(stores.root)
    code = """
        import sys
        from pyromq.errors import StoreError
        from pyromq.store import MessageStore, StoreConfig
        try:
            MessageStore(StoreConfig(root=sys.argv[1], commit_log_file_size=4096)).open()
        except StoreError as exc:
            print(exc)
    """
    done = run(code, stores.root)
    assert done.stdout.strip() == f"{stores.root} is in use by another process (pid {os.getpid()})"
    assert files_of(stores.root) == before
    put(store, b"m20")
    assert bodies(store) == numbered(0, 21)


@pytest.mark.slow
@pytest.mark.parametrize("read_only", ["", "commitlog", "consumequeue/T/0", "checkpoint"])
def test_a_folder_without_the_right_to_write_is_a_clear_error(stores, store, read_only):
    put(store, *numbered(0, 20))
    stores.close(store)
    code = """
        import os, sys
        import numpy
        from pyromq.errors import StoreError
        from pyromq.store import MessageStore, StoreConfig
        sizes = dict(commit_log_file_size=4096, consume_queue_file_size=200, hash_slots=20, index_entries=100)
        store = MessageStore(StoreConfig(root=sys.argv[1], **sizes))
        if os.geteuid() == 0:
            # Root may write anywhere, so be nobody; what is imported later nobody may read.
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            with store:
                print("opened")
        except StoreError as exc:
            print("refused:", exc)
    """
    everything = [stores.root, *stores.root.rglob("*")]
    for path in everything:
        path.chmod(0o777 if path.is_dir() else 0o666)
    for parent in stores.root.parents:
        if "pytest-of-" in str(parent):
            parent.chmod(parent.stat().st_mode | 0o055)
    locked = stores.root / read_only
    paths = [locked, *(locked.rglob("*") if locked.is_dir() else ())]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = run(code, stores.root)
    for path in paths:
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert done.stderr == ""
    assert "refused:" in done.stdout
    assert "Permission denied" in done.stdout
    assert bodies(stores.start(store.config)) == numbered(0, 20)


@pytest.mark.slow
def test_a_process_without_descriptors_stores_nothing_halfway_and_goes_on_when_it_has_some(stores):
    code = """
        import resource, sys
        from pyromq.protocol.record import MessageRecord
        from pyromq.store import MessageStore, PutStatus, StoreConfig
        sizes = dict(commit_log_file_size=4096, consume_queue_file_size=200, hash_slots=20, index_entries=100)
        store = MessageStore(StoreConfig(root=sys.argv[1], **sizes))
        store.open()
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
        stored, failed, number = 0, set(), 0
        for number in range(2000):
            queue = store.queue("T", number % 60)
            (result,) = store.put([(queue, [MessageRecord("T", b"m%d" % stored)])])
            if result.status is PutStatus.PUT_OK:
                stored += 1
            else:
                failed.add((result.status.name, "Too many open files" in result.error))
                break
            store.maintain()
        assert failed == {("CREATE_MAPPED_FILE_FAILED", True)}, failed
        for queue in store.queues:
            store.get(queue, 0, 32)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
        (result,) = store.put([(store.queue("T", 0), [MessageRecord("T", b"m%d" % stored)])])
        assert result.status is PutStatus.PUT_OK, result
        store.close()
        print(stored + 1)
    """
    done = run(code, stores.root)
    assert done.returncode == 0, done.stderr
    store = stores.open()
    found = [body for queue in store.queues for body in bodies(store, "T", queue.queue_id)]
    assert sorted(found) == sorted(numbered(0, int(done.stdout)))


def test_a_store_can_be_used_by_one_process_after_another(stores):
    code = """
        import sys
        from pyromq.protocol.record import MessageRecord
        from pyromq.store import MessageStore, StoreConfig
        sizes = dict(commit_log_file_size=4096, consume_queue_file_size=200, hash_slots=20, index_entries=100)
        with MessageStore(StoreConfig(root=sys.argv[1], **sizes)) as store:
            store.put([(store.queue("T", 0), [MessageRecord("T", b"m0")])])
    """
    assert run(code, stores.root).returncode == 0
    store = stores.open()
    assert store.put([(store.queue("T", 0), [message(b"m1")])])[0].status is PutStatus.PUT_OK
    assert bodies(store) == [b"m0", b"m1"]
    with pytest.raises(StoreError, match="this process"):
        MessageStore(store.config).open()
