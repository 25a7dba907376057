"""Pipelines on a real Spark: replay, transform, lag, latency, and audits of topics."""

from __future__ import annotations

import asyncio
import json
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.spark.messages import Topics, bodies, topics_in, until

import pyromq.spark as mq
from pyromq import Client, Consumer, Producer, StartAt
from pyromq.errors import ConfigError
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.spark.pipelines.runner import make
from pyromq.spark.pipelines.settings import KINDS, parse
from pyromq.spark.pipelines.surroundings import Surroundings
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def where(spark, topics, tmp_path) -> Surroundings:
    mq.enable(spark, namesrv=topics.cluster.namesrv)
    return Surroundings(spark, {"namesrv": topics.cluster.namesrv}, state=tmp_path / "state", folder=tmp_path)


def pipeline(kind: str, where: Surroundings, **settings: Any) -> Any:
    given = {key.rstrip("_"): value if isinstance(value, list) else str(value) for key, value in settings.items()}
    return make(kind, parse(KINDS[kind], given), where)


async def fail_at(namesrv: str, topic: str, group: str, count: int) -> None:
    """Send messages that a consumer of `group` makes dead letters of at once."""
    left = set(range(count))
    done = asyncio.Event()
    consumer = Consumer(group, namesrv=namesrv, start_at=StartAt.FIRST)

    @consumer.on(topic)
    async def handle(message):
        message.dead_letter()
        left.discard(int(message.body))
        if not left:
            done.set()

    async with consumer:
        async with Producer("makers", namesrv=namesrv) as producer:
            for n in range(count):
                await producer.send(topic, b"%d" % n, tags="red", keys=[f"k{n}"], properties={"n": str(n)})
        async with asyncio.timeout(30):
            await done.wait()


# Replay


@pytest.mark.scenario("spark 39")
def test_dead_letters_go_back_to_their_topic_once_at_their_rate(where, topics):
    topic, group = topics.new(2), "failing"
    asyncio.run(fail_at(topics.cluster.namesrv, topic, group, 150))
    until(lambda: topics.admin.topics.route(f"%DLQ%{group}") is not None)
    frame = lambda: mq.read(where.spark, topic, topics.cluster.namesrv)  # noqa: E731
    until(lambda: mq.read(where.spark, f"%DLQ%{group}", topics.cluster.namesrv).count() == 150)

    dry = pipeline("replay", where, from_=f"%DLQ%{group}", rate=100).plan()
    assert dry.rows == 150
    assert dry.lines[1:] == (f"  150 to {topic}", "  at 100 a second, in about 2 s")
    assert frame().count() == 150  # nothing was sent

    progress: list[Any] = []
    where.report = progress.append
    done = pipeline("replay", where, from_=f"%DLQ%{group}", rate=100).run()
    assert (done.rows, done.problems) == (150, ())
    old, new = (frame().where(f"properties['REPLAY_OF'] IS {some} NULL").collect() for some in ("", "NOT"))
    ids = {bytes(row.body): row.msgId for row in old}
    assert sorted(bytes(row.body) for row in new) == sorted(ids)
    for row in new:
        number = bytes(row.body).decode()
        assert (row.tags, row.keys) == ("red", f"k{number}")
        own = {name: value for name, value in row.properties.items() if name in ("n", "REPLAY_OF", "RETRY_TOPIC")}
        assert own == {"n": number, "REPLAY_OF": ids[bytes(row.body)]}
        assert row.reconsumeTimes == 0
    times = sorted(row.storeTimestamp.timestamp() for row in new)
    assert (len(times) - 1) / (times[-1] - times[0]) == pytest.approx(100, rel=0.1)
    half = len(times) // 2
    assert half / (times[half] - times[0]) == pytest.approx(100, rel=0.15)

    again = pipeline("replay", where, from_=f"%DLQ%{group}", rate=100)
    assert again.plan().is_idle
    assert again.run().rows == 0
    assert frame().count() == 300


