"""Acknowledged means acknowledged: what an answer promises is on disk when the answer leaves."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
from tests.integration.broker.life_kit import new_name_server
from tests.integration.broker.scene_kit import TOPIC, Client, heartbeat, properties_text, running, send_ext
from tests.integration.namesrv.raw_client import RawClient

from pyromq.testing import FaultyDisk

SYNC = "flushDiskType=SYNC_FLUSH"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def saved(folder, name="topics.json", member="topicConfigTable"):
    """What a file of settings has at this moment."""
    path = folder / "config" / name
    return json.loads(path.read_text())[member] if path.exists() else {}


def saved_groups(folder):
    return saved(folder, "subscriptionGroup.json", "subscriptionGroupTable")


async def after_a_crash(folder, elsewhere):
    """The files as a kill -9 at this moment would leave them, in another folder."""
    await asyncio.to_thread(shutil.copytree, folder, elsewhere, ignore=shutil.ignore_patterns("lock"))
    return elsewhere


# New topics


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_message_to_a_new_topic_is_acknowledged_when_the_topic_is_saved(folder, flush):
    async with running(folder, f"flushDiskType={flush}") as scene:
        client = await scene.connect()
        for number in range(20):
            await client.sent(topic=f"new{number}")
            assert f"new{number}" in saved(folder)


async def test_a_burst_to_new_topics_is_served_by_few_writes_and_each_is_saved_when_it_is_acknowledged(folder):
    disk = FaultyDisk()
    async with running(folder, disk=disk) as scene:
        client = await scene.connect()
        await client.sent(topic="first")
        before = disk.folder_syncs
        asked = {client.ask(310, send_ext(f"new{number}"), b"hello"): f"new{number}" for number in range(200)}
        for opaque, topic in asked.items():
            assert (await client.answer_to(opaque)).code == 0
            assert topic in saved(folder)
        assert disk.folder_syncs - before < 40


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": 3},
        {"TIMER_DELAY_SEC": 100},
        {"TRAN_MSG": "true", "UNIQ_KEY": "AC1100017F0018B4AAC20000000A0000"},
    ],
    ids=["delayed", "timed", "half"],
)
async def test_a_message_that_takes_a_detour_waits_for_its_new_topic_as_well(folder, properties):
    async with running(folder) as scene:
        client = await scene.connect()
        await client.sent(properties=properties_text(**properties), topic="new")
        assert "new" in saved(folder)


async def test_messages_to_a_new_topic_stay_in_order(folder):
    async with running(folder) as scene:
        client = await scene.connect()
        asked = [client.ask(310, send_ext("new"), b"%d" % number) for number in range(50)]
        replies = [await client.answer_to(opaque) for opaque in asked]
        assert [int(reply.ext["queueOffset"]) for reply in replies] == list(range(50))
        assert [message.body for message in await client.read("new", count=64)] == [b"%d" % n for n in range(32)]


async def test_a_batch_and_a_one_way_message_wait_for_their_new_topic_too(folder):
    async with running(folder) as scene:
        client = await scene.connect()
        client.ask(310, send_ext("quiet"), b"hello", flag=2)
        await client.until(lambda: _read_some(client, "quiet"))
        assert "quiet" in saved(folder)


async def _read_some(client, topic):
    reply = await client.pull(topic)
    return reply.code == 0


async def test_a_killed_broker_knows_all_topics_that_it_acknowledged_messages_for(folder, tmp_path):
    async with running(folder) as scene:
        client = await scene.connect()
        for number in range(30):
            await client.sent(b"%d" % number, topic=f"new{number}")
        left = await after_a_crash(folder, tmp_path / "left")
    async with running(left) as scene:
        client = await scene.connect()
        for number in range(30):
            assert [message.body for message in await client.read(f"new{number}")] == [b"%d" % number]


async def test_a_sent_back_message_waits_for_its_new_retry_topic(folder):
    async with running(folder) as scene:
        client = await scene.connect()
        reply = await client.sent()
        physical = int(reply.ext["msgId"][16:], 16)
        assert (await client.send_back(physical, group="never-seen")).code == 0
        assert "%RETRY%never-seen" in saved(folder)
        assert "never-seen" in saved_groups(folder)


async def test_a_heartbeat_of_a_new_group_is_answered_when_group_and_retry_topic_are_saved(folder):
    async with running(folder) as scene:
        client = await scene.connect()
        await client.beat(groups=("fresh",))
        assert "%RETRY%fresh" in saved(folder)
        assert "fresh" in saved_groups(folder)


# Routes


async def test_the_route_of_a_new_topic_is_known_before_its_first_message_is_acknowledged(folder, tmp_path):
    async with new_name_server(tmp_path) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with running(folder, namesrv_addr=address) as scene:
            client = await scene.connect()
            asking = await RawClient.connect(name_server.port)
            for number in range(20):
                await client.sent(topic=f"new{number}")
                reply = await asking.call(105, {"topic": f"new{number}"})
                assert reply.code == 0, reply
            await asking.close()


# What the store knows better


async def test_a_topic_with_messages_that_its_file_lacks_comes_back(folder, caplog):
    async with running(folder) as scene:
        client = await scene.connect()
        await client.create_topic("orders", 3, 3)
        await client.sent(b"kept", topic="orders", queue_id=2)
    path = folder / "config" / "topics.json"
    content = json.loads(path.read_text())
    del content["topicConfigTable"]["orders"]
    path.write_text(json.dumps(content))
    async with running(folder) as scene:
        client = await scene.connect()
        assert "topic orders has messages but no entry in topics.json" in caplog.text
        assert (await client.topics())["orders"]["writeQueueNums"] == 3
        assert [message.body for message in await client.read("orders", 2)] == [b"kept"]
        await client.until(lambda: asyncio.to_thread(lambda: "orders" in saved(folder)))


async def test_an_emptied_topics_file_is_made_anew_from_the_store(folder, caplog):
    async with running(folder) as scene:
        client = await scene.connect()
        await client.beat(groups=("g1",))
        await client.sent(b"kept", topic="orders")
        await client.commit(1, "orders", group="g1")
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        (folder / "config" / name).write_bytes(b"")
        (folder / "config" / f"{name}.bak").write_bytes(b"")
    async with running(folder) as scene:
        client = await scene.connect()
        assert [message.body for message in await client.read("orders")] == [b"kept"]
        assert "topics.json is empty" in caplog.text
        assert "subscriptionGroup.json is empty" in caplog.text
        assert "consumerOffset.json is empty" in caplog.text


async def test_a_fresh_folder_is_not_called_empty(folder, caplog):
    async with running(folder):
        pass
    assert "is empty" not in caplog.text


async def test_cleaning_never_removes_a_queue_with_messages_that_no_file_knows(folder):
    async with running(folder) as scene:
        client = await scene.connect()
        await client.sent(b"kept", topic="orders")
        parts = scene.broker._parts
        del parts.tables.topics._topics["orders"]  # as if its file had been lost while it runs
        assert (await client.call(316)).code == 0
        assert (await client.call(306)).code == 0
        assert (await client.create_topic("orders")).code == 0
        assert [message.body for message in await client.read("orders")] == [b"kept"]


# A full disk


def full_config(disk):
    disk.fail_writes(28, "config")


async def test_on_a_full_disk_a_new_topic_is_refused_and_taken_back(folder):
    disk = FaultyDisk()
    async with running(folder, disk=disk) as scene:
        client = await scene.connect()
        await client.sent()
        full_config(disk)
        reply = await client.create_topic("orders")
        assert reply.code == 1
        assert "topics.json could not be written: No space left on device; nothing was changed" in reply.remark
        assert "orders" not in await client.topics()
        reply = await client.put(topic="orders")
        assert reply.code == 1
        assert "No space left on device" in reply.remark
        assert "orders" not in await client.topics()
        assert (await client.put()).code == 0  # what is known goes on
        disk.heal()
        assert (await client.create_topic("orders")).code == 0
        assert [message.body for message in await client.read("orders")] == []


async def test_on_a_full_disk_a_changed_topic_stays_as_it_was(folder):
    disk = FaultyDisk()
    async with running(folder, disk=disk) as scene:
        client = await scene.connect()
        await client.create_topic("orders", 4, 4)
        full_config(disk)
        assert (await client.create_topic("orders", 8, 8)).code == 1
        assert (await client.topics())["orders"]["writeQueueNums"] == 4
        await client.sent(topic="orders")
        reply = await client.call(215, {"topic": "orders"})
        assert reply.code == 1
        assert len(await client.read("orders")) == 1
        disk.heal()


async def test_on_a_full_disk_a_new_group_is_refused_and_taken_back(folder):
    disk = FaultyDisk()
    async with running(folder, disk=disk) as scene:
        client = await scene.connect()
        full_config(disk)
        body = json.dumps({"groupName": "g9", "retryMaxTimes": 3}).encode()
        reply = await client.call(200, body=body)
        assert reply.code == 1
        assert "subscriptionGroup.json could not be written" in reply.remark
        assert "g9" not in (await client.call(201)).json["subscriptionGroupTable"]
        assert (await client.call(34, body=heartbeat("c1", ("g9",), (TOPIC,)))).code == 1
        assert "g9" not in (await client.call(201)).json["subscriptionGroupTable"]
        disk.heal()
        assert (await client.call(200, body=body)).code == 0


async def test_a_setting_that_cannot_be_saved_stays_as_it_was(folder, tmp_path):
    (tmp_path / "broker.conf.tmp").mkdir()  # in the way
    async with running(folder, f"brokerConfigPath={tmp_path}/broker.conf") as scene:
        client = await scene.connect()
        reply = await client.configure("regionId=elsewhere")
        assert reply.code == 1
        assert "broker.conf could not be written: Is a directory; nothing was changed" in reply.remark
        assert (await client.sent()).ext["MSG_REGION"] == "DefaultRegion"


# fsync


async def test_a_slow_disk_is_a_flush_timeout_and_the_message_is_stored(folder):
    """docs/spec/store.md scenario 13, over a socket."""
    disk = FaultyDisk()
    async with running(folder, SYNC, "syncFlushTimeout=300", disk=disk) as scene:
        client = await scene.connect()
        await client.sent()
        disk.hold_syncs("commitlog")
        reply = await client.put(b"slow")
        assert reply.code == 10
        assert reply.ext["queueOffset"] == "1"
        assert len(reply.ext["msgId"]) == 32
        assert "within 0.3 s" in reply.remark
        assert [message.body for message in await client.read(offset=1)] == [b"slow"]
        disk.release_syncs()
        await client.sent()


async def test_a_failed_fsync_is_a_flush_timeout_with_a_reason_and_the_last_thing_that_is_stored(folder, caplog):
    disk = FaultyDisk()
    with pytest.raises(BaseException) as failed:  # noqa: PT011, PT012 - what a broker says in the end is looked at below
        async with running(folder, SYNC, disk=disk) as scene:
            client = await scene.connect()
            await client.sent()
            disk.fail_syncs(5, "commitlog")
            reply = await client.put(b"uncertain")
            assert reply.code == 10
            assert reply.ext["queueOffset"] == "1"
            assert "Input/output error" in reply.remark
            assert [message.body for message in await client.read(offset=1)] == [b"uncertain"]
            disk.heal()
            reply = await client.put(b"never")
            assert reply.code == 14
            assert "Input/output error" in reply.remark
            assert await client.read(offset=2) == []
            info = (await client.call(28)).json["table"]
            assert "Input/output error" in info["storeFailure"]
    assert "Input/output error" in str(failed.value)
    assert "takes no more messages" in caplog.text


async def test_a_failed_fsync_under_asynchronous_flush_is_seen_by_operators(folder, caplog):
    disk = FaultyDisk()
    with pytest.raises(BaseException) as failed:  # noqa: PT011, PT012
        async with running(folder, disk=disk) as scene:
            client = await scene.connect()
            disk.fail_syncs(5, "commitlog")
            await client.sent()
            await client.until(lambda: _refused(client))
            assert "flush failed" in caplog.text
            assert "Input/output error" in (await client.call(28)).json["table"]["storeFailure"]
    assert "Input/output error" in str(failed.value)


async def _refused(client: Client):
    return (await client.put()).code == 14


# transactionId


@pytest.mark.parametrize("properties", [{}, {"DELAY": 1}, {"TIMER_DELAY_SEC": 100}, {"TAGS": "a", "WAIT": "true"}])
async def test_a_send_with_a_unique_key_is_answered_with_it_as_transaction_id(folder, properties):
    async with running(folder) as scene:
        client = await scene.connect()
        for _ in range(2):  # the general path, then the fast one
            reply = await client.sent(properties=properties_text(UNIQ_KEY="7F0000010000000000000001", **properties))
            assert reply.ext["transactionId"] == "7F0000010000000000000001"
        assert "transactionId" not in (await client.sent(properties=properties_text(**properties))).ext
