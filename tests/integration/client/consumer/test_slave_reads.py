"""Consumers of a master and its slave: they read where they are told to, and where there is somebody (ha.md 6, 8)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.broker.life_kit import new_broker
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.consumer.consume_kit import (
    GROUP,
    TOPIC,
    Basket,
    commits,
    committed,
    numbers,
    quick_client,
    refuse,
    send,
    send_many,
    watch,
)

from pyromq.broker import assembly
from pyromq.broker.replication import follower
from pyromq.client.consumer.pull_consumer import PullConsumer
from pyromq.client.consumer.start_offset import StartAt
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.message_queue import MessageQueue
from pyromq.spark import options
from pyromq.spark.schema import ARROW_SCHEMA
from pyromq.spark.source.planning import QueueRange
from pyromq.spark.source.pulls import PullPart, read

pytestmark = pytest.mark.slow

MESSAGE = 10_000
SLAVE = "slave"
A_LONG_WAY = 60
# What 20 messages of that size are 40 % of.
SMALL_MEMORY = 50 * MESSAGE


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Slaves look for their master, and brokers at the pulls that they hold, all the time."""
    monkeypatch.setattr(follower, "_RETRY", 0.05)
    monkeypatch.setattr(assembly, "_LOOK_AT_HELD_PULLS", 0.1)


@pytest.fixture
async def pair_with(cluster_with, tmp_path):
    """Start `broker-a` and a slave of it, which the cluster calls `slave`; both know the topic, which has one queue."""
    async with contextlib.AsyncExitStack() as life:

        async def start(*sets):
            cluster = await cluster_with(*sets)
            await cluster.create_topic(TOPIC, 1)
            broker = new_broker(tmp_path / SLAVE, "brokerRole=SLAVE", "brokerId=1", *sets, namesrv_addr=cluster.namesrv)
            slave = await life.enter_async_context(broker)
            slave._parts.tables.topics.ensure(TOPIC, 1)
            cluster.brokers[SLAVE], cluster._ports[SLAVE] = slave, slave.port
            life.callback(cluster.brokers.pop, SLAVE)

            async def known():
                return ("broker-a", 1) in await cluster.peer.brokers(cluster.namesrv)

            await eventually(known)
            return cluster

        yield start


@pytest.fixture
async def pair(pair_with):
    return await pair_with()


def store_of(cluster, name):
    return cluster.brokers[name]._parts.context.store


async def copied(cluster):
    """Wait until the slave has all that its master has."""

    async def same():
        return store_of(cluster, SLAVE).log.end == store_of(cluster, "broker-a").log.end > 0

    await eventually(same)


async def unread(cluster, count):
    """Messages that both brokers have, and that nobody can read from the master any more."""
    refuse(cluster, RequestCode.PULL_MESSAGE, answer=2)
    cluster.broker._parts.pulls.stop()
    for number in range(count):
        await send(cluster, b"late %d" % number)
    await copied(cluster)
    return [b"late %d" % number for number in range(count)]


@pytest.mark.scenario("ha 15")
@pytest.mark.parametrize("route_interval", [0.05, 30.0])
async def test_a_consumer_goes_on_from_the_slave_when_the_master_is_gone(pair, consume, route_interval):
    basket = Basket()
    await send_many(pair, 5)
    client = quick_client(pair, route_interval=route_interval)
    await consume(pair, TOPIC, basket, start_at=StartAt.FIRST, client=client)
    assert await basket.holds(5) == numbers(5)
    late = await unread(pair, 3)
    await pair.stop_broker()
    assert await basket.holds(8) == numbers(5) + late

    async def told():
        return await committed(pair, broker=SLAVE) == 8

    await eventually(told)


async def test_a_consumer_goes_back_to_its_master_when_that_returns(pair, consume):
    basket = Basket()
    await send_many(pair, 1)
    await consume(pair, TOPIC, basket, start_at=StartAt.FIRST)
    await basket.holds(1)
    late = await unread(pair, 1)
    await pair.stop_broker()
    await basket.holds(2)
    await pair.start_broker()
    pulls = watch(pair, RequestCode.PULL_MESSAGE)
    await pair.routed(TOPIC)
    await send(pair, b"new")
    assert await basket.holds(3) == [*numbers(1), *late, b"new"]
    await commits(pair, 3)
    await eventually_some(pulls)
    await send(pair, b"newer")
    assert (await basket.holds(4))[-1] == b"newer"


async def eventually_some(things):
    async def some():
        return things

    await eventually(some)


