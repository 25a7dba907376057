"""The one decision point, in front of real processors on a real port."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from pyromq.auth import Anyone, Refused, RequestGuard
from pyromq.auth.refusals import Refusals
from pyromq.protocol.command import Command
from pyromq.protocol.rights import OPEN, Action, Need, ResourceKind, from_body, topic
from pyromq.remoting import BodySize, RemotingClient, RemotingServer, Rule, ServerConfig

SEND, BEAT, STATUS = 1, 2, 3
SUB = frozenset((Action.SUB,))


def subscribed(body):
    return tuple(Need(ResourceKind.TOPIC, name, SUB) for name in json.loads(body))


RULES = {
    SEND: Rule(needs=topic(Action.PUB)),
    BEAT: Rule(BodySize.LIST, needs=from_body(subscribed)),
    STATUS: Rule(needs=OPEN),
}


class Names:
    """Whoever gives a name is that account, and may use topics that begin with it."""

    def identify(self, request, address, rule):
        name = (request.ext or {}).get("name")
        if name is None and rule.needs.signed:
            raise Refused("who are you?")
        return name

    def allow(self, account, needs, address, rule, code):
        for need in needs:
            if not need.name.startswith(account):
                raise Refused(f"{need.name} is not yours", account=account)

    def secret_of(self, account):
        return None

    @property
    def state(self):
        return None


class Served:
    def __init__(self, authority=None):
        self.refusals = Refusals()
        self.seen = []
        self.guard = RequestGuard(RULES, authority or Names(), self.refusals)
        self.processors = self.guard.over({SEND: self.answer, BEAT: self.answer, STATUS: self.answer})

    def answer(self, connection, request):
        self.seen.append(request.code)
        if "looked up" in (request.ext or {}):
            found = Need(ResourceKind.TOPIC, request.ext["looked up"], SUB)
            self.guard.require(connection, request, [found])
        return request.reply()


async def ask(served, code, body=None, **ext):
    async with RemotingServer(ServerConfig(listen_port=0), served.processors) as server, RemotingClient() as client:
        request = Command(code, ext=ext, body=body)
        return await asyncio.wait_for(client.invoke(f"127.0.0.1:{server.port}", request, timeout=5), 10)


async def refused(served, code, body=None, **ext):
    reply = await ask(served, code, body, **ext)
    assert reply.code == 16
    return reply.remark


async def test_what_is_allowed_reaches_its_processor_and_nothing_else():
    served = Served()
    assert (await ask(served, SEND, name="a", topic="a-orders")).code == 0
    assert served.seen == [SEND]
    assert await refused(served, SEND, name="a", topic="b-orders") == "b-orders is not yours"
    assert await refused(served, SEND, topic="a-orders") == "who are you?"
    assert served.seen == [SEND]
    assert served.refusals.counts == {SEND: 2}


@pytest.mark.parametrize("count", [2, 20_000])
async def test_bodies_are_asked_what_they_need_the_large_ones_too(count):
    served = Served()
    mine = json.dumps([f"a{number}" for number in range(count)]).encode()
    theirs = json.dumps([*(f"a{number}" for number in range(count)), "b"]).encode()
    assert (await ask(served, BEAT, mine, name="a")).code == 0
    assert await refused(served, BEAT, theirs, name="a") == "b is not yours"
    assert await refused(served, BEAT, mine) == "who are you?"
    assert served.seen == [BEAT]


async def test_what_is_open_needs_no_account():
    served = Served()
    assert (await ask(served, STATUS)).code == 0


async def test_a_processor_asks_for_what_it_finds_out_on_its_way():
    served = Served()
    assert (await ask(served, SEND, **{"name": "a", "topic": "a", "looked up": "a1"})).code == 0
    assert await refused(served, SEND, **{"name": "a", "topic": "a", "looked up": "b1"}) == "b1 is not yours"
    assert served.refusals.counts == {SEND: 1}


async def test_without_access_control_nothing_stands_between():
    served = Served(Anyone())
    assert served.processors[SEND] == served.answer
    assert (await ask(served, SEND, topic="b")).code == 0


class Counting(Names):
    """Also says how often somebody had to prove who they are."""

    def __init__(self):
        self.proofs = 0

    def identify(self, request, address, rule):
        self.proofs += 1
        return super().identify(request, address, rule)


@pytest.mark.parametrize("count", [2, 20_000])
async def test_who_sent_a_body_is_found_out_once(count):
    authority = Counting()
    served = Served(authority)
    body = json.dumps([f"a{number}" for number in range(count)]).encode()
    assert (await ask(served, BEAT, body, name="a")).code == 0
    assert authority.proofs == 1
    assert await refused(served, BEAT, json.dumps(["b"]).encode(), name="a") == "b is not yours"
    assert authority.proofs == 2


async def test_what_a_processor_requires_is_required_of_whom_was_found_out_before():
    authority = Counting()
    served = Served(authority)
    assert (await ask(served, SEND, name="a", topic="a", **{"looked up": "a-orders"})).code == 0
    assert await refused(served, SEND, name="a", topic="a", **{"looked up": "b"}) == "b is not yours"
    assert authority.proofs == 2


async def test_what_a_processor_requires_later_is_found_out_anew():
    """Meanwhile others asked for something; their account is not taken for this one's."""
    served = Served()
    held: dict[str, Command] = {}

    class Line:
        peer = "127.0.0.1:1"

    line = cast("Any", Line())
    served.processors = served.guard.over(
        {SEND: lambda _, request: held.__setitem__((request.ext or {})["name"], request)}
    )
    for name in ("a", "b"):
        served.processors[SEND](line, Command(SEND, ext={"name": name, "topic": name}))
    served.guard.require(line, held["a"], [Need(ResourceKind.TOPIC, "a-orders", SUB)])
    with pytest.raises(Refused, match="b-orders is not yours"):
        served.guard.require(line, held["a"], [Need(ResourceKind.TOPIC, "b-orders", SUB)])
