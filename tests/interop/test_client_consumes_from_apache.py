"""Our consumers against Apache's brokers of both lines: what handlers get, what fails, what stays in order."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.apache_scene import Changed, Counted, Scene, scene_of
from tests.interop.apache_with_client import LEVEL_OF_A_SECOND, Apache, committed
from tests.interop.received_by_us import Inbox, eventually, queues_of

from pyromq.client import (
    AckUpTo,
    DeadLetter,
    Message,
    Retry,
)
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyromq.client import Consumer, ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("nothing_is_left")]

SOON = 20.0


@pytest.fixture
async def scene(apache: Apache, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with scene_of(apache, request.node.name) as scene:
        yield scene


# Pulling


@pytest.mark.scenario("client 33")
async def test_messages_come_at_once_and_idle_queues_are_hardly_asked(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 2)
    hook, inbox = Counted(scene.topic), Inbox()
    async with scene.consumer(inbox, client=scene.apache.client(hooks=[hook])) as consumer:
        await scene.owns(consumer, 2)
        await eventually(lambda: set(hook.pulls) == {"0", "1"}, "both queues are asked")
        await asyncio.sleep(1)
        before = dict(hook.pulls)
        await asyncio.sleep(3)
        assert all(hook.pulls[queue] - before[queue] <= 1 for queue in before)
        latencies = []
        for number in range(10):
            await scene.send(str(number))
            sent = time.monotonic()
            await inbox.holds(number + 1)
            latencies.append(inbox.times[-1] - sent)
        assert statistics.median(latencies) < 0.1, latencies


@pytest.mark.scenario("client 36")
async def test_of_tags_with_the_same_hash_only_the_wanted_one_comes(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    for number, tag in enumerate(("BB", "Aa", "BB", "Aa")):
        await scene.send(str(number), tags=tag)
    inbox = Inbox()
    async with scene.consumer(inbox, expr="Aa"):
        assert sorted(await inbox.holds(2)) == ["1", "3"]
        await scene.commits(4)
        assert len(inbox.messages) == 2


@pytest.mark.scenario("client 37")
async def test_progress_stays_at_the_smallest_unfinished_message(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(10)
    gates = {"0": asyncio.Event(), "5": asyncio.Event()}
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        if gate := gates.get(message.body.decode()):
            await gate.wait()

    async with scene.consumer(handler):
        await inbox.holds(10)
        await asyncio.sleep(1)  # several commits
        assert await committed(scene.admin, scene.group, scene.queue()) in (None, 0)
        gates["0"].set()
        await scene.commits(5)
        gates["5"].set()
        await scene.commits(10)


# Failures


@pytest.mark.scenario("client 38")
async def test_a_message_that_fails_comes_again_and_ends_among_the_dead_letters(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        raise ValueError("no")

    async with scene.consumer(handler):
        sent = await scene.producer.send(scene.topic, b"poison", tags="T")
        await inbox.holds(17, 60.0)
        # The first retry takes the third level, which is a second here.
        assert 0.8 < inbox.times[1] - inbox.times[0] < 5
        assert [message.reconsume_times for message in inbox.messages] == list(range(17))
        assert {(message.topic, message.id) for message in inbox.messages} == {(scene.topic, sent.id)}
        [letter] = await scene.dead_letters(1)
        assert (letter.body, letter.tags, letter.id) == (b"poison", "T", sent.id)
        await scene.commits(1)
        assert len(inbox.messages) == 17


@pytest.mark.scenario("client 39")
async def test_dead_letters_and_chosen_delays(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        if message.body == b"dead":
            return DeadLetter
        return Retry(LEVEL_OF_A_SECOND) if message.reconsume_times == 0 else None

    async with scene.consumer(handler):
        await scene.send("dead", "again")
        await inbox.holds(3)
        assert [letter.body for letter in await scene.dead_letters(1)] == [b"dead"]
        again = [at for body, at in zip(inbox.bodies, inbox.times, strict=True) if body == "again"]
        assert 0.8 < again[1] - again[0] < 4
        await scene.commits(2)
        assert inbox.bodies.count("dead") == 1


@pytest.mark.scenario("client 40")
async def test_what_the_broker_will_not_take_back_is_sent_to_the_retry_topic(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    # There is no message at this place of the commit log, so the broker refuses.
    hook, inbox = Changed(RequestCode.CONSUMER_SEND_MSG_BACK, offset=1 << 50), Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        return Retry if message.reconsume_times == 0 else None

    async with scene.consumer(handler, client=scene.apache.client(hooks=[hook])):
        await scene.send("x", keys=["k"], properties={"colour": "red"})
        await inbox.holds(2)
        assert hook.count == 1
        again = inbox.messages[1]
        assert (again.topic, again.reconsume_times, again.keys) == (scene.topic, 1, ["k"])
        assert again.id == inbox.messages[0].id
        assert again.properties["colour"] == "red"
        await scene.commits(1)


@pytest.mark.scenario("client 40")
async def test_what_the_broker_takes_in_no_way_is_tried_again_here(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    name = scene.apache.broker.name
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        return Retry if message.body == b"0" and len(inbox.messages) < 3 else None

    await scene.send("0", "1")
    await scene.admin.brokers.set_config({"brokerPermission": "4"}, brokers=name)  # it can be read, not written
    try:
        async with scene.consumer(handler):
            await inbox.holds(3)
            assert (inbox.bodies[-1], inbox.messages[-1].reconsume_times) == ("0", 1)
            assert inbox.times[2] - inbox.times[0] > 4.5
            await scene.commits(2)
    finally:
        await scene.admin.brokers.set_config({"brokerPermission": "6"}, brokers=name)


@pytest.mark.scenario("client 41")
async def test_of_a_batch_the_rest_is_delivered_again(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.producer.send_batch([Message(scene.topic, b"%d" % number) for number in range(5)])
    inbox, batches = Inbox(), []

    async def handler(messages: list[ReceivedMessage]) -> Any:
        batches.append(sorted(message.body.decode() for message in messages))
        for message in messages:
            await inbox.add(message)
        return AckUpTo(1) if messages[0].reconsume_times == 0 else None

    async with scene.consumer(handler, batch=5):
        await inbox.holds(8)
        assert batches[0] == ["0", "1", "2", "3", "4"]
        assert sorted(inbox.bodies[5:]) == ["2", "3", "4"]
        await scene.commits(5)


@pytest.mark.scenario("client 42")
async def test_a_handler_that_takes_too_long_has_its_message_given_back(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(2)
    stuck, inbox = asyncio.Event(), Inbox()

    async def handler(message: ReceivedMessage) -> Any:
        await inbox.add(message)
        if message.body == b"0" and message.reconsume_times == 0:
            await stuck.wait()
            return Retry
        return None

    async with scene.consumer(handler, consume_timeout=0.5):
        await scene.commits(2)
        await inbox.holds(3)
        assert [(each.body, each.reconsume_times) for each in inbox.messages if each.reconsume_times] == [(b"0", 1)]
        stuck.set()
    assert len(inbox.messages) == 3


# Order


@pytest.mark.scenario("client 43")
async def test_the_order_of_a_queue_is_kept_under_failures(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    await scene.send_numbers(40, 4)
    done: dict[int, list[int]] = {queue_id: [] for queue_id in range(4)}
    failed: dict[int, list[float]] = {}
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number in (1, 22) and len(failed.setdefault(number, [])) < 2:
            failed[number].append(time.monotonic())
            raise ValueError("not yet")
        done[message.queue.queue_id].append(number)
        await inbox.add(message)

    async with scene.consumer(handler, ordered=True, suspend=1.0):
        await inbox.holds(40)
        assert done == {queue_id: list(range(queue_id, 40, 4)) for queue_id in range(4)}
        assert all(0.9 < second - first < 3 for first, second in failed.values())
        # The queues of the failing messages waited, the others did not.
        last = {message.queue.queue_id: at for message, at in zip(inbox.messages, inbox.times, strict=True)}
        assert max(last[0], last[3]) < min(last[1], last[2])
        for queue_id in range(4):
            await scene.commits(10, queue_id)


@pytest.mark.scenario("client 44")
async def test_in_order_a_poison_message_ends_among_the_dead_letters_and_its_queue_goes_on(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        await inbox.add(message)
        if message.body == b"poison":
            raise ValueError("no")

    async with scene.consumer(handler, ordered=True, max_retries=3, suspend=0.05):
        await scene.send("poison", "good")
        await inbox.holds(5)
        assert inbox.bodies == ["poison"] * 4 + ["good"]
        assert [letter.body for letter in await scene.dead_letters(1)] == [b"poison"]
        await scene.commits(2)


@pytest.mark.scenario("client 43")
async def test_two_members_in_order_never_share_a_queue(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 4)
    got: dict[int, list[int]] = {queue_id: [] for queue_id in range(4)}
    busy: set[int] = set()
    inbox = Inbox()

    async def handler(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        assert queue_id not in busy, "two members at once"
        busy.add(queue_id)
        await asyncio.sleep(0.005)
        got[queue_id].append(int(message.body))
        busy.discard(queue_id)
        await inbox.add(message)

    async with scene.consumer(handler, ordered=True) as first:
        await scene.owns(first, 4)
        sending = asyncio.create_task(scene.send_numbers(200, 4))
        async with scene.consumer(handler, ordered=True) as second:
            await eventually(
                lambda: len(queues_of(first, scene.topic)) == len(queues_of(second, scene.topic)) == 2, "two each"
            )
            await inbox.holds_all(await sending)
    for queue_id, numbers in got.items():
        assert list(dict.fromkeys(numbers)) == list(range(queue_id, 200, 4))  # some may come twice, none out of turn


# Iterating


@pytest.mark.scenario("client 55")
async def test_a_loop_that_raises_leaves_its_message_to_be_delivered_again(scene: Scene) -> None:
    await scene.apache.create_topic(scene.topic, 1)
    await scene.send_numbers(4)
    seen: list[str] = []

    async def fail_at_the_third(consumer: Consumer) -> None:
        async for message in consumer:
            seen.append(message.body.decode())
            if len(seen) == 3:
                raise ValueError("third")

    async with scene.consumer() as consumer:
        with pytest.raises(ValueError, match="third"):
            await asyncio.wait_for(fail_at_the_third(consumer), SOON)
        third = seen[2]
        async with asyncio.timeout(SOON):
            async for message in consumer:
                seen.append(message.body.decode())
                if len(seen) == 5:
                    message.ack()
                    break
        await scene.commits(4)
    assert sorted(seen) == sorted([*"0123", third])
