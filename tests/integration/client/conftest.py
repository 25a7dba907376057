"""What the tests of the clients share: a cluster in this process, clients for it, and an eye on what is left behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.client.cluster_kit import Cluster

from pyromq.broker import assembly
from pyromq.client.client import Client

_PATIENCE = 30.0


@pytest.fixture(autouse=True)
async def nothing_is_left():
    """After every test all tasks have ended, and no error was left to the event loop to report.

    Set up before everything else, so that it looks when all the rest, the servers included, is gone.
    """
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_PATIENCE)
    assert not left, left
    assert not errors, errors


@pytest.fixture
def no_rounds(monkeypatch):
    """The broker never looks by itself at the pulls that it holds, so only what happens can wake one."""
    monkeypatch.setattr(assembly, "_LOOK_AT_HELD_PULLS", 3600.0)


@pytest.fixture
async def cluster(tmp_path):
    """A name server and the broker `broker-a`, which creates topics by itself."""
    async with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
async def cluster_with(tmp_path):
    """Start a cluster whose broker has more settings than usual."""
    async with contextlib.AsyncExitStack() as running:

        async def start(*sets):
            return await running.enter_async_context(Cluster(tmp_path / "cluster", *sets))

        yield start


@pytest.fixture
async def client_of():
    """Make clients of a cluster, started; they are closed at the end."""
    async with contextlib.AsyncExitStack() as running:

        async def start(cluster, **settings):
            return await running.enter_async_context(Client(cluster.namesrv, **settings))

        yield start