def test_a_replay_takes_what_it_is_told_and_keeps_the_order_of_queues(where, topics):
    topic, to = topics.new(3), topics.new(2)
    topics.send(topic, [b"%d" % n for n in range(60)], tags=lambda n: "AB"[n % 2], keys=lambda n: [f"k{n}", "all"])
    replay = pipeline(
        "replay", where, from_=topic, to=to, ordered="true", tags="A", where_="cast(cast(body as string) as int) >= 10"
    )
    assert replay.run().rows == 25
    rows = mq.read(where.spark, to, topics.cluster.namesrv).collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(10, 60, 2))
    origin = {row.msgId: row for row in mq.read(where.spark, topic, topics.cluster.namesrv).collect()}
    for queue in range(3):
        sent = [(origin[row.properties["REPLAY_OF"]], row) for row in rows]
        mine = sorted(((new.queueOffset, old) for old, new in sent if old.queueId == queue), key=lambda pair: pair[0])
        assert {new.queueId for old, new in sent if old.queueId == queue} == {queue % 2}
        assert [old.queueOffset for _, old in mine] == sorted(old.queueOffset for _, old in mine)

    chosen = pipeline("replay", where, name="few", from_=topic, to=to, keys=["k3", "k4"], limit=1)
    assert chosen.run().rows == 1
    with pytest.raises(ConfigError, match="was begun with other settings"):
        pipeline("replay", where, name="few", from_=topic, to=to, keys=["k5"]).plan()
    with pytest.raises(ConfigError, match=r"nosuchcolumn"):
        pipeline("replay", where, name="bad", from_=topic, to=to, where_="nosuchcolumn = 1").plan()


def test_a_replay_that_was_killed_sends_only_the_rest(where, topics, monkeypatch):
    topic, to = topics.new(2), topics.new(2)
    topics.send(topic, [b"%d" % n for n in range(40)])
    first = pipeline("replay", where, name="cut", from_=topic, to=to)
    first.plan()
    state, rows, _, _ = first._planned
    monkeypatch.setattr(first, "_end", lambda state: None)
    # As if it had died after some of its messages were stored.
    state.destinations = {to: json.dumps({to: {"broker-a": {"0": 0, "1": 0}}})}
    state.save(where.state_of("cut"))
    first._send(rows.where("at.queueId = 0"), state, {})
    sent = mq.read(where.spark, to, topics.cluster.namesrv).count()
    assert 0 < sent < 40
    topics.send(topic, [b"later"])  # not part of it any more
    second = pipeline("replay", where, name="cut", from_=topic, to=to)
    done = second.run()
    assert (done.rows, done.problems) == (40 - sent, ())
    assert bodies(mq.read(where.spark, to, topics.cluster.namesrv)) == sorted(str(n) for n in range(40))


# Transform


FUNCTIONS = """
import json

FACTOR = 10

def scaled(message):
    order = json.loads(message["body"])
    if order["total"] < 2:
        return None
    return {"body": json.dumps(order["total"] * FACTOR), "keys": message["keys"], "tags": message["tags"]}

def upper(orders):
    return orders.selectExpr("upper(cast(body as string)) as body", "keys")
"""


def test_a_function_changes_messages_and_bad_ones_go_to_the_dead_letters(where, topics, tmp_path):
    topic, to = topics.new(2), topics.new(2)
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    topics.send(topic, [json.dumps({"total": n}).encode() for n in range(10)], keys=lambda n: f"k{n}")
    topics.send(topic, [b"no json"], keys="odd")
    transform = pipeline(
        "transform", where, from_=topic, to=to, function="shop.py:scaled", guarantee="effectively-once"
    )
    assert "bad rows go to" in "".join(transform.plan().lines)
    assert transform.run().rows == 11
    spark, namesrv = where.spark, topics.cluster.namesrv
    assert bodies(mq.read(spark, to, namesrv)) == sorted(str(10 * n) for n in range(2, 10))
    [bad] = mq.read(spark, f"{to}__dlq", namesrv).collect()
    assert (bytes(bad.body), bad.keys) == (b"no json", "odd")
    assert bad.properties["SPARK_BAD_ROW"].startswith("JSONDecodeError")
    assert bad.properties["SPARK_BAD_ROW_TOPIC"] == to
    topics.send(topic, [b'{"total": 77}'])
    assert pipeline(
        "transform", where, from_=topic, to=to, function="shop.py:scaled", guarantee="effectively-once"
    ).run().rows == 1  # fmt: skip
    assert bodies(mq.read(spark, to, namesrv)) == sorted(["770", *(str(10 * n) for n in range(2, 10))])

    audit = pipeline("audit", where, outTopic=to, by="spark_txn").run()
    assert [(row.messages, row.missing, row.doubled) for row in audit.table] == [(10, 0, 0)]


