"""Which queues a member of a group reads and where it starts, as told by brokers real and scripted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.pull.pull_kit import (
    GROUP,
    TOPIC,
    ScriptedBroker,
    committed,
    consumer_of,
    put,
    queue,
    read,
    until,
)

from pyromq.client.consumer.allocation import Averagely, Config
from pyromq.client.consumer.offset_store import BrokerOffsetStore
from pyromq.client.consumer.rebalance import Rebalancer
from pyromq.client.consumer.start_offset import StartAt, start_offset
from pyromq.errors import StateError
from pyromq.protocol.codes import RequestCode


@pytest.fixture
async def broker():
    async with ScriptedBroker() as broker:
        yield broker


# Where to start


@pytest.mark.scenario("client 30")
@pytest.mark.parametrize(
    ("start_at", "expected", "retry"),
    [
        (StartAt.FIRST, 100, 0),
        (StartAt.LAST, 200, 0),
        (StartAt.LATEST_STRICT, 200, 0),
        (datetime(2024, 1, 1, tzinfo=UTC), 150, 200),
    ],
)
async def test_a_new_group_starts_at_the_minimum_the_end_or_a_time(broker, client_of, start_at, expected, retry):
    client = await client_of(broker)
    await client.routes.find(TOPIC)
    store = BrokerOffsetStore(client, GROUP)
    assert await start_offset(client, GROUP, queue(), start_at, store) == expected
    assert await start_offset(client, GROUP, queue(topic=f"%RETRY%{GROUP}"), start_at, store) == retry
    broker.offsets[0] = 123
    assert await start_offset(client, GROUP, queue(), start_at, store) == 123


@pytest.mark.scenario("client 31")
async def test_a_queue_whose_progress_cannot_be_looked_up_is_skipped_not_started_elsewhere(broker):
    broker.refusals[RequestCode.QUERY_CONSUMER_OFFSET] = 1
    async with consumer_of(broker, {TOPIC: "*"}, start_at=StartAt.LAST) as consumer:
        assert consumer.assignment == frozenset()
        assert not broker.pulls
        broker.refusals.clear()
        broker.offsets[0] = 120
        consumer._member.wake_rebalance()
        assert await read(consumer, 1) == [b"120"]


async def test_an_assigned_queue_whose_progress_cannot_be_looked_up_waits(broker, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.poll_reader.AFTER_NO_START", 0.01)
    broker.refusals[RequestCode.QUERY_CONSUMER_OFFSET] = 1
    consumer = consumer_of(broker)
    consumer.assign([queue()])
    async with consumer:
        await until(lambda: len(broker.spy.asked(RequestCode.QUERY_CONSUMER_OFFSET)) > 1)
        assert consumer.position(queue()) is None
        assert not broker.pulls
        broker.refusals.clear()
        assert await read(consumer, 1) == [b"100"]


@pytest.mark.scenario("client 35")
async def test_progress_that_was_cleaned_up_goes_on_at_the_minimum(broker):
    broker.offsets[0] = 7
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        async with asyncio.timeout(TOO_LONG):
            assert await read(consumer, 1) == [b"100"]
        assert broker.pulls[:2] == [7, 100]


async def test_progress_beyond_the_end_goes_on_at_the_end(broker):
    broker.offsets[0] = 999
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        await until(lambda: consumer.position(queue()) == 200)
        broker.end = 201
        assert await read(consumer, 1) == [b"200"]


async def test_a_broker_that_answers_at_once_is_not_asked_in_a_tight_loop(broker, monkeypatch):
    broker.offsets[0] = 200
    async with consumer_of(broker, {TOPIC: "*"}):
        await asyncio.sleep(0.1)
        assert len(broker.pulls) < 10


@pytest.mark.parametrize("code", [215, 1])
async def test_a_refused_pull_is_made_again(broker, monkeypatch, code):
    monkeypatch.setattr("pyromq.client.consumer.poll_reader.AFTER_ERROR", 0.01)
    broker.refusals[RequestCode.PULL_MESSAGE] = code
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        await until(lambda: len(broker.spy.asked(RequestCode.PULL_MESSAGE)) > 2)
        broker.refusals.clear()
        assert await read(consumer, 1) == [b"100"]


async def test_a_broker_that_does_not_know_the_group_hears_of_it(broker, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.poll_reader.AFTER_ERROR", 0.01)
    broker.refusals[RequestCode.PULL_MESSAGE] = 26
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        before = len(broker.heartbeats)
        await until(lambda: len(broker.heartbeats) > before)
        broker.refusals.clear()
        assert await read(consumer, 1) == [b"100"]


# Which queues


@pytest.mark.scenario("client 27")
async def test_members_share_the_queues_and_take_over_from_who_leaves(cluster):
    await cluster.create_topic(TOPIC, queues=4)
    async with consumer_of(cluster, {TOPIC: "*"}) as one:
        assert len(one.assignment) == 4
        async with consumer_of(cluster, {TOPIC: "*"}) as other:
            await until(lambda: len(one.assignment) == 2 and len(other.assignment) == 2)
            assert one.assignment | other.assignment == {queue(number) for number in range(4)}
            # In the order of the client ids.
            first, second = sorted((one, other), key=lambda member: member._client.client_id)
            assert first.assignment == {queue(0), queue(1)}
            assert second.assignment == {queue(2), queue(3)}
        async with asyncio.timeout(10):  # all look every twenty seconds
            await until(lambda: len(one.assignment) == 4)


async def test_what_is_given_up_is_committed_first_and_its_buffer_is_forgotten(cluster):
    await cluster.create_topic(TOPIC, queues=2)
    for number in range(2):
        await put(cluster, b"a", b"b", b"c", queue_id=number)
    async with consumer_of(cluster, {TOPIC: "*"}, pull_batch=1) as one:
        await until(lambda: len(one._member.queues.buffer) == 6)
        done = [message.queue for _ in range(2) for message in await one.poll()]
        await one.poll()  # says that those two are done, and gives one of which nobody says so
        async with consumer_of(cluster, {TOPIC: "*"}) as other:
            await until(lambda: len(one.assignment) == 1 and len(other.assignment) == 1)
            (lost,) = other.assignment

            async def told():
                return await committed(cluster, lost.queue_id) == done.count(lost)

            await eventually(told)
            assert all(reader.queue != lost for reader, _ in one._member.queues.buffer._batches)
            with pytest.raises(StateError, match="not assigned"):
                one.position(lost)


async def test_a_member_that_the_broker_does_not_know_gives_up_everything_and_says_hello(broker, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.rebalance.SOON", 0.02)
    broker.offsets[0] = 200
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        assert consumer.assignment == {queue()}
        broker.members = ["somebody else"]
        before = len(broker.heartbeats)
        consumer._member.wake_rebalance()
        await until(lambda: not consumer.assignment)
        assert len(broker.heartbeats) > before
        broker.members = None
        # Not balanced, so the next round comes soon.
        await until(lambda: consumer.assignment == {queue()})


@pytest.mark.parametrize("trouble", ["no list", "an empty list", "a strategy that fails"])
async def test_when_the_share_cannot_be_found_out_the_assignment_stays(broker, trouble, caplog):
    class Failing(Averagely):
        def allocate(self, *args):
            if trouble == "a strategy that fails" and broker.members == []:
                raise RuntimeError("no")
            return super().allocate(*args)

    broker.offsets[0] = 200
    async with consumer_of(broker, {TOPIC: "*"}, allocate=Failing()) as consumer:
        if trouble == "no list":
            broker.refusals[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = 1
        broker.members = []
        asked = len(broker.spy.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        consumer._member.wake_rebalance()
        await until(lambda: len(broker.spy.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) > asked)
        await until(lambda: not consumer._member._rebalancer.balanced)
        assert consumer.assignment == {queue()}


async def test_new_queues_of_a_topic_are_taken_and_the_brokers_hear_of_a_new_version(broker):
    broker.offsets = {0: 200, 1: 200}
    async with consumer_of(broker, {TOPIC: "*"}) as consumer:
        version = broker.heartbeats[-1].consumer_data_set[0].subscription_data_set[0].sub_version
        broker.queues = 2

        async def has_both():
            await consumer._client.routes.refresh(TOPIC)  # the first may join one that is under way, with one queue
            return consumer.assignment == {queue(0), queue(1)}

        await eventually(has_both)
        renewed = broker.heartbeats[-1].consumer_data_set[0].subscription_data_set[0].sub_version
        assert renewed > version


# The rebalancer by itself


class Owner:
    """Holds what a rebalancer tells."""

    def __init__(self, client, strategy=None, **more):
        self.added: list[tuple[int, int]] = []
        self.removed: list[int] = []
        self.store = BrokerOffsetStore(client, GROUP)
        self.topics = [TOPIC]
        self.rebalancer = Rebalancer(
            client,
            GROUP,
            strategy or Averagely(),
            self.store,
            topics=lambda: self.topics,
            start=self._start,
            added=lambda mq, held, offset: self.added.append((mq.queue_id, offset)),
            removed=lambda mq, held: self.removed.append(mq.queue_id),
            **more,
        )

    async def _start(self, _queue):
        return 42


@pytest.fixture
async def client(broker, client_of):
    client = await client_of(broker)
    broker.members = [client.client_id]
    return client


async def test_a_queue_that_was_not_pulled_for_long_is_taken_anew(client):
    owner = Owner(client)
    await owner.rebalancer.run_once()
    held = owner.rebalancer.owned[queue()]
    held.last_pull -= 121
    await owner.rebalancer.run_once()
    assert held.dropped
    assert owner.rebalancer.owned[queue()] is not held
    assert (owner.added, owner.removed) == ([(0, 42), (0, 42)], [0])
    careless = Owner(client, watch_pulls=False)
    await careless.rebalancer.run_once()
    careless.rebalancer.owned[queue()].last_pull -= 121
    await careless.rebalancer.run_once()
    assert careless.removed == []


async def test_what_is_removed_was_committed_and_is_forgotten(broker, client):
    owner = Owner(client)
    await owner.rebalancer.run_once()
    owner.store.update(queue(), 77)
    owner.topics = []
    await owner.rebalancer.run_once()
    await until(lambda: broker.offsets == {0: 77})
    assert owner.store.memory(TOPIC) == {}
    assert owner.removed == [0]


async def test_a_dropped_queue_is_committed_as_it_was_frozen_and_taken_anew(broker, client):
    owner = Owner(client)
    await owner.rebalancer.run_once()
    held = owner.rebalancer.owned[queue()]
    owner.store.freeze(queue(), 100)
    owner.store.update(queue(), 5)
    assert await owner.rebalancer.drop(queue(), held)
    assert await owner.rebalancer.drop(queue(), held)
    assert owner.removed == [0]
    await until(lambda: broker.offsets == {0: 100})
    await owner.rebalancer.run_once()
    assert len(owner.added) == 2


async def test_a_queue_that_cannot_be_locked_is_not_taken_and_the_next_round_comes_soon(client):
    may = False

    async def lock(mq, held):
        return may

    owner = Owner(client, lock=lock)
    await owner.rebalancer.run_once()
    assert not owner.added
    assert owner.rebalancer.period() == 1.0
    may = True
    await owner.rebalancer.run_once()
    assert owner.added == [(0, 42)]
    assert owner.rebalancer.owned[queue()].locked
    assert owner.rebalancer.period() == 20.0


async def test_a_queue_that_cannot_be_released_yet_stays_dropped_until_it_can(client):
    may = False

    async def release(mq, held):
        return may

    owner = Owner(client, release=release)
    await owner.rebalancer.run_once()
    owner.topics = []
    await owner.rebalancer.run_once()
    assert owner.rebalancer.owned[queue()].dropped
    assert owner.removed == []
    assert not owner.rebalancer.balanced
    may = True
    await owner.rebalancer.run_once()
    assert (owner.rebalancer.owned, owner.removed) == ({}, [0])


async def test_broadcasting_members_own_everything_and_ask_nobody(broker, client):
    owner = Owner(client, broadcast=True)
    broker.queues = 3
    await owner.rebalancer.run_once()
    assert [number for number, _ in owner.added] == [0, 1, 2]
    assert not broker.spy.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP)


async def test_a_strategy_that_names_queues_of_other_topics_gets_those_of_this_one(client):
    owner = Owner(client, Config([queue(), queue(topic="elsewhere")]))
    await owner.rebalancer.run_once()
    await owner.rebalancer.run_once()
    assert (owner.added, owner.removed) == ([(0, 42)], [])


async def test_progress_that_cannot_be_told_is_logged_and_kept(broker, client, caplog):
    await client.routes.find(TOPIC)
    store = BrokerOffsetStore(client, GROUP)
    store.update(queue(), 5)
    store.update(queue(3), 6)
    broker.refusals[RequestCode.UPDATE_CONSUMER_OFFSET] = 1
    await store.persist_all([queue()], wait=True)
    assert "not committed" in caplog.text
    assert store.memory(TOPIC) == {queue(): 5}
