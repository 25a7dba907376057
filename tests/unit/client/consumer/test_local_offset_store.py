"""Offsets of a broadcasting member, in the Java client's own file."""

from __future__ import annotations

import asyncio

import pytest

from pyromq.client.consumer.offset_store import LocalOffsetStore, ReadFrom
from pyromq.protocol.message_queue import MessageQueue

# As `RemotingSerializable.toJson(…, true)` of the Java client 4.9 writes it.
JAVA_FILE = b"""{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":3,
\t\t"topic":"orders"
\t}:2147483650,{
\t\t"brokerName":"broker-b",
\t\t"queueId":0,
\t\t"topic":"orders"
\t}:7
\t}
}"""


def queue(queue_id=0, broker="broker-a", topic="orders"):
    return MessageQueue(broker_name=broker, queue_id=queue_id, topic=topic)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"


async def loaded(path):
    store = LocalOffsetStore(path)
    await store.load()
    return store


def test_the_file_lies_where_the_java_client_has_it(tmp_path, path, monkeypatch):
    assert LocalOffsetStore.of("10.0.0.1@DEFAULT", "g", tmp_path).path == path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LocalOffsetStore.of("c", "g").path == tmp_path / ".rocketmq_offsets" / "c" / "g" / "offsets.json"


@pytest.mark.scenario("client 46")
async def test_a_file_of_the_java_client_is_read(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(JAVA_FILE)
    store = await loaded(path)
    assert await store.read(queue(3), ReadFrom.STORE) == 2147483650
    assert await store.read(queue(0, "broker-b"), ReadFrom.MEMORY) == 7
    assert await store.read(queue(1), ReadFrom.MEMORY_FIRST) is None


@pytest.mark.scenario("client 46")
async def test_what_is_written_is_what_the_java_client_reads(path):
    store = await loaded(path)
    store.update(queue(), 42)
    await store.persist_all([queue()])
    assert path.read_bytes() == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}'
    assert await (await loaded(path)).read(queue(), ReadFrom.STORE) == 42


async def test_a_damaged_file_leads_to_the_one_before_it(path, caplog):
    store = await loaded(path)
    for offset in (1, 2):
        store.update(queue(), offset)
        await store.persist_all([queue()])
    path.write_bytes(path.read_bytes()[:-9])
    assert await (await loaded(path)).read(queue(), ReadFrom.STORE) == 1
    assert "cannot be read" in caplog.text
    path.unlink()
    assert await (await loaded(path)).read(queue(), ReadFrom.STORE) == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"offsetTable":{"a":"b"}}'])
async def test_what_is_no_offset_file_is_nothing_known(path, content):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.with_name("offsets.json.bak").write_bytes(content)
    assert await (await loaded(path)).read(queue(), ReadFrom.MEMORY_FIRST) is None


async def test_without_a_file_nothing_is_known_and_none_is_made(path):
    store = await loaded(path)
    assert await store.read(queue(), ReadFrom.MEMORY_FIRST) is None
    await store.persist_all([queue()])
    await store.persist(queue())
    assert not path.exists()


async def test_queues_not_owned_now_stay_in_the_file(path):
    store = await loaded(path)
    store.update(queue(0), 1)
    store.update(queue(1), 2)
    await store.persist_all([queue(0), queue(1)])
    store.remove(queue(1))
    store.update(queue(0), 5)
    await store.persist_all([queue(0)])
    assert await (await loaded(path)).read(queue(1), ReadFrom.STORE) == 2
    assert store.memory("orders") == {queue(0): 5}


async def test_the_file_is_written_only_when_something_changed(path):
    store = await loaded(path)
    store.update(queue(), 5)
    await store.persist(queue())
    path.unlink()
    await store.persist_all([queue()])
    assert not path.exists()
    store.update(queue(), 6)
    await store.persist_all([queue()])
    assert path.exists()


async def test_a_disk_that_does_not_take_it_is_logged_by_the_timer_and_raised_to_who_asks(path, caplog):
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file where a folder should be")
    store = await loaded(path)
    store.update(queue(), 5)
    await store.persist_all([queue()])
    assert "progress is kept in memory only" in caplog.text
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        await store.persist(queue())
    assert await store.read(queue(), ReadFrom.MEMORY) == 5


async def test_writes_at_the_same_time_do_not_undo_each_other(path):
    store = await loaded(path)
    for number in range(8):
        store.update(queue(number), number)
    await asyncio.gather(*(store.persist(queue(number)) for number in range(8)))
    again = await loaded(path)
    assert again.memory("orders") == {queue(number): number for number in range(8)}


async def test_updates_only_upwards_where_asked_and_not_at_all_when_frozen(path):
    store = await loaded(path)
    store.update(queue(), 5)
    store.update(queue(), 3, increase_only=True)
    assert await store.read(queue(), ReadFrom.MEMORY) == 5
    store.update(queue(), 3)
    assert await store.read(queue(), ReadFrom.MEMORY) == 3
    store.freeze(queue(), 1)
    store.update(queue(), 9)
    assert await store.read(queue(), ReadFrom.MEMORY) == 1
    store.remove(queue())
    store.update(queue(), 9)
    assert await store.read(queue(), ReadFrom.MEMORY) == 9
