"""The store by itself: appending, flushing, reading, recovering, and what it costs in memory."""

from __future__ import annotations

import gc
import os
import statistics
import struct
import tempfile
import time
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pyromq.protocol.crc import crc32
from pyromq.protocol.record import HEADS, MAGIC_V1, MessageRecord
from pyromq.store import FlushDiskType, MessageStore, StoreConfig
from pyromq.store.disk import Disk

from .table import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.store.put import Unit

GiB = 1 << 30
TOPIC = "TopicTest"
KEYLESS = b"WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
KEYED = b"KEYS\x01k%09d\x02UNIQ_KEY\x01C0A8010A04D218B4AAC247B7%08X\x02" + KEYLESS
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as name:
        folder = Path(name)
        _appending(folder)
        _sync_flush(folder)
        _reading(folder)
        _recovery(folder)
        _many_queues(folder)
        _memory(folder)


def records(count: int, body: int, *, keys: bool = False) -> list[MessageRecord]:
    content = os.urandom(body)
    return [
        MessageRecord(
            TOPIC,
            content,
            KEYED % (number, number) if keys else KEYLESS,
            born_timestamp=1700000000000,
            born_host=HOST,
            store_host=HOST,
        )
        for number in range(count)
    ]


def _config(root: Path, **settings: object) -> StoreConfig:
    return StoreConfig(root=str(root), **settings)  # type: ignore[arg-type]


# Appending


def _appending(folder: Path) -> None:
    rows = []
    for body in (1024, 128):
        for batch in (1, 8, 64):
            count = 128_000 if batch > 1 else 32_000
            plain, keyed, bare = [], [], []
            for attempt in range(5):  # interleaved, the least of each: whatever else runs only adds
                root = folder / f"append-{body}-{batch}-{attempt}"
                plain.append(_append(root / "plain", body, batch, count, keys=False))
                keyed.append(_append(root / "keyed", body, batch, count, keys=True))
                bare.append(_bare_append(root, body, batch, count))
                _remove(root)
            ours, with_index, floor = min(plain), min(keyed), min(bare)
            rows.append((f"{body} B × {batch}", ours, floor, floor / ours, with_index - ours))
    show(
        "append, µs of CPU a message, asynchronous flush; bare: pack the head, CRC, join, one pwrite per batch",
        ("body × batch", "store", "bare", "ratio", "two keys in the index"),
        rows,
    )


def _append(root: Path, body: int, batch: int, count: int, *, keys: bool) -> float:
    with MessageStore(_config(root, index=keys)) as store:
        queues = [store.queue(TOPIC, number) for number in range(4)]
        messages = records(count, body, keys=keys)
        units: list[list[Unit]] = [
            [(queues[number & 3], (messages[start + number],)) for number in range(batch)]
            for start in range(0, count - batch + 1, batch)
        ]
        store.put([(queues[0], (messages[0],))])  # the first file is made, numpy imported
        if keys:
            store.maintain()
        gc.collect()
        began = time.thread_time()
        for unit in units:
            store.put(unit)
        store.maintain()
        return (time.thread_time() - began) / (len(units) * batch) * 1e6


def _bare_append(root: Path, body: int, batch: int, count: int) -> float:
    """The least that any store does with the same messages: pack the head, CRC, join, one write per batch."""
    root.mkdir(parents=True, exist_ok=True)
    fd = Disk().create(root / "bare", GiB)
    messages = records(count, body)
    head = HEADS[0]
    topic = bytes((len(TOPIC),)) + TOPIC.encode()
    length = struct.Struct(">h")
    chunks = [messages[start : start + batch] for start in range(0, count - batch + 1, batch)]
    position = 0
    now = 1700000000000
    gc.collect()
    began = time.thread_time()
    for chunk in chunks:
        pieces: list[bytes] = []
        start = position
        for record in chunk:
            content, properties = record.body, record.properties
            size = head.size + len(content) + len(topic) + 2 + len(properties)
            pieces += (
                head.pack(
                    size,
                    MAGIC_V1,
                    crc32(content) & 0x7FFFFFFF,
                    record.queue_id,
                    record.flag,
                    position,
                    position,
                    record.sys_flag,
                    record.born_timestamp,
                    record.born_host,
                    now,
                    record.store_host,
                    record.reconsume_times,
                    record.prepared_transaction_offset,
                    len(content),
                ),
                content,
                topic,
                length.pack(len(properties)),
                properties,
            )
            position += size
        os.pwrite(fd, b"".join(pieces), start)
    took = time.thread_time() - began
    os.close(fd)
    return took / (len(chunks) * batch) * 1e6


# Flushing


