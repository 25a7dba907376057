"""Clients that come, go and are asked, over real sockets: the processors with their tables, and raw clients.

docs/spec/broker.md 8, 9, 12.3, and what docs/spec/remoting.md 5 and docs/spec/interop.md 5 say of each client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.namesrv.raw_client import RawClient, Reply, binary_request, frame
from tests.unit.broker.message_kit import assembled
from tests.unit.store.kit import put, small

from pyromq.broker.clients import consumer_calls
from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody, SubscriptionGroupConfig, TopicConfig
from pyromq.protocol.ids import encode_host, encode_offset_message_id
from pyromq.protocol.record import decode_record
from pyromq.remoting import RemotingServer, ServerConfig
from pyromq.store import MessageStore
from pyromq.testing import Clock

TOPIC = "T"
GROUP = "g"


@dataclass
class Client(RawClient):
    """A raw client that keeps what the broker asks of it apart from the answers to its own requests."""

    language: str = "JAVA"
    version: int = 409
    client_id: str = "c1"
    asked: list[Reply] = field(default_factory=list)
    answered: dict[int, Reply] = field(default_factory=dict)

    def header(self, code, opaque, flag=0, ext=None) -> bytes:
        header: dict[str, Any] = {"code": code, "flag": flag, "language": self.language, "opaque": opaque}
        header["version"] = self.version
        if ext is not None:
            header["extFields"] = ext
        return json.dumps(header, separators=(",", ":")).encode()

    async def call(self, code, ext=None, body=b"", **more) -> Reply:
        opaque = next(_opaques)
        self.send(frame(self.header(code, opaque, ext=ext), body))
        return await self.answer_to(opaque)

    async def answer_to(self, opaque) -> Reply:
        while opaque not in self.answered:
            await self._take_one()
        return self.answered.pop(opaque)

    async def request(self) -> Reply:
        """The next thing that the broker asks."""
        while not self.asked:
            await self._take_one()
        return self.asked.pop(0)

    async def _take_one(self):
        command = await self.receive()
        if command.header["flag"] & 1:
            self.answered[command.header["opaque"]] = command
        else:
            self.asked.append(command)

    def answer(self, request: Reply, body=b"", code=0, ext=None) -> None:
        self.send(frame(self.header(code, request.header["opaque"], flag=1, ext=ext), body))

    async def beat(self, *groups, producers=(), topics=(TOPIC,), sub_version=1) -> Reply:
        """A heartbeat for consumer groups, with no extFields at all."""
        body = heartbeat(self.client_id, groups or (GROUP,), producers, topics, sub_version)
        return await self.call(34, body=body)

    async def rebalance(self) -> str:
        """Wait to be told to rebalance; the group."""
        news = await self.request()
        assert (news.code, news.header["flag"], news.body) == (40, 2, None)
        group: str = news.ext["consumerGroup"]
        return group

    async def nothing_asked(self) -> bool:
        """Whether the broker has asked nothing that was not looked at yet."""
        # What it had to tell when the first of these came is told before the last of them is answered.
        for _ in range(5):
            await self.call(38, {"consumerGroup": GROUP})
        return not self.asked


_opaques = iter(range(1, 1 << 30))


def heartbeat(client_id, groups, producers=(), topics=(TOPIC,), sub_version=1) -> bytes:
    wanted = [
        {"classFilterMode": False, "codeSet": [], "subString": "*", "subVersion": sub_version, "topic": topic}
        for topic in topics
    ]
    consumers = [
        {"consumeType": "CONSUME_PASSIVELY", "groupName": group, "messageModel": "CLUSTERING"}
        | {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": wanted, "unitMode": False}
        for group in groups
    ]
    data = {
        "clientID": client_id,
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": p} for p in producers],
    }
    return json.dumps(data).encode()


class Scene:
    """The part of a broker that knows clients. `clock` is turned by the tests."""

    def __init__(self, store: MessageStore, clock: Clock, **config) -> None:
        self.clock = clock
        self.store = store
        self.live = LiveConfig.of(BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", **config))
        parts = assembled(self.live, store, self.now)
        self.topics, self.groups = parts.tables.topics, parts.tables.groups
        self.offsets, self.clients = parts.tables.offsets, parts.tables.clients
        self.notices = parts.notices
        server = ServerConfig(listen_port=0, bind_address="127.0.0.1")
        self.server = RemotingServer(server, parts.processors, listener=self)
        self._opened = contextlib.AsyncExitStack()

    def now(self) -> int:
        return self.clock.millis

    async def __aenter__(self):
        await self._opened.enter_async_context(self.server)
        telling = asyncio.create_task(self.notices.run())

        async def stop_telling():
            telling.cancel()
            await asyncio.wait([telling])
            assert telling.cancelled()

        self._opened.push_async_callback(stop_telling)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._opened.aclose()

    async def client(self, client_id="c1", language="JAVA", version=409) -> Client:
        client = await Client.connect(self.server.port)
        assert isinstance(client, Client)
        client.client_id, client.language, client.version = client_id, language, version
        self._opened.push_async_callback(client.close)
        return client

    async def member(self, client_id="c1", language="JAVA", version=409) -> Client:
        """A client that joined the group and has heard of its own coming."""
        client = await self.client(client_id, language, version)
        assert (await client.beat()).code == 0
        assert await client.rebalance() == GROUP
        return client

    # The broker's part

    def connected(self, connection):
        pass

    def closed(self, connection, reason):
        self.clients.closed(connection)

    def look_for_silent_clients(self):
        for connection in self.clients.expire(self.now()):
            connection.close()


@pytest.fixture
def start(tmp_path, monkeypatch):
    # Told at once also what comes right after other news, so that nothing is late when a test expects nothing.
    monkeypatch.setattr(consumer_calls, "_REST", 0)

    @contextlib.asynccontextmanager
    async def starting(**config):
        clock = Clock()
        with MessageStore(small(tmp_path, commit_log_file_size=1 << 20), clock=clock) as store:
            async with Scene(store, clock, **config) as scene:
                yield scene

    return starting


@pytest.fixture
async def scene(start):
    async with start() as scene:
        yield scene


class TestComingAndGoing:
    @pytest.mark.scenario("broker 8.1")
    async def test_both_members_are_told_when_the_second_joins(self, scene):
        first = await scene.member("c1")
        second = await scene.client("c2")
        await second.beat()
        assert [await first.rebalance(), await second.rebalance()] == [GROUP, GROUP]
        answer = await second.call(38, {"consumerGroup": GROUP})
        assert answer.json == {"consumerIdList": ["c1", "c2"]}

    @pytest.mark.scenario("broker 8.2")
    async def test_the_other_member_is_told_at_once_when_one_is_cut_off(self, scene):
        first = await scene.member("c1")
        second = await scene.member("c2")
        await first.rebalance()
        second.writer.transport.abort()
        async with asyncio.timeout(8):  # who is silent is looked for every ten seconds
            assert await first.rebalance() == GROUP
        assert (await first.call(38, {"consumerGroup": GROUP})).json == {"consumerIdList": ["c1"]}

    @pytest.mark.scenario("broker 8.3")
    async def test_a_member_without_heartbeats_is_closed_whatever_else_it_asks(self, scene):
        silent = await scene.member("c1")
        other = await scene.member("c2")
        await silent.rebalance()
        for _ in range(6):
            scene.clock.advance(20)
            await other.beat()
            await silent.call(38, {"consumerGroup": GROUP})
            scene.look_for_silent_clients()
        assert (await other.call(38, {"consumerGroup": GROUP})).json == {"consumerIdList": ["c1", "c2"]}
        scene.clock.advance(10)
        scene.look_for_silent_clients()
        assert await silent.closed_by_server() == b""
        assert await other.rebalance() == GROUP
        assert (await other.call(38, {"consumerGroup": GROUP})).json == {"consumerIdList": ["c2"]}

    async def test_a_member_that_says_goodbye_leaves_the_others_told(self, scene):
        first = await scene.member("c1")
        second = await scene.member("c2")
        await first.rebalance()
        assert (await second.call(35, {"clientID": "c2", "consumerGroup": GROUP})).code == 0
        assert await first.rebalance() == GROUP
        assert await second.nothing_asked()
        assert (await first.call(38, {"consumerGroup": GROUP})).json == {"consumerIdList": ["c1"]}

    async def test_a_repeated_heartbeat_disturbs_nobody(self, scene):
        client = await scene.member()
        await client.beat()
        assert await client.nothing_asked()

    async def test_many_members_that_come_at_once_all_hear_of_it(self, scene, monkeypatch):
        monkeypatch.setattr(consumer_calls, "_AT_ONCE", 8)
        clients = [await scene.client(f"c{number}") for number in range(30)]
        for client in clients:
            client.send(frame(client.header(34, 0), heartbeat(client.client_id, [GROUP])))
        for client in clients:
            assert await client.rebalance() == GROUP
        assert len((await clients[0].call(38, {"consumerGroup": GROUP})).json["consumerIdList"]) == 30

    async def test_news_that_come_together_are_told_once(self, scene):
        client = await scene.member()
        connections = list(scene.server.connections)
        for _ in range(3):
            scene.notices.post(GROUP, connections)
        assert await client.rebalance() == GROUP
        assert await client.nothing_asked()

    async def test_a_broker_can_be_told_not_to_notify(self, start):
        async with start(notify_ids_changed=False) as scene:
            client = await scene.client()
            await client.beat()
            assert await client.nothing_asked()

    async def test_a_group_can_be_set_not_to_be_notified(self, scene):
        scene.groups.update(SubscriptionGroupConfig(group_name=GROUP, notify_consumer_ids_changed_enable=False))
        client = await scene.client()
        await client.beat()
        assert await client.nothing_asked()

    async def test_a_member_that_does_not_read_keeps_nobody_else_waiting(self, scene, monkeypatch):
        monkeypatch.setattr(consumer_calls, "NOTIFY_TIMEOUT", 30.0)
        stuck = await scene.member("stuck")
        [connection] = scene.server.connections
        connection.pause_writing()
        first = await scene.client("c1")
        await first.beat()
        assert await first.rebalance() == GROUP
        connection.resume_writing()
        assert await stuck.rebalance() == GROUP

    async def test_who_speaks_binary_is_told_in_binary(self, scene):
        first = await scene.member("c1")
        # Its last request, and so the form of what it is asked from now on, is a binary one.
        first.send(binary_request(38, {"consumerGroup": GROUP}, opaque=-7))
        assert (await first.answer_to(-7)).code == 0
        await (await scene.client("c2")).beat()
        news = await first.request()
        assert (news.kind, news.code, news.header["flag"]) == (1, 40, 2)


class TestHeartbeats:
    async def test_the_answer_carries_the_version_and_no_invitation_to_heartbeats_of_another_kind(self, scene):
        client = await scene.client(version=513)
        answer = await client.beat()
        assert (answer.code, answer.header["version"]) == (0, 409)
        assert "IS_SUPPORT_HEART_BEAT_V2" not in answer.ext

    async def test_the_retry_topic_is_there_when_the_answer_is(self, scene):
        client = await scene.client()
        await client.beat()
        assert scene.topics.get("%RETRY%g").read_queue_nums == 1

    async def test_a_client_of_cpp_is_known_as_such(self, scene):
        client = await scene.client()
        client.send(
            frame(
                b'{"code":34,"extFields":{"AccessKey":"","OnsChannel":"","Signature":""},"flag":0,"language":"CPP",'
                b'"opaque":-4,"remark":"","version":63}\n',
                b'{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g",'
                b'"messageModel":0,"subscriptionDataSet":[{"subString":"*","subVersion":"12","topic":"T"}]}]}\n',
            )
        )
        assert (await client.answer_to(-4)).code == 0
        answer = (await client.call(203, {"consumerGroup": GROUP})).json
        [connection] = answer["connectionSet"]
        assert (connection["clientId"], connection["language"], connection["version"]) == ("cpp", "CPP", 63)
        assert (answer["messageModel"], answer["consumeType"]) == ("BROADCASTING", "CONSUME_PASSIVELY")

    async def test_a_producer_is_found_by_its_group(self, scene):
        client = await scene.client("p1", "GO", 317)
        body = heartbeat("p1", [], ["shop"])
        await client.call(34, body=body)
        [connection] = (await client.call(204, {"producerGroup": "shop"})).json["connectionSet"]
        assert connection == {
            "clientAddr": f"127.0.0.1:{client.writer.get_extra_info('sockname')[1]}",
            "clientId": "p1",
            "language": "GO",
            "version": 317,
        }
        assert (await client.call(328)).json["data"]["shop"][0]["remoteIP"] == "/" + connection["clientAddr"]

    async def test_one_that_cannot_be_read_is_code_1_and_the_connection_goes_on(self, scene):
        client = await scene.member()
        assert (await client.call(34, body=b"{")).code == 1
        assert (await client.call(34)).code == 1
        assert (await client.beat()).code == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "ext", "answer", "remark"),
        [
            (38, {"consumerGroup": GROUP}, 1, "no consumer for this group, g"),
            (203, {"consumerGroup": GROUP}, 206, "the consumer group[g] not online"),
            (204, {"producerGroup": GROUP}, 1, "the producer group[g] not exist"),
            (307, {"consumerGroup": GROUP, "clientId": "c9"}, 1, "The Consumer <g> <c9> not online"),
            (
                *(222, {"topic": "nowhere", "group": GROUP, "timestamp": "-1", "isForce": "true"}, 1),
                "[reset-offset] reset offset failed, no topic in this broker. topic=nowhere",
            ),
            (223, {"topic": TOPIC, "group": GROUP}, 1, "No Any Consumer online in the consumer group: [g]"),
            (307, {"clientId": "c9"}, 1, "GetConsumerRunningInfo needs the field consumerGroup"),
            (222, {"topic": TOPIC, "group": GROUP}, 1, "ResetOffset needs the field isForce"),
        ],
    )
    async def test_what_is_not_there_is_said_in_the_words_of_rocketmq(self, scene, code, ext, answer, remark):
        client = await scene.client()
        reply = await client.call(code, ext)
        assert (reply.code, reply.remark) == (answer, remark)

    async def test_locks_are_answered_over_the_wire(self, scene):
        client = await scene.client()
        body = b'{"clientId":"c1","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":3,"topic":"T"}]}'
        answer = await client.call(41, body=body)
        assert (answer.code, answer.body) == (0, b'{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"T"}]}')
        assert (await client.call(42, body=body)).code == 0


# What a Go consumer sends: blanks, a raw line break inside a string, objects as keys. Not JSON.
RUNNING_INFO = b'{"jstack":"a\nb", "mqTable":{ {"brokerName":"b","queueId":0,"topic":"T"} : {"dropped":false}}}'


class TestRelaying:
    @pytest.mark.scenario("broker 12.5")
    async def test_running_info_comes_back_byte_for_byte(self, scene):
        consumer = await scene.member("c1", "GO", 317)
        admin = await scene.client("admin")
        ext = {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "true", "other": "kept"}
        asking = asyncio.create_task(admin.call(307, ext))
        request = await consumer.request()
        assert (request.code, request.header["flag"], request.ext, request.body) == (307, 0, ext, None)
        consumer.answer(request, RUNNING_INFO, ext={"from": "consumer"})
        answer = await asking
        assert (answer.code, answer.body, answer.ext) == (0, RUNNING_INFO, {"from": "consumer"})

    @pytest.mark.scenario("broker 12.5")
    async def test_a_message_is_consumed_directly(self, scene):
        [stored] = put(scene.store, b"again please")
        consumer = await scene.member()
        admin = await scene.client("admin")
        msg_id = encode_offset_message_id(encode_host("127.0.0.1", 10911), stored.physical_offset)
        ext = {"consumerGroup": GROUP, "clientId": "c1", "msgId": msg_id}
        asking = asyncio.create_task(admin.call(309, ext))
        request = await consumer.request()
        assert (request.code, request.ext) == (309, {**ext, "brokerName": "broker-a"})
        assert decode_record(request.body or b"").body == b"again please"
        result = b'{"autoCommit":true,"consumeResult":1,"order":false,"spentTimeMills":3}'
        consumer.answer(request, result)
        answer = await asking
        assert (answer.code, answer.body) == (0, result)

    @pytest.mark.parametrize(
        ("ext", "remark"),
        [
            ({}, "ConsumeMessageDirectly needs the field msgId"),
            ({"msgId": "xyz"}, "not an offset message id: 'xyz'"),
            ({"msgId": "7F00000100002A9F0000000000000064"}, "can not find message by the offset, 100"),
        ],
    )
    async def test_a_message_that_is_not_there_is_not_consumed(self, scene, ext, remark):
        consumer = await scene.member()
        reply = await consumer.call(309, {"consumerGroup": GROUP, "clientId": "c1", **ext})
        assert (reply.code, reply.remark) == (1, remark)
        assert await consumer.nothing_asked()

    async def test_an_error_of_the_consumer_is_the_answer(self, scene):
        consumer = await scene.member()
        admin = await scene.client("admin")
        asking = asyncio.create_task(admin.call(307, {"consumerGroup": GROUP, "clientId": "c1"}))
        consumer.answer(await consumer.request(), code=1, ext={"why": "not running"})
        answer = await asking
        assert (answer.code, answer.ext) == (1, {"why": "not running"})

    async def test_a_consumer_may_ask_about_itself(self, scene):
        consumer = await scene.member()
        consumer.send(frame(consumer.header(307, -3, ext={"consumerGroup": GROUP, "clientId": "c1"})))
        consumer.answer(await consumer.request(), b"{}")
        assert (await consumer.answer_to(-3)).body == b"{}"

    async def test_a_consumer_that_does_not_answer_is_code_207(self, scene, monkeypatch):
        assert consumer_calls.RELAY_TIMEOUT == 10
        monkeypatch.setattr(consumer_calls, "RELAY_TIMEOUT", 0.02)
        await scene.member()
        admin = await scene.client("admin")
        answer = await admin.call(307, {"consumerGroup": GROUP, "clientId": "c1"})
        assert answer.code == 207
        assert answer.remark.startswith("consumer <g> <c1> Timeout: ")

    async def test_a_consumer_that_dies_meanwhile_is_code_1(self, scene):
        consumer = await scene.member()
        admin = await scene.client("admin")
        asking = asyncio.create_task(admin.call(307, {"consumerGroup": GROUP, "clientId": "c1"}))
        await consumer.request()
        await consumer.close()
        answer = await asking
        assert answer.code == 1
        assert answer.remark.startswith("invoke consumer <g> <c1> Exception: ")

    async def test_a_consumer_before_3_1_8_is_not_asked(self, scene):
        consumer = await scene.member(version=61)
        answer = await consumer.call(307, {"consumerGroup": GROUP, "clientId": "c1"})
        assert answer.code == 1
        assert answer.remark == (
            "The Consumer <c1> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        )
        assert await consumer.nothing_asked()


def two_queues(scene):
    """Topic T with messages at three times in each of its two queues, all consumed. Gives the times."""
    scene.topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2))
    times = []
    for body in (b"1", b"2", b"3"):
        scene.clock.advance(10)
        times.append(scene.now())
        for queue_id in (0, 1):
            put(scene.store, body, queue_id=queue_id)
    for queue_id in (0, 1):
        scene.offsets.commit(GROUP, TOPIC, queue_id, 3)
    return times


def reset(timestamp, *, force=True):
    return {"topic": TOPIC, "group": GROUP, "timestamp": str(timestamp), "isForce": str(force).lower()}


def offsets_of(body):
    """Queue id and offset of each entry of a table keyed by queues."""
    table = ResetOffsetBody.decode(body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


class TestResettingOffsets:
    async def test_consumers_are_told_where_to_go_on(self, scene):
        times = two_queues(scene)
        consumer = await scene.member()
        admin = await scene.client("admin")
        answer = await admin.call(222, reset(times[1]))
        push = await consumer.request()
        assert (push.code, push.header["flag"]) == (220, 2)
        assert push.ext == {"topic": TOPIC, "group": GROUP, "timestamp": str(times[1]), "isForce": "false"}
        expected = (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1,'
            b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:1}}'
        )
        assert (answer.code, answer.body, push.body) == (0, expected, expected)
        # The consumers commit them once they have stopped; until then everything stays.
        assert scene.offsets.of(GROUP, TOPIC) == {0: 3, 1: 3}

    async def test_cpp_gets_a_list_whoever_asks(self, scene):
        two_queues(scene)
        java = await scene.member("java")
        cpp = await scene.member("cpp", "CPP", 63)
        await java.rebalance()
        answer = await java.call(222, reset(0))
        assert (await java.request()).body == answer.body
        assert (await cpp.request()).body == (
            b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"T"},'
            b'{"brokerName":"broker-a","offset":0,"queueId":1,"topic":"T"}]}'
        )

    async def test_minus_one_is_the_end(self, scene):
        two_queues(scene)
        scene.offsets.commit(GROUP, TOPIC, 0, 1)
        consumer = await scene.member()
        assert offsets_of((await consumer.call(222, reset(-1))).body) == {0: 3, 1: 3}

    async def test_without_force_nobody_goes_forward(self, scene):
        times = two_queues(scene)
        scene.offsets.commit(GROUP, TOPIC, 0, 0)
        consumer = await scene.member()
        assert offsets_of((await consumer.call(222, reset(times[1], force=False))).body) == {0: 0, 1: 1}

    async def test_a_queue_that_was_never_written_goes_to_its_beginning(self, scene):
        scene.topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1))
        scene.offsets.commit(GROUP, TOPIC, 0, 7)
        consumer = await scene.member()
        assert offsets_of((await consumer.call(222, reset(-1))).body) == {0: 0}

    async def test_a_group_that_never_committed_cannot_be_reset(self, scene):
        two_queues(scene)
        scene.offsets.commit(GROUP, TOPIC, 1, -1)
        consumer = await scene.member()
        answer = await consumer.call(222, reset(-1))
        assert (answer.code, answer.remark) == (1, "THe consumer group <g> not exist")
        assert await consumer.nothing_asked()

    async def test_a_group_that_is_not_online_cannot_either(self, scene):
        two_queues(scene)
        admin = await scene.client("admin")
        answer = await admin.call(222, reset(5))
        assert answer.code == 206
        assert answer.remark == "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 5"

    async def test_one_consumer_that_is_too_old_keeps_all_from_being_told(self, scene):
        two_queues(scene)
        new = await scene.member("new")
        old = await scene.member("old", version=27)
        await new.rebalance()
        answer = await new.call(222, reset(-1))
        assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=V3_0_6")
        assert await new.nothing_asked()
        assert await old.nothing_asked()


STATUS = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}}'


class TestConsumerStatus:
    async def test_all_members_are_asked_for_their_offsets(self, scene):
        first = await scene.member("c1")
        second = await scene.member("c2", "GO", 317)
        await first.rebalance()
        admin = await scene.client("admin")
        asking = asyncio.create_task(admin.call(223, {"topic": TOPIC, "group": GROUP, "clientAddr": ""}))
        for member, offset in ((second, 9), (first, 5)):
            request = await member.request()
            assert (request.code, request.ext) == (221, {"topic": TOPIC, "group": GROUP})
            member.answer(request, STATUS % offset)
        answer = await asking
        assert answer.code == 0
        assert answer.body == (
            b'{"consumerTable":{"c1":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5},'
            b'"c2":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:9}},"messageQueueTable":{}}'
        )

    async def test_one_member_can_be_asked_alone(self, scene):
        first = await scene.member("c1")
        second = await scene.member("c2", version=27)
        await first.rebalance()
        asking = asyncio.create_task(second.call(223, {"topic": TOPIC, "group": GROUP, "clientAddr": "c1"}))
        first.answer(await first.request(), STATUS % 5)
        assert GetConsumerStatusBody.decode((await asking).body).consumer_table.keys() == {"c1"}
        assert await second.nothing_asked()

    async def test_who_does_not_answer_or_not_well_is_left_out(self, scene, monkeypatch):
        assert consumer_calls.STATUS_TIMEOUT == 5
        monkeypatch.setattr(consumer_calls, "STATUS_TIMEOUT", 0.1)
        mute, broken, failing, good = [await scene.member(name) for name in ("mute", "broken", "failing", "good")]
        asking = asyncio.create_task(mute.call(223, {"topic": TOPIC, "group": GROUP}))
        for member, body, code in ((broken, b"{", 0), (failing, b"", 1), (good, STATUS % 1, 0)):
            while (request := await member.request()).code != 221:
                pass
            member.answer(request, body, code)
        answer = await asking
        assert answer.code == 0
        assert GetConsumerStatusBody.decode(answer.body).consumer_table.keys() == {"good"}

    async def test_a_consumer_that_is_too_old_is_not_asked(self, scene):
        old = await scene.member(version=27)
        answer = await old.call(223, {"topic": TOPIC, "group": GROUP})
        assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=V3_0_6")
