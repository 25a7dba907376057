"""`pyromq group` against a real cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time

import pytest
from tests.integration.cli.cli_kit import send

from pyromq import AdminClient, MessageQueue, PullConsumer, StartAt
from pyromq.client.admin.requests import Requests
from pyromq.protocol.bodies import SubscriptionGroupConfig
from pyromq.sync import Consumer

_NUMBERS = itertools.count()


@pytest.fixture
def group():
    return f"billing-{next(_NUMBERS)}"


@pytest.fixture
def consumed(cluster, pyromq, topic, group):
    """A group that is at the end of all queues of a topic with twelve messages, and offline."""
    send(cluster.namesrv, topic, 12)
    commit(cluster, group, topic, 3)
    return group


def commit(cluster, group, topic, offset):
    """Put a group, made where it is not there, to an offset of all four queues of a topic."""

    async def work():
        async with AdminClient(cluster.namesrv) as admin:
            await admin.groups.create(group)
            queues = [MessageQueue(topic=topic, broker_name="broker-a", queue_id=number) for number in range(4)]
            await admin.offsets.set(group, dict.fromkeys(queues, offset))

    asyncio.run(work())


class Online:
    """A consumer in this process that keeps what it gets."""

    def __init__(self, namesrv, group, topic):
        self.bodies = []
        self.more = threading.Condition()
        self._consumer = Consumer(group, namesrv=namesrv, start_at=StartAt.FIRST)
        self._consumer.subscribe(topic, "*", self._take)

    def _take(self, message):
        with self.more:
            self.bodies.append(message.body)
            self.more.notify_all()

    def __enter__(self):
        self._consumer.start()
        return self

    def __exit__(self, *exc_info):
        self._consumer.close()

    def has(self, count):
        with self.more:
            assert self.more.wait_for(lambda: len(self.bodies) >= count, 20), self.bodies


def offsets(pyromq, group, topic):
    return [row["offset"] for row in pyromq.rows("group", "offsets", "export", group, "-t", topic)]


def test_groups_are_listed_with_their_lag(pyromq, cluster, topic, consumed):
    send(cluster.namesrv, topic, 5)
    [row] = [row for row in pyromq.rows("group", "list") if row["group"] == consumed]
    assert (row["lag"], row["topics"], row["brokers"]) == (5, 1, ["broker-a"])
    assert "TOOLS_CONSUMER" not in pyromq("group", "list").out
    assert "TOOLS_CONSUMER" in pyromq("group", "list", "--system", "-o", "name").lines
    [row] = [row for row in pyromq.rows("group", "list", "--clients") if row["group"] == consumed]
    assert (row["lag"], row["clients"]) == (5, 0)


def test_lag_is_shown_queue_by_queue(pyromq, cluster, topic, consumed):
    send(cluster.namesrv, topic, 5)
    rows = pyromq.rows("group", "lag", consumed)
    assert [row["queue"] for row in rows] == [0, 1, 2, 3]
    assert sum(row["lag"] for row in rows) == 5
    assert pyromq("group", "lag", consumed, "-t", topic).lines[-1].startswith("lag 5 in 4 queues; ")
    rows = pyromq.rows("broker", "lag", "broker-a")
    assert sum(row["lag"] for row in rows if row["group"] == consumed) == 5
    assert pyromq("check", "lag", consumed, "--warn", "5", "--crit", "9").code == 6
    assert pyromq("check", "lag", consumed, "--warn", "6", "--crit", "9").code == 0
    [row] = [row for row in pyromq.rows("topic", "stats", "--all") if row["topic"] == topic]
    assert (row["group"], row["lag"]) == (consumed, 5)


def test_an_unknown_group_is_answered_with_the_nearest_names(pyromq, consumed):
    wrong = consumed.replace("billing", "biling")
    for verb in (
        ("lag", wrong),
        ("describe", wrong),
        ("clients", wrong),
        ("delete", wrong),
        ("offsets", "skip", wrong),
    ):
        ended = pyromq("group", *verb)
        assert ended.code == 3, ended
        assert f"there is no group {wrong} at {pyromq.namesrv}; did you mean " in ended.err


def test_settings_are_made_changed_and_deleted(pyromq, group):
    assert pyromq("group", "create", group, "--retry-max", "3", "--no-broadcast", "--dry-run").code == 0
    assert group not in pyromq("group", "list", "-o", "name").lines
    assert pyromq("group", "create", group, "--retry-max", "3", "--no-broadcast").code == 0
    [settings] = pyromq.rows("group", "describe", group)
    assert (settings["retryMax"], settings["broadcast"], settings["consume"]) == (3, False, True)
    assert pyromq("group", "update", group).code == 2
    assert pyromq("group", "update", group, "--no-consume").code == 0
    assert pyromq("group", "update", group, "--broadcast", "-b", "broker-a").code == 0
    [settings] = pyromq.rows("group", "describe", group)
    assert (settings["retryMax"], settings["broadcast"], settings["consume"]) == (3, True, False)
    assert pyromq("group", "delete", group).code == 2
    assert pyromq("group", "delete", group, "--yes").code == 0
    assert pyromq("group", "describe", group).code == 3


def test_members_say_what_they_do(pyromq, cluster, topic, consumed):
    assert pyromq("group", "clients", consumed).err.endswith(f"group {consumed} has no members online\n")
    with Online(cluster.namesrv, consumed, topic) as member:
        send(cluster.namesrv, topic, 4)
        member.has(4)
        [client] = pyromq.rows("group", "clients", consumed)
        assert client["language"] == "PYTHON"
        assert f"subscribed: %RETRY%{consumed} *, {topic} *" in pyromq("group", "clients", consumed).out
        [seen] = pyromq.rows("group", "inspect", consumed)
        assert (seen["client"], seen["subscriptions"]) == (client["client"], {topic: "*"})
        assert len([queue for queue in seen["queueList"] if queue.startswith(f"{topic}@broker-a:")]) == 4
        assert "Thread" in pyromq("group", "inspect", consumed, "--stacks").out
        assert pyromq("group", "inspect", consumed, "-i", "nobody").code == 3
        rows = pyromq.rows("group", "lag", consumed, "-t", topic, "--clients")
        assert {row["client"] for row in rows} == {client["client"]}


# Moving


@pytest.mark.scenario("admin 11")
def test_an_online_group_gets_messages_of_the_last_hour_again(pyromq, cluster, topic, consumed):
    with Online(cluster.namesrv, consumed, topic) as member:
        send(cluster.namesrv, topic, 4)
        member.has(4)
        ended = pyromq("group", "offsets", "reset", consumed, "-t", topic, "--to-time", "-1h", "--yes")
        assert ended.code == 0, ended.err
        assert "REPLAYS" in ended.out
        assert "; notified " in ended.err
        member.has(4 + 16)


@pytest.mark.scenario("admin 11")
def test_an_online_group_is_moved_forwards_too(pyromq, cluster, topic, consumed):
    with Online(cluster.namesrv, consumed, topic) as member:
        send(cluster.namesrv, topic, 4)
        member.has(4)
        assert pyromq("group", "offsets", "skip", consumed, "--yes").code == 0
        exact = pyromq("group", "offsets", "reset", consumed, "-t", topic, "--to-offset", "0", "--yes")
        assert exact.code == 1
        assert "is online" in exact.err


@pytest.mark.scenario("admin 12")
def test_a_group_that_never_consumed_is_given_its_first_offsets(pyromq, cluster, topic, group):
    send(cluster.namesrv, topic, 12)
    ended = pyromq("group", "offsets", "reset", group, "-t", topic, "--to-time", "-1h")
    assert ended.code == 2
    assert "gives 4 queues their first offset" in ended.out
    assert pyromq("group", "offsets", "reset", group, "-t", topic, "--to-offset", "2", "--yes").code == 0

    async def first_bodies():
        async with PullConsumer(group, namesrv=cluster.namesrv, start_at=StartAt.FIRST) as consumer:
            consumer.subscribe(topic)
            return [message.body for message in await consumer.poll(timeout=20)]

    assert asyncio.run(first_bodies())
    assert offsets(pyromq, group, topic) == [2, 2, 2, 2]


@pytest.mark.scenario("admin 13")
def test_without_a_yes_there_is_only_the_plan(pyromq, cluster, topic, consumed):
    send(cluster.namesrv, topic, 8)
    ended = pyromq("group", "offsets", "reset", consumed, "-t", topic, "--to-latest")
    assert ended.code == 2
    assert "skips 8 messages" in ended.out
    assert "nothing was changed" in ended.err
    assert offsets(pyromq, consumed, topic) == [3, 3, 3, 3]
    tried = pyromq("group", "offsets", "skip", consumed, "--dry-run", "-o", "json")
    assert sum(row["skips"] for row in tried.json) == 8
    assert offsets(pyromq, consumed, topic) == [3, 3, 3, 3]
    assert pyromq("group", "offsets", "skip", consumed, "--yes").code == 0
    assert sum(row["lag"] for row in pyromq.rows("group", "lag", consumed)) == 0


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (("--to-earliest",), [0, 0, 0, 0]),
        (("--to-latest",), [3, 3, 3, 3]),
        (("--to-offset", "1"), [1, 1, 1, 1]),
        (("--shift-by", "-2"), [1, 1, 1, 1]),
        (("--shift-by", "100"), [3, 3, 3, 3]),
        (("--to-time", "-1h"), [0, 0, 0, 0]),
    ],
)
def test_every_goal_is_reached(pyromq, topic, consumed, goal, expected):
    assert pyromq("group", "offsets", "reset", consumed, "-t", topic, *goal, "--yes").code == 0
    assert offsets(pyromq, consumed, topic) == expected


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_offsets_are_put_back_from_a_file(pyromq, topic, consumed, tmp_path, form):
    file = tmp_path / "offsets"
    file.write_text(pyromq("group", "offsets", "export", consumed, "-o", form).out)
    assert pyromq("group", "offsets", "reset", consumed, "-t", topic, "--to-earliest", "--yes").code == 0
    assert pyromq("group", "offsets", "reset", consumed, "--from-file", str(file), "--yes").code == 0
    assert offsets(pyromq, consumed, topic) == [3, 3, 3, 3]


@pytest.mark.parametrize("text", ["", "[1]", "{", "a,b\n1,2\n", '[{"topic": "t"}]', '{"offset": 1}'])
def test_a_file_that_is_none_is_bad_usage(pyromq, consumed, tmp_path, text):
    file = tmp_path / "offsets"
    file.write_text(text)
    ended = pyromq("group", "offsets", "reset", consumed, "--from-file", str(file), "--yes")
    assert ended.code in (0, 2)  # an empty one says nothing, and moves nothing
    assert (ended.code == 2) == bool(text)


def test_offsets_are_given_to_another_group(pyromq, topic, consumed):
    other = f"{consumed}-copy"
    assert pyromq("group", "create", other).code == 0
    assert pyromq("group", "offsets", "clone", consumed, other).code == 2
    assert pyromq("group", "offsets", "clone", consumed, other, "--yes").code == 0
    assert offsets(pyromq, other, topic) == [3, 3, 3, 3]


@pytest.mark.parametrize("goal", [(), ("--to-latest", "--to-earliest"), ("--to-time", "soon")])
def test_one_goal_has_to_be_said(pyromq, topic, consumed, goal):
    assert pyromq("group", "offsets", "reset", consumed, "-t", topic, *goal, "--yes").code == 2
    assert offsets(pyromq, consumed, topic) == [3, 3, 3, 3]


# Many


@pytest.mark.slow
@pytest.mark.scenario("admin 14")
def test_two_thousand_groups_are_listed_with_a_request_or_two(pyromq, cluster, topic, monkeypatch):
    send(cluster.namesrv, topic, 4)
    names = [f"many-{number}" for number in range(2000)]

    async def make():
        queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
        async with AdminClient(cluster.namesrv) as admin:
            info = await admin.brokers.cluster_info()
            address = info.broker_addr_table["broker-a"].broker_addrs[0]
            for begin in range(0, 2000, 100):
                some = names[begin : begin + 100]
                await asyncio.gather(
                    *(admin.groups.create(SubscriptionGroupConfig(group_name=name), brokers=address) for name in some)
                )
                await asyncio.gather(*(admin.offsets.set(name, {queue: 0}) for name in some))

    asyncio.run(make())
    asked = []
    ask = Requests.ask

    async def counted(self, address, code, *more, **named):
        asked.append(code)
        return await ask(self, address, code, *more, **named)

    monkeypatch.setattr(Requests, "ask", counted)
    # Of this process, which is client and broker: how long others take the processor away is not its fault.
    began = time.process_time()
    ended = pyromq("group", "list", "-o", "ndjson")
    seconds = time.process_time() - began
    rows = {row["group"]: row for row in map(json.loads, ended.lines)}
    assert ended.code == 0
    assert all(rows[name]["lag"] is not None for name in names)
    assert len(asked) == 2
    assert seconds < 2
    assert rows["many-0"]["topics"] == 1


def test_watching_shows_the_lag_of_groups(pyromq, topic):
    group = f"{topic}-watched"
    send(pyromq.namesrv, topic, 4)
    pyromq("message", "consume", topic, "-g", group, "--count", "4", "--idle", "20")
    send(pyromq.namesrv, topic, 3)
    rows = pyromq.rows("group", "watch", group, "--looks", "1")
    assert [(row["group"], row["sign"], row["topic"], row["messages"]) for row in rows] == [(group, "lag", topic, 3)]
    assert pyromq.rows("group", "watch", group, "--looks", "2", "--every", "0.1", "--min-lag", "4") == []
    assert any(row["group"] == group for row in pyromq.rows("group", "watch", "--looks", "1"))


def test_the_mode_of_a_group_is_set(pyromq, topic):
    ended = pyromq("group", "mode", f"{topic}-poppers", topic, "pop", "--share", "2", "-o", "json")
    assert ended.json[0]["change"] == f"pop {topic}"
    assert pyromq("group", "mode", f"{topic}-poppers", topic, "pull").code == 0
    assert pyromq("group", "mode", f"{topic}-poppers", "no-such-topic", "pop").code == 3
    assert "would let group" in pyromq("group", "mode", f"{topic}-poppers", topic, "pop", "--dry-run").err