async def test_a_pull_consumer_goes_on_from_the_slave_when_the_master_is_gone(pair):
    await send_many(pair, 5)
    client = quick_client(pair, route_interval=30.0)
    async with PullConsumer(GROUP, {TOPIC: "*"}, client=client, start_at=StartAt.FIRST) as consumer:
        assert await bodies(consumer, 5) == numbers(5)
        late = await unread(pair, 3)
        await pair.stop_broker()
        assert await bodies(consumer, 3) == late


async def bodies(consumer, count):
    got: list[bytes] = []

    async def enough():
        got.extend(message.body for message in await consumer.poll(timeout=0.1))
        return len(got) >= count

    await eventually(enough)
    return got


# Readers that are far behind


async def far_behind(pair_with):
    cluster = await pair_with("slaveReadEnable=true")
    for name in ("broker-a", SLAVE):
        store = store_of(cluster, name)
        store.reader._memory = SMALL_MEMORY
        store.reader.reconfigure(store.config)
    for number in range(A_LONG_WAY):
        await send(cluster, b"%d" % number + b" " * MESSAGE)
    await copied(cluster)
    return cluster


def pulled_at(requests):
    return [int(request.ext["queueOffset"]) for request in requests if request.ext["topic"] == TOPIC]


@pytest.mark.scenario("ha 17")
async def test_a_consumer_that_is_far_behind_reads_from_the_slave_until_it_has_caught_up(pair_with, consume):
    cluster = await far_behind(pair_with)
    of_master, of_slave = watch(cluster, RequestCode.PULL_MESSAGE), watch_slave(cluster)
    basket = Basket()
    await consume(cluster, TOPIC, basket, start_at=StartAt.FIRST)
    got = await basket.holds(A_LONG_WAY)
    assert [int(body) for body in got] == list(range(A_LONG_WAY))

    async def is_back():
        return A_LONG_WAY in pulled_at(of_master)

    await eventually(is_back)
    assert pulled_at(of_master)[0] == 0
    assert len(pulled_at(of_slave)) > 2
    # Only the master takes offsets; and what it takes is right.
    await commits(cluster, A_LONG_WAY)


async def test_an_ordered_consumer_reads_from_the_master_alone(pair_with, consume):
    cluster = await far_behind(pair_with)
    of_slave, locks = watch_slave(cluster), watch_slave(cluster, RequestCode.LOCK_BATCH_MQ)
    basket = Basket()
    await consume(cluster, TOPIC, basket, start_at=StartAt.FIRST, ordered=True)
    assert [int(body) for body in await basket.holds(A_LONG_WAY)] == list(range(A_LONG_WAY))
    assert pulled_at(of_slave) == []
    assert locks == []


def watch_slave(cluster, code=RequestCode.PULL_MESSAGE):
    seen = []
    ports = cluster.brokers[SLAVE]._ports
    before = ports._processors[code]

    def watching(connection, request):
        seen.append(request)
        return before(connection, request)

    ports.serve({**ports._processors, code: watching})
    return seen


# Spark


async def read_by_spark(cluster, count, **more):
    """The bodies of the first messages, as a task of Spark reads them."""
    given = {"namesrv": cluster.namesrv, "subscribe": TOPIC, **more}
    ranges = (QueueRange(MessageQueue(broker_name="broker-a", queue_id=0, topic=TOPIC), 0, count),)
    addresses = {"broker-a": {0: cluster.address(), 1: cluster.address(SLAVE)}}
    part = PullPart(ranges, addresses, patience=5.0)

    def work():
        batches = read(part, options.parse(options.SourceOptions, given), ARROW_SCHEMA)
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    return await asyncio.to_thread(work)


async def test_spark_reads_from_the_slave_when_the_master_is_gone(pair):
    await send_many(pair, 5)
    await copied(pair)
    await pair.stop_broker()
    assert await read_by_spark(pair, 5) == numbers(5)


async def test_spark_reads_what_a_slave_does_not_have_from_its_master(pair_with):
    cluster = await pair_with("haMasterAddress=127.0.0.1:1")  # a slave that never gets anything
    await send_many(cluster, 5)
    pulls = watch_slave(cluster)
    assert await read_by_spark(cluster, 5, readFrom="slave") == numbers(5)
    assert pulled_at(pulls) == [0]


async def test_spark_follows_what_brokers_suggest(pair_with):
    cluster = await far_behind(pair_with)
    of_slave = watch_slave(cluster)
    got = await read_by_spark(cluster, A_LONG_WAY)
    assert [int(body) for body in got] == list(range(A_LONG_WAY))
    assert len(pulled_at(of_slave)) > 2
