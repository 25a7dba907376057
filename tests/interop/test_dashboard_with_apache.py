"""The dashboard at Apache's brokers and name servers of both lines: every page, and what people do with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.dashboard.dashboard_kit import eventually, running_dashboard

from pyromq.client import Consumer, DeadLetter, Message, Producer, StartAt
from pyromq.dashboard.kept.jobs import State
from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from tests.interop.apache_with_client import Apache

pytestmark = pytest.mark.interop

PAGES = ["/", "/topics", "/groups", "/messages", "/dlq", "/brokers", "/brokers/replication", "/producers", "/traces"]
PAGES += ["/jobs", "/audit", "/security", "/ops", "/ops/findings", "/lake"]
PATIENCE = 60.0


@pytest.mark.scenario("admin 35")
async def test_pages_and_actions_work_at_apaches_brokers(apache: Apache) -> None:
    topic, group = "dash-orders", "dash-billing"
    async with running_dashboard(apache.namesrv, sample_every=2) as (server, browser):
        admin, sampler = server.site.default.admin, server.site.default.sampler
        await admin.topics.create(topic, read_queues=2, write_queues=2)
        await admin.groups.create(group)
        consumer = Consumer(group, namesrv=apache.namesrv, start_at=StartAt.FIRST)

        @consumer.on(topic)
        async def handle(message: object) -> DeadLetter:
            return DeadLetter()

        async with Producer("dash", namesrv=apache.namesrv) as producer, consumer:
            await eventually(lambda: _routed(admin, topic), PATIENCE)
            sent = [await producer.send(Message(topic, b'{"n": %d}' % n, tags="A", keys=["k"])) for n in range(4)]
            await eventually(lambda: _dead(admin, group, 4), PATIENCE)
            await sampler.look()
            [broker] = [each.row for each in sampler.latest.brokers if each.row.id == 0]
            place = f"/m/{topic}/{broker.broker}/{sent[0].queue.queue_id}/{sent[0].offset}"
            paths = [
                *PAGES,
                place,
                f"{place}/deliveries",
                f"{place}/trace",
                f"/m/{topic}/{sent[0].id}",
                f"/dlq/{group}",
            ]
            tabs = ("", "/tail", "/queues", "/groups", "/producers", "/publish", "/config")
            paths += [f"/topics/{topic}{tab}" for tab in tabs]
            paths += [f"/groups/{group}{tab}" for tab in ("", "/clients", "/config")]
            paths += [f"/groups/{group}/offsets?topic={topic}&move=earliest", f"/messages?q=topic:{topic}%20tag:A"]
            paths += [f"/brokers/{broker.broker}/0", f"/brokers/{broker.broker}/0/config"]
            for path in paths:
                page = await browser.get(path)
                assert page.status == 200, (path, page.said[-400:])
            await eventually(lambda: _committed(sampler, group, topic), PATIENCE)
        # RocketMQ 4.x creates dead-letter topics that cannot be read.
        if "Make it readable" in (await browser.get(f"/dlq/{group}")).said:
            assert (await browser.post(f"/dlq/{group}/readable")).status == 303
        await eventually(lambda: _readable(browser, group), PATIENCE)
        started = await browser.post(f"/dlq/{group}/redrive", {"all": "1", "rate": "100"})
        assert started.status == 303, started.said
        number = int(started.headers["Location"].rsplit("/", 1)[1])
        await eventually(lambda: _ended(server, number), PATIENCE)
        job = await server.site.jobs.get(number)
        assert job is not None
        assert (job.state, job.done, job.failed) == (State.DONE, 4, 0)
        page = await browser.post(f"/topics/{topic}/publish", {"body": "typed", "tags": "B"})
        assert "1 message was sent" in page.said
        assert "typed" in (await browser.get(f"/topics/{topic}?q=tag:B")).said


async def _committed(sampler: Any, group: str, topic: str) -> bool:
    return bool((await sampler.look()).groups[group].topics == (topic,))


async def _ended(server: Any, number: int) -> bool:
    return bool((await server.site.jobs.get(number)).state is not State.RUNNING)


async def _routed(admin: Any, topic: str) -> bool:
    try:
        return bool((await admin.topics.route(topic)).queue_datas)
    except PyroMQError:
        return False


async def _dead(admin: Any, group: str, count: int) -> bool:
    try:
        queues = await admin.topics.stats(f"%DLQ%{group}")
    except PyroMQError:
        return False
    return bool(sum(ends.max_offset for ends in queues.values()) >= count)


async def _readable(browser: Any, group: str) -> bool:
    page = await browser.get(f"/dlq/{group}")
    return len(re.findall(r'name="place" value', page.text)) == 4
