"""The blocking clients against a real cluster."""

from __future__ import annotations

import concurrent.futures
import threading
import time

import pytest
from tests.integration.sync.background_kit import PATIENCE

import pyromq
from pyromq import DeadLetter, Message, Retry, SendStatus, StartAt
from pyromq.errors import PyroMQError, StateError
from pyromq.sync import AdminClient, Client, Consumer, Producer, PullConsumer, TransactionProducer
from pyromq.sync.portal import THREAD_NAME

TOPIC = "orders"


@pytest.fixture
def producer(cluster):
    cluster.do("create_topic", TOPIC)
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        yield producer


class Basket:
    """What handlers in threads put somewhere, and a test waits for."""

    def __init__(self, wanted):
        self.messages = []
        self.threads = set()
        self._full = threading.Semaphore(0)
        self._wanted = wanted

    def __call__(self, message):
        self.messages.append(message)
        self.threads.add(threading.current_thread().name)
        self._full.release()

    def wait(self):
        for _ in range(self._wanted):
            assert self._full.acquire(timeout=PATIENCE)
        return sorted(message.body for message in self.messages)


def numbers(count):
    return [str(number).encode() for number in range(count)]


@pytest.mark.slow
@pytest.mark.scenario("client 54")
def test_fifty_threads_send_ten_thousand_messages_through_one_loop(cluster, producer):
    producer.send(TOPIC, b"first")
    loops = set()

    def send(thread):
        results = [producer.send(TOPIC, b"%d-%d" % (thread, number)) for number in range(200)]
        loops.add(sum(thread.name == THREAD_NAME for thread in threading.enumerate()))
        return results

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = [result for results in pool.map(send, range(50)) for result in results]
    assert len(results) == 10_000
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len({(result.queue, result.offset) for result in results}) == 10_000
    assert loops == {1}


def test_submit_gives_futures_for_threads(producer):
    futures = [producer.submit(TOPIC, body) for body in numbers(20)]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    done, _ = concurrent.futures.wait(futures, timeout=PATIENCE)
    assert {future.result().status for future in done} == {SendStatus.SEND_OK}
    assert len(done) == 20
    producer.flush()


def test_a_future_of_submit_carries_the_error(cluster):
    cluster.do("create_topic", TOPIC)
    with Producer("senders", namesrv=cluster.namesrv, timeout=0.5, retries=0) as producer:
        producer.send(TOPIC, b"the route is known now")
        cluster.do("stop_broker")
        future = producer.submit(TOPIC, b"body")
        with pytest.raises(PyroMQError):
            future.result(PATIENCE)


def test_all_other_ways_to_send(producer):
    assert len(producer.queues(TOPIC)) == 4
    queue = producer.queues(TOPIC)[2]
    assert producer.send(TOPIC, b"body", queue=queue).queue == queue
    first, second = (producer.send(Message(TOPIC, b"body"), shard_key="k") for _ in range(2))
    assert first.queue == second.queue
    assert producer.send_oneway(TOPIC, b"body") is None
    results = producer.send_batch([Message(TOPIC, body) for body in numbers(5)])
    assert [result.status for result in results] == [SendStatus.SEND_OK]


def test_a_for_loop_over_a_consumer_acknowledges_what_it_passes(cluster, producer):
    for body in numbers(5):
        producer.send(TOPIC, body)
    settings = {"namesrv": cluster.namesrv, "start_at": StartAt.FIRST}
    bodies = []
    with Consumer("group", {TOPIC: "*"}, **settings) as consumer:
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 3:
                message.ack()
                break
    with Consumer("group", {TOPIC: "*"}, **settings) as consumer:
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 5:
                message.ack()
                break
    assert sorted(bodies) == numbers(5)


def test_closing_ends_a_for_loop_in_another_thread(cluster, producer):
    producer.send(TOPIC, b"only one")
    consumer = Consumer("group", {TOPIC: "*"}, namesrv=cluster.namesrv, start_at=StartAt.FIRST).start()
    got = threading.Event()

    def consume():
        for _ in consumer:
            got.set()
        return "ended"

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        loop = pool.submit(consume)
        assert got.wait(PATIENCE)
        consumer.close()
        assert loop.result(PATIENCE) == "ended"
    with pytest.raises(StateError, match="closed"):
        iter(consumer)


def test_plain_handlers_run_in_threads_of_the_consumer(cluster, producer):
    basket = Basket(10)
    consumer = Consumer("group", namesrv=cluster.namesrv, start_at=StartAt.FIRST, max_concurrency=3)
    consumer.subscribe(TOPIC, "*", basket)
    with consumer:
        for body in numbers(10):
            producer.send(TOPIC, body)
        assert basket.wait() == numbers(10)
        assert {queue.queue_id for queue in consumer.assignment if queue.topic == TOPIC} == {0, 1, 2, 3}
    assert all(name.startswith("pyromq group") for name in basket.threads)


def test_a_coroutine_handler_runs_on_the_loop(cluster, producer):
    basket = Basket(1)
    consumer = Consumer("group", namesrv=cluster.namesrv, start_at=StartAt.FIRST)

    @consumer.on(TOPIC)
    async def handle(message):
        basket(message)

    with consumer:
        producer.send(TOPIC, b"body")
        assert basket.wait() == [b"body"]
    assert basket.threads == {THREAD_NAME}
    assert type(basket.messages[0]) is pyromq.ReceivedMessage


