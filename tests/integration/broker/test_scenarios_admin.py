"""Scenarios of docs/spec/broker.md 14, groups 12 and 13: what operators ask, overload, statistics."""

from __future__ import annotations

import json
import threading

import pytest
from tests.integration.broker.scene_kit import GROUP, TOPIC, loose_json, messages_in, send_ext
from tests.integration.namesrv.raw_client import PATIENCE

from pyromq.store.disk import Disk


async def fill(client, count):
    asked = [client.ask(310, send_ext(), b"%d" % number) for number in range(count)]
    for opaque in asked:
        assert (await client.answer_to(opaque)).code == 0


@pytest.mark.scenario("broker 12.1")
async def test_the_ends_of_the_queues_of_a_topic(client):
    await fill(client, 5)
    reply = await client.call(202, {"topic": TOPIC})
    assert reply.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{')
    table = loose_json(reply.body)["offsetTable"]
    assert {queue: (ends["minOffset"], ends["maxOffset"]) for queue, ends in table.items()} == {
        "T@0": (0, 5),
        "T@1": (0, 0),
        "T@2": (0, 0),
        "T@3": (0, 0),
    }
    assert table["T@0"]["lastUpdateTimestamp"] == (await client.read(offset=4))[0].store_time
    assert table["T@1"]["lastUpdateTimestamp"] == 0


@pytest.mark.scenario("broker 12.2")
async def test_how_far_a_group_is(client):
    await fill(client, 5)
    await client.commit(3)
    for topic in ({}, {"topic": TOPIC}):
        reply = await client.call(208, {"consumerGroup": GROUP} | topic)
        offsets = loose_json(reply.body)["offsetTable"]["T@0"]
        assert (offsets["brokerOffset"], offsets["consumerOffset"]) == (5, 3)
        assert offsets["lastTimestamp"] == (await client.read(offset=2))[0].store_time


@pytest.mark.scenario("broker 12.3")
async def test_a_setting_that_is_changed_is_kept_in_memory_and_in_the_file(start, tmp_path):
    async with start() as scene:
        client = await scene.connect()
        assert (await client.configure("fileReservedTime=10")).code == 0
        assert "fileReservedTime=10" in (await client.call(26)).body.decode().splitlines()
        refused = await client.configure("fileReservedTime=11\nconfigBlackList=x")
        assert (refused.code, refused.remark) == (16, "Can not update config in black list.")
        assert "fileReservedTime=10" in (await client.call(26)).body.decode().splitlines()
    file = tmp_path / "store" / "broker.properties"
    assert "fileReservedTime=10" in file.read_text().splitlines()
    kept = [line for line in file.read_text().splitlines() if line.startswith("fileReservedTime")]
    async with start(*kept) as scene:
        client = await scene.connect()
        assert "fileReservedTime=10" in (await client.call(26)).body.decode().splitlines()


@pytest.mark.scenario("broker 12.4")
async def test_a_topic_that_is_deleted_and_made_again_begins_at_0(client):
    await fill(client, 5)
    await client.commit(5)
    assert (await client.call(215, {"topic": TOPIC})).code == 0
    assert TOPIC not in await client.topics()
    assert (await client.pull()).code == 17
    assert (await client.create_topic()).code == 0
    assert await client.max_offset() == 0
    assert (await client.committed()).ext == {"offset": "5"}
    assert (await client.sent(b"new")).ext["queueOffset"] == "0"
    assert [message.body for message in await client.read()] == [b"new"]
    await client.commit(1)  # the check of the store would wonder at a group that goes on behind the end


async def test_a_pull_that_waits_for_a_topic_that_is_deleted_is_answered(client, scene):
    await client.create_topic()
    held = client.ask(11, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1}
                      | {"sysFlag": 6, "suspendTimeoutMillis": 60_000, "subscription": "*"})  # fmt: skip
    assert await client.is_silent(held)
    other = await scene.connect()
    assert (await other.call(215, {"topic": TOPIC})).code == 0
    assert (await client.answer_to(held)).code == 19


