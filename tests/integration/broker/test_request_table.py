"""Every request code of the broker stands in one table, and no body of any of them stops the broker."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from pyromq.broker.requests import RULES
from pyromq.remoting import BodySize

MiB = 1024 * 1024
BOUNDS = {BodySize.SMALL: 64 * 1024, BodySize.LIST: MiB, BodySize.MESSAGE: 4 * MiB + 64 * 1024}
HELD_WITHOUT_NEED = 0.25  # seconds; a quiet machine needs 0.03
ATTEMPTS = 5  # on a busy machine, or a slow disk, somebody else may hold it for so long


@contextlib.asynccontextmanager
async def longest_turn():
    """The longest time that the event loop, which is the broker's too, was away."""
    longest = [0.0]

    async def watch():
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest[0] = max(longest[0], time.perf_counter() - began)

    watching = asyncio.create_task(watch())
    try:
        yield longest
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_the_table_has_every_code_that_is_served_and_no_other(scene):
    assert set(scene.broker._parts.processors) == set(RULES)


@pytest.mark.slow
async def test_every_request_has_an_answer_whatever_its_body(scene):
    client = await scene.connect()
    for code, rule in RULES.items():
        noise = random.Random(code).randbytes(2000)
        for body in (b"", noise, b"[" * 60_000, b'{"$ref":' * 8000):
            reply = await client.call(code, {}, body)
            assert reply.header["flag"] & 1, code
        bound = BOUNDS[rule.body]
        reply = await client.call(code, {}, bytes(bound + 1))
        if rule.body is BodySize.MESSAGE:
            assert (reply.code, f"msg body length limit {4 * MiB}B" in reply.remark) == (13, True)
        else:
            assert reply.code == 1
            assert f"has {bound + 1} bytes; at most {bound} are taken" in reply.remark
    assert (await client.put(b"still there")).code == 0


DIALECT = {
    "refs": b'{"clientID":"c","x":[[],' + b'{"$ref":"$.x[0]"},' * 14_000 + b"[]]}",
    "integer keys": b'{"clientID":"c","x":{' + b",".join(b"%d:%d" % (n, n) for n in range(40_000)) + b"}}",
    "single quotes": b"{'clientID':'c','x':[" + b"'a'," * 120_000 + b"]}",
    "an error at the end": b'{"clientID":"c","x":[' + b"+1," * 150_000 + b"?]}",
    "strict": b'{"clientID":"c","x":[' + b"[]," * 150_000 + b"[]]}",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DIALECT)
async def test_a_large_heartbeat_in_any_dialect_holds_nobody_up(kind, scene):
    body = DIALECT[kind]
    assert 200_000 < len(body) < MiB // 2
    client, other = await scene.connect(), await scene.connect()
    turns = []
    for _ in range(ATTEMPTS):
        async with longest_turn() as longest:
            beat = asyncio.create_task(client.call(34, {}, body))
            while not beat.done():
                assert (await other.put(b"meanwhile")).code == 0
        assert (await beat).code in (0, 1)
        turns.append(longest[0])
        if longest[0] < HELD_WITHOUT_NEED:
            return
    raise AssertionError(f"the event loop was away for {turns} s")