def test_a_decorated_handler_retries_and_gives_up(impatient):
    seen = []
    done = threading.Event()
    impatient.do("create_topic", TOPIC)
    consumer = Consumer("group", namesrv=impatient.namesrv, start_at=StartAt.FIRST)

    @consumer.on(TOPIC, "a || b")
    def handle(message):
        seen.append((message.tags, message.reconsume_times))
        if message.tags == "b":
            return DeadLetter
        if message.reconsume_times < 2:
            return Retry(1)
        done.set()
        return None

    with consumer, Producer("senders", namesrv=impatient.namesrv) as producer:
        producer.send(TOPIC, b"body", tags="a")
        producer.send(TOPIC, b"body", tags="b")
        producer.send(TOPIC, b"body", tags="c")
        assert done.wait(PATIENCE)
        with AdminClient(impatient.namesrv) as admin:
            while "%DLQ%group" not in admin.topics.names():
                time.sleep(0.02)
    assert sorted(seen) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_a_handler_may_close_its_own_consumer(cluster, producer):
    consumer = Consumer("group", namesrv=cluster.namesrv, start_at=StartAt.FIRST, drain=PATIENCE)
    took = []

    @consumer.on(TOPIC)
    def handle(message):
        began = time.monotonic()
        consumer.close()
        took.append(time.monotonic() - began)

    producer.send(TOPIC, b"body")
    consumer.run()
    consumer.close()
    assert len(took) == 1
    assert took[0] < PATIENCE / 2
    with AdminClient(cluster.namesrv) as admin:
        assert admin.groups.progress("group", TOPIC).lag == 0


def test_a_handler_sends_and_replies(cluster, producer):
    """Scenario of a server: it consumes requests, writes elsewhere, and answers."""
    cluster.do("create_topic", "questions")
    consumer = Consumer("servers", namesrv=cluster.namesrv, start_at=StartAt.FIRST)

    @consumer.on("questions")
    def handle(message):
        producer.send("log", message.body)
        message.reply(message.body.upper())

    with consumer:
        assert producer.request("questions", b"hello", timeout=PATIENCE).body == b"HELLO"
    cluster.do("routed", "log")
    with AdminClient(cluster.namesrv) as admin:
        assert sum(ends.max_offset for ends in admin.topics.stats("log").values()) == 1


def test_a_running_consumer_is_paused_and_subscribed_from_other_threads(cluster, producer):
    basket = Basket(2)
    with Client(cluster.namesrv, route_interval=0.05) as client:
        consumer = Consumer("group", client=client, start_at=StartAt.FIRST)
        consumer.subscribe(TOPIC, handler=basket)
        with consumer:
            producer.send(TOPIC, b"0")
            consumer.pause()
            consumer.resume()
            producer.send("others", b"1")
            consumer.subscribe("others", handler=basket)
            assert basket.wait() == [b"0", b"1"]
            consumer.unsubscribe("others")


def test_a_pull_consumer_polls_seeks_and_commits(cluster, producer):
    queue = producer.queues(TOPIC)[0]
    for body in numbers(6):
        producer.send(TOPIC, body, queue=queue)
    with PullConsumer("pulling", namesrv=cluster.namesrv, auto_commit=False, start_at=StartAt.FIRST) as consumer:
        consumer.assign([queue])
        bodies = [message.body for message in consumer.poll(timeout=PATIENCE)]
        assert bodies == numbers(6)[: len(bodies)]
        consumer.seek(queue, 4)
        assert [message.body for message in consumer.poll(max=10, timeout=PATIENCE)] == [b"4", b"5"]
        consumer.commit()
        assert consumer.committed(queue) == consumer.position(queue) == 6
        assert consumer.bounds(queue) == (0, 6)
        assert consumer.assignment == {queue}
        assert [message.body for message in consumer.pull(queue, 2, 2).messages] == [b"2", b"3"]


def test_a_for_loop_over_a_pull_consumer_gives_batches(cluster, producer):
    for body in numbers(40):
        producer.send(TOPIC, body)
    bodies = []
    with PullConsumer("pulling", {TOPIC: "*"}, namesrv=cluster.namesrv, start_at=StartAt.FIRST) as consumer:
        for batch in consumer:
            bodies += [message.body for message in batch]
            if len(bodies) == 40:
                break
    assert sorted(bodies) == sorted(numbers(40))


def test_an_admin_makes_topics_and_finds_messages(cluster, producer):
    with AdminClient(cluster.namesrv) as admin:
        admin.topics.create("made", read_queues=2, write_queues=2)
        cluster.do("routed", "made")
        sent = producer.send("made", b"body", keys=["k1"])
        assert admin.topics.config("made")["broker-a"].write_queue_nums == 2
        assert admin.messages.by_uniq_key("made", sent.id).body == b"body"
        assert [message.msg_id for message in admin.messages.by_key("made", "k1")] == [sent.id]
        assert admin.offsets.maximum(sent.queue) == 1


def test_a_transaction_is_a_with_block(cluster):
    decided = []
    producer = TransactionProducer("paying", namesrv=cluster.namesrv)

    @producer.check
    def check(message):
        return pyromq.TxState.UNKNOWN

    with producer:
        with producer.transaction(TOPIC, b"paid") as transaction:
            decided.append(transaction.id)
        assert transaction.result.state is pyromq.TxState.COMMIT
        assert decided == [transaction.result.id]
        result = producer.send_in_transaction(TOPIC, lambda message: pyromq.TxState.ROLLBACK, b"not paid")
        assert result.state is pyromq.TxState.ROLLBACK
