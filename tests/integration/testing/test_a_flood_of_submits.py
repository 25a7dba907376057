"""A program that has the cluster inside itself and sends as fast as it can, while others send a little."""

from __future__ import annotations

import asyncio

import pytest

from pyromq import Message, Producer
from pyromq.testing import Cluster

COUNT = 40_000


@pytest.mark.slow
async def test_nothing_that_was_submitted_times_out_beside_others():
    """In `make demo` sends timed out: whoever says much took turns so short that its queue only grew."""
    asyncio.get_running_loop().set_debug(False)  # or the program would not be fast enough to flood
    async with (
        Cluster() as cluster,
        Producer("many", namesrv=cluster.namesrv) as many,
        Producer("few", namesrv=cluster.namesrv) as few,
    ):
        await many.send(Message("orders", b"first"))

        async def now_and_then() -> None:
            while True:
                await few.send(Message("orders", b"now and then"))
                await asyncio.sleep(0.01)

        beside = asyncio.create_task(now_and_then())
        sent = [await many.submit(Message("orders", b"%d" % number)) for number in range(COUNT)]
        results = await asyncio.gather(*sent)
        beside.cancel()
        assert {result.status.name for result in results} == {"SEND_OK"}


async def test_a_row_of_submits_lets_the_rest_of_the_program_have_its_turns():
    turns = 0

    async def rest() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Cluster() as cluster, Producer("many", namesrv=cluster.namesrv) as many:
        await many.send(Message("orders", b"first"))
        beside = asyncio.create_task(rest())
        for number in range(1280):
            await many.submit(Message("orders", b"%d" % number))
        assert turns >= 10
        beside.cancel()
        await many.flush()
