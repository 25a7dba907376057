"""A broker whose event loop was held up, and the requests that waited meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker

from pyromq.errors import SystemBusy
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.frame import FrameDecoder, encode
from pyromq.protocol.headers import SendMessageV2

HELD_UP = 0.5  # seconds; sends may wait for 0.2 of them


@pytest.fixture
async def broker(tmp_path, monkeypatch):
    monkeypatch.setattr("pyromq.broker.fast_failure._GRACE", 0)
    async with new_broker(tmp_path, "brokerFastFailureEnable=true") as running:
        yield running


async def watched(broker, *, on=True):
    """Wait until the broker measures how late it is, or until it does not any more."""

    async def seen():
        return (broker._parts.fast_failure.late_after < time.monotonic() + 1) is on

    await eventually(seen)


async def answers_after_being_held_up(broker, *codes):
    """What a client gets whose requests waited for all the time that the loop did something else."""
    loop = asyncio.get_running_loop()
    decoder = FrameDecoder()
    header = SendMessageV2("producers", "orders", "TBW102", 4, 0, 0, 1, 0)
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.setblocking(False)
        await loop.sock_sendall(sock, encode(Command.request(RequestCode.GET_BROKER_CONFIG)))
        while decoder.next() is None:
            decoder.feed(await loop.sock_recv(sock, 65536))
        sock.setblocking(True)
        sock.sendall(b"".join(encode(Command.request(code, header, b"x")) for code in codes))
        time.sleep(HELD_UP)  # noqa: ASYNC251 - what holds up the loop
        sock.setblocking(False)
        answers: list[Command] = []
        while len(answers) < len(codes):
            if (answer := decoder.next()) is not None:
                answers.append(answer)
            else:
                decoder.feed(await loop.sock_recv(sock, 65536))
    return answers


@pytest.mark.slow
@pytest.mark.scenario("broker 13.2")
async def test_a_send_that_waited_too_long_is_refused_and_the_next_one_is_not(broker):
    await watched(broker)
    refused, served = await answers_after_being_held_up(
        broker, RequestCode.SEND_MESSAGE_V2, RequestCode.GET_ALL_TOPIC_CONFIG
    )
    assert (refused.code, served.code) == (2, 0)
    assert refused.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in")
    assert not refused.ext
    await watched(broker)
    async with Peer() as peer:
        await eventually(lambda: sent(peer, broker.address))


async def sent(peer, address):
    # A machine that is busy may be late again.
    try:
        return (await peer.send(address)) is not None
    except SystemBusy:
        return False


@pytest.mark.slow
async def test_without_fast_failure_it_is_served_however_long_it_waited(broker):
    await watched(broker)
    async with Peer() as peer:
        await peer.configure(broker.address, "brokerFastFailureEnable=false")
    await watched(broker, on=False)
    [answer] = await answers_after_being_held_up(broker, RequestCode.SEND_MESSAGE_V2)
    assert (answer.code, answer.remark) == (0, None)
