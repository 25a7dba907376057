"""Bad input over real sockets: whatever a client sends, it is answered with a code or its connection is closed, and
nobody else notices.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import struct
import time
from pathlib import Path

import pytest
from tests.integration.broker.scene_kit import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    batch_body,
    heartbeat,
    messages_in,
    properties_text,
    pull_ext,
    send_ext,
)
from tests.integration.namesrv.raw_client import PATIENCE, frame

from pyromq.errors import StoreError
from pyromq.store.queues.consume_queue import ConsumeQueue

WAITING = SUSPEND | SUBSCRIPTION

# Every field that any request may have, as remoting.md names them.
FIELDS = (
    *"abcdefghijklmn",
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"),
    *("properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "consumerGroup", "queueOffset"),
    *("maxMsgNums", "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "key"),
    *("maxNum", "beginTimestamp", "endTimestamp", "_UNIQUE_KEY_QUERY", "timestamp", "boundaryType", "offset", "group"),
    *("delayLevel", "originMsgId", "originTopic", "clientID", "clientId", "clientAddr", "msgId", "jstackEnable"),
    *("isForce", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order", "groupName"),
    *("removeOffset", "cleanOffset", "statsName", "statsKey", "isOrder", "compareGroup", "filterGroups", "srcGroup"),
    *("destGroup", "offline", "index", "count", "topicList", "setZeroIfNotFound", "brokerName"),
    *("invisibleTime", "pollTime", "bornTime", "initMode", "expType", "exp", "attemptId", "extraInfo"),
)

GARBAGE = {
    "empty": "",
    "text": "x",
    "blank": " ",
    "zero": "0",
    "negative": "-1",
    "int32": str(2**31 - 1),
    "int32 min": str(-(2**31)),
    "int64": str(2**63 - 1),
    "int64 min": str(-(2**63)),
    "too large": str(2**63),
    "digits": "9" * 5000,
    "fraction": "1.0",
    "python": "1_0",
    "arabic": "٣",
    "path": "../../../../tmp/x",
    "nul": "a\0b",
    "separators": "a\x01b\x02c",
    "surrogate": "\ud800",
    "long": "x" * 40_000,
    "braces": "{}",
    "true": "true",
}

BODIES = {
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "text": b"hello",
    "list": b"[]",
    "object": b"{}",
    "null": b"null",
    "number": b"1",
    "deep": b"[" * 5000,
    "deep object": b'{"a":' * 5000,
    "half": b'{"clientID":"c","consumerDataSet":[{"groupName":"g"',
    "wrong types": json.dumps(
        {
            "clientID": 1,
            "clientId": [],
            "consumerGroup": {},
            "consumerDataSet": "x",
            "producerDataSet": 7,
            "mqSet": "x",
            "groupName": 5,
            "subscriptionData": [],
            "retryQueueNums": "many",
        }
    ).encode(),
    "huge numbers": b'{"groupName":"g","retryQueueNums":1e999,"retryMaxTimes":99999999999999999999,"brokerId":-1}',
    "not unicode": b'{"groupName":"\xff\xfe"}',
    "properties": b"=\n\\u12\n#\nbrokerPermission=x\nlistenPort=99999999999\n",
}

# Names of classes in a remark: an error that nobody foresaw.
UNFORESEEN = ("Error:", "Exception:", "object has no attribute", "NoneType", "Traceback")


class Answered:
    """Collects what went wrong with many requests to one broker."""

    def __init__(self, client):
        self.client = client
        self.wrong: list[object] = []

    async def ask(self, what, code, ext=None, body=b""):
        await self._answer(code, what, self.client.ask(code, ext, body))

    async def ask_all(self, code, requests):
        """Several at a time: the broker and this client are one process."""
        waiting = list(requests.items())
        for start in range(0, len(waiting), 40):
            asked = {what: self.client.ask(code, ext) for what, ext in waiting[start : start + 40]}
            for what, opaque in asked.items():
                await self._answer(code, what, opaque)

    async def _answer(self, code, what, opaque):
        try:
            async with asyncio.timeout(PATIENCE):
                reply = await self.client.answer_to(opaque)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as exc:
            raise AssertionError([*self.wrong, (code, what, exc)]) from exc
        if any(word in (reply.remark or "") for word in UNFORESEEN):
            self.wrong.append((code, what, reply.code, reply.remark))


@pytest.fixture
async def scene(start):
    """Takes headers of any size, so that every field of a request can be long at once."""
    async with start("maxRequestHeaderSize=16m") as scene:
        yield scene


@pytest.fixture
async def codes(scene):
    """Every code that the broker serves."""
    return sorted(int(code) for code in scene.broker._ports._processors)


@pytest.fixture
async def answered(client, caplog):
    """Fails if a remark or the log tells of an error that nobody foresaw."""
    caplog.set_level(logging.ERROR)
    await client.create_topic()
    await client.sent()
    answered = Answered(client)
    yield answered
    answered.wrong += [(record.message, record.exc_text) for record in caplog.records if record.exc_info]
    assert not answered.wrong, answered.wrong
    # It still serves.
    assert (await client.put(topic="other")).code == 0


async def test_an_error_that_nobody_foresaw_would_be_noticed_here(scene, client):
    def broken(connection, request):
        return request.no_such_attribute

    scene.broker._ports._processors[9998] = broken
    answered = Answered(client)
    await answered.ask("a bug", 9998)
    assert answered.wrong


async def test_every_code_is_there_that_this_broker_is_to_serve(codes):
    wanted = {10, 310, 320, 324, 325, 36, 11, 361, 34, 35, 38, 46, 41, 42, 14, 15, 29, 30, 31, 32, 43}
    wanted |= {17, 215, 21, 25, 26, 28, 45, 200, 201, 207, 202, 203, 204, 328, 208, 317, 300, 343, 345, 303, 308}
    wanted |= {222, 223, 314, 305, 306, 316, 329, 307, 309, 315, 321, 351, 352, 12, 33}
    wanted |= {200050, 200051, 200052, 200053, 200054, 200055, 200151, 400, 401, 402}
    assert wanted - set(codes) == set()


async def test_requests_without_fields_or_body_are_answered(codes, answered):
    for code in codes:
        await answered.ask("nothing", code)
        await answered.ask("empty", code, {})


@pytest.mark.parametrize("what", GARBAGE)
async def test_requests_with_garbage_in_every_field_are_answered(codes, answered, what):
    for code in codes:
        await answered.ask(what, code, dict.fromkeys(FIELDS, GARBAGE[what]))


async def good_ext(client):
    """Fields with which most requests would be all right."""
    [message] = await client.read(count=1)
    texts = {
        "a": "p",
        "b": TOPIC,
        "c": "TBW102",
        "m": "false",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "group": GROUP,
        "consumerGroup": GROUP,
        "producerGroup": "p",
        "subscription": "*",
        "expressionType": "TAG",
        "key": "k",
        "topicFilterType": "SINGLE_TAG",
        "groupName": GROUP,
        "statsName": "TOPIC_PUT_NUMS",
        "statsKey": TOPIC,
        "clientID": "c1",
        "clientId": "c1",
        "compareGroup": GROUP,
        "srcGroup": GROUP,
        "destGroup": "h",
        "i": "",
        "msgId": f"7F00000100000001{message.physical:016X}",
        "perm": "6",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "d": "4",
        "defaultTopicQueueNums": "4",
        "maxMsgNums": "32",
        "maxNum": "32",
        "sysFlag": "4",
        "count": "8",
    }
    numbers = ("e", "f", "g", "h", "j", "queueId", "queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion")
    more = ("beginTimestamp", "endTimestamp", "timestamp", "offset", "delayLevel", "index", "bornTimestamp", "flag")
    return dict.fromkeys(numbers + more, "0") | texts


@pytest.mark.slow
async def test_requests_with_garbage_in_one_field_are_answered(codes, answered):
    asyncio.get_running_loop().set_debug(False)  # or it takes four times as long
    good = await good_ext(answered.client)
    picked = ("empty", "text", "negative", "int32", "int64 min", "path", "separators", "surrogate")
    # Those that delete or change what the others need come last.
    for code in sorted(codes, key=lambda code: code in (17, 25, 200, 207, 215, 316)):
        fields = [field for field in good if (len(field) == 1) == (code in (310, 320, 325))]
        await answered.ask_all(
            code, {(field, what): good | {field: GARBAGE[what]} for field in fields for what in picked}
        )


@pytest.mark.parametrize("what", BODIES)
async def test_requests_with_garbage_for_a_body_are_answered(codes, answered, what):
    good = await good_ext(answered.client)
    for code in codes:
        await answered.ask(what, code, None, BODIES[what])
        await answered.ask(what, code, good | {"m": "true"}, BODIES[what])


@pytest.mark.parametrize("code", [0, -1, 9999, 2**31 - 1, -(2**31), 40, 39, 103, 105])
async def test_a_code_that_is_not_served_is_refused(client, code):
    reply = await client.call(code, {}, b"body")
    assert (reply.code, reply.remark) == (3, f" request type {code} not supported")


# Sizes


@pytest.mark.parametrize("length", [32_767, 32_768, 70_000])
async def test_properties_that_are_too_long_are_refused(client, length):
    for _ in range(2):
        reply = await client.put(properties={"p": "x" * length})
        assert reply.code == 13
    reply = await client.put(properties={"DELAY": 1, "p": "x" * (length - 30)})
    assert reply.code == 13
    assert await client.max_offset() == 0


async def test_properties_of_nearly_all_that_is_allowed_are_kept(client):
    text = properties_text(p="x" * (32_767 - 40))
    for offset in range(2):
        await client.sent(properties=text)
        assert (await client.read(offset=offset))[0].properties["p"] == text[2:]


async def test_a_batch_that_is_cut_off_or_empty_is_refused(client):
    whole = batch_body(b"first", b"second")
    for body in (b"", whole[:-1], whole[:3], whole[:-8], struct.pack(">iiiii", 22, 0, 0, 0, -1) + bytes(2)):
        reply = await client.call(320, send_ext(m="true"), body)
        assert reply.code in (1, 13), (body, reply)
        assert reply.remark
    assert await client.max_offset() == 0


async def test_a_frame_that_is_too_large_closes_the_connection_alone(scene, client):
    rude = await scene.connect()
    rude.send(struct.pack(">i", 2**31 - 1) + bytes(100))
    assert await rude.closed_by_server() == b""
    await client.sent()


async def test_a_pull_that_wants_everything_holds_nobody_up(start):
    async with start("mappedFileSizeConsumeQueue=6000000") as scene:
        client = await scene.connect()
        for _ in range(40):
            reply = await client.call(320, send_ext(m="true"), batch_body(*[b""] * 1000))
            assert reply.code == 0
        began = time.process_time()
        reply = await client.pull(count=2**31 - 1, subscription="none of them")
        assert time.process_time() - began < 0.5
        assert (reply.code, reply.ext["nextBeginOffset"]) == (20, "16000")


async def test_a_topic_with_as_many_queues_as_allowed_holds_nobody_up(client):
    await client.sent(topic="other")
    assert (await client.create_topic(read=16_384, write=16_384)).code == 0
    assert (await client.create_topic(read=16_385, write=1)).code == 1
    began = time.process_time()
    await client.sent(queue_id=16_383)
    for code in (202, 303):
        assert (await client.call(code, {"topic": TOPIC, "group": GROUP})).code == 0
    assert time.process_time() - began < 2


@pytest.mark.parametrize("wanted", [-(2**31), -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("times", [(0, 2**63 - 1), (2**63 - 1, 0), (-(2**63), -1), (-(2**63), 2**63 - 1)])
async def test_a_look_up_by_key_takes_any_numbers(client, wanted, times):
    for _ in range(3):
        await client.sent(properties={"KEYS": "k"})
    begin, end = times
    ext = {"topic": TOPIC, "key": "k", "maxNum": wanted, "beginTimestamp": begin, "endTimestamp": end}
    reply = await client.call(12, ext)
    found = max(0, min(wanted, 3)) if begin < end and end > 0 else 0
    assert (reply.code, len(messages_in(reply.body))) == (0 if found else 22, found), reply


async def test_a_client_of_very_many_groups_holds_nobody_up(client):
    began = time.process_time()
    await client.beat("c1", groups=[f"g{number}" for number in range(2000)])
    assert time.process_time() - began < 2
    assert len(await client.topics()) > 2000


# Names

PATHS = [
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\0b",
    "%RETRY%../x",
    "%DLQ%/x",
    " ",
    "\n",
    "ä",
    "x" * 300,
]


@pytest.mark.parametrize("name", PATHS)
async def test_names_that_are_paths_lead_nowhere(client, tmp_path, name):
    before = {path for path in tmp_path.rglob("*") if "store" not in path.parts}
    good = await create_and_send(client)
    await client.put(topic=name)
    await client.create_topic(name)
    assert (await client.call(200, body=json.dumps({"groupName": name}).encode())).code == 1
    await client.beat("c1", groups=(name,), topics=(name,))
    offset = {"consumerGroup": name, "topic": name, "queueId": 0, "commitOffset": 1}
    assert (await client.call(15, offset)).code in (17, 26)
    for topic in (name, TOPIC, f"%RETRY%{name}"):
        await client.pull(topic, group=name)
        await client.put(topic=topic, j=99)
    await client.send_back(good, group=name)
    await client.send_back(good, delay_level=-1, group=name)
    for code in (29, 30, 31, 32, 202, 300, 303, 321):
        ext = {"topic": name, "group": name, "queueId": 0, "timestamp": 0, "index": 0, "count": 1}
        assert (await client.call(code, ext)).code in (0, 1, 17)
    await client.call(215, {"topic": name})
    await client.call(207, {"groupName": name, "removeOffset": "true"})
    await client.call(316)
    await client.call(306)
    await client.sent()
    assert {path for path in tmp_path.rglob("*") if "store" not in path.parts} == before
    folders = [path.name for path in (tmp_path / "store" / "consumequeue").glob("*")]
    assert all(name not in folder for folder in folders if name.strip())


async def create_and_send(client):
    await client.sent()
    [message] = await client.read(count=1)
    return message.physical


@pytest.mark.usefixtures("hurry")
async def test_a_group_whose_retry_topic_has_no_name_does_not_stop_delayed_messages(client, shift):
    physical = await create_and_send(client)
    long = "g" * 130  # a group may be called so, `%RETRY%` with it is too long for a topic
    assert (await client.send_back(physical, delay_level=1, group=long)).code == 1
    assert (await client.send_back(physical, delay_level=-1, group=long)).code == 1
    await client.sent(b"later", properties={"DELAY": 1})
    shift.advance(10)
    assert (await client.first(offset=1)).body == b"later"


@pytest.mark.usefixtures("hurry")
async def test_a_group_that_is_a_path_in_the_file_does_not_stop_delayed_messages(start, shift, tmp_path):
    """Another broker's file may have such a group: 4.9 takes any name."""
    group = "../../../x"
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": {"counter": 1}, "subscriptionGroupTable": {group: {"groupName": group}}})
    )
    async with start() as scene:
        client = await scene.connect()
        physical = await create_and_send(client)
        await client.beat("c1", groups=(group,))
        assert (await client.send_back(physical, delay_level=1, group=group)).code == 1
        await client.sent(b"later", properties={"DELAY": 1})
        shift.advance(10)
        assert (await client.first(offset=1)).body == b"later"
    assert not (tmp_path / "x").exists()


