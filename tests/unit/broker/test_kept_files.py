"""The files that follow the tables: when they are written, what they keep, and what happens when they cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import threading

import pytest

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.groups import GroupTable
from pyromq.broker.kept_files import BrokerState
from pyromq.broker.offsets.consumer_offsets import ConsumerOffsets
from pyromq.broker.topics import TopicTable
from pyromq.errors import NotSaved, StoreError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import DataVersion, DelayOffsetTable, SubscriptionGroupConfig, TopicConfig
from pyromq.store.disk import Disk
from pyromq.store.metadata.json_files import delay_offsets_file

NOW = 1_700_000_000_000

# Written by a broker of 5.x: members that we do not know, and maps with unquoted keys.
TOPICS_5X = b"""{
	"dataVersion":{
		"counter":3,
		"stateVersion":1,
		"timestamp":1700000000000
	},
	"mappingDataVersion":{"counter":0},
	"topicConfigTable":{
		"orders":{
			"attributes":{"message.type":"FIFO"},
			"colour":"red",
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"orders",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
GROUPS_5X = b"""{
	"dataVersion":{
		"counter":2,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"forbiddenTable":{"g":{"orders":1}},
	"subscriptionGroupTable":{
		"g":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"g",
			"groupRetryPolicy":{"type":"CUSTOMIZED"},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":7,
			"retryQueueNums":1,
			"shoeSize":42,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
OFFSETS_5X = b"""{
	"dataVersion":{"counter":5,"stateVersion":0,"timestamp":1700000000000},
	"groupTopicMap":{"g":["orders"]},
	"offsetTable":{
		"orders@g":{
			0:12,
			1:5
		}
	},
	"pullOffsetTable":{"orders@g":{0:13}}
}"""
# And by one of 4.9.
TOPICS_49 = b"""{
	"dataVersion":{
		"counter":3,
		"timestamp":1700000000000
	},
	"topicConfigTable":{
		"orders":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"orders",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
OFFSETS_49 = b'{\n\t"offsetTable":{\n\t\t"orders@g":{0:12,1:5\n\t\t}\n\t}\n}'


class Broker:
    """The three tables and their files, wired as in the real one."""

    def __init__(self, root, disk=None, **changes):
        self.root = root
        live = LiveConfig.of(BrokerConfig(broker_name="broker-a", **changes))
        self.topics = TopicTable(live, lambda: NOW)
        self.groups = GroupTable(live, lambda: NOW)
        self.offsets = ConsumerOffsets()
        self.state = BrokerState(root, live, self.topics, self.groups, self.offsets, disk)
        self.topics.changed = lambda topic: self.state.topics.save_soon()
        self.groups.changed = lambda group: self.state.groups.save_soon()

    def text(self, name):
        return (self.root / "config" / name).read_bytes()

    def content(self, name):
        return fastjson.loads(self.text(name))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


class SlowDisk(Disk):
    """A disk whose writes wait until they may go on."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.writes = []

    def write(self, fd, data, offset):
        self.writes.append(bytes(data))
        assert self.go_on.wait(10)
        super().write(fd, data, offset)


class NotingDisk(Disk):
    """A disk that lets the loop know when a file is in its place."""

    def __init__(self):
        super().__init__()
        self.written = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def sync_folder(self, folder):
        super().sync_folder(folder)
        self._loop.call_soon_threadsafe(self.written.set)


class FullDisk(NotingDisk):
    def __init__(self):
        super().__init__()
        self.full = True

    def write(self, fd, data, offset):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data, offset)


def topic(name, queues=4):
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


# Loading


def test_a_fresh_folder_leaves_the_built_in_entries(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    assert "TBW102" in broker.topics
    assert "TOOLS_CONSUMER" in broker.groups
    assert broker.offsets.groups() == []


@pytest.mark.parametrize(("topics", "offsets"), [(TOPICS_49, OFFSETS_49), (TOPICS_5X, OFFSETS_5X)], ids=["4.9", "5.x"])
def test_the_files_of_apache_brokers_are_loaded(folder, topics, offsets):
    (folder / "topics.json").write_bytes(topics)
    (folder / "subscriptionGroup.json").write_bytes(GROUPS_5X)
    (folder / "consumerOffset.json").write_bytes(offsets)
    broker = Broker(folder.parent)
    broker.state.load()
    orders, group = broker.topics.get("orders"), broker.groups.find("g")
    assert orders is not None
    assert (orders.read_queue_nums, orders.perm) == (4, 6)
    assert group is not None
    assert group.retry_max_times == 7
    assert broker.offsets.of("g", "orders") == {0: 12, 1: 5}
    assert broker.topics.data_version.counter == 4  # one more: the built-in topics were not in the file


def test_a_torn_file_gives_way_to_its_backup(folder):
    (folder / "consumerOffset.json").write_bytes(OFFSETS_49[:30])
    (folder / "consumerOffset.json.bak").write_bytes(OFFSETS_49)
    broker = Broker(folder.parent)
    broker.state.load()
    assert broker.offsets.of("g", "orders") == {0: 12, 1: 5}


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"])
def test_a_file_that_cannot_be_used_and_has_no_use_for_its_backup_either_stops_the_start(folder, name):
    (folder / name).write_bytes(b"{")
    (folder / f"{name}.bak").write_bytes(b"[]")
    with pytest.raises(StoreError, match=name):
        Broker(folder.parent).state.load()


# Saving


async def test_a_new_topic_is_saved_at_once(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    broker.topics.update(topic("orders"))
    await broker.state.topics.saved()
    assert "orders" in broker.content("topics.json")["topicConfigTable"]
    assert not broker.topics.dirty


async def test_a_new_group_is_saved_at_once(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    broker.groups.get("g")
    await broker.state.groups.saved()
    assert "g" in broker.content("subscriptionGroup.json")["subscriptionGroupTable"]


async def test_offsets_wait_for_their_time(tmp_path):
    disk = NotingDisk()
    broker = Broker(tmp_path, disk, offset_flush_interval=10)
    broker.offsets.commit("g", "orders", 0, 12)
    await broker.state.topics.saved()
    assert not (tmp_path / "config").exists()
    async with running(broker.state):
        await disk.written.wait()
    assert broker.text("consumerOffset.json") == b'{\n\t"offsetTable":{\n\t\t"orders@g":{0:12\n\t\t}\n\t}\n}'


async def test_closing_saves_everything(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    broker.topics.update(topic("orders"))
    broker.groups.get("g")
    broker.offsets.commit("g", "orders", 0, 12)
    await broker.state.close()
    again = Broker(tmp_path)
    again.state.load()
    assert again.topics.snapshot() == broker.topics.snapshot()
    assert again.groups.snapshot() == broker.groups.snapshot()
    assert again.offsets.snapshot() == broker.offsets.snapshot()


async def test_what_did_not_change_is_not_written(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    await broker.state.close()
    before = {path.name: path.stat().st_ino for path in (tmp_path / "config").iterdir()}
    again = Broker(tmp_path)
    again.state.load()
    await again.state.close()
    assert {path.name: path.stat().st_ino for path in (tmp_path / "config").iterdir()} == before
    assert before.keys() == {"topics.json", "subscriptionGroup.json"}


async def test_the_previous_content_stays_as_the_backup(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    broker.topics.update(topic("first"))
    await broker.state.topics.saved()
    before = broker.text("topics.json")
    broker.topics.update(topic("second"))
    await broker.state.topics.saved()
    assert broker.text("topics.json.bak") == before


async def test_what_we_do_not_know_survives(folder):
    (folder / "topics.json").write_bytes(TOPICS_5X)
    (folder / "subscriptionGroup.json").write_bytes(GROUPS_5X)
    (folder / "consumerOffset.json").write_bytes(OFFSETS_5X)
    broker = Broker(folder.parent)
    broker.state.load()
    broker.topics.update(topic("other"))
    broker.topics.set_order_topics({"orders"})
    broker.groups.get("h")
    broker.offsets.commit("g", "orders", 0, 13)
    await broker.state.close()

    topics = broker.content("topics.json")
    assert topics["mappingDataVersion"] == {"counter": 0}
    assert topics["dataVersion"]["stateVersion"] == 1
    assert topics["topicConfigTable"]["orders"]["colour"] == "red"
    assert topics["topicConfigTable"]["orders"]["attributes"] == {"message.type": "FIFO"}
    assert topics["topicConfigTable"]["orders"]["order"] is True
    assert "other" in topics["topicConfigTable"]
    groups = broker.content("subscriptionGroup.json")
    assert groups["forbiddenTable"] == {"g": {"orders": 1}}
    assert groups["subscriptionGroupTable"]["g"]["shoeSize"] == 42
    assert groups["subscriptionGroupTable"]["g"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert "h" in groups["subscriptionGroupTable"]
    offsets = broker.content("consumerOffset.json")
    assert offsets["offsetTable"] == {"orders@g": {"0": 13, "1": 5}}
    assert offsets["dataVersion"]["counter"] == 5
    assert offsets["pullOffsetTable"] == {"orders@g": {"0": 13}}
    assert "groupTopicMap" not in offsets


# Many changes, slow disks, full disks


async def test_changes_during_a_write_make_one_more_write_with_the_newest_content(tmp_path):
    disk = SlowDisk()
    broker = Broker(tmp_path, disk)
    for number in range(50):
        broker.topics.update(topic(f"topic{number}"))
        await asyncio.sleep(0)  # the loop goes on while the disk does not
    disk.go_on.set()
    await broker.state.topics.saved()
    assert len(disk.writes) == 2
    assert "topic49" not in json.loads(disk.writes[0])["topicConfigTable"]
    assert "topic49" in json.loads(disk.writes[1])["topicConfigTable"]
    assert broker.text("topics.json") == disk.writes[1]


async def test_who_waits_for_a_change_waits_for_the_write_that_has_it(tmp_path):
    disk = SlowDisk()
    broker = Broker(tmp_path, disk)
    broker.topics.update(topic("first"))
    broker.topics.update(topic("second"))
    waiting = asyncio.create_task(broker.state.topics.saved())
    await asyncio.sleep(0)
    assert not waiting.done()
    disk.go_on.set()
    await waiting
    assert {"first", "second"} <= broker.content("topics.json")["topicConfigTable"].keys()


async def test_changes_that_never_stop_keep_nobody_waiting(tmp_path):
    broker = Broker(tmp_path)
    broker.topics.update(topic("orders"))
    changes = 0

    def change():
        nonlocal changes
        changes += 1
        broker.topics.touch()
        again[0] = loop.call_soon(change)

    loop = asyncio.get_running_loop()
    again = [loop.call_soon(change)]
    async with asyncio.timeout(10):
        await broker.state.topics.saved()
    again[0].cancel()
    assert changes > 0
    await broker.state.close()


async def test_who_is_cancelled_while_waiting_stops_no_write(tmp_path):
    disk = SlowDisk()
    broker = Broker(tmp_path, disk)
    broker.topics.update(topic("first"))
    waiting = asyncio.create_task(broker.state.topics.saved())
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    broker.topics.update(topic("second"))
    disk.go_on.set()
    await broker.state.close()
    assert {"first", "second"} <= broker.content("topics.json")["topicConfigTable"].keys()


async def test_offsets_that_cannot_be_written_are_logged_and_made_up_for(tmp_path, caplog):
    disk = FullDisk()
    broker = Broker(tmp_path, disk, offset_flush_interval=10)
    broker.offsets.commit("g", "orders", 0, 12)
    with pytest.raises(NotSaved):
        await broker.state.offsets.saved()
    assert "consumerOffset.json not written" in caplog.text
    assert "No space left" in caplog.text
    disk.full = False
    async with running(broker.state):
        await disk.written.wait()
    assert broker.content("consumerOffset.json")["offsetTable"] == {"orders@g": {"0": 12}}


async def test_topics_that_cannot_be_written_are_taken_back(tmp_path):
    disk = FullDisk()
    disk.full = False
    broker = Broker(tmp_path, disk)
    broker.topics.update(topic("orders", 4))
    broker.topics.update(topic("gone"))
    await broker.state.topics.saved()
    disk.full = True
    broker.topics.update(topic("orders", 8))
    broker.topics.update(topic("new"))
    broker.topics.delete("gone")
    with pytest.raises(
        NotSaved, match=r"topics.json could not be written: No space left on device; nothing was changed"
    ):
        await broker.state.topics.saved()
    orders = broker.topics.get("orders")
    assert orders is not None
    assert orders.write_queue_nums == 4
    assert "new" not in broker.topics
    assert "gone" in broker.topics
    disk.full = False
    await broker.state.close()
    assert broker.content("topics.json")["topicConfigTable"].keys() >= {"orders", "gone"}
    assert "new" not in broker.content("topics.json")["topicConfigTable"]


async def test_groups_that_cannot_be_written_are_taken_back(tmp_path):
    disk = FullDisk()
    broker = Broker(tmp_path, disk)
    broker.groups.get("g")
    with pytest.raises(NotSaved, match=r"subscriptionGroup.json"):
        await broker.state.groups.saved()
    assert "g" not in broker.groups


async def test_one_write_serves_all_who_wait(tmp_path):
    disk = SlowDisk()
    broker = Broker(tmp_path, disk)
    broker.topics.update(topic("first"))
    waiting = []
    for number in range(20):
        broker.topics.update(topic(f"topic{number}"))
        waiting.append(asyncio.create_task(broker.state.topics.saved()))
    await asyncio.sleep(0)
    disk.go_on.set()
    await asyncio.gather(*waiting)
    assert len(disk.writes) == 2


async def test_a_write_that_fails_keeps_the_last_good_file(tmp_path):
    disk = FullDisk()
    disk.full = False
    broker = Broker(tmp_path, disk)
    broker.topics.update(topic("first"))
    await broker.state.topics.saved()
    before = broker.text("topics.json")
    disk.full = True
    broker.topics.update(topic("second"))
    await broker.state.close()
    assert broker.text("topics.json") == before
    assert broker.topics.dirty


async def test_a_version_that_was_saved_goes_on_after_a_restart(tmp_path):
    broker = Broker(tmp_path)
    broker.state.load()
    broker.topics.update(topic("orders"))
    await broker.state.close()
    version = broker.topics.data_version
    again = Broker(tmp_path)
    again.state.load()
    assert again.topics.data_version == version
    again.topics.update(topic("more"))
    assert again.topics.data_version == DataVersion(counter=version.counter + 1, timestamp=NOW)
    await again.state.close()


class Delays:
    """A table that is none of the three."""

    def __init__(self):
        self.offsets = {}
        self.dirty = False

    def snapshot(self):
        return DelayOffsetTable(offset_table=dict(self.offsets))

    def load(self, saved):
        self.offsets = saved.offset_table


async def test_a_table_may_have_a_pause_of_its_own(tmp_path):
    disk, delays = NotingDisk(), Delays()
    broker = Broker(tmp_path, disk, offset_flush_interval=3_600_000)
    broker.state.keep(delay_offsets_file(tmp_path, disk), delays, lambda: 10)
    delays.offsets, delays.dirty = {1: 7}, True
    broker.offsets.commit("g", "orders", 0, 12)
    async with running(broker.state):
        await disk.written.wait()
    assert broker.content("delayOffset.json")["offsetTable"] == {"1": 7}
    assert not (tmp_path / "config" / "consumerOffset.json").exists()


async def test_another_table_can_have_its_file_here(tmp_path):
    broker, delays = Broker(tmp_path), Delays()
    broker.state.keep(delay_offsets_file(tmp_path), delays)
    broker.state.load()
    delays.offsets, delays.dirty = {1: 7}, True
    await broker.state.close()
    again, loaded = Broker(tmp_path), Delays()
    again.state.keep(delay_offsets_file(tmp_path), loaded)
    again.state.load()
    assert loaded.offsets == {1: 7}


async def test_an_entry_that_was_deleted_is_gone_from_the_file(tmp_path):
    broker = Broker(tmp_path)
    broker.topics.update(topic("orders"))
    broker.groups.update(SubscriptionGroupConfig(group_name="g"))
    await broker.state.close()
    broker.topics.delete("orders")
    broker.groups.delete("g")
    await broker.state.close()
    assert "orders" not in broker.content("topics.json")["topicConfigTable"]
    assert "g" not in broker.content("subscriptionGroup.json")["subscriptionGroupTable"]


@contextlib.asynccontextmanager
async def running(state):
    task = asyncio.create_task(state.run())
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
