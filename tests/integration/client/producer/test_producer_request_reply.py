"""Request and reply, and recall, against a mock broker: the broker of this repository serves neither yet."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.client.producer.mock_kit import MockBroker, MockCluster, until

from pyromq.client.client import Client
from pyromq.client.producer.producer import Producer
from pyromq.client.producer.request_reply import reply
from pyromq.client.producer.sender import HiddenProducer
from pyromq.errors import BrokerError, InvalidMessage, ReplyError, ReplyTimeout, RequestTimeout, SendFailed
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import HeartbeatData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import PushReplyMessage, RecallMessage, SendMessageV2
from pyromq.protocol.recall_handle import RecallHandle


class Relay(MockBroker):
    """Passes replies on to the client that asked, as brokers do (docs/spec/broker.md 11.3)."""

    def __init__(self, name="a"):
        self.clients = {}
        self.push_codes = []
        super().__init__(
            name, {RequestCode.HEART_BEAT: self._heartbeat, RequestCode.SEND_REPLY_MESSAGE_V2: self._reply}
        )

    def _heartbeat(self, connection, request):
        self.clients[HeartbeatData.decode(request.body_bytes).client_id] = connection
        return request.reply()

    async def _reply(self, _, request):
        header = request.header(SendMessageV2)
        properties = props.parse(header.properties)
        pushed = PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
            store_timestamp=1,
            properties=header.properties,
        )
        push = Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, request.body)
        connection = self.clients[properties[props.REPLY_TO_CLIENT]]
        self.push_codes.append((await connection.invoke(push)).code)
        return self._stored(request, 0, {})


@pytest.fixture
async def relay():
    async with MockCluster(Relay()) as cluster:
        yield cluster


async def answering(cluster, client, number=0):
    """Answer the request that the broker has stored, as a consumer would."""
    broker = cluster.brokers["a"]
    await until(lambda: len(broker.sends) > number)
    properties = {**broker.properties(number), props.CLUSTER: "DefaultCluster"}
    body = b"re: " + broker.sends[number].body_bytes
    return await reply(HiddenProducer(client), properties, "a", body)


@pytest.mark.scenario("client 21")
async def test_the_reply_comes_to_whoever_asked(relay, client_of):
    broker = relay.brokers["a"]
    consumer = await client_of(relay)
    async with Producer("askers", namesrv=relay.namesrv) as producer:
        answer = asyncio.create_task(answering(relay, consumer))
        received = await producer.request("questions", b"how?", timeout=5)
        await answer
        assert received.body == b"re: how?"
        sent = broker.properties(0)
        assert sent[props.REPLY_TO_CLIENT] == producer.client.client_id
        assert sent[props.TTL] == "5000"
        assert received.properties[props.CORRELATION_ID] == sent[props.CORRELATION_ID]
        assert props.ARRIVE_TIME in received.properties
        assert len(producer.client.replies) == 0
    (replied,) = [request for request in broker.requests if request.code == RequestCode.SEND_REPLY_MESSAGE_V2]
    header = replied.header(SendMessageV2)
    assert header.topic == "DefaultCluster_REPLY_TOPIC"
    assert props.parse(header.properties or "")[props.MSG_TYPE] == "reply"
    assert broker.push_codes == [0]


async def test_the_broker_hears_of_the_client_before_the_request(relay):
    broker = relay.brokers["a"]
    async with Producer("askers", namesrv=relay.namesrv) as producer:
        with pytest.raises(ReplyTimeout):
            await producer.request("questions", b"how?", timeout=0.1)
    codes = [request.code for request in broker.requests]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.SEND_MESSAGE_V2)


@pytest.mark.scenario("client 21")
async def test_without_a_responder_the_request_times_out_and_a_late_reply_is_answered(relay, client_of, caplog):
    broker = relay.brokers["a"]
    consumer = await client_of(relay)
    async with Producer("askers", namesrv=relay.namesrv) as producer:
        with pytest.raises(ReplyTimeout) as caught:
            await producer.request("questions", b"how?", timeout=0.15)
        assert caught.value.code == 10006
        assert isinstance(caught.value, RequestTimeout)
        assert len(producer.client.replies) == 0
        await answering(relay, consumer)
    assert broker.push_codes == [0]
    assert "no request waits for the reply" in caplog.text


async def test_a_request_that_cannot_be_sent_raises_what_send_raises(relay):
    relay.brokers["a"].always = 2
    async with Producer("askers", namesrv=relay.namesrv) as producer:
        with pytest.raises(SendFailed):
            await producer.request("questions", b"how?", timeout=1)
        assert len(producer.client.replies) == 0


async def test_a_cancelled_request_leaves_nothing_behind(relay):
    async with Producer("askers", namesrv=relay.namesrv) as producer:
        asking = asyncio.create_task(producer.request("questions", b"how?", timeout=30))
        await until(lambda: len(producer.client.replies) == 1 and relay.brokers["a"].sends)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(producer.client.replies) == 0


async def test_a_message_that_nobody_asked_with_has_no_reply(relay, client_of):
    client = await client_of(relay)
    for properties in ({}, {props.CLUSTER: "c"}, {props.CORRELATION_ID: "1", props.REPLY_TO_CLIENT: "x"}):
        with pytest.raises(ReplyError) as caught:
            await reply(HiddenProducer(client), properties, "a", b"x")
        assert caught.value.code == 10007


# Recall


@pytest.mark.scenario("client 25")
async def test_a_delayed_message_is_recalled_at_its_broker():
    recalls = []

    def recall(_, request):
        header = request.header(RecallMessage)
        recalls.append(header)
        answer = request.reply(0 if len(recalls) == 1 else 29, "too late")
        answer.ext = {"msgId": "THEID"}
        return answer

    handle = RecallHandle("orders", "b", 1_900_000_000_000, "THEID").encode()
    a, b = MockBroker("a"), MockBroker("b", {RequestCode.RECALL_MESSAGE: recall})
    async with MockCluster(a, b) as cluster, Producer("makers", namesrv=cluster.namesrv) as producer:
        b.answers = a.answers = [{"recallHandle": handle}]
        assert (await producer.send("orders", b"x", delay_level=18)).recall_handle == handle
        assert await producer.recall("orders", handle) == "THEID"
        with pytest.raises(BrokerError) as caught:
            await producer.recall("orders", handle)
        assert caught.value.code == 29
        for topic, wrong in (("%RETRY%g", handle), ("%DLQ%g", handle), ("orders", "nonsense")):
            with pytest.raises(InvalidMessage):
                await producer.recall(topic, wrong)
    assert recalls[0] == RecallMessage("makers", "orders", handle)


async def test_a_recall_is_traced():
    def recall(_, request):
        answer = request.reply()
        answer.ext = {"msgId": "THEID"}
        return answer

    broker = MockBroker("a", {RequestCode.RECALL_MESSAGE: recall})
    handle = RecallHandle("orders", "a", 1, "THEID").encode()
    async with MockCluster(broker) as cluster:
        async with Producer("makers", client=Client(cluster.namesrv, trace=True)) as producer:
            await producer.recall("orders", handle)
        (trace,) = broker.sends
    fields = trace.body_bytes.decode().rstrip("\x02").split("\x01")
    assert (fields[0], fields[3:]) == ("Recall", ["makers", "orders", "THEID", "true"])
