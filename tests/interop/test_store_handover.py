"""One store, two makes: what Apache's brokers wrote is read and continued by `MessageStore`, and the other way round.

The files are so small that a few hundred messages fill several of each kind. A name server is there for the Java client
alone; Apache's brokers are asked directly, over the wire.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import Broker
from tests.interop.contents import Contents, Held, Served, acknowledged_in, assert_kept, bodies, count, read_all
from tests.interop.drivers import Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, wait_until

from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.bodies.register import TopicConfig
from pyromq.protocol.compression import compress
from pyromq.protocol.ids import encode_host
from pyromq.protocol.record import MessageRecord
from pyromq.store import MessageStore, PutStatus, StoreConfig
from pyromq.store.check.store_check import Severity
from pyromq.store.metadata.json_files import consumer_offsets_file, topics_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.contents import Queue

pytestmark = pytest.mark.interop

VERSIONS = ("5.5.0", "4.9.7")
CLIENTS = {"5.5.0": "java-5.5.0", "4.9.7": "java-4.9.8"}
WRITER = Path(__file__).parents[1] / "integration" / "store" / "writer.py"

QUERY_CONSUMER_OFFSET = 14
GET_ALL_TOPIC_CONFIG = 21

SOON = 30.0
# Level 3 is the first of retries. The last one is not over before the test is.
DELAYS = "1s 1s 1s 1s 30m"
SIZES: dict[str, Any] = {
    "commit_log_file_size": 1 << 20,
    "consume_queue_file_size": 20 * 20,
    "hash_slots": 100,
    "index_entries": 1000,
}
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": SIZES["commit_log_file_size"],
    "mappedFileSizeConsumeQueue": SIZES["consume_queue_file_size"],
    "maxHashSlotNum": SIZES["hash_slots"],
    "maxIndexNum": SIZES["index_entries"],
    "messageDelayLevel": DELAYS,
}
HOST = encode_host("127.0.0.1", 10911)


# What Apache's brokers write


@dataclass(frozen=True)
class Written:
    """A store that a broker of Apache's left behind, and all that it had served from it."""

    version: str
    root: Path
    contents: Contents


