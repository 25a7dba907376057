"""The files in `config`: their exact text, the `.bak`, torn files, members of other versions, full disks."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from pyromq.errors import StoreError
from pyromq.protocol.bodies import (
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pyromq.store.disk import Disk
from pyromq.store.metadata.json_files import (
    BloomFilterData,
    ConsumerFilter,
    ConsumerFilterTable,
    JsonFile,
    TopicFilters,
    consumer_filters_file,
    consumer_offsets_file,
    delay_offsets_file,
    groups_file,
    topics_file,
)

T0 = 1_700_000_000_000

# As in docs/spec/store.md 6.2, which shows what 4.9.7 wrote.
TOPICS = b"""{
	"dataVersion":{
		"counter":3,
		"timestamp":1700000000000
	},
	"topicConfigTable":{
		"TestTopic":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TestTopic",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""
OFFSETS = b"""{
	"offsetTable":{
		"TestTopic@g1":{0:12,1:5
		},
		"%RETRY%g1@g1":{0:7
		}
	}
}"""
OFFSETS_5 = b"""{
	"dataVersion":{
		"counter":9,
		"stateVersion":2,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"g1":[
			"TestTopic",
			"%RETRY%g1"
		]
	},
	"offsetTable":{
		"TestTopic@g1":{
			0:12,
			1:5
		},
		"%RETRY%g1@g1":{
			0:7
		}
	},
	"pullOffsetTable":{
		"TestTopic@g1":{
			0:12
		}
	}
}"""
OFFSETS_QUOTED = b'{"offsetTable":{"TestTopic@g1":{"0":12,"1":5},"%RETRY%g1@g1":{"0":7}}}'
DELAYS = b"""{
	"offsetTable":{1:2,3:9
	}
}"""

OFFSET_TABLE = {"TestTopic@g1": {0: 12, 1: 5}, "%RETRY%g1@g1": {0: 7}}


class FailingDisk(Disk):
    """A disk whose named calls fail, with the error it is given."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}

    def write(self, fd, data, at):
        # Half of it, as a full disk takes what it can.
        super().write(fd, data[: len(data) // 2] if "write" in self.fails else data, at)
        self._maybe_fail("write")

    def sync(self, fd):
        self._maybe_fail("sync")
        super().sync(fd)

    def sync_folder(self, folder):
        self._maybe_fail("sync_folder")
        super().sync_folder(folder)

    def _maybe_fail(self, name):
        if name in self.fails:
            raise OSError(self.fails[name], os.strerror(self.fails[name]))


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "config"
    folder.mkdir()
    return folder


# Texts


def test_topics_are_written_as_rocketmq_writes_them(tmp_path):
    topic = TopicConfig(topic_name="TestTopic", read_queue_nums=4, write_queue_nums=4)
    body = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=3, timestamp=T0), topic_config_table={"TestTopic": topic}
    )
    topics_file(tmp_path).save(body)
    assert (tmp_path / "config" / "topics.json").read_bytes() == TOPICS
    assert topics_file(tmp_path).load() == body


def test_consumer_offsets_are_written_as_rocketmq_writes_them(tmp_path):
    consumer_offsets_file(tmp_path).save(ConsumerOffsetTable(offset_table=OFFSET_TABLE))
    assert (tmp_path / "config" / "consumerOffset.json").read_bytes() == OFFSETS


def test_delay_offsets_are_written_as_rocketmq_writes_them(tmp_path):
    body = DelayOffsetTable(offset_table={1: 2, 3: 9})
    delay_offsets_file(tmp_path).save(body)
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == DELAYS
    assert delay_offsets_file(tmp_path).load() == body


def test_an_empty_table_is_written(tmp_path):
    delay_offsets_file(tmp_path).save(DelayOffsetTable())
    assert (tmp_path / "config" / "delayOffset.json").read_bytes() == b'{\n\t"offsetTable":{}\n}'
    assert delay_offsets_file(tmp_path).load() == DelayOffsetTable()


def test_groups_are_written_with_all_their_fields_in_order(tmp_path):
    body = SubscriptionGroupWrapper(
        data_version=DataVersion(counter=1, timestamp=T0, state_version=4),
        subscription_group_table={"g1": SubscriptionGroupConfig(group_name="g1", retry_max_times=3)},
    )
    groups_file(tmp_path).save(body)
    assert (
        (tmp_path / "config" / "subscriptionGroup.json").read_text()
        == """{
	"dataVersion":{
		"counter":1,
		"stateVersion":4,
		"timestamp":1700000000000
	},
	"subscriptionGroupTable":{
		"g1":{
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"groupName":"g1",
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":3,
			"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
    )
    assert groups_file(tmp_path).load() == body


def test_filters_are_written_with_the_bits_of_rocketmq_and_keep_what_we_do_not_know(tmp_path, config):
    (config / "consumerFilter.json").write_text(
        '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitNum":64,"bitPos":[1,5],"x":1},'
        '"bornTime":1,"clientVersion":2,"consumerGroup":"g","dead":false,"deadTime":0,"expression":"a > 1",'
        '"expressionType":"SQL92","topic":"t"}},"topic":"t"}}}'
    )
    file = consumer_filters_file(tmp_path)
    filters = ConsumerFilter(
        bloom_filter_data=BloomFilterData(bit_num=64, bit_pos=[1, 5]),
        born_time=1,
        client_version=2,
        consumer_group="g",
        expression="a > 1",
        expression_type="SQL92",
        topic="t",
    )
    body = ConsumerFilterTable(filter_data_by_topic={"t": TopicFilters(group_filter_data={"g": filters}, topic="t")})
    assert file.load() == body
    file.save(body)
    text = b"".join(file.path.read_bytes().split())
    assert b'"bloomFilterData":{"bitNum":64,"bitPos":[1,5],"x":1},"bornTime":1,' in text
    assert consumer_filters_file(tmp_path).load() == body


def test_text_beyond_ascii_is_not_escaped_and_quotes_are(tmp_path):
    file = JsonFile(tmp_path / "a.json")
    table = {"主题": ['"', "\\", "\n", "😀"], "none": None, "empty": [], "number": 1.5}
    file.save(table)
    assert file.path.read_text() == (
        '{\n\t"主题":[\n\t\t"\\"",\n\t\t"\\\\",\n\t\t"\\n",\n\t\t"😀"\n\t],\n\t"empty":[],\n\t"number":1.5\n}'
    )
    assert file.load() == {name: value for name, value in table.items() if value is not None}


@pytest.mark.parametrize("value", [object(), "\ud800", {1, object()}])
def test_what_has_no_text_is_an_error_with_the_path(tmp_path, value):
    file = JsonFile(tmp_path / "a.json")
    with pytest.raises(StoreError, match=r"a\.json: cannot be written as JSON"):
        file.save({"member": value})
    assert list(tmp_path.iterdir()) == []


# Reading


@pytest.mark.scenario("store 24")
@pytest.mark.parametrize("text", [OFFSETS, OFFSETS_5, OFFSETS_QUOTED], ids=["4.9", "5.x", "quoted"])
def test_offsets_of_every_version_are_the_same_table(tmp_path, config, text):
    (config / "consumerOffset.json").write_bytes(text)
    assert consumer_offsets_file(tmp_path).load().offset_table == OFFSET_TABLE


TORN = {
    "missing": None,
    "empty": b"",
    "blank": b" \n",
    "cut": OFFSETS[:40],
    "zeroed": bytes(200),
    "half zeroed": OFFSETS[:40] + bytes(60),
    "a list": b"[]",
    "another shape": b'{"offsetTable":[1,2]}',
    "no numbers": b'{"offsetTable":{"a@b":{"x":"y"}}}',
}


@pytest.mark.scenario("store 24")
@pytest.mark.parametrize("text", TORN.values(), ids=TORN.keys())
def test_a_torn_file_gives_way_to_its_backup(tmp_path, config, text):
    path = config / "consumerOffset.json"
    if text is not None:
        path.write_bytes(text)
    (config / "consumerOffset.json.bak").write_bytes(OFFSETS)
    file = consumer_offsets_file(tmp_path)
    assert file.load().offset_table == OFFSET_TABLE
    # The backup stays what it is: all that there was when we wrote again.
    file.save(ConsumerOffsetTable(offset_table={"a@b": {0: 1}}))
    assert (config / "consumerOffset.json.bak").read_bytes() == OFFSETS
    assert consumer_offsets_file(tmp_path).load().offset_table == {"a@b": {0: 1}}


def test_a_file_that_nobody_loaded_is_looked_at_before_it_becomes_the_backup(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"torn')
    (tmp_path / "a.json.bak").write_bytes(b'{"good":1}')
    JsonFile(tmp_path / "a.json").save({"new": 1})
    assert (tmp_path / "a.json.bak").read_bytes() == b'{"good":1}'
    JsonFile(tmp_path / "a.json").save({"newer": 1})
    assert JsonFile(tmp_path / "a.json.bak").load() == {"new": 1}


def test_without_any_file_the_tables_are_empty(tmp_path):
    assert JsonFile(tmp_path / "a.json").load() is None
    assert topics_file(tmp_path).load() == TopicConfigSerializeWrapper()
    assert consumer_offsets_file(tmp_path).load() == ConsumerOffsetTable()
    assert groups_file(tmp_path).load() == SubscriptionGroupWrapper()
    assert consumer_filters_file(tmp_path).load() == ConsumerFilterTable()


def test_a_torn_file_without_a_backup_is_an_empty_table_and_a_warning(tmp_path, config, caplog):
    (config / "topics.json").write_bytes(TOPICS[:50])
    with caplog.at_level(logging.WARNING):
        assert topics_file(tmp_path).load() == TopicConfigSerializeWrapper()
    assert f"{config / 'topics.json'} cannot be used" in caplog.text


def test_two_torn_files_are_an_error_with_both_paths(tmp_path, config):
    (config / "topics.json").write_bytes(TOPICS[:50])
    (config / "topics.json.bak").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match=r"neither .*topics\.json nor .*topics\.json\.bak can be used"):
        topics_file(tmp_path).load()


def test_a_file_that_cannot_be_opened_is_an_error_with_its_path(tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*a\.json: Is a directory"):
        JsonFile(tmp_path / "a.json").load()


# Writing again


def test_members_of_other_versions_stay_where_they_were(tmp_path, config):
    (config / "topics.json").write_text(
        '{"aNewThing":{"x":[1,2]},"dataVersion":{"counter":1,"later":true,"stateVersion":0,"timestamp":5},'
        '"topicConfigTable":{"gone":{"topicName":"gone"},"kept":{"attributes":{},"magic":"m","perm":6,'
        '"readQueueNums":8,"topicName":"kept","writeQueueNums":8}}}'
    )
    file = topics_file(tmp_path)
    body = file.load()
    topics = {
        "kept": TopicConfig(topic_name="kept", perm=4, read_queue_nums=8, write_queue_nums=8),
        "new": TopicConfig(topic_name="new"),
    }
    for _ in range(2):
        file.save(TopicConfigSerializeWrapper(data_version=body.data_version, topic_config_table=topics))
    table = JsonFile(file.path).load()
    assert table is not None
    assert list(table) == ["aNewThing", "dataVersion", "topicConfigTable"]
    assert table["aNewThing"] == {"x": [1, 2]}
    assert table["dataVersion"] == {"counter": 1, "later": True, "stateVersion": 0, "timestamp": 5}
    assert list(table["topicConfigTable"]) == ["kept", "new"]
    assert list(table["topicConfigTable"]["kept"].items()) == [
        ("attributes", {}),
        ("magic", "m"),
        ("order", False),
        ("perm", 4),
        ("readQueueNums", 8),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicName", "kept"),
        ("topicSysFlag", 0),
        ("writeQueueNums", 8),
    ]
    assert "attributes" not in table["topicConfigTable"]["new"]


def test_what_follows_from_the_offsets_is_not_written_again(tmp_path, config):
    (config / "consumerOffset.json").write_bytes(OFFSETS_5)
    file = consumer_offsets_file(tmp_path)
    file.save(file.load())
    table = JsonFile(file.path).load()
    assert table is not None
    assert list(table) == ["dataVersion", "offsetTable", "pullOffsetTable"]
    assert table["pullOffsetTable"] == {"TestTopic@g1": {"0": 12}}


def test_what_was_there_before_is_the_backup(tmp_path):
    file = JsonFile(tmp_path / "a.json")
    for number in range(3):
        file.save({"number": number})
    assert file.load() == {"number": 2}
    assert JsonFile(file.backup).load() == {"number": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.bak"]


def test_a_file_that_only_its_owner_may_read_stays_so(tmp_path):
    file = JsonFile(tmp_path / "a.json")
    file.save({"number": 1})
    file.path.chmod(0o600)
    file.save({"number": 2})
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_a_text_can_be_made_now_and_written_later(tmp_path):
    offsets: dict[str, dict[int, int]] = {"a@b": {0: 1}}
    file = consumer_offsets_file(tmp_path)
    text = file.text(ConsumerOffsetTable(offset_table=offsets))
    offsets["a@b"][0] = 2
    file.write(text)
    assert file.load().offset_table == {"a@b": {0: 1}}


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_leaves_the_old_file(tmp_path, call, code):
    disk = FailingDisk()
    file = JsonFile(tmp_path / "a.json", disk)
    file.save({"number": 1})
    file.save({"number": 2})
    disk.fails[call] = code
    with pytest.raises(OSError, match=os.strerror(code)):
        file.save({"number": 3})
    assert file.load() == {"number": 2}
    assert JsonFile(file.backup).load() == {"number": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.bak"]
    disk.fails.clear()
    file.save({"number": 4})
    assert file.load() == {"number": 4}


def test_a_name_that_is_not_synced_is_an_error(tmp_path):
    disk = FailingDisk()
    disk.fails["sync_folder"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        JsonFile(tmp_path / "a.json", disk).save({"number": 3})


def test_a_file_system_without_links_gets_a_copy(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    file = JsonFile(tmp_path / "a.json")
    file.save({"number": 1})
    file.save({"number": 2})
    assert JsonFile(file.backup).load() == {"number": 1}
