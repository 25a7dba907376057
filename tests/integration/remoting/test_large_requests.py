"""Large requests: what their code does not allow is refused unread, what takes long is read apart, what never ends is
bounded over all connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from tests.integration.remoting.bare import Peer, eventually, request

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import encode
from pyromq.protocol.rights import SIGNED
from pyromq.remoting import BodyLimit, BodySize, Rule, body_limits, with_body

if TYPE_CHECKING:
    from tests.integration.remoting.conftest import Start

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection

KiB, MiB = 1024, 1024 * 1024
SEND, BEAT, ASK, UNKNOWN = 10, 34, 105, 999
RULES = {SEND: Rule(BodySize.MESSAGE, needs=SIGNED), BEAT: Rule(BodySize.LIST, needs=SIGNED), ASK: Rule(needs=SIGNED)}
MESSAGE = BodyLimit(4 * MiB, "maxMessageSize", ResponseCode.MESSAGE_ILLEGAL)
LIMITS = body_limits(RULES, max_list=1 * MiB, max_frame=16 * MiB, message=lambda: MESSAGE)


def size(connection: Connection, command: Command) -> Command:
    return command.reply(0, str(len(command.body_bytes)))


TABLE = {SEND: size, BEAT: size, ASK: size}


def test_each_kind_of_body_has_its_limit():
    assert LIMITS(SEND) == MESSAGE
    assert LIMITS(BEAT) == BodyLimit(1 * MiB, "maxRequestBodySize")
    assert LIMITS(ASK).size == LIMITS(UNKNOWN).size == 64 * KiB


@pytest.mark.limit("maxRequestBodySize")
async def test_a_body_over_the_bound_of_its_code_is_refused_with_the_setting_that_says_so(start: Start):
    server = await start.server(TABLE, with_={"body_limit": LIMITS})
    async with await Peer.connect(server.address) as peer:
        for code, bound, refusal in ((SEND, 4 * MiB, 13), (BEAT, MiB, 1), (ASK, 64 * KiB, 1)):
            assert (await peer.ask(request(code, body=bytes(bound)))).remark == str(bound)
            reply = await peer.ask(request(code, body=bytes(bound + 1)))
            assert reply.code == refusal
            assert f"has {bound + 1} bytes; at most {bound} are taken" in (reply.remark or "")
            assert LIMITS(code).setting in (reply.remark or "")
        assert (await peer.ask(request(UNKNOWN, body=bytes(100 * KiB)))).code == 3
        # and the connection goes on
        assert (await peer.ask(request(ASK))).remark == "0"


async def test_the_refusal_does_not_wait_for_the_body_and_keeps_nothing_of_it(start: Start):
    server = await start.server(TABLE, with_={"body_limit": LIMITS})
    frame = encode(request(BEAT, body=bytes(15 * MiB)))
    async with await Peer.connect(server.address) as peer:
        await peer.send(frame[:1000])
        assert (await peer.read()).code == 1
        await peer.send(frame[1000:], request(ASK))
        assert (await peer.read()).remark == "0"
        assert server.endpoint.unfinished is not None
        assert server.endpoint.unfinished.total == 0


async def test_a_large_body_is_read_in_a_thread_and_requests_keep_their_order(start: Start):
    threads = []
    may_go_on = threading.Event()
    order = []

    def read(body: bytes) -> int:
        threads.append(threading.current_thread())
        if len(body) > KiB:
            assert may_go_on.wait(10)
        return len(body)

    def beat(connection: Connection, command: Command, length: int) -> Command:
        order.append(length)
        return command.reply(0, str(length))

    server = await start.server({BEAT: with_body(read, beat), ASK: size}, with_={"body_limit": LIMITS})
    async with await Peer.connect(server.address) as peer, await Peer.connect(server.address) as other:
        await peer.send(request(BEAT, body=bytes(MiB)), request(BEAT, body=b"x"))
        await eventually(lambda: threads)
        # Nobody else waits.
        assert (await other.ask(request(ASK))).remark == "0"
        assert (await other.ask(request(BEAT, body=b"abc"))).remark == "3"
        assert server.endpoint.unfinished is not None
        assert server.endpoint.unfinished.total >= MiB
        may_go_on.set()
        assert [(await peer.read()).remark for _ in range(2)] == [str(MiB), "1"]
        assert server.endpoint.unfinished.total == 0
    assert order == [3, MiB, 1]
    assert threads[0] is not threading.main_thread()
    assert threads[1:] == [threading.main_thread()] * 2


async def test_what_a_thread_cannot_read_is_answered_with_the_error(start: Start):
    def read(body: bytes) -> int:
        raise RemoteProtocolError("bad JSON")

    server = await start.server({BEAT: with_body(read, lambda *_: None)})
    async with await Peer.connect(server.address) as peer:
        for body in (b"x", bytes(MiB)):
            reply = await peer.ask(request(BEAT, body=body))
            assert (reply.code, reply.remark) == (1, "bad JSON")


async def test_a_peer_that_left_meanwhile_is_not_answered(start: Start):
    may_go_on = threading.Event()
    read_ones = []
    answered = []

    def read(body: bytes) -> int:
        may_go_on.wait(10)
        read_ones.append(len(body))
        return len(body)

    server = await start.server({BEAT: with_body(read, lambda *_: answered.append(1)), ASK: size})
    async with await Peer.connect(server.address) as peer:
        await peer.send(request(BEAT, body=bytes(MiB)))
        await eventually(lambda: server.endpoint.tasks)
        (connection,) = server.connections
        connection.close()
    may_go_on.set()
    await eventually(lambda: read_ones and not server.endpoint.tasks)
    assert not answered


@pytest.mark.limit("maxUnfinishedBytes")
async def test_frames_that_do_not_end_are_bounded_and_a_slow_sender_is_not_the_one_who_pays(start: Start, caplog):
    server = await start.server(TABLE, max_unfinished=32 * MiB)
    frame = encode(request(SEND, body=bytes(12 * MiB)))
    honest = encode(request(SEND, body=bytes(4 * MiB)))
    unfinished = server.endpoint.unfinished
    assert unfinished is not None
    async with await Peer.connect(server.address) as slow, contextlib.AsyncExitStack() as others:
        await slow.send(honest[: 2 * MiB])
        await eventually(lambda: unfinished.total == 2 * MiB)
        hostile = [await others.enter_async_context(await Peer.connect(server.address)) for _ in range(6)]
        for peer in hostile:
            with contextlib.suppress(ConnectionError):
                await peer.send(frame[:-1])
            assert unfinished.total <= 33 * MiB
        await eventually(lambda: unfinished.total >= 20 * MiB and len(server.connections) < 7)
        for at in range(2 * MiB, len(honest), 256 * KiB):
            await slow.send(honest[at : at + 256 * KiB])
            await asyncio.sleep(0)
        assert (await slow.read()).remark == str(4 * MiB)
    assert "33554432 may wait (maxUnfinishedBytes)" in caplog.text
    await eventually(lambda: unfinished.total == 0)
