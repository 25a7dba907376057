"""Requests that are begun without waiting: `Connection.start`, and what a client offers around it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.unit.remoting.test_one_turn_of_a_connection import NotingTransport

from pyromq.errors import ConnectionLost, RequestTimeout
from pyromq.protocol.command import Command
from pyromq.protocol.frame import encode
from pyromq.remoting import Connection, Endpoint, RemotingClient


class PausingTransport(NotingTransport):
    def __init__(self):
        super().__init__()
        self.aborted = False

    def abort(self):
        self.aborted = True

    def close(self): ...

    def pause_reading(self): ...


class Waiting:
    """Notes what it is given, as a waiter that does its work at once would."""

    def __init__(self):
        self.given = []

    def done(self):
        return False

    def set_result(self, response):
        self.given.append(response.code)

    def set_exception(self, error):
        self.given.append(type(error))


class Seeing:
    def before_request(self, peer, request): ...

    def after_response(self, peer, request, response): ...


@pytest.fixture
async def opened():
    def opening(**settings):
        connection, transport = Connection(Endpoint(**settings)), PausingTransport()
        connection.connection_made(cast("Any", transport))
        made.append(connection)
        return connection, transport

    made: list[Connection] = []
    yield opening
    for connection in made:
        connection.connection_lost(None)


def frame(opaque):
    request = Command.request(310)
    request.opaque = opaque
    return (encode(request),)


def reply(opaque, code=0):
    response = Command.request(310).reply(code)
    response.opaque = opaque
    return encode(response)


async def test_the_reply_goes_to_the_waiter_while_it_is_read(opened):
    connection, transport = opened()
    waiter = Waiting()
    assert connection.start(7, 310, frame(7), waiter, 5)
    assert connection.calls_under_way == 1
    await asyncio.sleep(0)
    assert transport.writes == [frame(7)[0]]
    connection.data_received(reply(7, 14))
    assert waiter.given == [14]
    assert connection.calls_under_way == 0


async def test_a_future_is_a_waiter_too(opened):
    connection, _ = opened()
    future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
    connection.start(7, 310, frame(7), future, 5)
    connection.data_received(reply(7))
    assert (await future).code == 0


async def test_who_hears_nothing_in_time_is_told(opened):
    connection, _ = opened()
    waiter = Waiting()
    connection.start(7, 310, frame(7), waiter, 0.001)
    async with asyncio.timeout(5):
        while not waiter.given:  # noqa: ASYNC110  # the waiter is no event
            await asyncio.sleep(0.001)
    assert waiter.given == [RequestTimeout]


async def test_the_end_of_the_connection_is_told_to_the_waiter(opened):
    connection, _ = opened()
    waiter = Waiting()
    connection.start(7, 310, frame(7), waiter, 5)
    connection.connection_lost(None)
    assert waiter.given == [ConnectionLost]
    assert not connection.start(8, 310, frame(8), waiter, 5)


async def test_nothing_is_sent_where_somebody_wants_to_see_requests(opened):
    connection, transport = opened(hooks=[Seeing()])
    assert not connection.start(7, 310, frame(7), Waiting(), 5)
    await asyncio.sleep(0)
    assert (transport.writes, connection.calls_under_way) == ([], 0)


async def test_nothing_is_sent_while_the_peer_does_not_read(opened):
    connection, _ = opened()
    connection.pause_writing()
    assert not connection.start(7, 310, frame(7), Waiting(), 5)
    assert not await connection.writable(0.001)
    waiting = asyncio.create_task(connection.writable(5))
    await asyncio.sleep(0)
    connection.resume_writing()
    assert await waiting
    assert await connection.writable(0)
    assert connection.start(7, 310, frame(7), Waiting(), 5)


async def test_no_more_requests_are_begun_than_there_are_permits(opened):
    connection, _ = opened(async_permits=2)
    assert [connection.start(number, 310, frame(number), Waiting(), 5) for number in range(3)] == [True, True, False]


async def test_a_forgotten_request_is_answered_to_nobody(opened):
    connection, _ = opened()
    waiter = Waiting()
    connection.start(7, 310, frame(7), waiter, 5)
    connection.forget(7)
    connection.data_received(reply(7))
    assert waiter.given == []
    assert connection.calls_under_way == 0


async def test_without_a_waiter_nothing_is_under_way(opened):
    connection, transport = opened()
    assert connection.start(0, 310, frame(0), None, 5)
    await asyncio.sleep(0)
    assert (len(transport.writes), connection.calls_under_way) == (1, 0)


async def test_a_connection_that_was_silent_is_given_up_and_a_busy_one_is_not(opened):
    connection, transport = opened()
    async with RemotingClient() as client:
        before = connection.received
        connection.data_received(reply(1))
        client.give_up_if_silent(connection, before, 3)
        assert not transport.aborted
        client.give_up_if_silent(connection, connection.received, 3)
        assert transport.aborted
        assert client.open_connection("127.0.0.1:1") is None
