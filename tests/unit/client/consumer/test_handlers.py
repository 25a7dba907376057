from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from pyromq.client.consumer.consume_stats import TopicStats
from pyromq.client.consumer.handlers import Handling, Listener, Listeners
from pyromq.client.consumer.outcomes import ACK, RETRY, AckUpTo, Retry
from pyromq.client.consumer.received_message import ReceivedMessage
from pyromq.client.hooks import HookList
from pyromq.client.names import Namespace
from pyromq.errors import StateError
from pyromq.protocol import properties as props
from pyromq.protocol.message import MessageExt, MessageQueue, MessageRecord

QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="t")


def message(body=b"x", topic="t", **properties):
    return MessageExt(MessageRecord(topic, body, props.encode(props.render(properties))), "b")


@pytest.fixture
def errors():
    return []


@pytest.fixture
def handling(errors):
    made = Handling(
        "g",
        HookList(),
        ordered=False,
        batch=1,
        max_concurrency=2,
        consume_timeout=60,
        on_error=lambda error, message: errors.append((error, message)),
    )
    yield made
    made.close()


def listener(handler, where=None):
    return Listener("t", handler, where, TopicStats(0.0))


async def outcome(handling, handler):
    return await handling.run(listener(handler), QUEUE, [ReceivedMessage(message(), "t")])


class Callable:
    async def __call__(self, message):
        return Retry(3)


async def coroutine(_, message):
    return Retry(3)


@pytest.mark.parametrize("handler", [Callable(), functools.partial(coroutine, None)])
async def test_all_that_is_a_coroutine_function_runs_on_the_loop(handling, handler):
    assert not listener(handler).plain
    assert await outcome(handling, handler) == Retry(3)


async def test_a_plain_function_runs_elsewhere_and_what_it_gives_may_still_be_awaited(handling):
    threads = []

    def handler(message):
        threads.append(threading.current_thread())
        return coroutine(None, message)

    assert await outcome(handling, handler) == Retry(3)
    assert threads != [threading.current_thread()]


async def test_an_error_is_reported_and_means_try_again(handling, errors):
    async def handler(message):
        raise ValueError("no")

    assert await outcome(handling, handler) is RETRY
    ((error, failed),) = errors
    assert (str(error), failed.body) == ("no", b"x")


async def test_a_cancellation_that_is_not_ours_is_an_error(handling, errors):
    async def handler(message):
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(1)

    assert await outcome(handling, handler) is RETRY
    await asyncio.sleep(0)  # still works: nothing is left of the cancellation
    assert isinstance(errors[0][0], asyncio.CancelledError)


async def test_at_the_end_a_handler_can_be_cancelled(handling, errors):
    started = asyncio.Event()

    async def handler(message):
        started.set()
        await asyncio.sleep(1)

    running = asyncio.ensure_future(outcome(handling, handler))
    await started.wait()
    handling.closing = True
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not errors


async def test_the_counts_are_those_of_messages_done_and_not_done(handling):
    async def handler(message):
        return AckUpTo(1)

    to = listener(handler)
    await handling.run(to, QUEUE, [ReceivedMessage(message(), "t") for _ in range(5)])
    assert (to.stats.counters.ok, to.stats.counters.failed, to.stats.counters.consumed) == (2, 3, 1)


async def test_an_async_on_error_is_awaited_and_its_own_errors_change_nothing():
    heard = []

    async def on_error(error, message):
        heard.append(error)
        raise RuntimeError("also broken")

    made = Handling("g", HookList(), ordered=False, batch=1, max_concurrency=1, consume_timeout=60, on_error=on_error)
    error = ValueError("no")
    made.report(error, None)
    await asyncio.sleep(0)
    assert heard == [error]
    await asyncio.sleep(0)
    made.close()


def test_a_predicate_marks_what_it_refuses_and_where_it_fails(handling, errors):
    def where(received):
        if received.body == b"odd":
            raise ValueError("odd")
        return received.body == b"yes"

    messages = [ReceivedMessage(message(body), "t") for body in (b"yes", b"no", b"odd")]
    wanted = handling.wanted(listener(None, where), messages)
    assert wanted == messages[:1]
    assert [each.mark for each in messages] == [None, ACK, RETRY]
    assert len(errors) == 1


class TestListeners:
    @pytest.fixture
    def listeners(self):
        made = Listeners(Namespace("ns"), "ns%g", lambda topic: TopicStats(0.0))
        made.set("ns%orders", Callable(), None)
        return made

    def test_a_queue_has_the_listener_of_its_topic(self, listeners):
        assert listeners.of_queue("ns%orders").topic == "orders"
        assert listeners.of_queue("%RETRY%ns%g") is None

    def test_a_retry_has_the_listener_of_its_own_topic(self, listeners):
        retry = message(topic="%RETRY%ns%g", RETRY_TOPIC="ns%orders")
        assert listeners.of_message(retry) is listeners.of_queue("ns%orders")

    async def test_a_topic_that_nobody_listens_to_has_no_handler(self, listeners, handling):
        nobody = listeners.of_message(message(topic="%RETRY%ns%g", RETRY_TOPIC="ns%gone"))
        assert (nobody.topic, nobody.handler) == ("gone", None)
        with pytest.raises(StateError):
            await handling.call(nobody, [ReceivedMessage(message(), "t")])
