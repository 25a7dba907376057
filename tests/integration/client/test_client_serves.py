"""What brokers ask of a client, over real connections."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.client.cluster_kit import Spy
from tests.integration.client.members_kit import ConsumerStub, ProducerStub

from pyromq.client.client import Client
from pyromq.errors import ServerError, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    PushReplyMessage,
    ResetOffset,
)
from pyromq.protocol.message import MessageRecord, encode_record
from pyromq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue(broker_name="a", queue_id=0, topic="orders")


class Stage:
    """A client whose only broker is a spy; `ask` is the broker asking."""

    def __init__(self, client, broker):
        self.client = client
        self.broker = broker

    async def ask(self, code, header, body=None):
        (connection,) = self.broker.connections
        return await connection.invoke(Command.request(code, header, body))

    async def tell(self, code, header, body=None):
        (connection,) = self.broker.connections
        await connection.oneway(Command.request(code, header, body))


@pytest.fixture
async def stage():
    async with contextlib.AsyncExitStack() as running:
        broker = await running.enter_async_context(Spy())
        route = f'{{"brokerDatas":[{{"brokerName":"a","brokerAddrs":{{0:"{broker.address}"}}}}],"queueDatas":[]}}'
        answer = {RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda _, request: request.reply(body=route.encode())}
        name_server = await running.enter_async_context(Spy(answer))
        client = await running.enter_async_context(Client(name_server.address))
        await client.routes.find("orders")
        yield Stage(client, broker)


def record(body=b"hello", **properties):
    text = props.encode(props.render(properties))
    return encode_record(MessageRecord(topic="orders", body=body, properties=text))


async def soon(waiting):
    return await asyncio.wait_for(waiting, 5)


async def test_a_transaction_check_reaches_the_producer_of_the_group_with_the_address_to_answer_to(stage):
    producer = ProducerStub("p")
    await stage.client.join(producer)
    header = CheckTransactionState(7, 8, msg_id="id")
    await stage.tell(RequestCode.CHECK_TRANSACTION_STATE, header, record(PGROUP="p"))
    address, given, message = await soon(producer.checks.get())
    assert address == stage.broker.address
    assert (given.tran_state_table_offset, given.commit_log_offset) == (7, 8)
    assert message.body == b"hello"


@pytest.mark.parametrize("body", [record(PGROUP="other"), record(), b"garbage", None])
async def test_a_transaction_check_for_nobody_is_ignored(stage, body):
    producer = ProducerStub("p")
    await stage.client.join(producer)
    await stage.tell(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionState(7, 8), body)
    await stage.tell(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionState(7, 8), record(b"good", PGROUP="p"))
    assert (await soon(producer.checks.get()))[2].body == b"good"


async def test_news_of_a_group_wake_its_consumer_only(stage):
    here, other = ConsumerStub("here"), ConsumerStub("other")
    await stage.client.join(here)
    await stage.client.join(other)
    for consumer in (here, other):
        consumer.woken.clear()
    await stage.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged("gone"))
    await stage.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged("here"))
    await soon(here.woken.wait())
    assert not other.woken.is_set()


@pytest.mark.parametrize(
    "encode", [ResetOffsetBody.encode, ResetOffsetBody.encode_for_cpp], ids=["object keys", "a list"]
)
async def test_new_offsets_reach_the_consumer(stage, encode):
    consumer = ConsumerStub("c")
    await stage.client.join(consumer)
    header = ResetOffset(topic="orders", group="c", timestamp=0, is_force=True)
    for group, body in (("gone", b""), ("c", b"{broken")):
        await stage.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset("orders", group, 0, True), body)
    await stage.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, encode(ResetOffsetBody({QUEUE: 42})))
    assert await soon(consumer.resets.get()) == ("orders", {QUEUE: 42})


async def test_a_consumer_says_how_far_it_is(stage):
    consumer = ConsumerStub("c")
    consumer.offsets = {QUEUE: 42}
    await stage.client.join(consumer)
    for group, offsets in (("c", {QUEUE: 42}), ("gone", {})):
        reply = await stage.ask(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic="orders", group=group)
        )
        assert reply.code == 0
        assert GetConsumerStatusBody.decode(reply.body_bytes).message_queue_table == offsets


async def test_a_consumer_says_how_it_fares(stage):
    await stage.client.join(ConsumerStub("c"))
    header = GetConsumerRunningInfo("c", stage.client.client_id, jstack_enable=True)
    reply = await stage.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = ConsumerRunningInfo.decode(reply.body_bytes)
    assert (info.properties, info.jstack) == ({"GROUP": "c"}, "stacks")


async def test_a_consumer_gets_a_message_directly(stage):
    await stage.client.join(ConsumerStub("c"))
    header = ConsumeMessageDirectly("c", stage.client.client_id, broker_name="a")
    reply = await stage.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record(b"again"))
    result = ConsumeMessageDirectlyResult.decode(reply.body_bytes)
    assert (result.consume_result, result.remark) == (CMResult.CR_SUCCESS, "again of a")


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo("gone", "id")),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly("gone", "id")),
    ],
    ids=["running info", "consume directly"],
)
async def test_a_group_that_is_not_here_is_an_error(stage, code, header):
    await stage.client.join(ConsumerStub("c"))
    reply = await stage.ask(code, header, record())
    assert reply.code == ServerError.code
    assert "gone" in reply.remark


def reply_header(**properties):
    return PushReplyMessage(
        producer_group="p",
        topic="C_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=properties.pop("sys_flag", 0),
        born_timestamp=1,
        flag=0,
        born_host="/10.0.0.1:5",
        store_host="not an address",
        store_timestamp=2,
        properties=props.render(properties),
    )


async def test_an_answer_reaches_who_waits_for_it(stage):
    await stage.client.join(ProducerStub("p"))
    waiting = stage.client.replies.expect("c-1")
    reply = await stage.ask(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, reply_header(CORRELATION_ID="c-1", MSG_TYPE="reply"), b"yes"
    )
    message = await soon(waiting)
    assert reply.code == 0
    assert message.body == b"yes"
    assert message.record.born_address == ("10.0.0.1", 5)
    assert int(message.properties[props.ARRIVE_TIME]) > 0


async def test_an_answer_that_nobody_waits_for_is_answered_all_the_same(stage):
    await stage.client.join(ProducerStub("p"))
    stage.client.replies.expect("late")
    stage.client.replies.forget("late")
    reply = await stage.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, reply_header(CORRELATION_ID="late"), b"yes")
    assert reply.code == 0


async def test_an_answer_that_cannot_be_opened_is_refused(stage):
    await stage.client.join(ProducerStub("p"))
    waiting = stage.client.replies.expect("c-1")
    header = reply_header(CORRELATION_ID="c-1", sys_flag=1)
    reply = await stage.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"not compressed")
    assert reply.code == ServerError.code
    assert not waiting.done()


async def test_who_waits_for_an_answer_when_the_client_closes_gets_an_error(stage):
    waiting = stage.client.replies.expect("c-1")
    await stage.client.close()
    with pytest.raises(StateError, match="closed"):
        await waiting


async def test_a_real_broker_passes_on_what_admins_ask_of_consumers(cluster, client_of):
    await cluster.create_topic("orders")
    client = await client_of(cluster)
    await client.routes.find("orders")
    consumer = ConsumerStub("c", "orders")
    await client.join(consumer)

    header = GetConsumerRunningInfo("c", client.client_id)
    reply = await cluster.peer.ask(cluster.address(), RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert ConsumerRunningInfo.decode(reply.body_bytes).properties == {"GROUP": "c"}

    await cluster.peer.commit(cluster.address(), 0, group="c")
    other = await client_of(cluster)
    await other.routes.find("orders")
    await soon(consumer.woken.wait())
    consumer.woken.clear()
    await other.join(ConsumerStub("c", "orders"))
    await soon(consumer.woken.wait())  # the broker told that the group has one more
    ids = await client.calls.consumer_ids(cluster.address(), "c")
    assert sorted(ids) == sorted((client.client_id, other.client_id))
