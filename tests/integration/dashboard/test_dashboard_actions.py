"""What people do with the pages: publish, send again, move groups, send dead letters again, change settings."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from tests.integration.dashboard.dashboard_kit import eventually, scene

from pyromq.admin.groups.reset import Goal, Move, reset_plan
from pyromq.client import Consumer, DeadLetter, StartAt
from pyromq.dashboard.kept.jobs import State

pytestmark = pytest.mark.slow


@pytest.fixture
async def stage(tmp_path):
    async with scene(tmp_path) as stage:
        yield stage


async def rows(stage, query):
    status, answer = await stage.browser.json(f"/api/v1/messages?q={query}&limit=500")
    assert status == 200, answer
    return answer["rows"]


@pytest.mark.scenario("admin 21")
async def test_a_message_is_published_with_key_tag_property_and_delay(stage):
    await stage.admin.topics.create("orders", read_queues=2, write_queues=2)
    fields = {
        "body": '{"n": 1}',
        "tags": "paid",
        "keys": "k1 k2",
        "property": ["region", ""],
        "value": ["eu", ""],
        "delay_level": "1",
        "count": "2",
    }
    page = await stage.browser.post("/topics/orders/publish", fields)
    assert page.status == 200
    assert "2 messages were sent" in page.said

    async def there():
        return len(await rows(stage, "topic:orders")) == 2

    await eventually(there)
    found = await rows(stage, "topic:orders%20prop.region=eu%20tag:paid")
    assert len(found) == 2
    assert found[0]["keys"] == ["k1", "k2"]
    entries = await stage.site.audit.entries()
    assert (entries[0].action, entries[0].target, entries[0].outcome) == ("send message", "orders", "done")


async def test_a_message_goes_to_the_queue_that_was_chosen(stage):
    await stage.admin.topics.create("orders", read_queues=4, write_queues=4)
    await stage.browser.post("/topics/orders/publish", {"body": "x", "queue": "broker-a:3"})
    assert [row["queue"] for row in await rows(stage, "topic:orders")] == [3]
    page = await stage.browser.post("/topics/orders/publish", {"body": "%%%", "encoding": "base64"})
    assert page.status == 400
    assert "not base64" in page.said
    assert "%%%" in page.said


@pytest.mark.scenario("admin 22")
async def test_a_message_is_sent_again_with_another_body(stage):
    [sent] = await stage.send("orders", b"first", tags="A", properties={"region": "eu"})
    place = f"/m/orders/broker-a/{sent.queue.queue_id}/{sent.offset}/again"
    form = await stage.browser.get(place)
    assert "first" in form.text
    assert 'value="region"' in form.text
    fields = {"topic": "orders", "body": "second", "tags": "A", "origin": sent.id, "property": "region", "value": "eu"}
    page = await stage.browser.post(place, fields)
    assert "1 message was sent" in page.said
    found = {row["preview"]: row["id"] for row in await rows(stage, "topic:orders%20prop.region=eu")}
    assert found["first"] == sent.id
    assert found["second"] != sent.id
    assert (await stage.site.audit.entries())[0].detail == f"again: {sent.id}"


async def test_reading_creates_nothing_and_commits_nothing(stage):
    await stage.send("orders", b"x")
    before = await stage.admin.topics.names(), await stage.admin.groups.names()
    for path in (
        "/topics/orders",
        "/topics/orders/groups",
        "/messages?q=topic:orders",
        "/messages?q=topic:nope",
        "/groups/nope",
        "/topics/nope",
        "/dlq/nope",
        "/m/nope/id",
    ):
        await stage.browser.get(path)
    assert (await stage.admin.topics.names(), await stage.admin.groups.names()) == before
    assert await stage.admin.topics.groups("orders") == []


@pytest.mark.scenario("admin 25")
async def test_the_preview_is_the_plan_and_apply_moves_the_group(stage):
    await stage.admin.topics.create("orders", read_queues=2, write_queues=2)
    await stage.send("orders", *(b"%d" % number for number in range(10)))
    consumed = 0
    async with Consumer("billing", {"orders": "*"}, namesrv=stage.cluster.namesrv, start_at=StartAt.FIRST) as consumer:
        async for message in consumer:
            message.ack()
            consumed += 1
            if consumed == 10:
                break
    await stage.looked()
    plan = await reset_plan(stage.admin, "billing", "orders", Goal(Move.EARLIEST))
    assert plan.replays == 10
    page = await stage.browser.get("/groups/billing/offsets?topic=orders&move=earliest")
    assert plan.summary in page.said
    cells = re.findall(r"<strong>(\d+)</strong>", page.text)
    assert [int(cell) for cell in cells] == [row.target for row in plan.rows]
    hidden = dict(
        re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text[page.text.index('id="preview"') :])
    )
    done = await stage.browser.post(
        "/groups/billing/offsets", {name: hidden[name] for name in ("topic", "move", "value", "targets")}
    )
    assert done.status == 303, done.said
    after = await reset_plan(stage.admin, "billing", "orders", Goal(Move.LATEST))
    assert after.skips == 10
    said = (await stage.browser.get("/groups/billing")).said
    assert "lag 10 in 2 queues" in said
    entry = (await stage.site.audit.entries())[0]
    assert (entry.action, entry.outcome) == ("move group", "done")


async def test_a_preview_that_is_no_longer_true_is_not_applied(stage):
    await stage.admin.topics.create("orders", read_queues=1, write_queues=1)
    await stage.send("orders", b"a", b"b")
    await stage.admin.groups.create("billing")
    await stage.looked()
    fields = {"topic": "orders", "move": "offset", "value": "1", "targets": "broker-a:0:9"}
    page = await stage.browser.post("/groups/billing/offsets", fields)
    assert page.status == 400
    assert "changed meanwhile" in page.said


async def dead(stage, count):
    """So many dead letters of the group `billing`, from the topic `orders`."""
    await stage.admin.topics.create("orders", read_queues=1, write_queues=1)
    await stage.send("orders", *(b"%d" % number for number in range(count)), keys=["k"])
    done = []
    consumer = Consumer("billing", namesrv=stage.cluster.namesrv, start_at=StartAt.FIRST)

    @consumer.on("orders")
    async def handle(message):
        done.append(message.id)
        return DeadLetter()

    async with consumer:

        async def all_dead():
            from pyromq.errors import PyroMQError

            try:
                queues = await stage.admin.topics.stats("%DLQ%billing")
            except PyroMQError:
                return False
            return sum(ends.max_offset for ends in queues.values()) >= count

        await eventually(all_dead)
    await stage.looked()


@pytest.mark.scenario("admin 24")
async def test_dead_letters_are_sent_again_at_a_rate_with_a_result_for_each(stage):
    await dead(stage, 25)
    assert "billing" in (await stage.browser.get("/dlq")).said
    page = await stage.browser.get("/dlq/billing")
    assert page.text.count('name="place" value') == 25
    started = await stage.browser.post("/dlq/billing/redrive", {"all": "1", "rate": "200"})
    assert started.status == 303
    number = int(started.headers["Location"].rsplit("/", 1)[1])

    async def ended():
        return (await stage.site.jobs.get(number)).state is not State.RUNNING

    await eventually(ended)
    job = await stage.site.jobs.get(number)
    assert (job.state, job.total, job.done, job.failed) == (State.DONE, 25, 25, 0)
    results = await stage.site.jobs.rows(number)
    assert len(results) == 25
    originals = {row["id"] for row in (await rows(stage, "topic:orders"))[25:]}
    assert {result.name for result in results} == originals
    assert len(await rows(stage, "topic:orders")) == 50
    replayed = await rows(stage, f"topic:orders%20prop.REPLAY_OF={results[0].name}")
    assert len(replayed) == 1
    page = await stage.browser.get(f"/jobs/{number}")
    assert "25 / 25" in page.said
    csv = await stage.browser.get(f"/jobs/{number}/results.csv")
    assert len(csv.text.splitlines()) == 26


async def test_chosen_dead_letters_go_to_a_chosen_topic_and_failures_are_listed(stage):
    await dead(stage, 3)
    await stage.admin.topics.create("rescue", read_queues=1, write_queues=1)
    places = re.findall(r'name="place" value="([^"]+)"', (await stage.browser.get("/dlq/billing")).text)
    started = await stage.browser.post(
        "/dlq/billing/redrive", {"place": [places[0], "broker-a:0:999"], "to": "rescue", "rate": "100"}
    )
    number = int(started.headers["Location"].rsplit("/", 1)[1])

    async def ended():
        return (await stage.site.jobs.get(number)).state is not State.RUNNING

    await eventually(ended)
    job = await stage.site.jobs.get(number)
    assert (job.done, job.failed) == (2, 1)
    failed = await stage.site.jobs.rows(number, failed_only=True)
    assert [row.name for row in failed] == ["broker-a:0:999"]
    assert len(await rows(stage, "topic:rescue")) == 1
    assert (await stage.browser.post("/dlq/billing/redrive", {})).status == 400
    assert (await stage.browser.post("/dlq/billing/redrive", {"all": "1", "to": "nope"})).status == 404


async def test_a_job_can_be_stopped(stage):
    await dead(stage, 20)
    started = await stage.browser.post("/dlq/billing/redrive", {"all": "1", "rate": "1"})
    number = int(started.headers["Location"].rsplit("/", 1)[1])
    assert (await stage.browser.post(f"/jobs/{number}/stop")).status == 303

    async def ended():
        return (await stage.site.jobs.get(number)).state is State.STOPPED

    await eventually(ended)
    assert (await stage.site.jobs.get(number)).done < 20


async def test_topics_and_groups_are_created_changed_and_deleted(stage):
    assert (await stage.browser.post("/topics", {"topic": "t1", "queues": "3"})).status == 303
    assert (await stage.browser.post("/topics", {"topic": "t1"})).status == 400
    assert (await stage.browser.post("/topics", {"topic": "a/b c"})).status == 400
    fields = {"broker": "broker-a", "read_queues": "5", "write_queues": "5", "perm": "r"}
    assert (await stage.browser.post("/topics/t1/config", fields)).status == 303
    [config] = (await stage.admin.topics.config("t1")).values()
    assert (config.write_queue_nums, config.perm) == (5, 4)
    assert (await stage.browser.post("/topics/t1/delete", {"name": "other"})).status == 400
    assert (await stage.browser.post("/topics/t1/delete", {"name": "t1"})).status == 303
    assert "t1" not in await stage.admin.topics.names()
    assert (await stage.browser.post("/groups", {"group": "g1"})).status == 303
    page = await stage.browser.get("/groups/g1/config")
    address = page.first(r'name="broker" value="([^"]+)"')
    fields = {"broker": address, "consume": "1", "retry_queues": "2", "retry_max": "7"}
    assert (await stage.browser.post("/groups/g1/config", fields)).status == 303
    [settings] = (await stage.admin.groups.config("g1")).values()
    assert (settings.retry_max_times, settings.consume_broadcast_enable) == (7, False)
    assert (await stage.browser.post("/groups/g1/delete", {"name": "g1"})).status == 303
    assert "g1" not in await stage.admin.groups.names()


async def test_a_setting_of_a_broker_is_changed_and_checked(stage):
    path = "/brokers/broker-a/0/config"
    assert (await stage.browser.post(path, {"key": "fileReservedTime", "value": "48"})).status == 303
    assert (await stage.admin.brokers.config(stage.cluster.broker.address))["fileReservedTime"] == "48"
    assert (await stage.browser.post(path, {"key": "a b", "value": "x"})).status == 400
    assert (await stage.browser.post(path, {"key": "ok", "value": "x\ny"})).status == 400


async def test_the_api_says_what_the_pages_show(stage):
    await stage.send("orders", b"x")
    await stage.looked()
    status, document = await stage.browser.json("/api/v1/openapi.json")
    assert status == 200
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        if "get" not in methods or "{" in path or path == "/history":
            continue
        query = "?q=topic:orders" if path == "/messages" else ""
        status, answer = await stage.browser.json(f"/api/v1{path}{query}")
        assert status == 200, (path, answer)
    status, answer = await stage.browser.json("/api/v1/topics?q=orders")
    assert [row["topic"] for row in answer["rows"]] == ["orders"]
    [row] = await rows(stage, "topic:orders")
    status, message = await stage.browser.json(f"/api/v1/messages/orders/broker-a/{row['queue']}/{row['offset']}")
    assert message["body"] == "x"
    status, answer = await stage.browser.json("/api/v1/topics/orders/messages", {"body": "via api", "keys": ["k"]})
    assert status == 200
    assert answer["rows"][0]["status"] == "SEND_OK"
    status, answer = await stage.browser.json("/api/v1/topics/orders/messages", {"bdy": 1})
    assert status == 400
    status, answer = await stage.browser.json("/api/v1/groups/billing/offsets", {"topic": "orders", "move": "latest"})
    assert (status, answer["applied"]) == (200, False)
    status, answer = await stage.browser.json("/api/v1/groups/nope/lag")
    assert status == 404
    assert json.dumps(answer).isascii()


async def test_history_is_drawn_from_what_was_sampled(stage):
    await stage.send("orders", b"x")
    await stage.looked()
    await stage.looked()
    status, chart = await stage.browser.json("/api/v1/history?series=in,lag&span=15m")
    assert status == 200
    assert [line["name"] for line in chart["lines"]] == ["in", "lag"]
    assert len(chart["times"]) == len(chart["lines"][0]["values"]) > 0
    assert abs(chart["times"][-1] - datetime.now(UTC).timestamp()) < 10
    assert (await stage.browser.json("/api/v1/history?series=in&span=9y"))[0] == 400
