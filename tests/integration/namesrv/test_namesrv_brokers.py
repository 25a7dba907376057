"""Scenarios of docs/spec/namesrv.md 8 about brokers that come, stay and go."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest
from tests.bounds import TOO_LONG
from tests.integration.namesrv.raw_client import identity, json_request, register_body, topics_wrapper

A, B = "10.0.0.1:10911", "10.0.0.2:10911"

# The vector of 4.1: TopicA 16/16/6, DataVersion counter 7.
COMPRESSED = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d7512ac9cc4d2d2e49cc2d50b232343740805a0606064620960cc92fc84c7654303403213385"
    "604f3f771fd7f8104777a02453742c005a321360"
)


async def close(scenes, address):
    await scenes.brokers[address].close()


@pytest.mark.scenario("namesrv 3")
async def test_a_master_registers_and_its_topic_has_a_route(scenes):
    reply = await scenes.reg()
    assert (reply.code, reply.body, reply.header["extFields"]) == (0, None, {})
    route = (await scenes.route()).json
    assert route == {
        "brokerDatas": [{"brokerAddrs": {"0": A}, "brokerName": "b", "cluster": "c1"}],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}],
    }


@pytest.mark.scenario("namesrv 5")
async def test_a_slave_alone_makes_no_route(scenes):
    assert (await scenes.reg("b", 1, B)).code == 0
    assert (await scenes.route()).code == 17
    assert (await scenes.call(106)).json["brokerAddrTable"]["b"]["brokerAddrs"] == {"1": B}


@pytest.mark.scenario("namesrv 6")
async def test_a_slave_learns_its_master_and_the_route_has_both(scenes):
    await scenes.reg("b", 1, B)
    await scenes.reg("b", 0, A)
    reply = await scenes.reg("b", 1, B, on=scenes.brokers[B])
    assert reply.ext == {"masterAddr": A, "haServerAddr": "10.0.0.1:10912"}
    assert await scenes.addresses() == {"b": {"0": A, "1": B}}


@pytest.mark.scenario("namesrv 7")
@pytest.mark.scenario("namesrv 8")
async def test_a_slave_outlives_its_master_and_is_promoted(scenes):
    await scenes.reg("b", 1, B)
    await scenes.reg("b", 0, A)
    await close(scenes, A)
    assert await scenes.addresses() == {"b": {"1": B}}
    assert await scenes.perm() == 6
    await scenes.reg("b", 0, B, 2, on=scenes.brokers[B])
    assert await scenes.addresses() == {"b": {"0": B}}


@pytest.mark.scenario("namesrv 9")
async def test_a_closed_connection_ends_what_was_registered_over_it(scenes):
    await scenes.reg()
    await close(scenes, A)
    assert (await scenes.route()).code == 17
    assert (await scenes.call(206)).json == {"topicList": []}
    assert (await scenes.call(106)).json == {"brokerAddrTable": {}, "clusterAddrTable": {}}


@pytest.mark.scenario("namesrv 10")
async def test_a_stale_connection_means_nothing(scenes):
    await scenes.reg()
    first = scenes.brokers[A]
    await scenes.reg()
    await first.close()
    assert await scenes.addresses() == {"b": {"0": A}}


@pytest.mark.scenario("namesrv 11")
async def test_a_broker_unregisters_and_stays_connected(scenes):
    await scenes.reg()
    assert (await scenes.brokers[A].call(104, identity("b", 0, A))).code == 0
    assert (await scenes.route()).code == 17
    assert (await scenes.brokers[A].call(106)).code == 0


@pytest.mark.scenario("namesrv 12")
async def test_unregistering_goes_by_address(scenes):
    await scenes.reg("b", 0, A)
    await scenes.reg("b", 0, B)
    assert (await scenes.call(104, identity("b", 0, A))).code == 0
    assert await scenes.addresses() == {"b": {"0": B}}


@pytest.mark.scenario("namesrv 19")
async def test_a_wrong_checksum_changes_nothing(scenes):
    await scenes.reg()
    body = register_body(2, ["T2"])
    reply = await scenes.reg(version=2, body=body, ext={"bodyCrc32": (zlib.crc32(body) & 0x7FFFFFFF) ^ 1})
    assert (reply.code, reply.remark, reply.header["extFields"]) == (1, "crc32 not match", {})
    assert (await scenes.route("T2")).code == 17
    assert (await scenes.route()).code == 0
    assert (await scenes.reg(body=body, ext={"bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF})).code == 0


@pytest.mark.scenario("namesrv 20")
async def test_a_compressed_registration_is_read(scenes):
    reply = await scenes.reg(body=COMPRESSED, ext={"compressed": "true", "bodyCrc32": 276702283})
    assert reply.code == 0
    [queues] = (await scenes.route("TopicA")).json["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (16, 16, 6)


@pytest.mark.scenario("namesrv 21")
@pytest.mark.parametrize("flag", ["true", "false"])
async def test_a_compressed_registration_may_have_a_sixth_token_per_topic(scenes, flag):
    plain = zlib.decompress(COMPRESSED)
    old = b"\x00\x00\x00\x19TopicA 16 16 6 SINGLE_TAG"
    assert old in plain
    body = zlib.compress(plain.replace(old, b"\x00\x00\x00\x1cTopicA 16 16 6 SINGLE_TAG {}"))
    assert (await scenes.reg(body=body, ext={"compressed": flag})).code == 0
    assert (await scenes.route("TopicA")).code == 0


@pytest.mark.scenario("namesrv 22")
async def test_a_registration_without_body_is_a_broker_without_topics(scenes):
    assert (await scenes.reg(body=b"")).code == 0
    assert (await scenes.call(106)).json["brokerAddrTable"]["b"]["brokerAddrs"] == {"0": A}
    assert (await scenes.call(206)).json == {"topicList": []}


class TurnedClock:
    """The clock of a name server, which looks for silent brokers all the time."""

    def __init__(self, monkeypatch):
        self.millis = 1_000_000
        self._asked = 0
        monkeypatch.setattr("pyromq.namesrv.server._now", self)

    def __call__(self):
        self._asked += 1
        return self.millis

    async def advance(self, millis):
        """Let time pass, until the name server has looked."""
        self.millis += millis
        asked = self._asked
        async with asyncio.timeout(TOO_LONG):
            while self._asked == asked:  # noqa: ASYNC110
                await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    return TurnedClock(monkeypatch)


@pytest.mark.scenario("namesrv 28")
async def test_a_silent_broker_is_cut_off_after_the_time_it_named(clock, start):
    async with start("scanNotActiveBrokerInterval=10") as scenes:
        await scenes.reg(ext={"heartbeatTimeoutMillis": 3000})
        await clock.advance(3000)
        assert (await scenes.route()).code == 0
        await clock.advance(1)
        assert await scenes.brokers[A].closed_by_server() == b""
        assert (await scenes.route()).code == 17


@pytest.mark.scenario("namesrv 29")
async def test_a_broker_that_sends_heartbeats_stays_and_they_are_not_answered(clock, start):
    async with start("scanNotActiveBrokerInterval=10") as scenes:
        await scenes.reg(ext={"heartbeatTimeoutMillis": 3000})
        broker = scenes.brokers[A]
        for _ in range(12):
            await clock.advance(1000)
            broker.send(json_request(904, identity("b", 0, A), flag=2))
            # An answer to a heartbeat would come before the answer to this.
            assert (await broker.call(105, {"topic": "T"})).code == 0
        assert await scenes.addresses() == {"b": {"0": A}}


@pytest.mark.scenario("namesrv 35")
async def test_a_broker_before_3_0_11_sends_its_topics_bare(scenes):
    body = json.dumps(topics_wrapper(1, ["T"])).encode()
    assert (await scenes.reg(body=body, frame_version=36)).code == 0
    assert await scenes.addresses() == {"b": {"0": A}}


@pytest.mark.scenario("namesrv 38")
async def test_all_brokers_of_one_connection_go_with_it(scenes):
    one = await scenes.connect()
    await scenes.reg("b1", 0, A, on=one)
    await scenes.reg("b2", 0, B, on=one)
    assert set(await scenes.addresses()) == {"b1", "b2"}
    await one.close()
    assert (await scenes.route()).code == 17
    assert (await scenes.call(106)).json == {"brokerAddrTable": {}, "clusterAddrTable": {}}


@pytest.mark.scenario("namesrv 39")
@pytest.mark.parametrize(("enabled", "perm"), [("true", 4), ("false", 6)])
async def test_a_slave_of_5x_alone_makes_a_route(scenes, enabled, perm):
    await scenes.reg("b", 1, B, ext={"enableActingMaster": enabled})
    assert await scenes.addresses() == {"b": {"1": B}}
    assert await scenes.perm() == perm


@pytest.mark.scenario("namesrv 40")
async def test_writes_pause_while_a_master_of_5x_is_away(scenes):
    acting = {"enableActingMaster": "true"}
    await scenes.reg("b", 0, A, ext=acting)
    await scenes.reg("b", 1, B, ext=acting)
    await close(scenes, A)
    assert (await scenes.addresses(), await scenes.perm()) == ({"b": {"1": B}}, 4)
    await scenes.reg("b", 0, A, ext=acting)
    assert (await scenes.addresses(), await scenes.perm()) == ({"b": {"0": A, "1": B}}, 6)


@pytest.mark.scenario("namesrv 41")
async def test_the_members_of_a_group_are_listed(scenes):
    await scenes.reg()
    known = await scenes.call(901, {"clusterName": "c1", "brokerName": "b"})
    unknown = await scenes.call(901, {"clusterName": "c1", "brokerName": "none"})
    assert (known.code, unknown.code) == (0, 0)
    assert known.json == {"brokerMemberGroup": {"brokerAddrs": {"0": A}, "brokerName": "b", "cluster": "c1"}}
    assert unknown.json["brokerMemberGroup"]["brokerAddrs"] == {}


@pytest.mark.scenario("namesrv 42")
async def test_a_broker_of_an_older_state_does_not_take_a_place(scenes):
    await scenes.reg("b", 0, A, stateVersion=5)
    assert (await scenes.reg("b", 0, "10.0.0.9:10911")).code == 0
    assert await scenes.addresses() == {"b": {"0": A}}


async def test_a_topic_can_be_registered_by_itself(scenes):
    await scenes.reg()
    queues = [{"brokerName": "b", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}]
    # As 5.x brokers write it, with ids that are not in quotes.
    body = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b","cluster":"c1"}],"queueDatas":%b}'
    assert (await scenes.call(217, {"topic": "T2"}, body % json.dumps(queues).encode())).code == 0
    assert (await scenes.route("T2")).json["queueDatas"] == queues
    queues[0]["brokerName"] = "stranger"
    assert (await scenes.call(217, {"topic": "T3"}, body % json.dumps(queues).encode())).code == 0
    assert (await scenes.route("T3")).code == 17


async def test_a_query_of_the_data_version_keeps_a_broker_alive(clock, start):
    async with start("scanNotActiveBrokerInterval=10") as scenes:
        await scenes.reg(ext={"heartbeatTimeoutMillis": 150})
        for _ in range(6):
            await clock.advance(100)
            body = b'{"counter":9,"timestamp":1}'
            assert (await scenes.brokers[A].call(322, identity("b", 0, A), body)).ext == {"changed": "true"}
        assert await scenes.addresses() == {"b": {"0": A}}
