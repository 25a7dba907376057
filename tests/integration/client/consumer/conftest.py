"""What the tests of consumers share."""

from __future__ import annotations

import contextlib

import pytest
from tests.integration.client.consumer.consume_kit import GROUP, quick_client

from pyromq.broker.timers import schedule
from pyromq.client.consumer.push_consumer import Consumer

LEVELS = 18


@pytest.fixture
def hurry(monkeypatch):
    """The broker looks at delayed messages all the time."""
    monkeypatch.setattr(schedule, "_FIRST", 0.0)
    monkeypatch.setattr(schedule, "_PAUSE", 0.01)


@pytest.fixture
async def impatient(cluster_with, hurry):
    """A cluster whose broker has eighteen delay levels, as usual, but does not wait at any."""
    return await cluster_with("messageDelayLevel=" + " ".join(["0s"] * LEVELS))


@pytest.fixture
async def consume():
    """Start consumers of a cluster; they are closed at the end."""
    async with contextlib.AsyncExitStack() as running:

        async def start(cluster, topics, handler=None, *, group=GROUP, where=None, expr="*", **settings):
            if "client" not in settings:
                settings["client"] = quick_client(cluster)
            consumer = Consumer(group, **settings)
            for topic in [topics] if isinstance(topics, str) else topics:
                consumer.subscribe(topic, expr, handler, where=where)
            return await running.enter_async_context(consumer)

        yield start
