"""`pyromq dlq`, `trace`, `queue` and `bench` against a real cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import pytest

from pyromq import Client, Consumer, Producer, StartAt

_NUMBERS = itertools.count()


async def _fail_at(namesrv, topic, group, bodies):
    """Send messages that a consumer of `group` makes dead letters of at once."""
    left = {*bodies}
    done = asyncio.Event()
    consumer = Consumer(group, namesrv=namesrv, start_at=StartAt.FIRST)

    @consumer.on(topic)
    async def handle(message):
        message.dead_letter()
        left.discard(message.body.decode())
        if not left:
            done.set()

    async with consumer:
        async with Producer("makers", namesrv=namesrv) as producer:
            for number, body in enumerate(bodies):
                await producer.send(
                    topic, body.encode(), tags="red", keys=[f"key-{number}"], properties={"n": str(number)}
                )
        async with asyncio.timeout(20):
            await done.wait()


@pytest.fixture
def letters(pyromq, cluster, topic):
    """A group with five dead letters."""
    group = f"failing-{next(_NUMBERS)}"
    asyncio.run(_fail_at(cluster.namesrv, topic, group, [f"bad {number}" for number in range(5)]))
    # They are sent back when their handler is through, and name servers hear of their topic after that.
    deadline = time.monotonic() + 10
    while (group, 5) not in [(row["group"], row["messages"]) for row in pyromq.rows("dlq", "list")]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return group


def test_dead_letters_are_listed_shown_and_sent_again(pyromq, topic, letters):
    [row] = [row for row in pyromq.rows("dlq", "list") if row["group"] == letters]
    assert row["messages"] == 5
    shown = pyromq.rows("dlq", "show", letters)
    assert sorted(row["body"] for row in shown) == [f"bad {number}" for number in range(5)]
    assert {(row["origin"], row["tags"]) for row in shown} == {(topic, "red")}
    assert len(pyromq.rows("dlq", "show", letters, "--grep", "bad 3")) == 1

    refused = pyromq("dlq", "redrive", letters)
    assert (refused.code, refused.out) == (2, "")
    assert f"send 5 dead letters of group {letters}" in refused.err
    assert "would send 1 dead letters" in pyromq("dlq", "redrive", letters, "--grep", "bad 3", "--dry-run").err
    before = pyromq.rows("message", "count", topic)[0]["messages"]
    redriven = pyromq.rows("dlq", "redrive", letters, "--yes", "--rate", "500")
    assert {row["id"] for row in redriven} == {row["id"] for row in shown}
    assert {row["error"] for row in redriven} == {None}
    again = pyromq.rows("message", "list", topic, "--last", "5")
    assert pyromq.rows("message", "count", topic)[0]["messages"] == before + 5
    assert {row["properties"]["REPLAY_OF"] for row in again} == {row["id"] for row in shown}
    assert {row["properties"]["n"] for row in again} == set("01234")
    assert {tuple(row["keys"]) for row in again} == {(f"key-{number}",) for number in range(5)}


def test_one_dead_letter_goes_elsewhere(pyromq, topic, letters):
    chosen = pyromq.rows("dlq", "show", letters)[2]
    elsewhere = f"{topic}-elsewhere"
    assert pyromq("topic", "create", elsewhere).code == 0
    [row] = pyromq.rows("dlq", "redrive", letters, "--id", chosen["id"], "--to", elsewhere, "--yes")
    assert (row["id"], row["topic"]) == (chosen["id"], elsewhere)
    assert [each["body"] for each in pyromq.rows("message", "list", elsewhere)] == [chosen["body"]]
    assert pyromq("dlq", "redrive", letters, "--id", "nobody", "--yes").code == 3


def test_a_failure_is_told_by_id_and_the_others_are_sent(pyromq, topic, letters):
    ended = pyromq("dlq", "redrive", letters, "--to", "SCHEDULE_TOPIC_XXXX", "--yes", "-o", "json")
    assert ended.code == 1
    rows = json.loads(ended.out)
    assert len(rows) == 5
    assert all("forbidden" in row["error"] for row in rows)
    assert "5 failed" in ended.err


def test_dead_letters_are_exported_and_purged(pyromq, letters, tmp_path):
    file = tmp_path / "dead.ndjson"
    assert pyromq("dlq", "export", letters, "-f", str(file)).code == 0
    assert len(file.read_text().splitlines()) == 5
    assert pyromq("dlq", "purge", letters).code == 2
    assert pyromq("dlq", "purge", letters, "--yes").code == 0
    assert letters not in [row["group"] for row in pyromq.rows("dlq", "list", "--all")]


def test_a_group_without_dead_letters_is_answered_with_the_nearest(pyromq, letters):
    ended = pyromq("dlq", "show", letters.replace("failing", "faling"))
    assert ended.code == 3
    assert letters in ended.err
    assert pyromq("dlq", "purge", "zzz", "--yes").code == 3


def test_a_trace_shows_who_sent_and_who_consumed(pyromq, cluster, topic):
    async def work():
        done = asyncio.Event()
        async with Client(cluster.namesrv, trace=True) as client:
            consumer = Consumer("traced", client=client, start_at=StartAt.FIRST)

            @consumer.on(topic)
            async def handle(message):
                done.set()

            async with consumer, Producer("tracers", client=client) as producer:
                result = await producer.send(topic, b"x", keys=["traced-key"])
                async with asyncio.timeout(20):
                    await done.wait()
            return result.id

    message_id = asyncio.run(work())
    publish, consume = pyromq.rows("trace", "get", message_id)
    assert (publish["event"], publish["group"], publish["status"]) == ("publish", "tracers", "success")
    assert (consume["event"], consume["group"], consume["status"]) == ("consume", "traced", "success")
    assert publish["topic"] == topic
    assert [row["event"] for row in pyromq.rows("trace", "get", "traced-key")] == ["publish", "consume"]


def test_an_untraced_message_says_why_there_is_nothing(pyromq, topic):
    [row] = pyromq.rows("message", "send", topic, "x")
    ended = pyromq("trace", "get", row["id"])
    assert ended.code == 3
    assert "enableMsgTrace" in ended.err
    assert "traceTopicEnable" in pyromq("trace", "get", row["id"], "-t", "no-such-trace-topic").err


def test_entries_of_a_queue_are_dumped(pyromq, topic):
    pyromq("message", "send", topic, "x", "-q", "broker-a:1", "-c", "3", "--tag", "red")
    rows = pyromq.rows("queue", "dump", topic, "broker-a:1")
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert rows[0]["tagsCode"] == rows[1]["tagsCode"] != 0
    assert rows[1]["commitLogOffset"] == rows[0]["commitLogOffset"] + rows[0]["size"]
    assert [row["offset"] for row in pyromq.rows("queue", "dump", topic, "broker-a:1", "--from", "1", "-c", "1")] == [1]
    assert pyromq("queue", "dump", topic, "broker-a").code == 2
    assert pyromq("queue", "dump", topic, "broker-b:0").code == 3


def test_a_bench_sends_and_reads_what_it_says(pyromq, topic):
    assert pyromq("bench", "consume", topic).code == 3
    assert pyromq("bench", "send", "no-such-topic").code == 3
    [sent] = pyromq.rows("bench", "send", topic, "-c", "200", "-s", "100", "--at-once", "16")
    assert (sent["messages"], sent["failed"]) == (200, 0)
    assert 0 < sent["p50Ms"] <= sent["p99Ms"] <= sent["maxMs"]
    assert pyromq.rows("message", "count", topic)[0]["messages"] == 201  # and one to connect
    [read] = pyromq.rows("bench", "consume", topic, "-c", "100")
    assert read["messages"] == 100
    assert "would send" in pyromq("bench", "send", topic, "--dry-run").err
