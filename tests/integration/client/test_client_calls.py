"""The single requests that clients make of a broker, against a real one."""

from __future__ import annotations

import time

import pytest
from tests.integration.client.cluster_kit import Spy
from tests.integration.client.members_kit import ConsumerStub

from pyromq.client.calls import BrokerCalls
from pyromq.errors import BrokerError, ConnectFailed, RequestTimeout, ServerError, SystemBusy
from pyromq.protocol.bodies import SubscriptionData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ConsumerSendMessageBack, EndTransaction, PullMessage, PullMessageReply
from pyromq.protocol.message import decode_records
from pyromq.protocol.message_queue import MessageQueue
from pyromq.remoting import RemotingClient

QUEUE = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
SUBSCRIPTION_INCLUDED = 4


@pytest.fixture
async def client(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    return client


def pull(offset, **more):
    return PullMessage("c", "orders", 0, offset, 32, SUBSCRIPTION_INCLUDED, 0, 0, 0, subscription="*", **more)


async def test_offsets_are_asked_for_and_committed(cluster, client):
    address, calls = cluster.address(), client.calls
    assert await calls.query_offset(address, "c", QUEUE, set_zero_if_not_found=False) is None
    await calls.update_offset(address, "c", QUEUE, 1, oneway=False)
    assert await calls.query_offset(address, "c", QUEUE) == 1
    await calls.update_offset(address, "c", QUEUE, 2)
    # One connection keeps the order of requests.
    assert await calls.query_offset(address, "c", QUEUE) == 2


async def test_the_ends_of_a_queue_are_asked_for(cluster, client):
    address, calls = cluster.address(), client.calls
    before = time.time_ns() // 1_000_000
    await cluster.peer.send(address)
    await cluster.peer.send(address)
    assert await calls.max_offset(address, QUEUE) == 2
    assert await calls.min_offset(address, QUEUE) == 0
    assert await calls.search_offset(address, QUEUE, before - 1000) == 0
    assert await calls.earliest_store_time(address, QUEUE) >= before


async def test_messages_are_pulled_and_their_absence_is_no_error(cluster, client):
    await cluster.peer.send(cluster.address(), b"hello")
    reply = await client.calls.pull(cluster.address(), pull(0))
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"hello"]
    assert reply.header(PullMessageReply).next_begin_offset == 1
    assert (await client.calls.pull(cluster.address(), pull(1))).code == ResponseCode.PULL_NOT_FOUND
    assert (await client.calls.pull(cluster.address(), pull(99))).code == ResponseCode.PULL_OFFSET_MOVED
    with pytest.raises(BrokerError):
        await client.calls.pull(cluster.address(), PullMessage("c", "nothing", 0, 0, 32, 4, 0, 0, 0, subscription="*"))


async def test_queues_are_locked_for_one_member_at_a_time(cluster, client):
    address, calls = cluster.address(), client.calls
    assert await calls.lock(address, "c", "one", [QUEUE]) == {QUEUE}
    assert await calls.lock(address, "c", "other", [QUEUE]) == set()
    await calls.unlock(address, "c", "one", [QUEUE])
    assert await calls.lock(address, "c", "other", [QUEUE]) == {QUEUE}
    await calls.unlock(address, "c", "other", [QUEUE], oneway=False)
    assert await calls.lock(address, "c", "one", [QUEUE]) == {QUEUE}


async def test_the_members_of_a_group_are_asked_for(cluster, client):
    with pytest.raises(ServerError, match="no consumer for this group"):
        await client.calls.consumer_ids(cluster.address(), "c")
    await client.join(ConsumerStub("c", "orders"))
    assert await client.calls.consumer_ids(cluster.address(), "c") == [client.client_id]


async def test_a_subscription_is_checked_by_the_broker(cluster, client):
    by_tag = SubscriptionData(topic="orders", sub_string="*")
    await client.calls.check_subscription(cluster.address(), client.client_id, "c", by_tag)
    odd = SubscriptionData(topic="orders", sub_string="?", expression_type="ODD")
    with pytest.raises(BrokerError, match="ODD"):
        await client.calls.check_subscription(cluster.address(), client.client_id, "c", odd)


async def test_a_message_is_sent_back_or_its_absence_is_said(cluster, client):
    address = cluster.address()
    await cluster.peer.send(address)
    reply = await client.calls.pull(address, pull(0))
    (record,) = decode_records(reply.body_bytes)
    await client.join(ConsumerStub("c", "orders"))
    header = ConsumerSendMessageBack(offset=record.physical_offset, group="c", delay_level=0, origin_topic="orders")
    await client.calls.send_back(address, header)
    header.offset = 1 << 40
    with pytest.raises(BrokerError):
        await client.calls.send_back(address, header)


async def test_the_end_of_a_transaction_is_said_one_way_with_its_remark():
    async with Spy() as broker, RemotingClient() as remoting:
        calls = BrokerCalls(remoting)
        await calls.end_transaction(broker.address, EndTransaction("p", 1, 2, 8, "id"), "because")
        # Once this is answered, that has arrived.
        await calls.invoke(broker.address, Command.request(RequestCode.HEART_BEAT))
        request = broker.requests[0]
        assert (request.code, request.remark, request.is_oneway) == (RequestCode.END_TRANSACTION, "because", True)


async def test_a_refusal_is_raised_with_its_code_and_the_broker():
    refuse = {RequestCode.GET_MAX_OFFSET: lambda _, request: request.reply(2, "busy now")}
    async with Spy(refuse) as broker, RemotingClient() as remoting:
        with pytest.raises(SystemBusy, match="busy now") as caught:
            await BrokerCalls(remoting).max_offset(broker.address, QUEUE)
        assert caught.value.address == broker.address
        assert caught.value.retriable


async def test_a_question_to_a_broker_that_does_not_answer_ends_in_time():
    never = {RequestCode.GET_MAX_OFFSET: lambda _, request: None}
    async with Spy(never) as broker, RemotingClient() as remoting:
        with pytest.raises(RequestTimeout, match=r"0\.05 s"):
            await BrokerCalls(remoting, api_timeout=0.05).max_offset(broker.address, QUEUE)
        with pytest.raises(RequestTimeout, match=r"0\.02 s"):
            await BrokerCalls(remoting).max_offset(broker.address, QUEUE, timeout=0.02)


async def test_a_broker_that_is_not_there_is_named_with_the_setting_to_change():
    async with RemotingClient() as remoting:
        calls = BrokerCalls(remoting)
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1: .*refused.*brokerIP1"):
            await calls.invoke("127.0.0.1:1", Command.request(RequestCode.HEART_BEAT))
        with pytest.raises(ConnectFailed, match="brokerIP1"):
            await calls.oneway("127.0.0.1:1", Command.request(RequestCode.HEART_BEAT))


def test_an_address_without_a_vip_port_is_used_as_it_is():
    calls = BrokerCalls(RemotingClient(), vip_channel=True)
    assert calls.vip("a:10911") == "a:10909"
    assert calls.vip("a:1") == "a:1"
    assert calls.vip("nonsense") == "nonsense"
