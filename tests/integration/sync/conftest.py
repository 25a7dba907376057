"""A cluster in a thread of its own, since the tests here block; and an eye on what they leave on the loop."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.sync.background_kit import Background

from pyromq.broker.timers import schedule
from pyromq.sync.portal import portal

_PATIENCE = 30.0


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After every test all tasks on the loop of pyromq.sync have ended, but for the one that keeps it running."""

    async def others():
        await asyncio.sleep(0)  # the last call's own callbacks
        return asyncio.all_tasks() - {asyncio.current_task()}

    async def ended(tasks):
        return (await asyncio.wait(tasks, timeout=_PATIENCE))[1] if tasks else tasks

    through = portal("a test", "nothing")
    before = through.wait(others())
    yield
    left = through.wait(others()) - before
    assert not through.wait(ended(left))


@pytest.fixture
def cluster(tmp_path):
    """A name server and a broker that creates topics by itself."""
    with Background(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """The same, and its broker does not wait at any delay level."""
    monkeypatch.setattr(schedule, "_FIRST", 0.0)
    monkeypatch.setattr(schedule, "_PAUSE", 0.01)
    with Background(tmp_path, "messageDelayLevel=" + " ".join(["0s"] * 18)) as cluster:
        yield cluster
