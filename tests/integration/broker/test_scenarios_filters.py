"""Scenarios 7.x of docs/spec/broker.md 14: filters by SQL92, over real sockets."""

from __future__ import annotations

import json
import struct

import pytest
from tests.integration.broker.scene_kit import GROUP, SUSPEND, TOPIC, messages_in

ENABLED = "enablePropertyFilter=true"
RULE_14 = "The broker does not support consumer to filter message by SQL92"


def sql_heartbeat(text, *, version=1, topic=TOPIC, group=GROUP):
    wanted = {"classFilterMode": False, "codeSet": [], "expressionType": "SQL92", "subString": text, "tagsSet": []}
    consumer = {"consumeType": "CONSUME_PASSIVELY", "groupName": group, "messageModel": "CLUSTERING", "unitMode": False}
    consumer |= {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    consumer |= {"subscriptionDataSet": [wanted | {"subVersion": version, "topic": topic}]}
    return json.dumps({"clientID": "sql", "consumerDataSet": [consumer], "producerDataSet": []}).encode()


async def checked(client, text):
    """What code 46 says to an expression."""
    subscription = {"expressionType": "SQL92", "subString": text, "subVersion": 1, "topic": TOPIC}
    body = {"clientId": "sql", "group": GROUP, "subscriptionData": subscription}
    reply = await client.call(46, body=json.dumps(body).encode())
    return reply.code, reply.remark


async def selected(client, text, *messages, topic=TOPIC):
    """Send messages with these properties, subscribe an expression, and consume; gives the bodies that came."""
    for number, properties in enumerate(messages):
        await client.sent(str(number).encode(), topic, properties=properties)
    assert await checked(client, text) == (0, None)
    assert (await client.call(34, body=sql_heartbeat(text, topic=topic))).code == 0
    found: list[int] = []
    offset = 0
    while True:
        reply = await client.pull(topic, offset=offset, flag=0, subVersion=1)
        if reply.code == 19:
            return found
        assert reply.code in (0, 20), reply
        found += [int(message.body) for message in messages_in(reply.body)]
        offset = int(reply.ext["nextBeginOffset"])


@pytest.fixture
async def client(start):
    async with start(ENABLED) as scene:
        yield await scene.connect()


@pytest.mark.scenario("broker 7.1")
async def test_a_broker_without_filters_refuses_them(scene):
    client = await scene.connect()
    assert await checked(client, "a > 5") == (1, RULE_14)
    await client.create_topic()
    reply = await client.pull(expressionType="SQL92", subscription="a > 5")
    assert (reply.code, reply.remark) == (1, RULE_14)
    await client.call(34, body=sql_heartbeat("a > 5"))
    reply = await client.pull(flag=0, subVersion=1)
    assert (reply.code, reply.remark) == (1, RULE_14)
    await client.configure(ENABLED)
    assert await checked(client, "a > 5") == (0, None)
    assert (await client.pull(flag=0, subVersion=1)).code == 19


@pytest.mark.scenario("broker 7.2")
async def test_two_conditions_select_the_one_message_that_meets_both(client):
    each = {"a": 6, "b": "x"}, {"a": 5, "b": "x"}, {"a": 6, "b": "y"}, {"b": "x"}
    assert await selected(client, "a > 5 AND b = 'x'", *each) == [0]


@pytest.mark.scenario("broker 7.3")
@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("a >", "column 4: expected a value, found the end"),
        ("a > 'x'", "column 5: > compares numbers and properties only"),
        ("1", "column 1: this is neither true nor false"),
    ],
)
async def test_a_wrong_expression_is_refused_with_its_column(client, text, remark):
    await client.create_topic()
    assert await checked(client, text) == (23, f"Invalid MessageSelector. {remark}")
    reply = await client.pull(expressionType="SQL92", subscription=text)
    assert (reply.code, reply.remark) == (23, "parse the consumer's subscription failed")
    await client.call(34, body=sql_heartbeat(text))
    reply = await client.pull(flag=0, subVersion=1)
    assert reply.code == 27


@pytest.mark.scenario("broker 7.4")
async def test_what_is_no_integer_does_not_match_and_consumption_goes_on(client):
    assert await selected(client, "a > 5", {"a": "10.5"}, {"a": "abc"}, {}, {"a": "6"}) == [3]


