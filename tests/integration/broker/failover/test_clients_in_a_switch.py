"""Our clients while the master of a group changes on purpose: no send fails, and nothing stays unread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.failover.group_kit import in_sync, is_master
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.scene_kit import Client as RawClient

from pyromq import Client, Consumer, MessageQueue, Producer, StartAt
from pyromq.client.admin import AdminClient

pytestmark = pytest.mark.slow

TOPIC = "orders"


class Load:
    """A producer that sends several messages at once, again and again.

    It has the default settings, but more time: all brokers are in this process, which may stand still for seconds.
    """

    def __init__(self, namesrv):
        self._namesrv = namesrv
        self.acknowledged = []
        self.sent = asyncio.Event()

    async def run(self, enough):
        async with Producer("makers", namesrv=self._namesrv, timeout=TOO_LONG) as producer:
            number = 0
            while not enough.is_set():
                numbers = range(number, number + 8)
                number += 8
                results = await asyncio.gather(*(producer.send(TOPIC, b"%d" % each) for each in numbers))
                assert {result.status.name for result in results} == {"SEND_OK"}
                self.acknowledged += numbers
                self.sent.set()

    async def goes_on(self):
        """Wait for messages that were sent from now on."""
        for _ in range(3):
            self.sent.clear()
            await self.sent.wait()


@contextlib.asynccontextmanager
async def loaded(namesrv):
    """Sends while the block runs; whatever goes wrong with a send is raised."""
    load, enough = Load(namesrv), asyncio.Event()
    async with asyncio.timeout(3 * TOO_LONG), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(load.run(enough))
        await load.goes_on()
        yield load
        enough.set()
        await sending


@pytest.fixture
async def pair(group):
    first = await group.start("a")
    await is_master(first)
    second = await group.start("b")
    await in_sync(first, 1, 2)
    return first, second


@pytest.fixture
async def elect(group):
    async with Client(group.namesrv) as client, AdminClient(client=client) as admin:

        async def elected(broker_id):
            await admin.controllers.elect([group.controller.address], "DefaultCluster", "g", broker_id)

        yield elected


async def switch(pair, elect, load):
    """Each of both becomes master, and takes messages for a while."""
    first, second = pair
    for broker_id, new in ((2, second), (1, first)):
        await elect(broker_id)
        await is_master(new)
        await load.goes_on()
        await in_sync(new, 1, 2)


async def test_no_send_fails_and_a_push_consumer_gets_all(group, pair, elect):
    got = set()
    async with Consumer("readers", {TOPIC: "*"}, namesrv=group.namesrv, start_at=StartAt.FIRST) as consumer:

        async def consume():
            async for message in consumer:
                got.add(int(message.body))

        consuming = asyncio.create_task(consume())
        async with loaded(group.namesrv) as load:
            await switch(pair, elect, load)

        async def all_there():
            return got >= set(load.acknowledged)

        await eventually(all_there)
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


async def test_a_rolling_restart_costs_no_send(group, pair):
    """The master hands over before it stops, and passes on what still comes."""
    async with loaded(group.namesrv) as load:
        await group.stop("a")
        await is_master(pair[1])
        await load.goes_on()
        again = await group.start("a")
        await in_sync(pair[1], 1, 2)
        await group.stop("b")
        await is_master(again)
        await load.goes_on()


async def test_a_master_that_stops_serves_on_as_a_slave(group):
    """A client that asks for routes every 30 seconds only loses nothing while the broker drains."""
    first = await group.start("a", "drainSeconds=5")
    await is_master(first)
    second = await group.start("b")
    await in_sync(first, 1, 2)
    client = await RawClient.connect(first.port)
    assert isinstance(client, RawClient)
    await client.sent(b"before", queue_id=0)
    stopping = asyncio.create_task(group.stop("a"))
    await is_master(second)
    await client.sent(b"passed on", queue_id=0)
    at_second = await second.connect()
    assert [message.body for message in await at_second.read(queue_id=0)] == [b"before", b"passed on"]
    assert not stopping.done()
    await client.close()
    await stopping


async def test_an_ordered_consumer_keeps_the_order_and_its_locks(group, pair, elect):
    """Each queue is sent to by one task, which waits for each answer."""
    sent: dict[int, int] = {0: 0, 1: 0}
    got: defaultdict[int, list[int]] = defaultdict(list)
    enough, moved = asyncio.Event(), asyncio.Event()

    async def send(producer, queue):
        while not enough.is_set():
            await producer.send(TOPIC, b"%d" % sent[queue.queue_id], queue=queue)
            sent[queue.queue_id] += 1
            moved.set()

    async def consume(consumer):
        async for message in consumer:
            got[message.queue.queue_id].append(int(message.body))

    async with (
        asyncio.timeout(3 * TOO_LONG),
        Producer("makers", namesrv=group.namesrv, timeout=TOO_LONG) as producer,
        Consumer("readers", {TOPIC: "*"}, ordered=True, namesrv=group.namesrv, start_at=StartAt.FIRST) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        consuming = tasks.create_task(consume(consumer))
        name = (await producer.send(TOPIC, b"-1")).queue.broker_name
        queues = [MessageQueue(topic=TOPIC, broker_name=name, queue_id=number) for number in sent]
        sending = [tasks.create_task(send(producer, queue)) for queue in queues]
        for broker_id, new in ((2, pair[1]), (1, pair[0])):
            await elect(broker_id)
            await is_master(new)
            await in_sync(new, 1, 2)
            moved.clear()
            await moved.wait()
        enough.set()
        await asyncio.wait(sending)

        async def all_there():
            return all(set(range(sent[number])) <= set(got[number]) for number in sent)

        await eventually(all_there)
        consuming.cancel()
    for number, count in sent.items():
        # A repetition begins further back; without those the order is that of sending.
        assert list(dict.fromkeys(each for each in got[number] if each >= 0)) == list(range(count))
