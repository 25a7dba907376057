"""Live streams: the tail of a topic, looks at the cluster, and browsers that do not read."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from tests.integration.dashboard.dashboard_kit import eventually, scene

from pyromq.dashboard.web.streams import BOUND, Event, EventStream, Queue

pytestmark = pytest.mark.slow


@pytest.fixture
async def stage(tmp_path):
    async with scene(tmp_path) as stage:
        await stage.admin.topics.create("orders", read_queues=2, write_queues=2)
        yield stage


class Stream:
    """Reads server-sent events."""

    def __init__(self, answer):
        self._answer = answer

    async def event(self, name):
        """The next event of this name: its data and its id."""
        found: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self._answer.content:
                line = line.decode().rstrip("\n")
                if line:
                    key, _, value = line.partition(": ")
                    found[key] = found.get(key, "") + value
                elif found.get("event") == name:
                    return found.get("data", ""), found.get("id")
                else:
                    found = {}
        raise AssertionError("the stream ended")

    async def rows(self, count):
        """The previews of so many rows, and the last position."""
        seen: list[str] = []
        skipped, position = 0, None
        while len(seen) + skipped < count:
            data, position = await self.event("rows")
            data = json.loads(data)
            seen += [part.split("</td>")[0] for part in data["html"].split('class="preview">')[1:]]
            skipped += data["skipped"]
        return seen, skipped, position


async def test_every_look_is_an_event(stage):
    async with stage.browser.http.get(f"{stage.browser.url}/events") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        await Stream(answer).event("sample")


@pytest.mark.scenario("admin 19")
async def test_a_burst_is_shown_or_counted_and_a_pause_loses_nothing(stage):
    url = f"{stage.browser.url}/topics/orders/tail/events"
    async with stage.browser.http.get(url) as answer:
        stream = Stream(answer)
        await eventually(lambda: EventStream.open_now > 0)
        await asyncio.sleep(0.2)  # the tail has begun to pull
        await stage.send("orders", *(b"n%d" % number for number in range(300)))
        seen, skipped, position = await stream.rows(300)
        assert len(set(seen)) + skipped == 300
    await stage.send("orders", *(b"while paused %d" % number for number in range(20)))
    async with stage.browser.http.get(url, params={"at": position}) as answer:
        seen, skipped, _ = await Stream(answer).rows(20)
        assert sorted(seen) == sorted(f"while paused {number}" for number in range(20))
    async with stage.browser.http.get(url, headers={"Last-Event-ID": position}) as answer:
        seen, _, _ = await Stream(answer).rows(20)
        assert len(seen) == 20
    await eventually(lambda: EventStream.open_now == 0)
    assert await stage.admin.topics.groups("orders") == []


async def test_a_tail_shows_what_its_filter_lets_through_as_text(stage):
    url = f"{stage.browser.url}/topics/orders/tail/events?q=tag:A%20prop.k=v"
    async with stage.browser.http.get(url) as answer:
        await asyncio.sleep(0.2)
        await stage.send("orders", b"other tag", tags="B", properties={"k": "v"})
        await stage.send("orders", b"<script>alert(1)</script>", tags="A", properties={"k": "v"})
        seen, _, _ = await Stream(answer).rows(1)
        assert seen == ["&lt;script&gt;alert(1)&lt;/script&gt;"]
    assert (await stage.browser.get("/topics/nope/tail/events")).status == 404
    assert (await stage.browser.get("/topics/orders/tail/events?at=nonsense")).status == 400


async def test_a_browser_that_does_not_read_holds_up_nobody(stage):
    host, port = stage.browser.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /topics/orders/tail/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await eventually(lambda: EventStream.open_now > 0)
        for _ in range(6):
            await stage.send("orders", *(b"x" * 200 for _ in range(200)))
        assert (await stage.browser.get("/")).status == 200
    await eventually(lambda: EventStream.open_now == 0)


async def test_a_full_queue_drops_the_oldest_and_says_how_many():
    queue = Queue()
    for number in range(BOUND + 7):
        queue.put(Event("row", str(number)))
    events = await queue.get(1.0)
    assert events is not None
    assert events[0] == Event("skipped", "7")
    assert [event.data for event in events[1:3]] == ["7", "8"]
    assert len(events) == BOUND + 1
    assert await queue.get(0.001) == []
    queue.close()
    assert await queue.get(1.0) is None


def test_an_event_keeps_its_lines_apart():
    assert Event("a", "one\ntwo", "7").encode() == b"event: a\nid: 7\ndata: one\ndata: two\n\n"