@pytest.mark.scenario("broker 12.5")
async def test_what_operators_ask_of_a_consumer_is_passed_on(scene, client):
    await client.sent(b"look at this")
    [message] = await client.read()
    msg_id = f"7F000001{scene.port:08X}{message.physical:016X}"
    consumer = await scene.connect()
    await consumer.beat("c1")
    who = {"consumerGroup": GROUP, "clientId": "c1"}
    asked = client.ask(307, who | {"jstackEnable": "false"})
    passed_on = await consumer.request(307)
    assert passed_on.ext["clientId"] == "c1"
    consumer.answer(passed_on, b'{"properties":{"a":"b"}}')
    reply = await client.answer_to(asked)
    assert (reply.code, reply.body) == (0, b'{"properties":{"a":"b"}}')
    asked = client.ask(309, who | {"msgId": msg_id})
    passed_on = await consumer.request(309)
    assert passed_on.ext["brokerName"] == "broker-a"
    assert [each.body for each in messages_in(passed_on.body)] == [b"look at this"]
    consumer.answer(passed_on, b'{"consumeResult":"CR_SUCCESS"}')
    assert (await client.answer_to(asked)).body == b'{"consumeResult":"CR_SUCCESS"}'
    for code in (307, 309):
        reply = await client.call(code, {"consumerGroup": GROUP, "clientId": "nobody", "msgId": msg_id})
        assert (reply.code, reply.remark) == (1, "The Consumer <g> <nobody> not online")


@pytest.mark.scenario("broker 12.7")
async def test_a_code_that_nobody_knows_is_said_to_be_unknown(client):
    reply = await client.call(9999)
    assert (reply.code, reply.remark) == (3, " request type 9999 not supported")


async def test_what_this_broker_cannot_do_yet_is_refused_and_not_met_with_silence(client):
    reply = await client.call(200056)
    assert (reply.code, reply.remark) == (3, " request type 200056 not supported")


@pytest.mark.parametrize("code", [50, 51, 52, 53, 54])
async def test_a_broker_without_accounts_says_so(client, code):
    reply = await client.call(code, {"accessKey": "somebody", "secretKey": "s3cret-text", "globalWhiteAddrs": "*"})
    assert (reply.code, reply.remark) == (3, f"request type {code} not supported: this broker has no aclEnable")