async def test_hosts_that_a_sender_claims_are_not_believed(client):
    # sysFlag bits 16 and 32: IPv6 addresses, which would be longer than what is there.
    for flag in (16, 32, 48, 2**31 - 1, -1):
        await client.put(f=flag)
    await client.sent(b"after")
    assert (await client.read(offset=await client.max_offset() - 1))[0].body == b"after"


# Connections

HALVES = [b"\x00", b"\x00\x00\x01", struct.pack(">iI", 1000, 900) + b'{"code":310', b"GET / HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize("half", HALVES, ids=["one byte", "three bytes", "half a header", "another protocol"])
async def test_half_a_frame_holds_nobody_up(scene, client, half):
    rude = await scene.connect()
    rude.send(half)
    await rude.writer.drain()
    await client.sent()
    assert len(await client.read()) == 1
    rude.writer.transport.abort()
    await client.sent()


async def test_a_header_that_is_none_closes_the_connection(scene, client):
    for header in (b"", b"{", b"[]", b'{"code":"x"}', b"\xff" * 20):
        rude = await scene.connect()
        rude.send(frame(header))
        assert await rude.closed_by_server() == b""
    await client.sent()


# What the processor did for all of this process, which is client and broker, is what others would have waited for; how
# long somebody else takes the processor away is not the broker's fault. So the tests here look at process_time.


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_a_reader_that_does_not_read_costs_little_memory_and_others_no_time(start):
    async with start("mappedFileSizeCommitLog=4m") as scene:
        client = await scene.connect()
        for _ in range(8):
            await client.sent(bytes(30_000))
        slow = await scene.connect()
        slow.writer.transport.pause_reading()
        before = resident()
        for _ in range(2000):  # half a gigabyte, if all were answered
            slow.ask(11, pull_ext())
        for _ in range(20):
            began = time.process_time()
            await client.sent()
            assert time.process_time() - began < 0.5
        assert resident() - before < 64 << 20
        slow.writer.transport.abort()


async def test_a_client_that_pulls_as_fast_as_it_can_leaves_room_for_others(scene, client):
    await client.create_topic()
    hasty = await scene.connect()
    pulls = 0

    async def pull_on():
        nonlocal pulls
        while True:
            asked = [hasty.ask(11, pull_ext()) for _ in range(50)]
            for opaque in asked:
                assert (await hasty.answer_to(opaque)).code == 19
            pulls += len(asked)

    pulling = asyncio.create_task(pull_on())
    slowest = 0.0
    for _ in range(100):
        began = time.process_time()
        await client.sent(queue_id=1)
        slowest = max(slowest, time.process_time() - began)
    pulling.cancel()
    await asyncio.wait([pulling])
    assert pulling.cancelled()
    assert pulls
    assert slowest < 0.5


async def test_held_pulls_of_clients_that_left_are_forgotten(scene, client):
    await client.create_topic()
    held = scene.broker._parts.pulls.held
    for _ in range(20):
        gone = await scene.connect()
        for _ in range(50):
            gone.ask(11, pull_ext(flag=WAITING, suspendTimeoutMillis=2**62))
        await gone.call(26)
        gone.writer.transport.abort()
    assert len(held) == 1000
    scene.broker._parts.pulls.expire()

    async def forgotten():
        scene.broker._parts.pulls.expire()
        return not len(held)

    await client.until(forgotten)
    await client.sent()


@pytest.mark.slow
async def test_two_thousand_idle_connections_cost_nobody_anything(scene, client):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 6000)), hard))
    # Both ends are here, so each takes two files; where fewer than six thousand are allowed, so many as fit.
    hundreds = min(2000, (min(hard, 6000) - 400) // 2) // 100
    loop = asyncio.get_running_loop()
    loop.set_debug(False)  # or it takes four times as long
    idle: list[asyncio.Transport] = []
    try:
        for _ in range(hundreds):
            made = [loop.create_connection(asyncio.Protocol, "127.0.0.1", scene.port) for _ in range(100)]
            idle += [transport for transport, _ in await asyncio.gather(*made)]
        for transport in idle[::100]:
            transport.write(frame(b'{"code":34,"opaque":1}', heartbeat("idle", groups=("crowd",))))
        began = time.process_time()
        for _ in range(100):
            await client.sent()
        assert time.process_time() - began < 5
        assert len(await client.members("crowd")) == hundreds
    finally:
        for transport in idle:
            transport.abort()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def all_gone():
        return not await client.members("crowd")

    await client.until(all_gone)


# Files that cannot be read


async def test_a_held_pull_whose_queue_cannot_be_read_is_nobody_elses_trouble(scene, client, monkeypatch):
    await client.create_topic()
    asked = [client.ask(11, pull_ext(flag=WAITING)) for _ in range(3)]
    assert await client.is_silent(asked[0])
    store = scene.broker._parts.context.store

    def unreadable(*_, **__):
        raise StoreError("cannot read it")

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", unreadable)
        await client.sent()
        replies = [await client.answer_to(opaque) for opaque in asked]
        assert [(reply.code, reply.remark) for reply in replies] == [(1, "cannot read it")] * 3
    assert (await client.pull()).code == 0


@pytest.mark.usefixtures("hurry")
async def test_a_broker_goes_on_when_a_timer_cannot_read_a_queue(scene, client, shift, monkeypatch):
    await client.create_topic()
    await client.sent(properties={"DELAY": 1})
    monkeypatch.setattr("pyromq.broker.timers.schedule._AFTER_ERROR", 0.01)
    entries = ConsumeQueue.entries
    broken = True

    def unreadable(queue, *which):
        if broken:
            raise StoreError("cannot read it")
        return entries(queue, *which)

    monkeypatch.setattr(ConsumeQueue, "entries", unreadable)
    shift.advance(10)
    assert (await client.pull(flag=WAITING, suspendTimeoutMillis=100)).code == 19
    broken = False
    assert (await client.first()).properties["DELAY"] == "1"
