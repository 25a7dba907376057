"""Transactions of our producer with our broker: what consumers see, and when."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.producer.reading_kit import stored

from pyromq.client.producer.send_result import SendStatus, TxState
from pyromq.client.producer.transactions import TransactionProducer
from pyromq.errors import SendFailed
from pyromq.protocol.message import Message
from pyromq.store import PutStatus

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
async def cluster(cluster_with):
    """A broker that asks soon and often."""
    cluster = await cluster_with("transactionCheckInterval=20", "transactionTimeOut=50", "transactionCheckMax=1000")
    await cluster.create_topic("paid")
    return cluster


def producer_of(cluster, check=lambda message: TxState.UNKNOWN, **settings):
    return TransactionProducer("payers", namesrv=cluster.namesrv, check=check, **settings)


async def seen(cluster):
    return sorted(message.body for message in await stored(cluster, "paid"))


async def count_is(cluster, count):
    async def enough():
        return len(await stored(cluster, "paid")) >= count

    await eventually(enough)


async def all_decided(cluster):
    """Wait until rounds of questions are through with all half messages."""
    offsets = cluster.broker._parts.tables.offsets

    async def through():
        end = (await stored(cluster, HALF, queues=1))[-1].queue_offset + 1
        return offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == end

    await eventually(through)


@pytest.mark.scenario("client 22")
async def test_a_commit_is_seen_a_rollback_never_and_a_failure_once_the_check_says_so(cluster_with):
    cluster = await cluster_with("transactionCheckInterval=20", "transactionTimeOut=1000")  # more than a decision takes
    await cluster.create_topic("paid")
    asked = []

    async def check(message):
        asked.append((message.topic, message.body, message.id))
        return TxState.COMMIT

    def fails(message):
        raise ValueError("card refused")

    async with producer_of(cluster, check) as producer:
        committed = await producer.send_in_transaction(Message("paid", b"a", tags="T"), lambda _: TxState.COMMIT)
        assert (committed.status, committed.state) == (SendStatus.SEND_OK, TxState.COMMIT)
        await producer.send_in_transaction(Message("paid", b"b"), lambda _: TxState.ROLLBACK)
        failed = await producer.send_in_transaction(Message("paid", b"c"), fails)
        assert failed.state is TxState.UNKNOWN
        await count_is(cluster, 2)
        await all_decided(cluster)
    assert await seen(cluster) == [b"a", b"c"]
    assert set(asked) == {("paid", b"c", failed.id)}
    (message,) = [message for message in await stored(cluster, "paid") if message.body == b"a"]
    assert (message.msg_id, message.tags, message.transaction_id) == (committed.id, "T", committed.id)


@pytest.mark.scenario("client 22")
async def test_work_that_takes_longer_than_the_broker_waits_is_committed_once(cluster):
    """The broker asks meanwhile, gets no answer, and has another copy of the half message when the commit comes."""
    asked = asyncio.Event()

    async def check(message):
        asked.set()
        return TxState.UNKNOWN

    async with producer_of(cluster, check) as producer:
        async with producer.transaction(Message("paid", b"slow")):
            await asyncio.wait_for(asked.wait(), 10)
        await count_is(cluster, 1)
        await all_decided(cluster)
    assert await seen(cluster) == [b"slow"]


@pytest.mark.scenario("client 23")
async def test_an_unconfirmed_half_message_is_rolled_back_and_the_work_not_done(cluster):
    appends = cluster.broker._parts.context.appends
    put = appends.put

    def unconfirmed(queue, records, told, *, wait=True):
        def late(results):
            told([result.with_status(PutStatus.FLUSH_SLAVE_TIMEOUT, "no slave") for result in results])

        put(queue, records, late if queue.topic == HALF else told, wait=wait)

    appends.put = unconfirmed
    async with producer_of(cluster) as producer:
        work = pytest.fail
        result = await producer.send_in_transaction(Message("paid", b"a"), lambda _: work("must not run"))
        assert (result.status, result.state) == (SendStatus.FLUSH_SLAVE_TIMEOUT, TxState.ROLLBACK)
        with pytest.raises(SendFailed, match="rolled back"):
            async with producer.transaction(Message("paid", b"b")):
                work("must not run")
        await all_decided(cluster)
    assert await seen(cluster) == []


@pytest.mark.scenario("client 24")
async def test_another_member_of_the_group_answers_for_one_that_died(cluster):
    async with producer_of(cluster) as first:
        await first.send_in_transaction(Message("paid", b"a"), lambda _: TxState.UNKNOWN)
    answered = []

    def check(message):
        answered.append(message.body)
        return TxState.COMMIT

    async with producer_of(cluster, check) as second:
        await second.send("paid", b"x")  # so that the broker knows it
        await count_is(cluster, 2)
        await all_decided(cluster)
    assert await seen(cluster) == [b"a", b"x"]
    assert set(answered) == {b"a"}


async def test_a_restarted_broker_asks_about_what_it_had(cluster):
    async with producer_of(cluster) as first:
        await first.send_in_transaction(Message("paid", b"open"), lambda _: TxState.UNKNOWN)
        await first.send_in_transaction(Message("paid", b"done"), lambda _: TxState.COMMIT)
        await count_is(cluster, 1)
    await cluster.restart_broker()
    async with producer_of(cluster, lambda message: TxState.COMMIT) as second:
        await second.send("paid", b"x")
        await count_is(cluster, 3)
        await all_decided(cluster)
    assert await seen(cluster) == [b"done", b"open", b"x"]


async def test_hundreds_of_transactions_at_once_end_as_they_should(cluster):
    async def check(message):
        return TxState.COMMIT if int(message.body) % 3 else TxState.ROLLBACK

    states = (TxState.ROLLBACK, TxState.COMMIT, TxState.UNKNOWN)

    async with producer_of(cluster, check) as producer:

        async def one(number):
            await producer.send_in_transaction(Message("paid", b"%d" % number), lambda _: states[number % 3])

        await asyncio.gather(*(one(number) for number in range(300)))
        await count_is(cluster, 200)
        await all_decided(cluster)
    assert await seen(cluster) == sorted(b"%d" % number for number in range(300) if number % 3)