async def test_the_figures_that_tools_show_are_all_there(client):
    """What the tables of `mqadmin clusterList` and the dashboard read (docs/spec/broker.md 12.2)."""
    await fill(client, 3)
    table = (await client.call(28)).json["table"]
    needed = {
        *("brokerVersionDesc", "putTps", "getTransferedTps", "getTransferredTps", "getTotalTps"),
        *(
            f"msg{way}Total{when}"
            for way in ("Put", "Get")
            for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
        ),
        *("sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize"),
        *("pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "earliestMessageTimeStamp"),
        "commitLogDiskRatio",
    }
    assert needed - table.keys() == set()
    assert table["msgPutTotalTodayNow"] == "3"


# Overload


@pytest.mark.scenario("broker 13.1")
@pytest.mark.limit("sendThreadPoolQueueCapacity")
async def test_sends_are_refused_while_the_disk_is_stuck_and_taken_again_when_it_is_not(start, monkeypatch):
    stuck = threading.Event()
    stuck.set()
    sync = Disk.sync

    def sync_when_it_can(disk, fd):
        assert stuck.wait(PATIENCE)
        sync(disk, fd)

    monkeypatch.setattr(Disk, "sync", sync_when_it_can)
    async with start("flushDiskType=SYNC_FLUSH", "sendThreadPoolQueueCapacity=5") as scene:
        client = await scene.connect()
        await client.sent()
        stuck.clear()
        waiting = []
        for _ in range(5):
            waiting.append(client.ask(310, send_ext(), b"m"))
            await client.call(26)
        refused = await client.put()
        assert (refused.code, refused.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
        assert refused.ext == {}
        assert await client.max_offset() == 6
        stuck.set()
        assert [(await client.answer_to(opaque)).code for opaque in waiting] == [0] * 5
        await client.sent()
        assert await client.max_offset() == 7


# Statistics


@pytest.mark.scenario("broker 13.3")
@pytest.mark.usefixtures("hurry")
async def test_what_was_sent_in_ten_seconds_is_counted_a_little_later(client, shift):
    await fill(client, 60)
    shift.advance(20)
    stats = {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}

    async def sampled():
        reply = await client.call(315, stats)
        return reply.code == 0 and reply.json["statsMinute"]["sum"]

    assert await client.until(sampled) == 60
    unknown = await client.call(315, stats | {"statsKey": "U"})
    assert (unknown.code, unknown.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")


@pytest.mark.parametrize("kept", [True, False])
async def test_the_statistics_of_what_is_deleted_are_kept_or_not_as_the_settings_say(start, kept):
    async with start(f"autoDeleteUnusedStats={'false' if kept else 'true'}") as scene:
        client = await scene.connect()
        await client.sent()
        await client.sent(topic="other")
        for topic in (TOPIC, "other"):
            await client.read(topic)
        wanted = {
            "topic": {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC},
            "group": {"statsName": "GROUP_GET_NUMS", "statsKey": f"other@{GROUP}"},
            "other topic": {"statsName": "TOPIC_PUT_NUMS", "statsKey": "other"},
        }
        assert [(await client.call(315, stats)).code for stats in wanted.values()] == [0, 0, 0]
        await client.call(215, {"topic": TOPIC})
        await client.call(207, {"groupName": GROUP})
        codes = {name: (await client.call(315, stats)).code for name, stats in wanted.items()}
        assert codes == {"topic": 0 if kept else 1, "group": 0 if kept else 1, "other topic": 0}


async def test_the_times_of_the_first_minute_are_shown(client):
    await fill(client, 7)
    times = (await client.call(28)).json["table"]["putMessageDistributeTime"]
    assert sum(int(part.rpartition(":")[2]) for part in times.split()) == 7


async def test_senders_that_wait_for_the_disk_are_counted(start, monkeypatch):
    free = threading.Event()
    free.set()
    sync = Disk.sync

    def sync_when_it_can(disk, fd):
        assert free.wait(PATIENCE)
        sync(disk, fd)

    monkeypatch.setattr(Disk, "sync", sync_when_it_can)
    async with start("flushDiskType=SYNC_FLUSH") as scene:
        client = await scene.connect()
        await client.sent()
        free.clear()
        waiting = [client.ask(310, send_ext(), b"m") for _ in range(3)]
        await client.call(26)
        table = (await client.call(28)).json["table"]
        assert (table["sendThreadPoolQueueSize"], table["pullThreadPoolQueueSize"]) == ("3", "0")
        free.set()
        assert [(await client.answer_to(opaque)).code for opaque in waiting] == [0] * 3


# Slow consumers


@pytest.mark.usefixtures("hurry")
async def test_a_group_that_reads_too_far_behind_is_stopped_if_that_is_wanted(start):
    async with start("disableConsumeIfConsumerReadSlowly=false", "consumerFallbehindThreshold=5000") as scene:
        client, consumer = await scene.connect(), await scene.connect()
        await client.create_topic(read=1, write=1)
        await consumer.beat("c1")
        await client.commit(0)
        for _ in range(6):
            await client.sent(bytes(1000))
        assert await client.read()
        await client.configure("disableConsumeIfConsumerReadSlowly=true")

        async def stopped():
            reply = await client.pull()
            return reply.code == 16 and reply.remark

        assert await client.until(stopped) == f"subscription group no permission, {GROUP}"
        table = (await client.call(201)).json["subscriptionGroupTable"]
        assert [name for name, group in table.items() if not group["consumeEnable"]] == [GROUP]


async def test_all_that_is_listed_can_be_read_as_json(client):
    await fill(client, 2)
    await client.commit(1)
    await client.beat()
    for code, ext in (
        (21, {}),
        (28, {}),
        (43, {}),
        (45, {}),
        (201, {}),
        (203, {"consumerGroup": GROUP}),
        (300, {"topic": TOPIC}),
        (303, {"topic": TOPIC, "group": GROUP}),
        (305, {}),
        (308, {"topic": TOPIC, "compareGroup": GROUP}),
        (317, {"isOrder": "false"}),
        (328, {}),
        (343, {"group": GROUP}),
        (345, {"group": GROUP, "topic": TOPIC}),
        (351, {"topic": TOPIC}),
        (352, {"group": GROUP}),
    ):
        reply = await client.call(code, ext)
        assert reply.code == 0, (code, reply)
        assert isinstance(loose_json(reply.body), dict)
    assert json.loads((await client.call(300, {"topic": TOPIC})).body) == {"groupList": [GROUP]}
