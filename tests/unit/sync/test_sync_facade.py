"""The blocking classes without any server: setting up, states, and where they may not be called."""

from __future__ import annotations

import asyncio

import pytest

import pyromq
from pyromq import client, sync
from pyromq.errors import ConfigError, StateError
from pyromq.sync.received import ReceivedMessage, blocking, listener


def producer():
    return sync.Producer("senders", namesrv="127.0.0.1:1")


@pytest.mark.scenario("client 56")
def test_a_producer_that_is_not_started_or_closed_says_so_at_once():
    one = producer()
    with pytest.raises(StateError, match="not started"):
        one.send("orders", b"body")
    one.start()
    one.close()
    with pytest.raises(StateError, match="closed"):
        one.send("orders", b"body")
    with pytest.raises(StateError, match="closed"):
        one.submit("orders", b"body")


@pytest.mark.scenario("client 54")
async def test_inside_a_coroutine_every_call_names_the_class_to_use_there():
    with pytest.raises(StateError, match=r"pyromq\.sync\.Producer\.send would block .* use pyromq\.Producer there"):
        producer().send("orders", b"body")
    with pytest.raises(StateError, match=r"pyromq\.Consumer there"):
        sync.Consumer("group", {"orders": "*"}).__enter__()
    with pytest.raises(StateError, match=r"sync\.TopicAdmin\.names .* pyromq\.AdminClient there"):
        sync.AdminClient("127.0.0.1:1").topics.names()
    with pytest.raises(StateError, match=r"pyromq\.PullConsumer there"):
        iter(sync.PullConsumer("group"))


async def test_setting_up_is_possible_inside_a_coroutine():
    consumer = sync.Consumer("group", namesrv="127.0.0.1:1")

    @consumer.on("orders")
    def handle(message):
        pass

    consumer.subscribe("payments", handler=handle)
    assert consumer.group == "group"
    assert consumer.assignment == frozenset()
    assert "sync Consumer group" in repr(consumer)


def test_start_gives_the_blocking_object_and_so_does_with():
    one = producer()
    assert one.start() is one
    one.close()
    with producer() as other:
        assert isinstance(other, sync.Producer)


def test_a_blocking_client_can_be_shared():
    shared = sync.Client("127.0.0.1:1")
    with shared, sync.Producer("a", client=shared) as one, sync.AdminClient(client=shared):
        assert one.client.client_id == shared.client_id
        with pytest.raises(StateError, match="already"):
            sync.Producer("a", client=shared).start()
    with pytest.raises(ConfigError):
        sync.Producer("a", client=shared, namesrv="127.0.0.1:1")


def test_the_errors_of_the_async_classes_come_through():
    with pytest.raises(TypeError):
        sync.Producer(*[])
    with pytest.raises(TypeError):
        producer().send(*[])
    with pytest.raises(ConfigError, match="has no subscriptions"):
        sync.Consumer("group", namesrv="127.0.0.1:1").start()


def test_a_plain_handler_gets_blocking_messages_and_a_coroutine_function_others():
    def message():
        return client.ReceivedMessage.__new__(client.ReceivedMessage)

    def plain(received):
        return received

    async def waiting(received):
        return received

    class Waiting:
        async def __call__(self, received):
            return received

    one, two = message(), message()
    assert listener(plain, None)(one) is one
    assert type(one) is ReceivedMessage
    assert isinstance(one, pyromq.ReceivedMessage)
    assert [type(each) for each in listener(plain, None)([two])] == [ReceivedMessage]
    assert listener(waiting, None) is waiting
    assert isinstance(listener(own := Waiting(), None), Waiting)
    assert listener(own, None) is own
    assert listener("no function", None) == "no function"


def test_what_is_no_message_stays_what_it_is():
    for value in (None, 3, [], [1, 2], {"a": 1}):
        assert blocking(value) == value


async def test_a_reply_is_not_sent_from_a_thread_that_runs_a_loop():
    message = blocking(client.ReceivedMessage.__new__(client.ReceivedMessage))
    with pytest.raises(StateError, match=r"ReceivedMessage\.reply would block"):
        await asyncio.sleep(0, message.reply(b"body"))