def _sync_flush(folder: Path, waiters: int = 100, messages: int = 20_000) -> None:
    """So many senders, each of which waits for the flush of its message before it sends the next, in one thread.

    As in the broker, whose event loop holds the answers of all who wait. A thread for each would measure how Python
    changes threads.
    """
    answered: SimpleQueue[None] = SimpleQueue()
    with MessageStore(_config(folder / "sync", flush=FlushDiskType.SYNC_FLUSH)) as store:
        (record,) = records(1, 1024)
        target = store.queue(TOPIC, 0)

        def send() -> None:
            (result,) = store.put([(target, (record,))])
            store.flushed(result.physical_offset + result.size).add_done_callback(lambda _: answered.put(None))

        before, began = store.flusher.syncs, time.perf_counter()
        for _ in range(waiters):
            send()
        for _ in range(messages - waiters):
            answered.get()
            send()
        for _ in range(waiters):
            answered.get()
        took, syncs = time.perf_counter() - began, store.flusher.syncs - before
    show(
        f"synchronous flush, {waiters} waiters",
        ("messages", "fsyncs", "messages per fsync", "messages/s"),
        [(messages, syncs, messages / syncs, messages / took)],
    )


# Reading


def _reading(folder: Path) -> None:
    rows = []
    for queues, megabytes in ((10, 64), (10, 1024), (1000, 64), (10_000, 512)):
        root = folder / f"read-{queues}-{megabytes}"
        with MessageStore(_config(root, index=False, consume_queue_file_size=20_000)) as store:
            total = megabytes * 1024 * 1024 // 1150
            per_queue = max(total // queues, 40)
            opened = [store.queue(TOPIC, number) for number in range(queues)]
            (record,) = records(1, 1024)
            for _ in range(per_queue):
                for start in range(0, queues, 64):
                    store.put([(queue, (record,)) for queue in opened[start : start + 64]])
            some = opened[:: max(queues // 10, 1)]
            times = [_read(store, some) for _ in range(7)]
            rows.append(
                (f"{queues:,} queues, {queues * per_queue * 1150 / 1e6:,.0f} MB", min(times), statistics.median(times))
            )
        _remove(root)
    show("read 32 × 1 KB from the end of a queue, µs of CPU", ("store", "least", "median"), rows)


def _read(store: MessageStore, queues: Sequence[object], rounds: int = 200) -> float:
    began = time.thread_time()
    for _ in range(rounds):
        for queue in queues:
            found = store.get(queue, queue.max_offset - 32, 32)  # type: ignore[attr-defined, arg-type]
            assert found.count == 32
    return (time.thread_time() - began) / rounds / len(queues) * 1e6


# Recovery and opening


def _recovery(folder: Path) -> None:
    root = folder / "recover"
    store = MessageStore(_config(root))
    store.open()
    queues = [store.queue(TOPIC, number) for number in range(8)]
    messages = records(64, 1024, keys=True)
    units = [(queues[number & 7], (message,)) for number, message in enumerate(messages)]
    while store.log.end < GiB - 200_000:
        store.put(units)
    count = sum(queue.max_offset for queue in queues)
    store.abandon()
    began = time.perf_counter()
    with MessageStore(_config(root)) as store:
        took = time.perf_counter() - began
        assert sum(queue.max_offset for queue in store.queues) == count
    began = time.perf_counter()
    with MessageStore(_config(root)):
        clean = time.perf_counter() - began
    _remove(root)
    show(
        "opening a 1 GiB log of 1 KB messages with two keys each",
        ("after", "records", "seconds", "records/s"),
        [("a crash", count, took, count / took), ("a clean stop", count, clean, "")],
    )


def _many_queues(folder: Path, count: int = 10_000) -> None:
    root = folder / "queues"
    (record,) = records(1, 128)
    with MessageStore(_config(root)) as store:
        for number in range(count):
            store.put([(store.queue(f"topic-{number % 1000}", number // 1000), (record,))])
    began = time.perf_counter()
    with MessageStore(_config(root)) as store:
        took = time.perf_counter() - began
        assert len(store.queues) == count
    _remove(root)
    show("opening a clean store of many queues", ("queues", "seconds"), [(f"{count:,}", took)])


def _memory(folder: Path, gigabytes: int = 5) -> None:
    """Resident memory that is ours, not mapped files, while so much is appended."""
    root = folder / "memory"
    with MessageStore(_config(root, commit_log_file_size=GiB)) as store:
        queues = [store.queue(TOPIC, number) for number in range(8)]
        units = [(queues[number & 7], (message,)) for number, message in enumerate(records(64, 4096, keys=True))]
        while store.log.end < GiB // 2:
            store.put(units)
        before = _anonymous_memory()
        while store.log.end < gigabytes * GiB:
            store.put(units)
            store.maintain()
            while len(store.log.segments) > 2:
                store.log.drop_oldest().delete()  # the disk need not hold it all
        after = _anonymous_memory()
    _remove(root)
    show(
        f"memory while {gigabytes} GiB are appended, MB without mapped files",
        ("before", "after", "more"),
        [(before / 1e6, after / 1e6, (after - before) / 1e6)],
    )


def _anonymous_memory() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def _remove(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    root.rmdir()