@pytest.mark.scenario("broker 7.5")
async def test_a_missing_property_is_null(client):
    each: list[dict[str, str]] = [{}, {"a": "1"}, {"a": "2"}, {"a": "3"}]
    assert await selected(client, "a IS NULL OR a IN ('1','2')", *each) == [0, 1, 2]


@pytest.mark.scenario("broker 7.6")
async def test_not_null_is_null(client):
    assert await selected(client, "NOT (a = 1)", {}, {"a": "1"}, {"a": "2"}) == [2]


@pytest.mark.scenario("broker 7.7")
async def test_a_boolean_is_a_word_in_any_case(client):
    assert await selected(client, "flag = TRUE", {"flag": "True"}, {"flag": "yes"}, {}) == [0]


async def test_a_held_pull_waits_for_what_its_expression_selects(client):
    await client.create_topic()
    await client.call(34, body=sql_heartbeat("a > 5"))
    opaque = client.ask(11, {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": SUSPEND,
        "commitOffset": 0, "suspendTimeoutMillis": 10_000, "subVersion": 1,
    })  # fmt: skip
    await client.sent(b"no", properties={"a": 5})
    assert await client.is_silent(opaque)
    await client.sent(b"yes", properties={"a": 6})
    reply = await client.answer_to(opaque)
    assert [message.body for message in messages_in(reply.body)] == [b"yes"]


async def test_filters_are_kept_over_a_restart_and_die_with_their_group(start, tmp_path):
    path = tmp_path / "store" / "config" / "consumerFilter.json"
    async with start(ENABLED) as scene:
        client = await scene.connect()
        await client.create_topic()
        await client.call(34, body=sql_heartbeat("a > 5", version=7))
    kept = json.loads(path.read_text())["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    assert (kept["expression"], kept["clientVersion"], kept["dead"]) == ("a > 5", 7, True)
    async with start(ENABLED) as scene:
        client = await scene.connect()
        await client.call(34, body=sql_heartbeat("a > 5", version=7))
        assert (await client.pull(flag=0, subVersion=7)).code == 19
        assert (await client.pull(flag=0, subVersion=8)).code == 25
    again = json.loads(path.read_text())["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    assert again["bornTime"] == kept["bornTime"]


@pytest.mark.scenario("broker 7.8")
async def test_bitmaps_change_no_result(start, tmp_path):
    """Bitmaps are of RocketMQ's making: here they are put into the files of a store between two starts."""
    root = tmp_path / "store"
    sets = ENABLED, "enableConsumeQueueExt=true", "mappedFileSizeConsumeQueueExt=4096"
    each = [{"a": number, "TAGS": "AB"[number % 2]} for number in range(8)]
    async with start(*sets) as scene:
        client = await scene.connect()
        without = await selected(client, "a > 5", *each)
        tagged = [int(message.body) for message in await client.read(subscription="B")]
    bits = json.loads((root / "config" / "consumerFilter.json").read_text())
    entry = bits["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    assert entry["bloomFilterData"]["bitNum"] == 112
    assert len(entry["bloomFilterData"]["bitPos"]) == 3
    add_bitmaps(root, entry["bloomFilterData"]["bitPos"], [number in without for number in range(8)])
    async with start(*sets) as scene:
        client = await scene.connect()
        assert (await selected(client, "a > 5"), without) == ([6, 7], [6, 7])
        assert [int(message.body) for message in await client.read(subscription="B")] == tagged == [1, 3, 5, 7]


def add_bitmaps(root, positions, matching):
    """Give the entries of queue 0 units with the bits of a group that are set for messages that match."""
    path = root / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    content, units = bytearray(path.read_bytes()), b""
    for number, is_match in enumerate(matching):
        tags_at = number * 20 + 12
        bitmap = bytearray(14)
        for position in positions if is_match else ():
            bitmap[position // 8] |= 1 << position % 8
        address = struct.pack(">q", len(units) - 2**63)
        units += struct.pack(">h", 34) + content[tags_at : tags_at + 8] + struct.pack(">qh", 2**62, 14) + bitmap
        content[tags_at : tags_at + 8] = address
    path.write_bytes(content)
    folder = root / "consumequeue_ext" / TOPIC / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(units.ljust(4096, b"\0"))