def test_sql_and_a_function_of_frames(where, topics, tmp_path):
    topic, vip, loud = topics.new(2), topics.new(2), topics.new(1)
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    topics.send(topic, [b"%d" % n for n in range(8)], tags=lambda n: "vip" if n % 2 else "x", keys=lambda n: f"k{n}")
    sql = (
        f"select body, keys, if(cast(body as string) = '7', 'seven', null) as _error from `{topic}` where tags = 'vip'"
    )
    done = pipeline("transform", where, from_=topic, to=vip, sql=sql)
    done.run()
    read = lambda name: mq.read(where.spark, name, topics.cluster.namesrv)  # noqa: E731
    assert bodies(read(vip)) == ["1", "3", "5"]
    assert bodies(read(f"{vip}__dlq")) == ["7"]
    pipeline("transform", where, from_=topic, to=loud, frame="shop.py:upper").run()
    assert len(bodies(read(loud))) == 8

    audit = pipeline("audit", where, inTopic=topic, outTopic=vip, where_="tags = 'vip'").run()
    assert [(row.messages, row.missing, row.doubled, row.details) for row in audit.table] == [(3, 1, 0, "k7")]
    assert audit.problems == (f"{topic} -> {vip}: 1 missing (k7)",)
    with pytest.raises(ConfigError, match="column nobody"):
        pipeline(
            "transform", where, name="x", from_=topic, to=vip, sql=f"select body, 1 as nobody from `{topic}`"
        ).plan()
    with pytest.raises(ConfigError, match="no topic elsewhere"):
        pipeline("transform", where, name="x", from_=topic, to="elsewhere", sql=f"select body from `{topic}`").plan()
    with pytest.raises(ConfigError, match="has no function nothing"):
        pipeline("transform", where, name="x", from_=topic, to=vip, function="shop.py:nothing").plan()


# Lag and latency


def test_lag_says_how_far_and_how_long_groups_are_behind(where, topics, tmp_path):
    topic = topics.new(2)
    topics.send(topic, [b"%d" % n for n in range(20)])

    async def consume() -> None:
        seen = 0
        consumer = Consumer("readers", namesrv=topics.cluster.namesrv, start_at=StartAt.FIRST)
        done = asyncio.Event()

        @consumer.on(topic)
        async def handle(message):
            nonlocal seen
            seen += 1
            if seen == 20:
                done.set()

        async with consumer:
            await asyncio.wait_for(done.wait(), 20)

    asyncio.run(consume())
    topics.send(topic, [b"later"] * 5)
    lag = pipeline(
        "lag",
        where,
        groups="readers",
        alarms=["readers: lag > 4", "lag > 5", "oldest > 0ms"],
        table=str(tmp_path / "lag"),
    )
    assert "readers" in lag.plan().lines[0]
    done = lag.run()
    assert sum(row.lag for row in done.table) == 5
    assert all(row.oldest is not None and 0 <= row.oldest < 60 for row in done.table if row.lag)
    assert [problem.split(": ")[1].split(" (")[0] for problem in done.problems[:1]] == ["5 behind"]
    assert len(done.problems) == 2
    assert where.spark.read.parquet(str(tmp_path / "lag")).agg({"lag": "sum"}).collect()[0][0] == 5


