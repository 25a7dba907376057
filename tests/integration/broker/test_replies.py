"""Replies to requests, passed on to the producer that asked (docs/spec/broker.md 11.3)."""

from __future__ import annotations

import json

import pytest
from tests.integration.broker.scene_kit import parse_properties, send_ext

REPLIES = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture
async def asking(scene):
    """A producer that waits for answers."""
    asking = await scene.connect()
    data = {"clientID": "10.0.0.1@7", "consumerDataSet": [], "producerDataSet": [{"groupName": "askers"}]}
    assert (await asking.call(34, body=json.dumps(data).encode())).code == 0
    return asking


def reply_ext(to="10.0.0.1@7", **more):
    properties = {"CORRELATION_ID": "c-1", "TTL": "3000", "MSG_TYPE": "reply"} | ({"REPLY_TO_CLIENT": to} if to else {})
    return send_ext(REPLIES, properties=properties, **more)


LONG = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId"} | {
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


@pytest.mark.parametrize("code", [324, 325])
async def test_a_reply_reaches_the_one_who_asked_and_is_stored(scene, client, asking, code):
    ext = reply_ext()
    if code == 324:
        ext = {LONG[name]: value for name, value in ext.items()}
    sent = client.ask(code, ext, b"the answer")
    pushed = await asking.request(326)
    assert pushed.body == b"the answer"
    assert pushed.header["flag"] == 0
    assert (pushed.ext["topic"], pushed.ext["queueId"], pushed.ext["bornTimestamp"]) == (REPLIES, "0", "1000")
    assert pushed.ext["storeHost"] == f"127.0.0.1:{scene.port}"
    assert pushed.ext["bornHost"].startswith("127.0.0.1:")
    properties = parse_properties(pushed.ext["properties"])
    assert (properties["CORRELATION_ID"], properties["REPLY_TO_CLIENT"]) == ("c-1", "10.0.0.1@7")
    assert properties["PUSH_REPLY_TIME"] == pushed.ext["storeTimestamp"]
    asking.answer(pushed)
    reply = await client.answer_to(sent)
    assert (reply.code, reply.ext["queueOffset"], reply.ext["MSG_REGION"]) == (0, "0", "DefaultRegion")
    [message] = await client.read(REPLIES)
    assert (message.body, message.properties["CORRELATION_ID"]) == (b"the answer", "c-1")
    assert reply.ext["msgId"] == f"7F000001{scene.port:08X}{message.physical:016X}"


async def test_a_reply_need_not_be_stored(start):
    async with start("storeReplyMessageEnable=false") as scene:
        client = await scene.connect()
        reply = await client.call(325, reply_ext("nobody"), b"lost")
        assert (reply.code, reply.ext["msgId"], reply.ext["queueOffset"]) == (1, "0", "0")
        assert await client.max_offset(REPLIES) == 0


@pytest.mark.scenario("broker 11.4")
async def test_a_reply_to_one_who_has_left_is_stored_and_said_to_be_lost(client, asking):
    asking.writer.transport.abort()

    async def refused():
        reply = await client.call(325, reply_ext(), b"too late")
        return reply.remark == "push reply message fail, channel of <10.0.0.1@7> not found." and reply

    reply = await client.until(refused)
    assert reply.code == 1
    stored = int(reply.ext["queueOffset"])
    assert (await client.read(REPLIES, offset=stored))[0].body == b"too late"


async def test_a_reply_that_is_not_taken_or_to_nobody_is_an_error(client, asking):
    sent = client.ask(325, reply_ext(), b"unwanted")
    asking.answer(await asking.request(326), code=1)
    reply = await client.answer_to(sent)
    assert (reply.code, reply.remark) == (1, "push reply message to <10.0.0.1@7>fail.")
    reply = await client.call(325, reply_ext(to=None), b"to nobody")
    assert (reply.code, reply.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")


@pytest.mark.parametrize(
    ("ext", "code", "remark"),
    [
        (send_ext("a b"), 1, "illegal characters"),
        (send_ext("OFFSET_MOVED_EVENT"), 16, "Sending message to topic[OFFSET_MOVED_EVENT] is forbidden."),
        (send_ext("nowhere", default_topic="none"), 17, "topic[nowhere] not exist, apply first please!"),
        (send_ext(REPLIES, 9), 1, "request queueId[9] is illegal"),
        (send_ext(REPLIES, properties="a\x01b\0"), 13, "U+0000"),
        ({}, 1, ""),
    ],
)
async def test_a_reply_is_checked_as_any_send(client, ext, code, remark):
    reply = await client.call(325, ext, b"wrong")
    assert reply.code == code
    assert remark in reply.remark
    assert await client.max_offset(REPLIES) == 0
