"""Pages while brokers and name servers are down: they work, and say who is down and since when."""

from __future__ import annotations

import time

import pytest
from tests.integration.client.cluster_kit import Cluster
from tests.integration.dashboard.dashboard_kit import running_dashboard

from pyromq.client import Message, Producer

pytestmark = pytest.mark.slow


@pytest.fixture
async def stage(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.start_broker("broker-b")
        async with running_dashboard(cluster.namesrv, sample_every=60) as (server, browser):
            admin = server.site.default.admin
            await admin.topics.create("orders", read_queues=1, write_queues=1)
            async with Producer("p", namesrv=cluster.namesrv) as producer:
                for _ in range(4):
                    await producer.send(Message("orders", b"x"))
            await server.site.default.sampler.look()
            yield cluster, server, browser


PAGES = (
    "/",
    "/topics",
    "/groups",
    "/dlq",
    "/brokers",
    "/producers",
    "/topics/orders",
    "/topics/orders/queues",
    "/topics/orders/config",
    "/messages?q=topic:orders",
    "/security",
    "/ops",
    "/brokers/replication",
)


async def test_a_broker_that_is_down_is_named_with_the_time_and_the_pages_work(stage):
    cluster, server, browser = stage
    began = time.time()
    await cluster.stop_broker("broker-b")
    sampler = server.site.default.sampler
    await sampler.look()
    [silent] = sampler.latest.silent
    assert silent.row.broker == "broker-b"
    since = silent.silent_since
    assert began - 1 <= since <= time.time()
    for path in PAGES:
        page = await browser.get(path)
        assert page.status == 200, (path, page.said[-300:])
        if not path.endswith("replication"):
            assert "A broker does not answer" in page.said, path
            assert f"broker-b ({silent.row.address})" in page.said, path
    assert "orders" in (await browser.get("/topics")).said
    await sampler.look()
    assert sampler.latest.silent[0].silent_since == since
    status, answer = await browser.json("/api/v1/brokers")
    assert status == 200
    assert len(answer["rows"]) == 2
    await cluster.start_broker("broker-b")
    await sampler.look()
    assert sampler.latest.silent == ()
    assert "does not answer" not in (await browser.get("/")).said


async def test_without_a_name_server_the_last_picture_stays(stage):
    cluster, server, browser = stage
    await cluster.stop_name_server()
    await server.site.default.sampler.look()
    for path in ("/", "/topics", "/groups", "/brokers", "/dlq", "/jobs", "/audit"):
        page = await browser.get(path)
        assert page.status == 200, path
        assert "No name server answers" in page.said
    assert "orders" in (await browser.get("/topics")).said
    page = await browser.get("/topics/orders/queues")
    assert page.status in (502, 504)
    assert "did not answer" in page.said or "No answer in time" in page.said
    assert server.site.default.seen.brokers[0].silent_since is None


async def test_a_dashboard_starts_before_its_cluster(tmp_path):
    cluster = Cluster(tmp_path)
    async with running_dashboard(cluster.namesrv, sample_every=60) as (server, browser):
        page = await browser.get("/")
        assert page.status == 200
        assert "No name server answers" in page.said
        async with cluster:
            await server.site.default.sampler.look()
            page = await browser.get("/")
            assert "No name server answers" not in page.said
            assert "1 / 1" in page.said
