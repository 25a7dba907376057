"""Every page over real HTTP against a real cluster: empty, and with something in it; whatever messages contain."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest
from tests.integration.dashboard.dashboard_kit import eventually, scene

from pyromq.client import Client, Consumer, DeadLetter, Message, Producer, StartAt
from pyromq.errors import PyroMQError

pytestmark = pytest.mark.slow

PAGES = [
    "/",
    "/topics",
    "/groups",
    "/messages",
    "/dlq",
    "/brokers",
    "/brokers/replication",
    "/producers",
    "/traces",
    "/jobs",
    "/audit",
    "/security",
    "/ops",
    "/ops/findings",
    "/lake",
    "/account/password",
    "/palette?q=o",
]
OF_TOPIC = [
    "/topics/orders",
    "/topics/orders/tail",
    "/topics/orders/queues",
    "/topics/orders/groups",
    "/topics/orders/producers",
    "/topics/orders/publish",
    "/topics/orders/config",
]
OF_GROUP = [
    "/groups/billing",
    "/groups/billing/clients",
    "/groups/billing/offsets",
    "/groups/billing/offsets?topic=orders&move=earliest",
    "/groups/billing/config",
    "/dlq/billing",
]
OF_BROKER = ["/brokers/broker-a/0", "/brokers/broker-a/0/config", "/brokers/broker-a/0/config?q=disk"]


@pytest.fixture
async def stage(tmp_path):
    async with scene(tmp_path) as stage:
        yield stage


def links(page):
    return re.findall(r'(?:href|src|action|hx-get|sse-connect|data-src)="([^"#]*)', page.text)


@pytest.mark.scenario("admin 17")
async def test_an_empty_cluster_has_helpful_pages_that_ask_nobody_else(stage):
    for path in PAGES:
        page = await stage.browser.get(path)
        assert page.status == 200, (path, page.said[-300:])
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert page.headers["Cache-Control"] == "no-store"
        foreign = [link for link in links(page) if link and not link.startswith("/")]
        assert foreign == [], path
        assert not re.search(r"<script(?![^>]*(?:src=|application/json))| on\w+=|style=\"", page.text), path
    assert "No topics yet" in (await stage.browser.get("/topics")).said
    assert "No consumer groups yet" in (await stage.browser.get("/groups")).said
    assert "No dead letters" in (await stage.browser.get("/dlq")).said


async def test_every_page_of_a_cluster_with_traffic_can_be_read(stage):
    sent = await stage.send("orders", b'{"a": 1}', b"plain", bytes(range(256)), tags="paid", keys=["k1"])
    await stage.admin.groups.create("billing")
    async with Consumer("billing", {"orders": "*"}, namesrv=stage.cluster.namesrv, start_at=StartAt.FIRST) as consumer:
        async for message in consumer:
            message.ack()
            break
        await stage.looked()
        place = f"/m/orders/broker-a/{sent[0].queue.queue_id}/{sent[0].offset}"
        of_message = [
            f"/m/orders/{sent[0].id}",
            place,
            *(f"{place}/{part}" for part in ("deliveries", "trace", "again")),
        ]
        for path in [
            *PAGES,
            *OF_TOPIC,
            *OF_GROUP,
            *OF_BROKER,
            *of_message,
            f"/traces/{sent[0].id}",
            "/messages?q=topic:orders",
        ]:
            page = await stage.browser.get(path)
            assert page.status == 200, (path, page.said[-300:])
            for link in links(page):
                assert link == "" or link.startswith("/"), (path, link)
    overview = await stage.browser.get("/")
    assert "orders" in overview.said


async def test_every_link_of_the_menu_and_of_lists_leads_somewhere(stage):
    await stage.send("orders", b"x")
    await stage.looked()
    seen: set[str] = set()
    left = ["/"]
    while left and len(seen) < 150:
        path = left.pop().replace("&amp;", "&")
        if path in seen or re.search(r"^/(static|logout|language|events)|/events|export|/body", path):
            continue
        seen.add(path)
        page = await stage.browser.get(path)
        assert page.status in (200, 303), (path, page.status, page.said[-300:])
        left += [link for link in re.findall(r'href="(/[^"#]*)', page.text) if link.startswith("/")]
    assert len(seen) > 40


@pytest.mark.scenario("admin 18")
async def test_bodies_are_shown_as_json_text_or_hex_and_downloaded_as_they_are(stage):
    big = b"x" * 1_000_000
    binary = bytes(range(256))
    sent = await stage.send("orders", b'{"city": "Quito", "n": 1}', "grüße 你好".encode(), binary, big)

    def place(result):
        return f"/m/orders/broker-a/{result.queue.queue_id}/{result.offset}"

    page = await stage.browser.get(place(sent[0]))
    assert '<span class="key">&#34;city&#34;</span>' in page.text
    assert "你好" in (await stage.browser.get(place(sent[1]))).said
    page = await stage.browser.get(place(sent[2]))
    assert "00000010  10 11 12 13" in page.text
    assert "00000000" in page.text
    page = await stage.browser.get(place(sent[3]))
    assert "truncated" in page.said
    assert len(page.text) < 400_000
    for result, body in zip(sent[2:], (binary, big), strict=True):
        page = await stage.browser.get(f"{place(result)}/body")
        assert page.body == body
        assert page.headers["Content-Disposition"].startswith("attachment")
        assert page.headers["Content-Type"] == "application/octet-stream"


HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}"


@pytest.mark.scenario("admin 34")
async def test_whatever_a_message_contains_is_shown_as_text(stage):
    key = "<b>key</b>"
    async with Producer("test", namesrv=stage.cluster.namesrv) as producer:
        result = await producer.send(
            Message("orders", HOSTILE.encode(), tags="<i>tag</i>", keys=[key], properties={"<u>name</u>": HOSTILE})
        )
        json_body = await producer.send(Message("orders", ('{"<script>": "' + "</pre><script>" + '"}').encode()))
    await stage.looked()
    place = f"/m/orders/broker-a/{result.queue.queue_id}/{result.offset}"
    other = f"/m/orders/broker-a/{json_body.queue.queue_id}/{json_body.offset}"
    paths = [
        "/topics/orders",
        place,
        f"{place}/again",
        other,
        f"/topics/orders?open=orders@broker-a:{result.queue.queue_id}:{result.offset}",
    ]
    paths += [
        f"/messages?q=topic:orders%20body~{'%3Cscript%3E'}",
        "/messages?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/traces/%3Cscript%3E",
    ]
    paths += [
        "/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/groups/%22%3E%3Cimg%20src=x%3E",
        "/topics?q=%22%3E%3Cscript%3E",
        "/audit?q=%22%3E%3Cscript%3E",
    ]
    for path in paths:
        page = await stage.browser.get(path)
        assert "<script>" not in page.text.replace('<script type="application/json"', ""), path
        assert "<img" not in page.text, path
        assert "<i>tag" not in page.text, path
        assert "<u>name" not in page.text, path
        assert "<b>key" not in page.text, path
    assert "alert(1)</script>" in html.unescape((await stage.browser.get(place)).text)


@pytest.mark.scenario("admin 20")
async def test_the_address_holds_the_whole_state_of_a_search(stage):
    await stage.send("orders", *(b"n%d" % number for number in range(30)), tags="A", properties={"k": "v"})
    await stage.send("orders", b"other", tags="B")
    path = "/topics/orders?q=tag%3AA%20prop.k%3Dv%20after%3A-1h"
    page = await stage.browser.get(path)
    assert page.text.count("<tr><td") + page.text.count('<tr>\n  <td class="nowrap">') == 30
    first = html_links(page)[0]
    opened = await stage.browser.get(first)
    assert "Permanent link" in opened.said
    assert html_links(opened) == html_links(page)


def html_links(page):
    return [link.replace("&amp;", "&") for link in re.findall(r'class="name id"><a href="([^"#]*)', page.text)]


async def test_a_search_goes_back_page_by_page_without_loss_or_repetition(stage):
    await stage.admin.topics.create("orders", read_queues=3, write_queues=3)
    await stage.send("orders", *(b"n%d" % number for number in range(125)))
    seen, older = [], ""
    for _ in range(10):
        status, answer = await stage.browser.json(f"/api/v1/messages?q=topic:orders&limit=20&older={older}")
        assert status == 200
        seen += [row["preview"] for row in answer["rows"]]
        older = answer["older"]
        if older is None:
            break
    assert sorted(seen) == sorted(f"n{number}" for number in range(125))
    assert seen[0] in {"n122", "n123", "n124"}  # the last of each queue, perhaps stored in the same millisecond


async def test_a_search_that_says_too_little_or_nonsense_gets_a_sentence(stage):
    await stage.send("orders", b"x")
    for query, said in (
        ("tag:A", "say in which topic"),
        ("colour:red", "is not known"),
        ("topic:orders after:soon", "is not a time"),
        ('topic:orders "', "quote is not closed"),
    ):
        page = await stage.browser.get(f"/messages?q={query.replace(' ', '%20').replace(chr(34), '%22')}")
        assert page.status == 400
        assert said in page.said
    assert (await stage.browser.get("/topics/nope")).status == 404
    assert "nope" not in await stage.admin.topics.names()


@pytest.mark.scenario("admin 36")
async def test_messages_are_exported_as_csv_and_ndjson(stage):
    await stage.send("orders", *(b"=cmd()|%d" % number for number in range(300)), tags="A")
    await stage.send("orders", b"left out", tags="B")
    page = await stage.browser.get("/messages/export?q=topic:orders%20tag:A&form=csv")
    rows = list(csv.DictReader(io.StringIO(page.text)))
    assert len(rows) == 300
    assert rows[0]["body"] == "'=cmd()|0"
    assert page.headers["Content-Disposition"] == 'attachment; filename="orders.csv"'
    page = await stage.browser.get("/messages/export?q=topic:orders%20tag:A&form=ndjson")
    records = [json.loads(line) for line in page.text.splitlines()]
    assert [record["body"] for record in records] == [f"=cmd()|{number}" for number in range(300)]
    page = await stage.browser.get("/messages/export?q=topic:..%2F..%2Fetc%2Fpasswd&form=csv")
    assert page.status == 404


@pytest.mark.scenario("admin 26")
async def test_members_with_different_subscriptions_are_named_with_the_consequence(stage):
    await stage.admin.topics.create("orders", read_queues=2, write_queues=2)
    client = stage.cluster.namesrv
    async with Consumer("billing", {"orders": "paid"}, client=Client(client, instance_name="one")):
        await stage.looked()
        async with Consumer("billing", {"orders": "open"}, client=Client(client, instance_name="two")):

            async def both():
                return (await stage.browser.get("/groups/billing/clients")).said

            await eventually(lambda: both_online(stage))
            said = await both()
            assert "The subscriptions of this group differ" in said
            assert "one side loses messages" in said
            assert "paid" in said
            assert "open" in said


async def both_online(stage):
    try:
        return len((await stage.admin.groups.connections("billing")).connection_set) == 2
    except PyroMQError:
        return False


@pytest.mark.scenario("admin 28")
async def test_a_message_without_a_trace_says_why(stage):
    [sent] = await stage.send("orders", b"x")
    page = await stage.browser.get(f"/traces/{sent.id}")
    assert page.status == 200
    assert "Not traced" in page.said
    assert "traceTopicEnable" in page.said or "tracing is off at its producer" in page.said


@pytest.mark.scenario("admin 27")
async def test_a_traced_message_shows_its_publish_and_its_consumes(stage):
    client = Client(stage.cluster.namesrv, trace=True)
    failures = []
    consumer = Consumer("billing", client=client, start_at=StartAt.FIRST)

    @consumer.on("orders")
    async def handle(message):
        failures.append(message.id)
        return DeadLetter()

    await stage.admin.topics.create("orders", read_queues=1, write_queues=1)
    async with Producer("p", client=client) as producer, consumer:
        sent = await producer.send("orders", b"x")
        await eventually(lambda: bool(failures))

        async def shown():
            said = (await stage.browser.get(f"/traces/{sent.id}")).said
            return "publish" in said and "consume" in said

        await eventually(shown)
    page = await stage.browser.get(f"/traces/{sent.id}")
    assert '<svg class="timeline"' in page.text
    assert f"/m/orders/{sent.id}" in page.text
