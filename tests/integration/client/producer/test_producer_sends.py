"""The producer against the broker, over real sockets."""

from __future__ import annotations

import asyncio
import copy
import os

import pytest
from tests.integration.client.cluster_kit import Spy, eventually
from tests.integration.client.producer.mock_kit import until
from tests.integration.client.producer.reading_kit import stored

from pyromq.client.client import Client
from pyromq.client.hooks import Hook
from pyromq.client.identity import Credentials
from pyromq.client.producer.producer import Producer
from pyromq.client.producer.send_result import SendStatus
from pyromq.client.producer.sender import HiddenProducer
from pyromq.errors import ConfigError, InvalidMessage, NoNameServer, RouteNotFound, StateError
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue


@pytest.fixture
async def producer(cluster):
    async with Producer("makers", namesrv=cluster.namesrv) as producer:
        yield producer


@pytest.mark.scenario("client 6")
async def test_the_first_send_to_an_unknown_topic_creates_it(cluster):
    for default_queues, made in ((4, 4), (100, 8)):
        async with Producer("makers", namesrv=cluster.namesrv, default_queues=default_queues) as producer:
            topic = f"new-{default_queues}"
            result = await producer.send(topic, b"hello")
            assert result.status is SendStatus.SEND_OK
            # The template has eight queues.
            assert len(await producer.queues(topic)) == made
            await cluster.routed(topic)
            route = await cluster.peer.route(cluster.namesrv, topic)
            assert route["broker-a"].write_queue_nums == made


async def test_what_is_sent_is_what_is_stored(cluster, producer):
    message = Message("orders", b"body \x00 \xff", tags="TagA", keys=["k1", "k2"], properties={"größe": "groß"}, flag=7)
    before = copy.deepcopy(message)
    result = await producer.send(message)
    assert message == before
    (found,) = await stored(cluster, "orders")
    assert (found.body, found.tags, found.keys, found.record.flag) == (message.body, "TagA", ["k1", "k2"], 7)
    assert found.properties["größe"] == "groß"
    assert (found.msg_id, found.offset_msg_id) == (result.id, result.offset_id)
    assert (found.queue, found.queue_offset) == (result.queue, result.offset)
    assert result.region == "DefaultRegion"


async def test_a_message_may_be_given_in_parts(cluster, producer):
    await producer.send("orders", b"hello", tags="TagA")
    (found,) = await stored(cluster, "orders")
    assert (found.body, found.tags) == (b"hello", "TagA")


async def test_messages_take_turns_over_the_queues(cluster, producer):
    results = [await producer.send("orders", b"x") for _ in range(8)]
    assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.scenario("client 15")
