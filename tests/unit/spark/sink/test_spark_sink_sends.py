"""Sending from a task, with a real broker: batches, order, refusals, failures on the way, what is stored already."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from tests.integration.broker.command_kit import until
from tests.integration.namesrv.raw_client import identity, register_body
from tests.interop import wire
from tests.unit.spark.sink.sink_rows import PROPERTIES, batch_of

from pyromq.client.producer.send_result import SendStatus
from pyromq.errors import (
    ConnectionLost,
    FlushDiskTimeout,
    InvalidMessage,
    NoPermission,
    RouteNotFound,
    SendFailed,
    ServerError,
    ServiceNotAvailable,
    SystemBusy,
)
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import PullMessageReply
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord, encode_record
from pyromq.spark.blocking_client import Link
from pyromq.spark.options import SinkOptions, parse
from pyromq.spark.sink import sends as sink_sends
from pyromq.spark.sink import topics as sink_topics
from pyromq.spark.sink import writers as sink
from pyromq.spark.sink.identity import Identity
from pyromq.spark.sink.read_back import Findings, read_back
from pyromq.sync import AdminClient, Producer, PullConsumer
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyromq.protocol.headers import PullMessage


class Scene:
    """A cluster, and tasks that write to it."""

    def __init__(self, namesrv: str, admin: AdminClient, consumer: PullConsumer, producer: Producer) -> None:
        self.namesrv = namesrv
        self.admin = admin
        self.producer = producer
        self._consumer = consumer
        self._count = 0

    def new(self, queues: int = 4) -> str:
        self._count += 1
        topic = f"sink-{self._count}"
        self.admin.topics.create(topic, write_queues=queues, read_queues=queues)
        return topic

    def options(self, topic: str | None, **options: Any) -> SinkOptions:
        given = {"namesrv": self.namesrv, "topic": topic, **options}
        return parse(SinkOptions, {key: str(value) for key, value in given.items() if value is not None})

    def write(
        self, topic: str | None, batches: Sequence[pa.RecordBatch], identity: Identity | None = None, **options: Any
    ) -> sink.TaskReport:
        parsed = self.options(topic, **options)
        made = sink.plan(from_arrow_schema(batches[0].schema), parsed, streams=False)
        with Link(parsed) as link:
            return link.run(sink._write(link, made, identity, iter(batches)))

    def messages(self, topic: str) -> dict[int, list[Any]]:
        """Of each queue what it holds."""
        found: dict[int, list[Any]] = {}
        for queue in self._consumer.queues(topic):
            held = found[queue.queue_id] = []
            offset = 0
            while (pulled := self._consumer.pull(queue, offset)).messages:
                held += pulled.messages
                offset = pulled.next_offset
        return found

    def bodies(self, topic: str) -> list[bytes]:
        return sorted(message.body for held in self.messages(topic).values() for message in held)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with (
        running_cluster() as cluster,
        AdminClient(cluster.namesrv) as admin,
        PullConsumer("look", namesrv=cluster.namesrv) as consumer,
        Producer("others", namesrv=cluster.namesrv) as producer,
    ):
        yield Scene(cluster.namesrv, admin, consumer, producer)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return sorted(b"%d" % number for number in range(start, start + count))


def test_all_rows_are_stored_in_few_requests_when_a_task_returns(scene, monkeypatch):
    topic = scene.new()
    real = sink_sends._Sender.send
    requests: Counter[int] = Counter()

    async def counted(self, outgoing, *rest):
        requests[outgoing.is_batch] += 1
        return await real(self, outgoing, *rest)

    monkeypatch.setattr(sink_sends._Sender, "send", counted)
    batches = [batch_of(body=[b"%d" % (100 * each + row) for row in range(100)]) for each in range(10)]
    report = scene.write(topic, batches, batchBytes=8192)
    assert report.sent == 1000
    assert scene.bodies(topic) == numbered(1000)
    assert requests[True] < 20
    assert requests[False] <= 1


@pytest.mark.parametrize(("queues", "batch_bytes"), [(4, "256k"), (5, "4k")])
def test_rows_are_dealt_out_so_that_all_queues_are_equally_far(scene, queues, batch_bytes):
    """A limited stream takes as much of each queue: what it has read must not be far ahead of what it has not."""
    topic = scene.new(queues)
    scene.write(topic, [batch_of(body=[b"%d" % number for number in range(3000)])], batchBytes=batch_bytes)
    held = [[int(message.body) for message in messages] for messages in scene.messages(topic).values()]
    assert sorted(number for numbers in held for number in numbers) == [*range(3000)]
    share = 3000 // queues // 2
    ahead, behind = max(max(numbers[:share]) for numbers in held), min(min(numbers[share:]) for numbers in held)
    assert ahead - behind <= 2 * queues


def test_few_rows_are_one_request(scene):
    topic = scene.new(4)
    scene.write(topic, [batch_of(body=[b"%d" % number for number in range(10)])])
    assert sorted(len(held) for held in scene.messages(topic).values()) == [0, 0, 0, 10]


def test_not_more_requests_are_under_way_than_allowed(scene, monkeypatch):
    topic = scene.new()
    real = sink_sends._Sender.send
    under_way = [0]
    most = [0]

    async def counted(self, *args):
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        try:
            return await real(self, *args)
        finally:
            under_way[0] -= 1

    monkeypatch.setattr(sink_sends._Sender, "send", counted)
    scene.write(topic, [batch_of(body=[b"x" * 500] * 100)], batchBytes=1000, inFlight=3)
    assert most == [3]
    assert len(scene.bodies(topic)) == 100


def test_rows_with_one_sharding_key_lie_in_one_queue_in_order_although_sends_fail(scene, monkeypatch):
    topic = scene.new(3)
    real = sink_sends._Sender.send
    dice = random.Random(7)

    async def flaky(self, *args):
        if dice.random() < 0.25:
            raise SystemBusy("busy", "broker-a")
        return await real(self, *args)

    monkeypatch.setattr(sink_sends._Sender, "send", flaky)
    monkeypatch.setattr(sink_sends, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(sink_sends, "_LONGEST_PAUSE", 0.001)
    # Some are compressed and cannot share a request: they must not overtake, nor be overtaken.
    bodies = [b"%d" % number + b" " * (20 if number % 9 == 0 else 0) for number in range(600)]
    batch = batch_of(body=bodies, shardingKey=[f"s{number % 7}" for number in range(600)])
    scene.write(topic, [batch], batchBytes=600, compressOver=20, retries=40)
    where: dict[str, int] = {}
    order: dict[str, list[int]] = {}
    for queue, held in scene.messages(topic).items():
        for message in held:
            key = props.parse(message.raw.record.properties.decode())[props.SHARDING_KEY]
            assert where.setdefault(key, queue) == queue
            order.setdefault(key, []).append(int(message.body))
    assert {key: list(range(int(key[1]), 600, 7)) for key in order} == order
    assert len(order) == 7


def test_the_queue_of_a_row_is_kept_if_that_is_wished(scene):
    topic = scene.new(4)
    batch = batch_of(body=["a", "b", "c"], queueId=[2, 0, 2], brokerName=["broker-a", "elsewhere", None])
    scene.write(topic, [batch], keepQueueId="true")
    found = {queue: [message.body for message in held] for queue, held in scene.messages(topic).items() if held}
    assert found == {0: [b"b"], 2: [b"a", b"c"]}
    with pytest.raises(InvalidMessage, match=r"row 0 of the task, without keys.* has no writable queue"):
        scene.write(topic, [batch_of(body=["a"], queueId=[9])], keepQueueId="true")


def test_large_bodies_are_compressed_and_read_the_same(scene):
    topic = scene.new(1)
    body = b"again and again " * 1000
    scene.write(topic, [batch_of(body=[body, b"small"])])
    (held,) = scene.messages(topic).values()
    assert sorted(message.body for message in held) == sorted([body, b"small"])
    assert max(message.raw.record.store_size for message in held) < 1000


def test_topics_of_rows_are_found_or_made(scene):
    known, made = scene.new(), "sink-made-by-a-row"
    batch = batch_of(body=["a", "b"], topic=[known, made])
    with pytest.raises(RouteNotFound, match=f"{made}: no broker has this topic"):
        scene.write(None, [batch])
    scene.write(None, [batch], createTopic=2)
    assert scene.bodies(made) == [b"b"]
    assert len(scene.messages(made)) == 2


def test_a_topic_of_the_options_is_looked_for_when_a_write_is_planned(scene):
    with pytest.raises(RouteNotFound, match="createTopic=8 creates it"):
        sink_topics.check_topics(scene.options("sink-absent"), streams=False)
    with pytest.raises(RouteNotFound, match="sink-dead: no broker"):
        sink_topics.check_topics(scene.options(scene.new(), onBadRow="dlq:sink-dead"), streams=True)
    queues = sink_topics.check_topics(scene.options("sink-planned", createTopic=3), streams=True)
    assert [queue.queue_id for queue in queues["sink-planned"]] == [0, 1, 2]


def test_a_write_that_begins_between_two_masters_waits_for_the_next(scene, caplog):
    """The name server forgets a dead master at once, and hears of the next a moment later."""

    def register(connection: wire.Connection, broker_id: int, address: str) -> None:
        group = identity("failing", broker_id, address, "DefaultCluster") | {"haServerAddr": address}
        assert connection.ask(RequestCode.REGISTER_BROKER, register_body(1, ["sink-failing"]), **group).code == 0

    def forgotten() -> bool:
        return "0" not in wire.brokers(scene.namesrv)["failing"]

    with wire.Connection(scene.namesrv) as slave, wire.Connection(scene.namesrv) as next_master:
        with wire.Connection(scene.namesrv) as master:
            register(master, 0, "127.0.0.1:1")
            register(slave, 1, "127.0.0.1:2")
        until(forgotten)

        def elected() -> None:
            until(lambda: "none of its queues can be written to now; trying again" in caplog.text)
            register(next_master, 0, "127.0.0.1:2")

        with ThreadPoolExecutor(1) as pool:
            electing = pool.submit(elected)
            queues = sink_topics.check_topics(scene.options("sink-failing"), streams=False)
            electing.result()
    assert [queue.queue_id for queue in queues["sink-failing"]] == [0, 1, 2, 3]


def test_a_stream_is_not_asked_after_its_topic_for_every_batch(scene):
    topic = scene.new()
    options = scene.options(topic)
    first = sink_topics.check_topics(options, streams=True)
    scene.admin.topics.delete(topic)
    assert sink_topics.check_topics(options, streams=True) == first
    with pytest.raises(RouteNotFound):
        sink_topics.check_topics(options, streams=False)


# Bad rows


def bad_and_good() -> pa.RecordBatch:
    return batch_of(
        body=pa.array([b"good", None, b"reserved", b"x" * 5000, b"fine"], pa.binary()),
        keys=["k0", "k1", "k2", "k3", "k4"],
        properties=pa.array([None, None, [("DELAY", "3")], None, None], PROPERTIES),
    )


@pytest.mark.scenario("spark 27")
def test_a_bad_row_fails_the_task_and_is_named(scene):
    topic = scene.new()
    with pytest.raises(InvalidMessage, match=r"row 1 of the task, keys 'k1' to .*: its body is null; onBadRow=skip"):
        scene.write(topic, [bad_and_good()])


@pytest.mark.scenario("spark 27")
def test_bad_rows_are_skipped_and_counted(scene, caplog):
    topic = scene.new()
    report = scene.write(topic, [bad_and_good()], onBadRow="skip", maxMessageBytes=4000, batchBytes=2000)
    assert (report.sent, report.skipped) == (2, 3)
    assert scene.bodies(topic) == [b"fine", b"good"]
    assert "keys 'k2': property DELAY is reserved" in caplog.text


@pytest.mark.scenario("spark 27")
def test_bad_rows_become_dead_letters_with_the_reason(scene):
    topic, dead = scene.new(), scene.new()
    report = scene.write(topic, [bad_and_good()], onBadRow=f"dlq:{dead}", maxMessageBytes=4000, batchBytes=2000)
    assert (report.sent, report.dead_letters) == (5, 3)
    assert scene.bodies(topic) == [b"fine", b"good"]
    letters = {message.keys[0]: message for held in scene.messages(dead).values() for message in held}
    assert {key: message.properties["SPARK_BAD_ROW"] for key, message in letters.items()} == {
        "k1": "its body is null",
        "k2": "property DELAY is reserved and cannot be set",
        "k3": "its body has 5000 bytes; at most 4000 can be sent",
    }
    assert letters["k2"].properties["SPARK_BAD_ROW_TOPIC"] == topic
    assert letters["k3"].body == b"x" * 4000


@pytest.mark.scenario("spark 27")
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_a_row_that_the_broker_refuses_is_found_in_its_batch(scene, policy):
    topic, dead = scene.new(), scene.new()
    large = b"\x00" + bytes(5 << 20)
    batch = batch_of(body=[b"a", large, b"c"], keys=["k0", "k1", "k2"])
    options = {"maxMessageBytes": "8m", "compressOver": "16m", "batchBytes": "8m"}
    if policy == "fail":
        with pytest.raises(InvalidMessage, match=r"row 1 of the task, keys 'k1' to .* its body has 5242881 bytes"):
            scene.write(topic, [batch], **options)
        return
    report = scene.write(topic, [batch], onBadRow=policy if policy == "skip" else f"dlq:{dead}", **options)
    assert scene.bodies(topic) == [b"a", b"c"]
    if policy == "skip":
        assert report.skipped == 1
    else:
        (letter,) = [message for held in scene.messages(dead).values() for message in held]
        assert (letter.keys, letter.body) == (["k1"], large[: 64 << 10])
        assert "broker-a refuses it" in letter.properties["SPARK_BAD_ROW"]


# Failures on the way


def test_a_request_is_sent_again_as_often_as_allowed(scene, monkeypatch):
    topic = scene.new()
    real = sink_sends._Sender.send
    left = [3]

    async def flaky(self, *args):
        if left[0]:
            left[0] -= 1
            raise ConnectionLost("broker-a", "cut")
        return await real(self, *args)

    monkeypatch.setattr(sink_sends._Sender, "send", flaky)
    monkeypatch.setattr(sink_sends, "_FIRST_PAUSE", 0.001)
    scene.write(topic, [batch_of(body=[b"x", b"y"])], retries=3)
    assert scene.bodies(topic) == [b"x", b"y"]
    left[0] = 3
    with pytest.raises(SendFailed, match=r"not sent in 3 attempts, 2 rows from row 0 of the task, keys 'k' on"):
        scene.write(topic, [batch_of(body=[b"x", b"y"], keys=["k", "l"])], retries=2)


@pytest.mark.scenario("spark 22")
@pytest.mark.parametrize(
    ("refusal", "attempts"),
    [
        (ServerError("org.apache.rocketmq.acl.common.AclException: no way", "broker-a"), 1),
        # Said by a broker that takes no messages, too: then there may be another.
        (NoPermission("the broker[broker-a] sending message is forbidden", "broker-a"), 3),
    ],
)
def test_a_refused_user_learns_the_topic_and_the_right_that_is_needed(scene, monkeypatch, refusal, attempts):
    topic = scene.new()
    calls = []

    async def refused(self, *args):
        calls.append(args)
        raise refusal

    monkeypatch.setattr(sink_sends._Sender, "send", refused)
    monkeypatch.setattr(sink_sends, "_FIRST_PAUSE", 0.001)
    with pytest.raises(NoPermission, match=f"writing to topic {topic} needs the PUB permission: ") as caught:
        scene.write(topic, [batch_of(body=[b"x"])], retries=2)
    assert refusal.remark in str(caught.value)
    assert len(calls) == attempts


def test_what_brokers_could_not_confirm_is_counted_or_fails_as_the_guarantee_says(scene, monkeypatch):
    topic = scene.new()
    real = sink_sends.Sends._acknowledged

    def doubtful(self, request, status):
        real(self, request, SendStatus.FLUSH_DISK_TIMEOUT)

    monkeypatch.setattr(sink_sends.Sends, "_acknowledged", doubtful)
    batch = batch_of(body=[b"x", b"y"])
    assert scene.write(topic, [batch]).unconfirmed == {"FLUSH_DISK_TIMEOUT": 2}
    task = Identity("job", 0, 0)
    once = {"guarantee": "effectively-once", "jobId": "job"}
    with pytest.raises(FlushDiskTimeout, match="2 rows are stored, but not confirmed"):
        scene.write(topic, [batch], task, **once)
    # The next attempt finds them.
    assert scene.write(topic, [batch], task, **once).already_stored == 2


# Effectively once


ONCE = {"guarantee": "effectively-once", "jobId": "job"}


@pytest.mark.scenario("spark 25")
def test_only_what_is_missing_is_sent_again(scene):
    topic = scene.new()
    batches = [batch_of(body=[b"%d" % number for number in range(100)])]
    task = Identity("query", 4, 6)
    scene.write(topic, [batches[0].slice(0, 60)], task, **ONCE)
    report = scene.write(topic, batches, task, **ONCE)
    assert (report.sent, report.already_stored) == (40, 60)
    assert scene.bodies(topic) == numbered(100)
    assert [queue for queue, held in scene.messages(topic).items() if held] == [6 % 4]
    # Another batch of the same rows is another matter.
    assert scene.write(topic, batches, Identity("query", 5, 6), **ONCE).sent == 100


def test_what_others_wrote_since_does_not_hide_it(scene):
    topic = scene.new(1)
    task = Identity("query", 1, 0)
    batch = batch_of(body=[b"%d" % number for number in range(10)])
    scene.write(topic, [batch], task, **ONCE)
    for sent in [scene.producer.submit(topic, b"other") for _ in range(500)]:
        sent.result()
    scene.write(topic, [batch], Identity("another", 1, 0), **ONCE)
    assert scene.write(topic, [batch], task, **ONCE).already_stored == 10
    assert Counter(scene.bodies(topic))[b"7"] == 2


def test_a_dedup_key_finds_rows_that_come_in_another_order(scene):
    topic = scene.new()
    task = Identity("query", 0, 1)
    rows = [(b"%d" % number, f"k{number}") for number in range(50)]

    def batch(some):
        return batch_of(body=[body for body, _ in some], dedupKey=[key for _, key in some])

    scene.write(topic, [batch(rows[:30])], task, **ONCE)
    report = scene.write(topic, [batch([*rows[::-1], rows[0]])], task, **ONCE)
    assert (report.sent, report.already_stored) == (20, 31)
    assert scene.bodies(topic) == numbered(50)


@pytest.mark.scenario("spark 25")
def test_a_send_that_was_stored_although_its_answer_got_lost_is_not_repeated(scene, monkeypatch):
    topic = scene.new()
    real = sink_sends._Sender.send
    calls = [0]

    async def deaf(self, *args):
        result = await real(self, *args)
        calls[0] += 1
        if calls[0] % 3 == 0:
            raise ConnectionLost("broker-a", "cut before the answer")
        return result

    monkeypatch.setattr(sink_sends._Sender, "send", deaf)
    monkeypatch.setattr(sink_sends, "_FIRST_PAUSE", 0.001)
    batch = batch_of(body=[b"%d" % number for number in range(200)])
    report = scene.write(topic, [batch], Identity("query", 0, 0), **ONCE, batchBytes=1000)
    assert calls[0] > 9
    assert report.sent == 200
    assert scene.bodies(topic) == numbered(200)


def test_dead_letters_are_sent_once_too(scene):
    topic, dead = scene.new(), scene.new()
    task = Identity("query", 0, 0)
    for _ in range(2):
        scene.write(topic, [bad_and_good().slice(0, 3)], task, **ONCE, onBadRow=f"dlq:{dead}")
    assert (scene.bodies(topic), len(scene.bodies(dead))) == ([b"good"], 2)


def record(txn: str | None, stored_at: int, key: str = "K") -> MessageRecord:
    found = {"UNIQ_KEY": key} if txn is None else {"UNIQ_KEY": key, "SPARK_TXN": txn}
    return MessageRecord("orders", b"x", props.render(found).encode(), store_timestamp=stored_at)


def test_the_search_ends_at_an_older_batch_of_the_same_partition():
    findings = Findings(Identity("q", 5, 1), lookback=10.0)
    newest_first = [
        record("q:5:2:0", 100, "of another partition"),
        record("q:5:1:3", 99, "mine"),
        record("p:4:1:0", 98, "of another query"),
    ]
    assert not findings.take(newest_first)
    assert findings.take([record("q:4:1:0", 97, "older"), record("q:5:1:9", 96, "never looked at")])
    assert findings.keys == {"mine"}


def test_the_search_ends_after_a_time_counted_from_the_newest_or_the_own():
    findings = Findings(Identity("q", 5, 1), lookback=10.0)
    assert not findings.take([record(None, 100_000), record(None, 90_000)])
    assert findings.take([record(None, 89_999), record("q:5:1:0", 89_998, "too old")])
    assert not findings.keys

    found = Findings(Identity("q", 5, 1), lookback=10.0)
    assert not found.take([record("q:5:1:1", 100_000, "b"), record("q:5:1:0", 91_000, "a"), record(None, 81_000)])
    assert found.take([record(None, 80_999)])
    assert found.keys == {"a", "b"}


class Queue:
    """A queue from `minimum` on, whose broker gives `cap` messages at a time; answers as the client's calls do.

    Its last `hidden` messages can be read one by one, whenever somebody asks where it ends.
    """

    def __init__(self, records: list[MessageRecord], minimum: int, cap: int, hidden: int = 0) -> None:
        self._records = records
        self.hidden = hidden
        self._minimum = minimum
        self._cap = cap
        self.pulls = 0

    async def max_offset(self, address: str, queue: MessageQueue, *, hidden: bool = False) -> int:
        if hidden:
            return len(self._records)
        self.hidden = max(self.hidden - 1, 0)
        return len(self._records) - self.hidden

    async def pull(self, address: str, header: PullMessage) -> SimpleNamespace:
        self.pulls += 1
        start, most = header.queue_offset, min(header.max_msg_nums, self._cap)
        end = min(start + most, len(self._records))
        code = ResponseCode.SUCCESS if start >= self._minimum else ResponseCode.PULL_OFFSET_MOVED
        body = b"".join(encode_record(record) for record in self._records[start:end]) if not code else b""
        reply = PullMessageReply(0, end if not code else self._minimum, self._minimum, len(self._records))
        return SimpleNamespace(code=code, header=lambda kind: reply, body_bytes=body)


@given(
    st.lists(st.sampled_from(["q:5:1:", "q:5:2:", "p:5:1:", ""]), max_size=150),
    st.integers(0, 30),
    st.integers(0, 20),
    st.integers(1, 40),
)
def test_a_queue_read_backwards_gives_all_of_the_batch_however_little_comes_at_a_time(newer, older, minimum, cap):
    prefixes = [*["q:4:1:"] * older, *newer]
    records = [
        msgspec.structs.replace(record(f"{prefix}{at}" if prefix else None, 1000, f"K{at}"), queue_offset=at)
        for at, prefix in enumerate(prefixes)
    ]
    queue = Queue(records, min(minimum, len(records)), cap)
    found = looked_up(queue)
    assert found == {
        f"K{at}" for at, prefix in enumerate(prefixes) if prefix == "q:5:1:" and at >= min(minimum, len(records))
    }


@pytest.mark.parametrize("hidden", [3, 8])
def test_what_nobody_may_read_yet_is_waited_for(hidden):
    """A master refuses a message that it could not copy in time, or is replaced, and it is there nevertheless."""
    records = [msgspec.structs.replace(record(f"q:5:1:{at}", 1000, f"K{at}"), queue_offset=at) for at in range(9)]
    queue = Queue(records, 0, 32, hidden)
    assert looked_up(queue) == {f"K{at}" for at in range(9)}
    assert queue.hidden == 0


def test_a_queue_that_stays_hidden_is_an_error():
    records = [msgspec.structs.replace(record(f"q:5:1:{at}", 1000, f"K{at}"), queue_offset=at) for at in range(99)]
    with pytest.raises(ServiceNotAvailable, match="messages that nobody may read yet"):
        looked_up(Queue(records, 0, 32, 50), patience=0.0)


def looked_up(queue: Queue, **more: float) -> set[str]:
    async def refresh(topic: str) -> None:
        pass

    link = SimpleNamespace(
        client=SimpleNamespace(calls=queue, routes=SimpleNamespace(refresh=refresh)),
        namespace=SimpleNamespace(wrap=str),
        on_wire=lambda given: given,
        replica=lambda name, only_this: "here:1",
    )
    place = MessageQueue(broker_name="broker-a", queue_id=0, topic="orders")
    return asyncio.run(read_back(cast("Any", link), place, Identity("q", 5, 1), 600.0, **more))
