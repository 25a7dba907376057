"""Limits of rates in front of real processors: who floods waits, everybody else does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass

import pytest
from tests.integration.remoting.bare import Peer, eventually, request

from pyromq.auth import Anyone, Refused, RequestGuard
from pyromq.auth.refusals import Refusals
from pyromq.protocol.rights import SIGNED
from pyromq.remoting import RateLimits, RemotingServer, Rule, ServerConfig, body_limits

ASK = 1
RULES = {ASK: Rule(needs=SIGNED)}


class Named:
    """An account is whoever a request says it is from; a request without a name is refused."""

    def identify(self, request, address, rule):
        name = (request.ext or {}).get("name")
        if name is None:
            raise Refused("who are you?")
        return name

    def allow(self, account, needs, address, rule, code): ...


@contextlib.asynccontextmanager
async def serving(rates, authority=None):
    refusals = Refusals()
    guard = RequestGuard(RULES, authority or Anyone(), refusals, rates)
    served = []

    def answer(connection, command):
        served.append(connection.peer)
        return command.reply()

    async with RemotingServer(
        ServerConfig(listen_port=0),
        guard.over({ASK: answer}),
        body_limit=body_limits(RULES, max_list=1, max_frame=1),
        count_unserved=guard.count_unserved,
    ) as server:
        yield Served(server, refusals, served)


@dataclass
class Served:
    server: RemotingServer
    refusals: Refusals
    peers: list[str]


async def connect(served, source="127.0.0.1"):
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", served.server.port))
    return Peer(sock)


def named(name):
    command = request(ASK)
    command.ext = {"name": name}
    return command


@pytest.mark.limit("maxRequestsPerSecond")
async def test_what_comes_too_fast_is_refused_and_the_rest_left_unread_for_a_moment():
    async with serving(RateLimits(requests=20)) as served, await connect(served) as peer:
        await peer.send(*(request(ASK) for _ in range(100)))
        codes = [(await peer.read()).code for _ in range(20)]
        assert codes == [0] * 20
        refused = await peer.read()
        assert refused.code == 2
        assert refused.remark == "more than 20 requests a second from 127.0.0.1 (maxRequestsPerSecond)"
        (connection,) = served.server.connections
        assert not connection.transport.is_reading()
        # And goes on by itself, with what was sent meanwhile.
        assert {(await peer.read()).code for _ in range(10)} <= {0, 2}
        assert served.refusals.counts[ASK] >= 1


@pytest.mark.limit("maxBytesPerSecond")
async def test_bytes_count_with_headers_and_all():
    async with serving(RateLimits(size=50_000)) as served, await connect(served) as peer:
        assert (await peer.ask(request(ASK, body=bytes(60_000)))).code == 0
        refused = await peer.ask(request(ASK))
        assert refused.code == 2
        assert refused.remark == "more than 50000 bytes a second from 127.0.0.1 (maxBytesPerSecond)"


async def test_another_address_does_not_notice():
    async with (
        serving(RateLimits(requests=5)) as served,
        await connect(served) as flood,
        await connect(served, "127.0.0.2") as honest,
    ):
        await flood.send(*(request(ASK) for _ in range(1000)))
        await eventually(lambda: served.refusals.total)
        assert [(await honest.ask(request(ASK))).code for _ in range(5)] == [0] * 5
        assert (await honest.ask(request(ASK))).code == 2


async def test_accounts_count_wherever_they_come_from_and_strangers_by_their_address():
    async with (
        serving(RateLimits(requests=5), Named()) as served,
        await connect(served) as one,
        await connect(served, "127.0.0.2") as two,
    ):
        assert [(await one.ask(named("a"))).code for _ in range(3)] == [0] * 3
        assert [(await two.ask(named("a"))).code for _ in range(2)] == [0] * 2
        refused = await two.ask(named("a"))
        assert refused.remark == "more than 5 requests a second from a (maxRequestsPerSecond)"
        assert (await one.ask(named("b"))).code == 0
        # Guessing is bounded, too, and nobody can spend what belongs to an account.
        assert [(await one.ask(request(ASK))).code for _ in range(5)] == [16] * 5
        assert (await one.ask(request(ASK))).code == 2


@pytest.mark.parametrize("authority", [None, Named()], ids=["open", "accounts"])
@pytest.mark.parametrize(
    ("unserved", "code"), [(request(999), 3), (request(ASK, body=bytes(100_000)), 1)], ids=["unknown", "too large"]
)
async def test_requests_that_no_processor_gets_count_too(unserved, code, authority):
    async with serving(RateLimits(requests=5), authority) as served, await connect(served) as peer:
        assert [(await peer.ask(unserved)).code for _ in range(5)] == [code] * 5
        refused = await peer.ask(unserved)
        assert refused.code == 2
        assert refused.remark == "more than 5 requests a second from 127.0.0.1 (maxRequestsPerSecond)"
        (connection,) = served.server.connections
        assert not connection.transport.is_reading()
        assert served.refusals.counts == {unserved.code: 1}


async def test_bodies_that_are_too_large_count_with_all_their_bytes():
    async with serving(RateLimits(size=250_000)) as served, await connect(served) as peer:
        large = request(ASK, body=bytes(100_000))
        codes = [(await peer.ask(large)).code for _ in range(6)]
        assert codes[:2] == [1, 1]
        assert 2 in codes


async def test_a_oneway_request_that_nobody_serves_counts_and_is_not_answered():
    async with serving(RateLimits(requests=5)) as served, await connect(served) as peer:
        await peer.send(*(request(999, oneway=True) for _ in range(6)))
        await eventually(lambda: served.refusals.total)
        assert (await peer.ask(request(ASK))).code in (0, 2)


async def test_a_peer_that_leaves_while_it_waits_leaves_nothing_behind():
    async with serving(RateLimits(requests=1)) as served:
        async with await connect(served) as peer:
            await peer.send(*(request(ASK) for _ in range(10)))
            await eventually(lambda: served.refusals.total)
        # That it has left is seen once it is read again.
        await eventually(lambda: not served.server.connections)
        await eventually(lambda: served.server._open.total == 0)
