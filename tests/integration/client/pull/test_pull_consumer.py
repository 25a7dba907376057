"""A pull consumer against a real broker: polling, committing, seeking."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import eventually
from tests.integration.client.pull.pull_kit import GROUP, TOPIC, committed, consumer_of, put, queue, read, until

from pyromq.client.consumer.pull_consumer import PullConsumer
from pyromq.client.consumer.pull_result import PullStatus
from pyromq.client.consumer.start_offset import StartAt
from pyromq.errors import ConfigError, ConnectFailed, OffsetOutOfRange, RouteNotFound, StateError
from pyromq.protocol.codes import RequestCode

NUMBERS = [b"%d" % number for number in range(100)]


@pytest.fixture
async def topic(cluster):
    await cluster.create_topic(TOPIC, queues=1)
    return cluster


@pytest.mark.scenario("client 51")
async def test_a_batch_that_was_not_followed_by_another_poll_comes_again(topic):
    await put(topic, *NUMBERS[:4])
    first = consumer_of(topic, {TOPIC: "*"}, pull_batch=2)
    async with first:
        assert [message.body for message in await first.poll()] == [b"0", b"1"]
        assert [message.body for message in await first.poll()] == [b"2", b"3"]
    assert await committed(topic) == 2
    async with consumer_of(topic, {TOPIC: "*"}) as again:
        assert await read(again, 2) == [b"2", b"3"]
        await again.commit()
        assert await committed(topic) == 4
    await put(topic, b"new")
    async with consumer_of(topic, {TOPIC: "*"}) as at_last:
        assert await read(at_last, 1) == [b"new"]


async def test_batches_come_in_a_loop_which_ends_when_the_consumer_is_closed(topic):
    await put(topic, *NUMBERS)
    bodies = []
    async with consumer_of(topic, {TOPIC: "*"}, pull_batch=32) as consumer:
        async for batch in consumer:
            bodies += [message.body for message in batch]
            if len(bodies) == len(NUMBERS):
                await consumer.close()
    assert bodies == NUMBERS
    assert await committed(topic) == 96


async def test_who_waits_for_a_batch_is_told_when_the_consumer_is_closed(topic):
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        loop = asyncio.ensure_future(anext(consumer))
        poll = asyncio.ensure_future(consumer.poll(timeout=60))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(StopAsyncIteration):
            await loop
        with pytest.raises(StateError, match="closed"):
            await poll


async def test_a_message_says_where_it_comes_from(topic):
    await put(topic, b"hello", properties="TAGS\x01A\x02KEYS\x01k\x02UNIQ_KEY\x01ID")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        (message,) = await consumer.poll()
    assert (message.topic, message.queue, message.offset) == (TOPIC, queue(), 0)
    assert (message.id, message.tags, message.keys) == ("ID", "A", ["k"])
    assert message.properties["MAX_OFFSET"] == "1"
    with pytest.raises(StateError):
        message.ack()


async def test_a_poll_gives_up_to_as_many_as_asked_for_out_of_any_queue(cluster):
    await cluster.create_topic(TOPIC, queues=2)
    await put(cluster, *NUMBERS[:5])
    await put(cluster, *NUMBERS[5:10], queue_id=1)
    async with consumer_of(cluster, {TOPIC: "*"}, pull_batch=2) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) == 10)
        assert len(await consumer.poll(max=3)) == 3
        assert len(await consumer.poll(max=99)) == 7
        assert {consumer.position(queue(0)), consumer.position(queue(1))} == {5}
        assert await consumer.poll(timeout=0) == []
        with pytest.raises(ConfigError):
            await consumer.poll(max=0)


async def test_a_cancelled_poll_loses_nothing(topic):
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        poll = asyncio.ensure_future(consumer.poll(timeout=60))
        await asyncio.sleep(0)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        await put(topic, b"hello")
        assert await read(consumer, 1) == [b"hello"]


@pytest.mark.scenario("client 33")
@pytest.mark.usefixtures("no_rounds")
async def test_a_message_for_an_idle_queue_is_delivered_at_once(topic):
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        poll = asyncio.ensure_future(consumer.poll(timeout=10))
        await until(lambda: topic.broker._parts.pulls.held)
        await put(topic, b"hello")
        assert [message.body for message in await poll] == [b"hello"]


async def test_commits_of_the_handed_out_reach_the_broker_without_being_waited_for(topic, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.consumer_settings.MIN_COMMIT_INTERVAL", 0.01)
    await put(topic, b"a", b"b")
    async with consumer_of(topic, {TOPIC: "*"}, commit_interval=0.02) as consumer:
        await read(consumer, 2)
        await consumer.poll(timeout=0)

        async def told():
            return await committed(topic) == 2

        await eventually(told)


async def test_without_auto_commit_nothing_is_committed_by_itself(topic):
    await put(topic, *NUMBERS[:3])
    async with consumer_of(topic, {TOPIC: "*"}, auto_commit=False, pull_batch=1) as consumer:
        await read(consumer, 3)
        await consumer.poll(timeout=0)
    assert await committed(topic) is None


async def test_a_commit_without_waiting_is_known_at_once_and_told_at_the_end(topic):
    await put(topic, *NUMBERS[:3])
    async with consumer_of(topic, {TOPIC: "*"}, auto_commit=False) as consumer:
        await read(consumer, 3)
        await consumer.commit({queue(): 2}, wait=False)
        assert await consumer.committed(queue()) == 2
        assert await committed(topic) is None
    assert await committed(topic) == 2


async def test_a_commit_of_one_queue_does_not_forget_the_progress_of_another(cluster):
    await cluster.create_topic(TOPIC, queues=2)
    await put(cluster, b"a")
    await put(cluster, b"b", queue_id=1)
    async with consumer_of(cluster, {TOPIC: "*"}) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) == 2)
        assert len(await consumer.poll(max=2)) == 2
        await consumer.commit({queue(0): 1})
        await consumer.poll(timeout=0)
        assert await consumer.committed(queue(1)) == 1


async def test_a_commit_that_cannot_be_stored_is_an_error(topic):
    await put(topic, b"a")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        await read(consumer, 1)
        await topic.stop_broker()
        with pytest.raises(ConnectFailed):
            await consumer.commit()


async def test_a_queue_of_another_member_cannot_be_committed(topic):
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        with pytest.raises(StateError, match="not assigned"):
            await consumer.commit({queue(9): 1})
        with pytest.raises(ConfigError):
            await consumer.commit({queue(): -1})


@pytest.mark.scenario("client 52")
async def test_queues_are_subscribed_or_assigned_but_not_both():
    consumer = PullConsumer(GROUP, {TOPIC: "*"}, namesrv="127.0.0.1:1")
    with pytest.raises(StateError, match="subscribe mode"):
        consumer.assign([queue()])
    other = PullConsumer(GROUP, namesrv="127.0.0.1:1")
    other.assign([queue()])
    with pytest.raises(StateError, match="assign mode"):
        other.subscribe(TOPIC)


@pytest.mark.scenario("client 52")
async def test_a_seek_outside_of_the_queue_is_refused(topic):
    await put(topic, *NUMBERS[:5])
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        for outside in (-1, 6):
            with pytest.raises(OffsetOutOfRange, match="0 to 5"):
                await consumer.seek(queue(), outside)
        with pytest.raises(StateError, match="not assigned"):
            await consumer.seek(queue(7), 0)


@pytest.mark.scenario("client 52")
async def test_after_a_seek_back_old_messages_come_again_and_buffered_ones_do_not(topic):
    await put(topic, *NUMBERS[:6])
    async with consumer_of(topic, {TOPIC: "*"}, pull_batch=2) as consumer:
        assert len(await consumer.poll()) == 2
        await until(lambda: len(consumer._member.queues.buffer) == 4)
        await consumer.seek(queue(), 1)
        assert len(consumer._member.queues.buffer) == 0
        assert consumer.position(queue()) == 1
        assert await read(consumer, 5) == NUMBERS[1:6]
        await consumer.seek(queue(), 6)
        await put(topic, b"new")
        assert await read(consumer, 1) == [b"new"]


async def test_a_seek_may_name_an_end_or_a_time(topic):
    await put(topic, b"old")
    await asyncio.sleep(0.01)
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    await put(topic, b"young")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        assert await read(consumer, 2) == [b"old", b"young"]
        await consumer.seek(queue(), between)
        assert await read(consumer, 1) == [b"young"]
        await consumer.seek(queue(), StartAt.FIRST)
        assert await read(consumer, 2) == [b"old", b"young"]
        await consumer.seek(queue(), StartAt.LAST)
        assert consumer.position(queue()) == 2
        await consumer.seek(queue(), between - timedelta(days=1))
        assert consumer.position(queue()) == 0


async def test_assigned_queues_are_read_and_others_are_not(cluster):
    await cluster.create_topic(TOPIC, queues=3)
    for number in range(3):
        await put(cluster, b"%d" % number, queue_id=number)
    consumer = consumer_of(cluster)
    consumer.assign([queue(0), queue(2)])
    async with consumer:
        assert sorted(await read(consumer, 2)) == [b"0", b"2"]
        await consumer.commit()
        consumer.assign([queue(1), queue(2)])
        assert await read(consumer, 1) == [b"1"]
        assert consumer.assignment == {queue(1), queue(2)}
        await put(cluster, b"for nobody")
        await put(cluster, b"more", queue_id=2)
        assert await read(consumer, 1) == [b"more"]
    assert await committed(cluster, 0) == 1


async def test_assigned_queues_can_be_filtered_by_topic(topic):
    await put(topic, b"a", properties="TAGS\x01A")
    await put(topic, b"b", properties="TAGS\x01B")
    consumer = consumer_of(topic)
    consumer.assign([queue()], {TOPIC: "B"})
    async with consumer:
        assert await read(consumer, 1) == [b"b"]


@pytest.mark.scenario("client 36")
async def test_tags_of_equal_hash_are_told_apart_on_the_way(topic):
    for tag in ("Aa", "BB", "Aa", "C"):
        await put(topic, tag.encode(), properties=f"TAGS\x01{tag}")
    async with consumer_of(topic, {TOPIC: "Aa"}) as consumer:
        assert await read(consumer, 2) == [b"Aa", b"Aa"]


async def test_messages_that_nobody_wants_do_not_hold_progress_back(topic):
    await put(topic, b"a", properties="TAGS\x01A")
    await put(topic, b"b", b"b", properties="TAGS\x01B")
    async with consumer_of(topic, {TOPIC: "A"}) as consumer:
        assert await read(consumer, 1) == [b"a"]
        assert consumer.position(queue()) == 3
        await consumer.poll(timeout=0)
        assert await consumer.committed(queue()) == 3


async def test_a_paused_queue_is_not_pulled_but_what_was_pulled_is_handed_out(topic):
    await put(topic, b"before")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) == 1)
        # The next pull is under way already, and brings one more message.
        await until(lambda: topic.broker._parts.pulls.held)
        consumer.pause()
        await put(topic, b"under way", b"later")
        assert await read(consumer, 2) == [b"before", b"under way"]
        assert await consumer.poll(timeout=0.1) == []
        consumer.resume(queue())
        assert await read(consumer, 1) == [b"later"]


async def test_as_much_is_buffered_as_allowed_and_polling_makes_room(topic):
    await put(topic, *NUMBERS)
    async with consumer_of(topic, {TOPIC: "*"}, max_cached=10, pull_batch=8) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) == 16)
        await asyncio.sleep(0.02)
        assert len(consumer._member.queues.buffer) == 16
        assert await read(consumer, 100) == NUMBERS


async def test_all_queues_together_buffer_no_more_than_allowed(cluster):
    await cluster.create_topic(TOPIC, queues=2)
    await put(cluster, *NUMBERS[:20])
    await put(cluster, *NUMBERS[20:40], queue_id=1)
    async with consumer_of(cluster, {TOPIC: "*"}, max_buffered=4, pull_batch=4) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) >= 5)
        assert len(consumer._member.queues.buffer) <= 12
        assert sorted(await read(consumer, 40)) == sorted(NUMBERS[:40])


@pytest.mark.scenario("client 30")
async def test_a_new_group_starts_where_it_was_told(topic):
    await put(topic, b"old")
    await asyncio.sleep(0.01)
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    await put(topic, b"young")
    starts = {}
    for number, start_at in enumerate((StartAt.FIRST, StartAt.LATEST_STRICT, StartAt.LAST, between)):
        async with consumer_of(topic, {TOPIC: "*"}, group=f"g{number}", start_at=start_at) as consumer:
            starts[start_at] = consumer.position(queue())
    # The broker gives a group that it does not know the beginning of a queue that still has it, unless asked not to.
    assert starts == {StartAt.FIRST: 0, StartAt.LATEST_STRICT: 2, StartAt.LAST: 0, between: 1}


async def test_a_pull_gives_what_is_there_and_where_to_go_on(topic):
    await put(topic, *NUMBERS[:3])
    async with consumer_of(topic) as consumer:
        found = await consumer.pull(queue(), 1, 1)
        assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (PullStatus.FOUND, 2, 0, 3)
        assert [message.body for message in found.messages] == [b"1"]
        assert (await consumer.pull(queue(), 3)).status is PullStatus.NO_NEW_MSG
        moved = await consumer.pull(queue(), 99)
        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        assert (await consumer.pull(queue(), 0, expr="X")).status is PullStatus.NO_MATCHED_MSG
        for offset, count in ((-1, 1), (0, 0)):
            with pytest.raises(ConfigError):
                await consumer.pull(queue(), offset, count)


async def test_a_waiting_pull_is_answered_when_a_message_comes(topic):
    async with consumer_of(topic) as consumer:
        pull = asyncio.ensure_future(consumer.pull(queue(), 0, wait=True))
        await until(lambda: topic.broker._parts.pulls.held)
        await put(topic, b"hello")
        assert [message.body for message in (await pull).messages] == [b"hello"]


async def test_who_pulls_by_hand_commits_by_hand(topic):
    async with consumer_of(topic) as consumer:
        await consumer.commit({queue(): 7})
        assert await committed(topic) == 7
        assert await consumer.committed(queue()) == 7
        await consumer.commit({queue(): 9}, wait=False)
    assert await committed(topic) == 9


@pytest.mark.scenario("client 53")
async def test_pulls_are_made_by_the_request_that_every_broker_knows(topic):
    seen = []
    processors = topic.broker._ports._servers[0].endpoint.processors
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        original = processors[code]

        def noting(connection, request, original=original):
            seen.append((int(request.code), request.ext.get("ReqT")))
            return original(connection, request)

        processors[code] = noting
    await put(topic, b"hello")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        await read(consumer, 1)
    assert set(seen) == {(11, "0")}


async def test_a_message_may_be_sent_back(topic):
    await put(topic, b"again, please")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        (message,) = await consumer.poll()
        await consumer.send_back(message, delay_level=-1)
        await topic.routed(f"%DLQ%{GROUP}")
        dead = (await consumer.pull(queue(topic=f"%DLQ%{GROUP}"), 0)).messages
    assert [letter.body for letter in dead] == [b"again, please"]


async def test_a_topic_that_does_not_exist_yet_is_read_once_it_does(cluster):
    async with consumer_of(cluster, {TOPIC: "*"}) as consumer:
        assert consumer.assignment == frozenset()
        with pytest.raises(RouteNotFound):
            await consumer.queues(TOPIC)
        await cluster.create_topic(TOPIC, queues=1)
        await put(cluster, b"hello")
        consumer._member.wake_rebalance()
        assert await read(consumer, 1) == [b"hello"]


async def test_a_topic_may_be_subscribed_and_left_while_running(topic):
    await topic.create_topic("other", queues=1)
    await put(topic, b"o", topic="other")
    await put(topic, b"t")
    async with consumer_of(topic) as consumer:
        consumer.subscribe("other")
        assert await read(consumer, 1) == [b"o"]
        consumer.subscribe(TOPIC)
        assert await read(consumer, 1) == [b"t"]
        await consumer.poll(timeout=0)
        consumer.unsubscribe("other")
        await until(lambda: consumer.assignment == {queue()})
        assert await committed(topic, topic="other") == 1


async def test_a_listener_hears_of_new_queues(topic):
    heard: asyncio.Queue[object] = asyncio.Queue()
    consumer = consumer_of(topic, metadata_interval=0.02)
    consumer.watch(TOPIC, lambda name, queues: heard.put_nowait((name, queues)))
    async with consumer:
        async with asyncio.timeout(10):
            assert await heard.get() == (TOPIC, {queue(0)})
            await topic.create_topic(TOPIC, queues=2)
            assert await heard.get() == (TOPIC, {queue(0), queue(1)})


async def test_a_listener_that_fails_is_asked_again_the_next_time(topic, caplog):
    heard: asyncio.Queue[object] = asyncio.Queue()
    consumer = consumer_of(topic, metadata_interval=0.02)

    async def listener(name, queues):
        heard.put_nowait(len(queues))
        raise RuntimeError("no")

    consumer.watch(TOPIC, listener)
    async with consumer, asyncio.timeout(10):
        assert await heard.get() == 1
        await topic.create_topic(TOPIC, queues=2)
        assert await heard.get() == 2
    assert "listener for the queues of orders failed" in caplog.text


async def test_an_admin_resets_where_it_reads(topic):
    await put(topic, *NUMBERS[:4])
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        assert len(await read(consumer, 4)) == 4
        consumer._member.reset_offsets(TOPIC, {queue(): 2, queue(9): 1})
        assert await read(consumer, 2) == NUMBERS[2:4]
        assert consumer._member.memory_offsets(TOPIC) == {queue(): 4}


async def test_it_tells_how_it_fares(topic):
    await put(topic, *NUMBERS[:4])
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        await until(lambda: len(consumer._member.queues.buffer) == 4)
        info = consumer._member.running_info(False)
        assert info.mq_table[queue()].cached_msg_count == 4
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert [data.topic for data in info.subscription_set] == [TOPIC]


async def test_names_of_a_namespace_are_not_seen_by_its_users(cluster, client_of):
    await cluster.create_topic("ns%orders", queues=1)
    await put(cluster, b"hello", topic="ns%orders")
    client = await client_of(cluster, namespace="ns")
    async with PullConsumer(GROUP, {TOPIC: "*"}, client=client, start_at=StartAt.FIRST) as consumer:
        (message,) = await consumer.poll()
        assert (message.topic, message.queue) == (TOPIC, queue())
        assert consumer.assignment == {queue()}
        assert await consumer.queues(TOPIC) == [queue()]
        await consumer.commit({queue(): 1})
        assert (await consumer.pull(queue(), 0)).messages[0].topic == TOPIC
    assert await committed(cluster, group="ns%readers", topic="ns%orders") == 1


async def test_broadcasting_members_read_everything_each_and_remember_it_themselves(topic, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    await put(topic, b"a", b"b")

    def member():
        return consumer_of(topic, {TOPIC: "*"}, broadcast=True)

    async with member() as one:
        assert await read(one, 2) == [b"a", b"b"]
        await one.commit()
    files = list(tmp_path.glob(".rocketmq_offsets/*@DEFAULT@STREAM/readers/offsets.json"))
    assert len(files) == 1
    await put(topic, b"c")
    async with member() as again:
        assert await read(again, 1) == [b"c"]
    assert await committed(topic) is None


async def test_reading_goes_on_when_the_broker_was_away(topic, monkeypatch):
    monkeypatch.setattr("pyromq.client.consumer.poll_reader.AFTER_ERROR", 0.02)
    await put(topic, b"before")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        assert await read(consumer, 1) == [b"before"]
        topic.cut_connections()
        await topic.restart_broker()
        await put(topic, b"after")
        assert await read(consumer, 1) == [b"after"]


async def test_a_reader_that_somebody_cancels_starts_anew_where_it_was(topic, monkeypatch):
    monkeypatch.setattr("pyromq.client.tasks.RESTART_AFTER", 0.02)
    await put(topic, b"before")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        assert await read(consumer, 1) == [b"before"]
        for task in asyncio.all_tasks():
            if "pull MessageQueue" in task.get_name():
                task.cancel()
        await asyncio.sleep(0)
        await put(topic, b"after")
        assert await read(consumer, 1) == [b"after"]


async def test_it_must_be_started_before_it_is_used_and_not_twice(topic):
    consumer = consumer_of(topic, {TOPIC: "*"})
    with pytest.raises(StateError, match="not started"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(StateError, match="running"):
            await consumer.start()
    await consumer.close()
    for use in (consumer.poll(), consumer.commit(), consumer.seek(queue(), 0), consumer.start()):
        with pytest.raises(StateError, match="closed"):
            await use


async def test_closed_while_it_starts_it_leaves_nothing_behind(topic):
    consumer = consumer_of(topic, {TOPIC: "*"})
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(StateError, match="closed"):
        await starting
    assert consumer.assignment == frozenset()
    assert "not started" in repr(consumer._client)


async def test_without_name_servers_it_does_not_start_and_leaves_nothing_behind():
    consumer = PullConsumer(GROUP, {TOPIC: "*"}, namesrv="127.0.0.1:1")
    with pytest.raises(ConnectFailed):
        await consumer.start()
    with pytest.raises(StateError, match="not started"):
        await consumer.poll()


async def test_it_closes_although_no_broker_is_there(topic):
    await put(topic, b"a")
    async with consumer_of(topic, {TOPIC: "*"}) as consumer:
        await read(consumer, 1)
        await consumer.poll(timeout=0)
        await topic.stop_broker()
        began = time.monotonic()
    assert time.monotonic() - began < TOO_LONG


@pytest.mark.parametrize(
    "wrong",
    [{"pull_batch": 0}, {"max_cached": 0}, {"commit_interval": 0.5}, {"broker_wait": 0}, {"max_span": 70_000}],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        PullConsumer(GROUP, namesrv="127.0.0.1:1", **wrong)


def test_the_default_group_is_refused():
    with pytest.raises(ConfigError):
        PullConsumer("DEFAULT_CONSUMER", namesrv="127.0.0.1:1")
