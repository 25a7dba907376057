"""Those who flood, send garbage or never end their frames do not take a broker away from everybody else.

`make bench ARGS=abuse` measures the same with thousands of them.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.integration.broker.abuse_kit import FLOOD_SOURCE, GARBAGE_SOURCE, HALF_FRAME_SOURCE, Abuse, abused
from tests.integration.broker.command_kit import line_with, started
from tests.integration.broker.scene_kit import Client, send_ext
from tests.integration.namesrv.raw_client import json_request
from tests.ports import free_port

pytestmark = pytest.mark.slow

SENDS = 100
# Far beyond what it takes on a busy machine, and far below what a flood of a few seconds would hold it up for.
PATIENT = 1.0


REFUSALS = (
    f"200 connections from {HALF_FRAME_SOURCE} are open; refusing more (maxConnectionsPerAddress)",
    f"connections a second from {GARBAGE_SOURCE} sent garbage; refusing more",
    f"more than 2000 requests a second from {FLOOD_SOURCE} (maxRequestsPerSecond)",
)


def said(folder):
    return "".join(path.read_text() for path in (folder / "logs").iterdir())


async def worst_send(client):
    worst = 0.0
    for _ in range(SENDS):
        began = time.perf_counter()
        await client.sent()
        worst = max(worst, time.perf_counter() - began)
    return worst


async def test_an_honest_client_is_served_beside_a_crowd_and_a_flood(tmp_path):
    port = free_port(2)
    limits = ("maxRequestsPerSecond=2000", "maxConnectionsPerAddress=200")
    flood = json_request(310, send_ext("flooded"), b"x" * 100)
    # To files: nobody reads what it writes meanwhile.
    options = ("--log-dir", str(tmp_path / "logs"), f"listenPort={port}", "bindAddress=127.0.0.1", *limits)
    with started(tmp_path, "broker", *options) as process:
        line_with(process, "boot success")
        client = await Client.connect(port)
        assert isinstance(client, Client)
        try:
            await client.sent()
            with abused(Abuse(port, flood, half_frames=250, garbage=100, floods=4, meek=False)):
                assert await worst_send(client) < PATIENT
                # The flood is let through as far as its limit goes, and what was refused said why.
                before, began = await client.max_offset("flooded"), time.monotonic()
                assert await worst_send(client) < PATIENT
                passed = await client.max_offset("flooded") - before
                assert 0 < passed < 2000 * (time.monotonic() - began) + 4000
                async with asyncio.timeout(60):  # on a busy machine it takes the crowd a while to misbehave
                    while not all(refusal in said(tmp_path) for refusal in REFUSALS):
                        await client.sent()
            assert (await client.call(28)).code == 0
        finally:
            await client.close()
            process.kill()
    # One line a minute for all that garbage.
    assert 1 <= sum(f"{GARBAGE_SOURCE}:" in line for line in said(tmp_path).splitlines()) <= 3
