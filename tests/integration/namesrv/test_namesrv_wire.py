"""Scenarios of docs/spec/namesrv.md 8 about frames, serialisations and codes."""

from __future__ import annotations

import asyncio
import json
import struct

import pytest
from tests.integration.namesrv.raw_client import binary_request, frame, json_request

NOT_FOUND = "No topic route info in name server for the topic: T"


@pytest.mark.scenario("namesrv 1")
async def test_an_unknown_topic_gets_code_17_without_body(scenes):
    reply = await scenes.route()
    assert (reply.code, reply.header["flag"], reply.body) == (17, 1, None)
    assert reply.remark.startswith(NOT_FOUND)


@pytest.mark.scenario("namesrv 2")
async def test_a_binary_request_gets_a_binary_reply(scenes):
    client = await scenes.connect()
    client.send(binary_request(105, {"topic": "T"}, opaque=-2))
    reply = await client.receive()
    assert (reply.kind, reply.code, reply.header["opaque"]) == (1, 17, -2)
    assert reply.remark.startswith(NOT_FOUND)


@pytest.mark.scenario("namesrv 4")
@pytest.mark.parametrize("version", [100, 409])
async def test_a_route_is_strict_json_without_blanks_for_every_version(scenes, version):
    await scenes.reg()
    reply = await scenes.route(version=version)
    assert reply.code == 0
    assert reply.body is not None
    assert b" " not in reply.body
    assert reply.json["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


@pytest.mark.scenario("namesrv 30")
async def test_an_unknown_code_gets_code_3(scenes):
    reply = await scenes.call(9999)
    assert (reply.code, reply.remark) == (3, " request type 9999 not supported")


@pytest.mark.scenario("namesrv 31")
async def test_a_oneway_request_gets_no_answer(scenes):
    client = await scenes.connect()
    client.send(json_request(105, {"topic": "T"}, flag=2))
    client.send(json_request(9999, flag=2))
    # Whatever came back for the first two would come before the answer to the third.
    assert (await client.call(105, {"topic": "T"})).code == 17


@pytest.mark.scenario("namesrv 32")
async def test_fifty_requests_in_one_write_get_fifty_answers(scenes):
    client = await scenes.connect()
    opaques = set(range(1000, 1050))
    client.send(b"".join(json_request(105, {"topic": "T"}, opaque=opaque) for opaque in opaques))
    replies = [await client.receive() for _ in opaques]
    assert {reply.header["opaque"] for reply in replies} == opaques
    assert {reply.code for reply in replies} == {17}


@pytest.mark.scenario("namesrv 33")
@pytest.mark.parametrize(
    "garbage",
    [struct.pack(">iI", 16_777_213, 2) + b"{}", frame(b"{}", kind=2)],
    ids=["a length above the limit", "type byte 2"],
)
async def test_a_broken_frame_closes_its_connection_and_no_other(scenes, garbage):
    await scenes.reg()
    client = await scenes.connect()
    client.send(garbage)
    assert await client.closed_by_server() == b""
    assert await scenes.addresses() == {"b": {"0": "10.0.0.1:10911"}}


@pytest.mark.scenario("namesrv 34")
async def test_a_request_in_the_style_of_node_is_answered(scenes):
    client = await scenes.connect()
    header = {
        "code": 105,
        "language": "JAVA",
        "opaque": 3,
        "flag": 0,
        "version": 121,
        "extFields": {"topic": "T", "n": 4, "acceptStandardJsonOnly": True},
    }
    client.send(frame(json.dumps(header, separators=(",", ":")).encode()))
    reply = await client.receive()
    assert (reply.code, reply.header["opaque"]) == (17, 3)
    assert reply.remark.startswith(NOT_FOUND)


@pytest.mark.scenario("namesrv 34")
async def test_a_request_in_the_style_of_cpp_is_answered(scenes):
    client = await scenes.connect()
    client.send(
        frame(
            b'{"code":105,"extFields":{"AccessKey":"","OnsChannel":"","Signature":"","topic":"T"},"flag":0,'
            b'"language":"CPP","opaque":4,"remark":"","version":333}\n'
        )
    )
    reply = await client.receive()
    assert (reply.code, reply.header["opaque"]) == (17, 4)
    assert reply.remark.startswith(NOT_FOUND)


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (101, "namespace"),
        (102, "namespace"),
        (103, "clusterName"),
        (104, "brokerName"),
        (105, "topic"),
        (205, "brokerName"),
        (216, "topic"),
        (217, "topic"),
        (219, "namespace"),
        (224, "cluster"),
        (322, "brokerAddr"),
        (327, "brokerName"),
        (901, "clusterName"),
        (904, "brokerAddr"),
    ],
)
async def test_a_missing_field_that_is_needed_is_named_in_the_answer(scenes, code, field):
    reply = await scenes.call(code, {})
    assert reply.code == 1
    assert field in reply.remark


async def test_bytes_that_are_no_registration_change_nothing(scenes):
    for body in (b"nonsense", b"\x78\xdanonsense", b'{"topicConfigSerializeWrapper":7}', b"[" * 50_000):
        reply = await scenes.reg(body=body)
        assert reply.code == 1
    assert (await scenes.call(106)).json == {"brokerAddrTable": {}, "clusterAddrTable": {}}


async def test_many_clients_are_served_at_once(scenes):
    await scenes.reg()
    clients = [await scenes.connect() for _ in range(50)]
    replies = await asyncio.gather(*(client.call(105, {"topic": "T"}) for client in clients))
    assert {reply.code for reply in replies} == {0}
