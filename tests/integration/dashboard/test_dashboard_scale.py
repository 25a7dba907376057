"""Two thousand groups and five thousand topics: lists in less than a second, and requests that brokers count only."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from tests.integration.dashboard.dashboard_kit import running_dashboard

from pyromq.client.admin.requests import Requests
from pyromq.testing import Cluster

pytestmark = pytest.mark.slow

TOPICS, GROUPS, READ = 5000, 2000, 500


def fill(folder, topics, groups):
    """The settings of a store with so many topics and groups; each group has read one topic in four queues."""
    config = folder / "broker-a" / "config"
    config.mkdir(parents=True)
    table = {
        f"topic-{number:04}": {"topicName": f"topic-{number:04}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for number in range(topics)
    }
    version = {"counter": 1, "timestamp": 1}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
    names = [f"group-{number:04}" for number in range(groups)]
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": version, "subscriptionGroupTable": {name: {"groupName": name} for name in names}})
    )
    offsets = {
        f"topic-{number % min(READ, topics):04}@{name}": dict.fromkeys(map(str, range(4)), 0)
        for number, name in enumerate(names)
    }
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


@pytest.fixture
def asked(monkeypatch):
    """Counts requests by their codes."""
    counts: Counter[str] = Counter()
    for name in ("ask", "ask_name_server"):
        original = getattr(Requests, name)

        def counted(self, *args, _original=original, _name=name, **more):
            counts[f"{_name} {args[1] if _name == 'ask' else args[0]:d}"] += 1
            return _original(self, *args, **more)

        monkeypatch.setattr(Requests, name, counted)
    return counts


async def requests_of_a_look(folder, asked, topics, groups):
    fill(folder, topics, groups)
    async with Cluster(folder) as cluster, running_dashboard(cluster.namesrv, sample_every=600) as (server, browser):
        sampler = server.site.default.sampler
        asked.clear()
        await sampler.look()
        counted = Counter(asked)
        assert len(sampler.latest.groups) >= groups
        assert len(sampler.latest.topics) >= topics
        asked.clear()
        took = {}
        for path in (
            "/",
            "/topics",
            "/groups",
            "/dlq",
            "/topics?q=topic-0042",
            "/groups?sort=group&page=7",
            "/palette?q=topic",
        ):
            began = time.perf_counter()
            page = await browser.get(path)
            took[path] = time.perf_counter() - began
            assert page.status == 200
            assert len(page.text) < 200_000
        assert asked.total() == 0, "lists are drawn from what was seen before"
        return counted, took


async def test_requests_grow_with_brokers_and_not_with_groups_or_topics(tmp_path, asked):
    few, _ = await requests_of_a_look(tmp_path / "few", asked, 100, 100)
    many, took = await requests_of_a_look(tmp_path / "many", asked, TOPICS, GROUPS)
    # All but the topics that nobody reads, of which some are asked for in turn.
    for code in (202, 105):
        few.pop(f"ask {code}", None), many.pop(f"ask {code}", None)
        few.pop(f"ask_name_server {code}", None), many.pop(f"ask_name_server {code}", None)
    assert many == few
    assert many.total() <= 6
    assert max(took.values()) < 1.0, took