@pytest.mark.scenario("spark 40")
def test_latency_matches_what_the_records_say(where, topics):
    namesrv, topic, group = topics.cluster.namesrv, topics.new(2), "traced"

    async def work() -> None:
        done, seen = asyncio.Event(), set()
        async with Client(namesrv, trace=True) as client:
            consumer = Consumer(group, client=client, start_at=StartAt.FIRST)

            @consumer.on(topic)
            async def handle(message):
                await asyncio.sleep(0.001)
                seen.add(message.body)
                if len(seen) == 50:
                    done.set()

            async with Producer("traced-makers", client=client) as producer, consumer:
                for n in range(50):
                    await producer.send(topic, b"%d" % n)
                await asyncio.wait_for(done.wait(), 30)

    asyncio.run(work())
    # Of a client of Java's: with an address behind, and without an offset id; then halves.
    pub = f"DefaultRegion\x01jp\x01{topic}"
    java = [
        f"Pub\x011700000000000\x01{pub}\x01ID1\x01null\x01null\x01b:10911\x015\x017\x010\x01OFF\x01true\x0110.0.0.9\x02",
        f"Pub\x011700000000100\x01{pub}\x01ID2\x01\x01\x01b:10911\x015\x019\x010\x01true\x02",
        "SubBefore\x011700000000030\x01null\x01jc\x01R1\x01ID1\x010\x01null\x02",
        "SubAfter\x01R1\x01ID1\x0112\x01true\x01null\x010\x02",
        "SubBefore\x011700000000400\x01null\x01jc\x01R2\x01ID2\x012\x01null\x01extra\x02",
        "Pub\x01abc\x02",
        "SubBefore\x01170000",
    ]
    topics.send(TRACE_TOPIC, ["".join(java[:4]).encode(), "".join(java[4:]).encode()])
    topics.send(TRACE_TOPIC, ["".join(java[:4]).encode()])  # once more, as after a retry
    until(lambda: len(reference(where, topics)[topic, group, "consume"]) == 50)
    done = pipeline("latency", where, topics=topic).run()
    wanted = reference(where, topics)
    found = {(row.topic, row.group, row.measure): row for row in done.table}
    assert set(found) == {key for key in wanted if key[0] == topic}
    for key, row in found.items():
        values = wanted[key]
        assert row.messages == len(values)
        assert (row.p50, row.p90, row.p99) == pytest.approx(tuple(np.percentile(values, (50, 90, 99))))
        assert row.max == max(values)
    assert found[topic, "jc", "delivery"].max == 300
    assert found[topic, "jc", "retries"].max == 2
    assert statistics.median(wanted[topic, "jp", "produce"]) == found[topic, "jp", "produce"].p50 == 8
    assert "2 more were torn" in done.summary


def reference(where: Surroundings, topics: Topics) -> dict[tuple[str, str, str], list[float]]:
    """The values of each measure, message by message, in plain Python."""
    pubs: dict[str, tuple[str, str, int, int]] = {}
    before: dict[tuple[str, str], tuple[str, int, int]] = {}
    after: dict[tuple[str, str], int] = {}
    for row in mq.read(where.spark, TRACE_TOPIC, topics.cluster.namesrv).collect():
        for text in bytes(row.body).decode().split("\x02")[:-1]:
            match text.split("\x01"):
                case ["Pub", sent, _, group, topic, name, _, _, _, _, took, _, *_]:
                    pubs[name] = (topic, group, int(sent), int(took))
                case ["SubBefore", at, _, group, request, name, again, *_]:
                    before[name, request] = (group, int(at), int(again))
                case ["SubAfter", request, name, took, *_]:
                    after[name, request] = int(took)
    found: dict[tuple[str, str, str], list[float]] = {}
    add = lambda topic, group, measure, value: found.setdefault((topic, group, measure), []).append(value)  # noqa: E731
    for topic, group, _, cost in pubs.values():
        add(topic, group, "produce", cost)
    firsts: dict[tuple[str, str], tuple[int, int]] = {}
    for (name, request), (group, began, retries) in before.items():
        had = firsts.get((name, group), (began, retries))
        firsts[name, group] = (min(had[0], began), max(had[1], retries))
        if (name, request) in after:
            add(pubs[name][0], group, "consume", after[name, request])
    for (name, group), (began, retries) in firsts.items():
        add(pubs[name][0], group, "delivery", began - pubs[name][2])
        add(pubs[name][0], group, "retries", retries)
    return found