@pytest.mark.parametrize(("compression", "flag"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
async def test_only_bodies_from_4096_bytes_on_are_compressed(cluster, compression, flag):
    small, large, huge = (Message("orders", b"x" * size) for size in (4095, 4096, 100_000))
    async with Producer("makers", namesrv=cluster.namesrv, compression=compression) as producer:
        queue = (await producer.queues("orders"))[0]
        for message in (small, large, huge):
            await producer.send(message, queue=queue)
    found = await stored(cluster, "orders")
    assert [each.record.sys_flag & 0x701 for each in found] == [0, flag, flag]
    assert [each.body for each in found] == [small.body, large.body, huge.body]
    assert [len(message.body) for message in (small, large, huge)] == [4095, 4096, 100_000]


@pytest.mark.scenario("client 17")
@pytest.mark.parametrize(
    "message",
    [
        Message("a" * 128, b"x"),
        Message("a b", b"x"),
        Message("", b"x"),
        Message("SCHEDULE_TOPIC_XXXX", b"x"),
        Message("T", b""),
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("T", b"x", properties={"KEYS": "k"}),
        Message("T", b"x", properties={"a": "b\x01"}),
    ],
    ids=["long", "blank", "empty", "system", "no body", "large", "reserved", "separator"],
)
async def test_what_no_broker_would_take_is_refused_before_anybody_is_asked(message):
    async with Spy() as name_server, Producer("makers", namesrv=name_server.address) as producer:
        for send in (producer.send, producer.send_oneway, producer.submit):
            with pytest.raises(InvalidMessage):
                await send(message)
        with pytest.raises(InvalidMessage):
            await producer.send_batch([message])
        assert name_server.requests == []
        assert (producer._window.count, producer._pending) == (0, set())


@pytest.mark.scenario("client 19")
async def test_a_shard_key_always_goes_to_the_queue_that_java_would_take(cluster, producer):
    await cluster.create_topic("eight", 8)
    results = [
        await producer.send("eight", b"x", shard_key="order-1"),
        await producer.send(Message("eight", b"x", shard_key="order-1")),
        await (await producer.submit("eight", b"x", shard_key="order-1")),
        (await producer.send_batch([Message("eight", b"x")], shard_key="order-1"))[0],
    ]
    assert {result.queue.queue_id for result in results} == {6}
    found = await stored(cluster, "eight", 8)
    assert [each.properties.get("__SHARDINGKEY") for each in found] == ["order-1"] * 3 + [None]


async def test_a_given_queue_and_a_selector_decide(cluster, producer):
    await cluster.create_topic("orders")
    queue = MessageQueue(broker_name="broker-a", queue_id=2, topic="orders")
    assert (await producer.send("orders", b"x", queue=queue)).queue == queue
    seen = []

    def last(queues, message):
        seen.append((list(queues), message.body))
        return queues[-1]

    assert (await producer.send("orders", b"y", selector=last)).queue.queue_id == 3
    assert seen == [(await producer.queues("orders"), b"y")]
    with pytest.raises(InvalidMessage, match="belongs to orders"):
        await producer.send("others", b"x", queue=queue)


async def test_a_oneway_message_arrives_without_an_answer(cluster, producer):
    await producer.send_oneway("orders", b"first")  # over a connection that has to be made
    await producer.send_oneway("orders", b"second")
    found = await eventually(lambda: stored(cluster, "orders"))
    if len(found) == 1:
        found = await eventually(lambda: _others(cluster, found))
    assert {each.body for each in found} == {b"first", b"second"}


async def test_submitted_messages_are_stored_in_order_on_their_queue(cluster, producer):
    await cluster.create_topic("orders")
    queue = MessageQueue(broker_name="broker-a", queue_id=1, topic="orders")
    futures = [await producer.submit("orders", b"%d" % number, queue=queue) for number in range(200)]
    await producer.flush()
    assert all(future.done() for future in futures)
    assert [future.result().offset for future in futures] == list(range(200))
    assert [int(each.body) for each in await stored(cluster, "orders")] == list(range(200))


@pytest.mark.scenario("client 18")
async def test_a_batch_is_one_request_with_one_result(cluster, producer):
    messages = [Message("orders", b"%d" % number, tags=f"t{number}") for number in range(3)]
    (result,) = await producer.send_batch(messages)
    found = await stored(cluster, "orders")
    assert [each.body for each in found] == [b"0", b"1", b"2"]
    assert [each.tags for each in found] == ["t0", "t1", "t2"]
    assert result.id == ",".join(each.msg_id for each in found)
    assert result.offset_id == ",".join(each.offset_msg_id for each in found)
    assert {each.queue_id for each in found} == {result.queue.queue_id}


@pytest.mark.scenario("client 18")
async def test_what_cannot_be_a_batch_is_refused(producer):
    plain = Message("orders", b"x")
    for others, reason in (
        ([], "at least one message"),
        ([plain, Message("other", b"x")], "the same topic"),
        ([plain, Message("orders", b"x", wait_store=False)], "wait_store"),
        ([plain, Message("orders", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%readers", b"x")], "a retry topic"),
        ([Message("orders", b"x" * (4 << 20))], "in a batch"),
    ):
        with pytest.raises(InvalidMessage, match=reason):
            await producer.send_batch(others)


@pytest.mark.scenario("client 18")
async def test_a_list_larger_than_a_request_is_split(cluster_with):
    cluster = await cluster_with("mappedFileSizeCommitLog=16m")
    async with Producer("makers", namesrv=cluster.namesrv, timeout=10) as producer:
        body = os.urandom(1 << 20)
        results = await producer.send_batch([Message("orders", body) for _ in range(10)])
    assert [len(result.id.split(",")) for result in results] == [3, 3, 3, 1]
    found = await stored(cluster, "orders")
    assert len(found) == 10
    assert all(each.body == body for each in found)


@pytest.mark.scenario("client 56")
async def test_a_producer_that_does_not_run_says_so_at_once(cluster):
    producer = Producer("makers", namesrv=cluster.namesrv)
    uses = (
        lambda: producer.send("T", b"x"),
        lambda: producer.send_oneway("T", b"x"),
        lambda: producer.send_batch([Message("T", b"x")]),
        lambda: producer.submit("T", b"x"),
        lambda: producer.flush(),
        lambda: producer.request("T", b"x", timeout=1),
        lambda: producer.recall("T", "handle"),
        lambda: producer.queues("T"),
    )
    for use in uses:
        with pytest.raises(StateError, match="not started"):
            await use()
    await producer.start()
    await producer.close()
    await producer.close()
    for use in uses:
        with pytest.raises(StateError, match="closed"):
            await use()
    with pytest.raises(StateError):
        await producer.start()


async def test_a_producer_whose_client_was_closed_says_so(cluster):
    client = Client(cluster.namesrv)
    async with client:
        producer = await Producer("makers", client=client).start()
    with pytest.raises(StateError):
        await producer.send("T", b"x")
    await producer.close()


async def test_a_topic_that_nobody_has_is_an_error_that_says_what_to_do(cluster_with):
    cluster = await cluster_with("autoCreateTopicEnable=false")
    async with Producer("makers", namesrv=cluster.namesrv) as producer:
        with pytest.raises(RouteNotFound, match="autoCreateTopicEnable") as caught:
            await producer.send("nowhere", b"x")
    assert (caught.value.code, caught.value.topic) == (10005, "nowhere")


async def test_without_a_name_server_the_first_send_says_so(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Producer("makers") as producer:
        with pytest.raises(NoNameServer):
            await producer.send("T", b"x")


def test_settings_that_make_no_sense_are_refused():
    for wrong in (
        {"group": "DEFAULT_PRODUCER"},
        {"linger": -1},
        {"window": 0},
        {"compression": "rar"},
        {"client": Client("a:1"), "namesrv": "a:1"},
    ):
        with pytest.raises(ConfigError):
            Producer(**{"group": "makers", **wrong})  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        Producer("a b")


async def test_the_broker_knows_the_producer_until_it_leaves(cluster):
    async with Producer("makers", namesrv=cluster.namesrv) as producer:
        await producer.send("orders", b"x")
        await until(lambda: cluster.producers("makers") == [producer.client.client_id])
    await until(lambda: not cluster.producers("makers"))


async def test_two_producers_of_a_shared_client_send_over_one_connection(cluster, client_of):
    client = await client_of(cluster)
    async with Producer("first", client=client) as first, Producer("second", client=client) as second:
        await asyncio.gather(*(each.send("orders", b"x") for each in (first, second) for _ in range(10)))
        connections = client.remoting.endpoint.connections
        assert len([c for c in connections if c.context == cluster.address()]) == 1
        with pytest.raises(StateError, match="already"):
            await Producer("first", client=client).start()
    assert len(await stored(cluster, "orders")) == 20


async def test_with_a_namespace_topics_carry_its_name_on_the_wire_only(cluster, client_of):
    client = await client_of(cluster, namespace="tenant")
    async with Producer("makers", client=client) as producer:
        result = await producer.send("orders", b"x")
        assert result.queue.topic == "orders"
        await producer.send("orders", b"y", queue=result.queue)

        def first(queues, message):
            assert {queue.topic for queue in queues} == {"orders"}
            return queues[0]

        await producer.send("orders", b"z", selector=first)
        await until(lambda: cluster.producers("tenant%makers"))
    found = await stored(cluster, "tenant%orders")
    assert {each.body for each in found} == {b"x", b"y", b"z"}
    assert {each.properties["INSTANCE_ID"] for each in found} == {"tenant"}


class Noting(Hook):
    def __init__(self, forbid=False):
        self.seen = []
        self.forbid = forbid

    def check_forbidden(self, context):
        if self.forbid:
            raise PermissionError("not now")

    def before_send(self, context):
        self.seen.append(("before", context.messages[0].body, context.result))

    async def after_send(self, context):
        self.seen.append(("after", context.messages[0].body, context.result))


async def test_hooks_see_every_way_to_send(cluster, client_of):
    hook = Noting()
    client = await client_of(cluster, hooks=[hook])
    async with Producer("makers", client=client) as producer:
        first = await producer.send("orders", b"1")
        second = await (await producer.submit("orders", b"2"))
        await producer.send_oneway("orders", b"3")
        (fourth,) = await producer.send_batch([Message("orders", b"4"), Message("orders", b"5")])
    assert hook.seen == [
        ("before", b"1", None),
        ("after", b"1", first),
        ("before", b"2", None),
        ("after", b"2", second),
        ("before", b"3", None),
        ("after", b"3", None),
        ("before", b"4", None),
        ("after", b"4", fourth),
    ]


async def test_a_hook_may_forbid_a_send(cluster, client_of):
    client = await client_of(cluster, hooks=[Noting(forbid=True)])
    async with Producer("makers", client=client) as producer:
        with pytest.raises(PermissionError):
            await producer.send("orders", b"1")
        with pytest.raises(PermissionError):
            await (await producer.submit("orders", b"1"))
        assert await stored(cluster, "orders") == []


async def test_signed_requests_take_the_general_way_and_arrive(cluster, client_of):
    client = await client_of(cluster, credentials=Credentials("key", "secret"))
    async with Producer("makers", client=client) as producer:
        await producer.send("orders", b"1")
        await (await producer.submit("orders", b"2"))
        await producer.send_oneway("orders", b"3")
        await producer.send("orders", b"4")
    assert {each.body for each in await stored(cluster, "orders")} == {b"1", b"2", b"3", b"4"}


async def test_the_hidden_producer_sends_with_exactly_the_properties_it_is_given(cluster, client_of):
    client = await client_of(cluster)
    hidden = HiddenProducer(client)
    await cluster.create_topic("orders")
    result = await hidden.send("orders", b"x", 3, {"UNIQ_KEY": "MINE", "ORIGIN_MESSAGE_ID": "OTHER"})
    assert result.id == "MINE"
    (found,) = await stored(cluster, "orders")
    assert (found.msg_id, found.properties["ORIGIN_MESSAGE_ID"], found.record.flag) == ("MINE", "OTHER", 3)


@pytest.mark.scenario("client 25")
@pytest.mark.slow
async def test_a_delayed_message_is_not_to_be_seen_before_its_time(cluster, producer):
    result = await producer.send("orders", b"later", delay_level=1)
    assert result.queue.topic == "orders"
    assert await stored(cluster, "orders") == []
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await eventually(lambda: stored(cluster, "orders"))
    assert 0.7 < loop.time() - began < 5.0, "as late as the next level"
    assert found[0].msg_id == result.id


async def _others(cluster, known):
    found = await stored(cluster, "orders")
    return found if len(found) > len(known) else None


# Linger


async def test_with_linger_every_message_gets_the_result_that_is_its_own(cluster):
    async with Producer("makers", namesrv=cluster.namesrv, linger=0.02) as producer:
        await producer.send("orders", b"first")
        futures = [await producer.submit("orders", b"%d" % number) for number in range(200)]
        results = await asyncio.gather(*futures)
    found = {each.msg_id: each for each in await stored(cluster, "orders")}
    assert len(found) == 201
    for number, result in enumerate(results):
        message = found[result.id]
        assert message.body == b"%d" % number
        assert (message.queue, message.queue_offset) == (result.queue, result.offset)
        assert message.offset_msg_id == result.offset_id


async def test_with_linger_messages_of_one_queue_keep_their_order(cluster):
    await cluster.create_topic("orders")
    async with Producer("makers", namesrv=cluster.namesrv, linger=0.01) as producer:
        bodies = [b"%05d" % number * (1000 if number % 7 == 3 else 1) for number in range(100)]
        for body in bodies:
            await producer.submit("orders", body, shard_key="one")
        await producer.flush()
    found = await stored(cluster, "orders")
    assert [each.body for each in found] == bodies


async def test_flush_does_not_wait_for_the_linger(cluster):
    async with Producer("makers", namesrv=cluster.namesrv, linger=60.0, timeout=100) as producer:
        futures = [await producer.submit("orders", b"x") for _ in range(3)]
        async with asyncio.timeout(5):
            await producer.flush()
        assert all(future.done() for future in futures)


async def test_closing_sends_what_lingers(cluster):
    async with Producer("makers", namesrv=cluster.namesrv, linger=60.0) as producer:
        future = await producer.submit("orders", b"x")
    assert future.result().status is SendStatus.SEND_OK
    assert len(await stored(cluster, "orders")) == 1


async def test_with_linger_what_cannot_share_a_request_leaves_alone(cluster):
    async with Producer("makers", namesrv=cluster.namesrv, linger=60.0, timeout=100) as producer:
        delayed = await producer.submit("orders", b"later", delay_level=1)
        large = await producer.submit("orders", b"x" * 5000)
        async with asyncio.timeout(5):
            await delayed
            await large
        kept = await producer.submit("orders", b"x")
        other = await producer.submit("orders", b"y", wait_store=False)
        assert not kept.done()
        await producer.flush()
        assert {kept.result().status, other.result().status} == {SendStatus.SEND_OK}