@pytest.fixture(scope="module")
def namesrv(java_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NameServer(OURS, tmp_path_factory.mktemp("namesrv")) as running:
        yield running.address


@pytest.fixture(scope="module")
def stores(namesrv: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """A store of each version. Copy it before you change it."""
    homes = {version: tmp_path_factory.mktemp(f"apache-{version}") for version in VERSIONS}
    brokers = {version: Broker(version, home, namesrv, **SETTINGS) for version, home in homes.items()}
    stores = {}
    try:
        for broker in brokers.values():
            broker.wait_until_booted()
        names = {broker.name for broker in brokers.values()}
        wait_until(lambda: wire.brokers(namesrv).keys() >= names, SOON, f"{names} are registered")
        for version, broker in brokers.items():
            with wire.Connection(broker.address) as connection:
                contents = fill(version, homes[version], namesrv, connection)
            stores[version] = Written(version, homes[version] / "store", contents)
        for broker in brokers.values():
            broker.process.terminate()
        for broker in brokers.values():
            broker.stop()
    finally:
        for broker in brokers.values():
            broker.process.kill()
    return stores


@pytest.fixture(params=VERSIONS)
def written(request: pytest.FixtureRequest, stores: dict[str, Written], tmp_path: Path) -> Written:
    """A copy of a store, under the home of a broker that may take it."""
    original = stores[request.param]
    root = tmp_path / "broker" / "store"
    shutil.copytree(original.root, root)
    return Written(original.version, root, original.contents)


def fill(version: str, home: Path, namesrv: str, connection: wire.Connection) -> Contents:
    """Let clients send and consume whatever leaves traces in a store; all that it holds then."""
    # A topic of the same name at both brokers would be served by both.
    orders, batches, retried, group = (
        f"{name}-{version}".replace(".", "_") for name in ("orders", "batches", "retried", "g")
    )
    for topic, queues in ((orders, 4), (batches, 1), (retried, 1), ("T", 1), ("big", 1)):
        wire.create_topic(connection, topic, queues)
    with Driver(CLIENTS[version], home / "client", namesrv) as client:
        for n in range(60):
            client.send(
                topic=orders,
                body=f"order-{n}",
                tags="grün" if n % 3 else "red",
                keys=f"key-{n},ключ",
                property="größe:10µm",
            )
        for _ in range(3):
            client.do("batch", topic=batches, count=20, tags="red", keys="in-a-batch")
            client.send(topic=batches, body="", size=20_000)  # the client compresses it
        client.send(topic=orders, body="delivered", delay=1)
        client.send(topic=orders, body="still-delayed", delay=5)
        for n in range(5):
            client.send(topic=retried, body=f"retried-{n}")
        client.do("push", name="failing", group=group, topic=retried, fail=1)
        chance = random.Random(version)
        for _ in range(25):
            wire.send(connection, "big", 0, chance.randbytes(100_000))
        for n in range(50):
            wire.send(connection, "T", 0, b"m%d" % n, KEYS=f"k{n}")
        source = Served(connection, knows_times=version != "4.9.7")

        def settled() -> bool:
            ends = source.queues()
            return ends.get((f"%RETRY%{group}", 0)) == (0, 5) and b"delivered" in bodies(read_all(source), orders)

        wait_until(settled, SOON, "delayed and retried messages are there")
        client.do("leave", name="failing")
    return read_all(source)


# What we do with it


def opened(root: Path) -> MessageStore:
    return MessageStore(StoreConfig(root=str(root), delay_levels=DELAYS, **SIZES))


def faults(store: MessageStore, *, tolerated: Severity = Severity.NOTE) -> list[str]:
    """What the check finds beyond notes and what is `tolerated`."""
    passed_over = {Severity.NOTE, tolerated}
    return [str(finding) for finding in store.check() if finding.severity not in passed_over]


def orders_of(written: Written) -> str:
    [topic] = {topic for topic, _ in written.contents if topic.startswith("orders")}
    return topic


def append(store: MessageStore, topic: str) -> None:
    """Add messages of all kinds: tags, keys, a batch, compressed, delayed and so large that the log rolls over."""

    def message(topic: str, body: bytes, sys_flag: int = 0, **properties: str) -> MessageRecord:
        text = props.render(properties).encode()
        return MessageRecord(
            topic, body, text, sys_flag=sys_flag, born_timestamp=1_700_000_000_000, born_host=HOST, store_host=HOST
        )

    def unit(topic: str, queue_id: int, *messages: MessageRecord) -> tuple[Any, list[MessageRecord]]:
        return store.queue(topic, queue_id), list(messages)

    units = [
        unit(
            topic,
            n % 4,
            message(topic, b"ours-%d" % n, KEYS=f"ours-{n} наш-{n % 10}", TAGS="grün", UNIQ_KEY=f"{n:032X}"),
        )
        for n in range(100)
    ]
    units.append(unit(topic, 0, *(message(topic, b"batch-%d" % n, KEYS="our-batch") for n in range(7))))
    zipped = compress(b"x" * 20_000, sysflag.COMPRESSED)
    units.append(unit(topic, 1, message(topic, zipped, sysflag.COMPRESSED, größe="10 µm")))
    delayed = message("SCHEDULE_TOPIC_XXXX", b"ours-delayed", DELAY="1", REAL_TOPIC=topic, REAL_QID="2")
    units.append(unit("SCHEDULE_TOPIC_XXXX", 0, delayed))
    units += [unit("big", 0, message("big", random.Random(n).randbytes(100_000))) for n in range(15)]
    assert {result.status for result in store.put(units)} == {PutStatus.PUT_OK}


def taken_back(written: Written, namesrv: str) -> Broker:
    """A broker of the make that wrote the store, on that store."""
    return Broker(written.version, written.root.parent, namesrv, **SETTINGS)


def served(written: Written, connection: wire.Connection, *, keys: bool = True) -> Contents:
    return read_all(Served(connection, knows_times=written.version != "4.9.7"), keys=keys)


def files_beside_the_store(root: Path) -> dict[Path, bytes]:
    """The configuration, and what only 5.x has: timers, databases."""
    own = {"commitlog", "consumequeue", "index", "checkpoint", "lock"}
    files = (path for entry in root.iterdir() if entry.name not in own for path in (entry, *entry.rglob("*")))
    return {path.relative_to(root): path.read_bytes() for path in files if path.is_file()}


# The tests


def test_every_message_of_apache_is_read_in_every_way(written: Written):
    foreign = files_beside_the_store(written.root)
    with opened(written.root) as store:
        held = read_all(Held(store))
        assert dict(held) == dict(written.contents)
        assert count(held) >= 200
        assert len(store.log.segments) > 2
        assert faults(store) == []
    assert files_beside_the_store(written.root).items() >= foreign.items()


@pytest.mark.scenario("store 3")
def test_a_store_goes_to_us_and_back_and_to_us_again(written: Written, namesrv: str):
    orders = orders_of(written)
    with opened(written.root) as store:
        append(store, orders)
        ours = read_all(Held(store))
        assert_kept(written.contents, ours)
        assert count(ours) == count(written.contents) + 124
        assert faults(store) == []
    assert not (written.root / "abort").exists()

    broker = taken_back(written, namesrv)
    with broker.process:
        broker.wait_until_booted()
        with wire.Connection(broker.address) as connection:
            wait_until(
                lambda: b"ours-delayed" in bodies(served(written, connection), orders),
                SOON,
                "the delayed message is there",
            )
            for n in range(100):
                wire.send(connection, orders, n % 4, b"theirs-%d" % n, KEYS=f"theirs-{n}", TAGS="red")
            theirs = served(written, connection)
        broker.stop()
    assert_kept(ours, theirs)
    assert count(theirs) == count(ours) + 101

    with opened(written.root) as store:
        again = read_all(Held(store))
        assert dict(again) == dict(theirs)
        assert faults(store) == []


@pytest.mark.scenario("store 5")
def test_a_store_of_a_killed_apache_broker_loses_nothing(written: Written, namesrv: str):
    orders = orders_of(written)
    broker = taken_back(written, namesrv)
    with broker.process:
        broker.wait_until_booted()
        load = Load(broker.address, orders, 4)
        load.wait_for(3000)
        broker.process.kill()
        load.join()
    assert (written.root / "abort").exists()

    with opened(written.root) as store:
        ours = read_all(Held(store))
        assert_kept(written.contents, ours)
        assert acknowledged_in(ours, load.acknowledged)
        assert faults(store) == []
        append(store, orders)
        ours = read_all(Held(store))
        assert faults(store) == []

    broker = taken_back(written, namesrv)
    with broker.process:
        broker.wait_until_booted()
        with wire.Connection(broker.address) as connection:
            theirs = served(written, connection)
            assert_kept(ours, theirs)
            wire.send(connection, orders, 0, b"after all")
        broker.process.kill()

    with opened(written.root) as store:
        again = read_all(Held(store))
        assert_kept(theirs, again)
        assert again[orders, 0][-1].body == b"after all"
        assert faults(store) == []


@pytest.mark.scenario("store 5")
def test_a_store_of_our_killed_writer_is_served_by_apache(written: Written, namesrv: str):
    sizes = [f"{name}={size}" for name, size in SIZES.items()]
    command = [sys.executable, str(WRITER), str(written.root), "ASYNC_FLUSH", *sizes]
    with Process("writer", command, log=written.root.parent / "writer.out") as writer:
        wait_until(lambda: int((writer.output.split() or ["0"])[-1]) > 8000, SOON, "it has written enough")
        writer.kill()
    assert (written.root / "abort").exists()
    whole = writer.output.rpartition("\n")[0]
    acknowledged = int(whole.split()[-1])
    copy = written.root.parent / "copy"
    shutil.copytree(written.root, copy)

    broker = taken_back(written, namesrv)
    with broker.process:
        broker.wait_until_booted()
        with wire.Connection(broker.address) as connection:
            # After a crash a broker of Apache's throws away what the index has of older messages.
            theirs = served(written, connection, keys=False)
            wire.send(connection, orders_of(written), 0, b"after all")
        broker.process.kill()
    assert_kept(written.contents, theirs)
    numbers = [record.body for record in theirs["T", 0]]
    assert len(numbers) >= acknowledged
    assert numbers == [b"m%d" % n for n in range(len(numbers))]

    with opened(copy) as store:
        assert dict(read_all(Held(store))) == dict(theirs)
        assert faults(store) == []
    with opened(written.root) as store:
        assert_kept(theirs, read_all(Held(store), keys=False))
        assert faults(store, tolerated=Severity.WARNING) == []


@pytest.mark.scenario("store 25")
def test_topics_and_offsets_that_we_wrote_are_those_of_the_broker(written: Written, namesrv: str):
    orders = orders_of(written)
    topics = topics_file(written.root)
    table = topics.load()
    table.topic_config_table["added"] = TopicConfig(topic_name="added", read_queue_nums=3, write_queue_nums=2, perm=4)
    topics.save(table)
    offsets = {f"{orders}@ours": {0: 3, 1: 0, 3: 7}, f"{orders}@größe": {2: 5}, "%RETRY%ours@ours": {0: 1}}
    file = consumer_offsets_file(written.root)
    saved = file.load()
    saved.offset_table.update(offsets)
    file.save(saved)

    broker = taken_back(written, namesrv)
    with broker.process:
        broker.wait_until_booted()
        with wire.Connection(broker.address) as connection:
            for name, queues in offsets.items():
                topic, _, group = name.partition("@")
                for queue_id, offset in queues.items():
                    answer = connection.ask(QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id)
                    assert (answer.code, answer.ext.get("offset")) == (0, str(offset)), (name, queue_id, answer)
            known = connection.ask(GET_ALL_TOPIC_CONFIG).json["topicConfigTable"]
            assert (known["added"]["readQueueNums"], known["added"]["writeQueueNums"], known["added"]["perm"]) == (
                3,
                2,
                4,
            )
            assert known.keys() >= table.topic_config_table.keys()
        broker.stop()
    loaded = consumer_offsets_file(written.root).load()
    assert loaded.offset_table.items() >= offsets.items()
    assert topics_file(written.root).load().topic_config_table.keys() >= table.topic_config_table.keys()


class Load:
    """Producers, each with a queue of its own, that send as fast as they are answered until the broker is gone."""

    def __init__(self, address: str, topic: str, queues: int) -> None:
        self.acknowledged: list[tuple[Queue, int, bytes]] = []
        self._address = address
        self._threads = [threading.Thread(target=self._run, args=((topic, each),)) for each in range(queues)]
        for thread in self._threads:
            thread.start()

    def _run(self, queue: Queue) -> None:
        try:
            with wire.Connection(self._address) as connection:
                for n in range(1 << 30):
                    body = b"load-%d" % n
                    offset = wire.send(connection, *queue, body, KEYS=f"load-{queue[1]}-{n}", TAGS="load")
                    self.acknowledged.append((queue, offset, body))
        except OSError:
            return  # what was sent last may have been stored or not

    def wait_for(self, number: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= number, SOON, f"{number} messages are acknowledged")

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SOON)
