"""Our clients with default settings while the master of a group of processes is replaced: by plan, killed, frozen.

By plan no send fails; otherwise sends fail for as long as it takes to notice. Nothing acknowledged is missing, and
every queue is read in the order of sending.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import defaultdict

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import until
from tests.integration.broker.failover.up_kit import GROUP, SWITCHES, up_group

from pyromq import MessageQueue, Producer, PullConsumer, StartAt, sync
from pyromq.client.admin import AdminClient
from pyromq.errors import PyroMQError

pytestmark = pytest.mark.slow

TOPIC = "orders"
QUEUES = [MessageQueue(topic=TOPIC, broker_name=GROUP, queue_id=number) for number in range(2)]
QUIET = 0.005  # between two messages of a queue, so that the machine has time for others


class Ledger:
    """What senders were told, and what readers saw. Each queue has one sender, which waits for each answer."""

    def __init__(self):
        self.acknowledged: dict[int, list[int]] = {queue.queue_id: [] for queue in QUEUES}
        self.failed: list[tuple[float, str]] = []
        self.seen: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def sent(self, queue, number, status):
        if status.name == "SEND_OK":
            self.acknowledged[queue.queue_id].append(number)
        else:
            self.failed.append((time.monotonic(), status.name))

    def not_sent(self, error):
        self.failed.append((time.monotonic(), f"{type(error).__name__}: {error}"))

    def read(self, who, messages):
        for message in messages:
            self.seen[who][message.queue.queue_id].append(int(message.body))

    @property
    def count(self):
        return sum(map(len, self.acknowledged.values()))

    def missing(self):
        return {
            (who, queue): left
            for who, seen in self.seen.items()
            for queue, numbers in self.acknowledged.items()
            if (left := set(numbers) - set(seen[queue]))
        }

    def is_read(self, readers):
        return len(self.seen) == readers and not self.missing()

    def check(self, how, since):
        """Sends fail only as long as allowed, and all readers saw the order of sending."""
        late = [failure for at, failure in self.failed if at > since + SWITCHES[how]]
        assert late == []
        if how == "planned":
            assert self.failed == []
        for seen in self.seen.values():
            for numbers in seen.values():
                # A repetition begins further back.
                once = list(dict.fromkeys(numbers))
                assert once == sorted(once)


async def goes_on(ledger, readers):
    """Wait for messages that are sent from now on, by each queue, and for their readers."""
    goals = {queue: len(numbers) + 20 for queue, numbers in ledger.acknowledged.items()}
    async with asyncio.timeout(3 * TOO_LONG):
        while any(len(ledger.acknowledged[queue]) < goal for queue, goal in goals.items()):  # noqa: ASYNC110 - threads
            await asyncio.sleep(0.01)
        numbers = {queue: numbers[-1] for queue, numbers in ledger.acknowledged.items()}
        while not all(  # noqa: ASYNC110 - threads
            number in seen[queue] for seen in ledger.seen.values() for queue, number in numbers.items()
        ):
            await asyncio.sleep(0.01)
    assert len(ledger.seen) == readers


async def created(group):
    async with AdminClient(group.namesrv) as admin:
        await admin.topics.create(TOPIC, write_queues=len(QUEUES), read_queues=len(QUEUES))


@pytest.mark.parametrize("how", SWITCHES)
async def test_producers_and_pull_consumers_go_on(tmp_path, how):
    ledger = Ledger()
    enough = asyncio.Event()

    async def send(producer, queue):
        for number in itertools.count():
            if enough.is_set():
                return
            try:
                result = await producer.send(TOPIC, b"%d" % number, queue=queue)
                ledger.sent(queue, number, result.status)
            except PyroMQError as exc:
                ledger.not_sent(exc)
            await asyncio.sleep(QUIET)

    async def poll(consumer):
        async for batch in consumer:
            ledger.read("poll", batch)

    async def pull(consumer, queue):
        """Keeps track of its offset by itself, and asks again when that fails."""
        offset = 0
        while True:
            try:
                pulled = await consumer.pull(queue, offset, wait=True)
            except PyroMQError:
                await asyncio.sleep(0.1)
                continue
            assert pulled.next_offset >= offset
            offset = pulled.next_offset
            ledger.read("pull", pulled.messages)

    with up_group(tmp_path) as group:
        await created(group)
        async with (
            Producer("makers", namesrv=group.namesrv) as producer,
            PullConsumer("pollers", {TOPIC: "*"}, namesrv=group.namesrv, start_at=StartAt.FIRST) as polling,
            PullConsumer("pullers", namesrv=group.namesrv) as pulling,
            asyncio.TaskGroup() as tasks,
        ):
            reading = [tasks.create_task(poll(polling)), *(tasks.create_task(pull(pulling, each)) for each in QUEUES)]
            sending = [tasks.create_task(send(producer, queue)) for queue in QUEUES]
            try:
                await goes_on(ledger, 2)
                since = time.monotonic()
                await asyncio.to_thread(group.switch, how)
                await goes_on(ledger, 2)
            finally:
                enough.set()
                await asyncio.wait(sending)
            await asyncio.to_thread(until, lambda: ledger.is_read(2), 2 * TOO_LONG)
            await polling.commit()
            for task in reading:
                task.cancel()
    ledger.check(how, since)


@pytest.mark.parametrize("how", ["planned", "killed"])
async def test_blocking_clients_go_on(tmp_path, how):
    ledger = Ledger()
    enough = threading.Event()

    def send(producer, queue):
        for number in itertools.count():
            if enough.wait(QUIET):
                return
            try:
                ledger.sent(queue, number, producer.send(TOPIC, b"%d" % number, queue=queue).status)
            except PyroMQError as exc:
                ledger.not_sent(exc)

    def poll(consumer):
        for batch in consumer:
            ledger.read("poll", batch)

    def live(group):
        pushed = sync.Consumer("readers", namesrv=group.namesrv, start_at=StartAt.FIRST, ordered=True)
        pushed.subscribe(TOPIC, "*", lambda message: ledger.read("push", [message]))
        polled = sync.PullConsumer("pollers", {TOPIC: "*"}, namesrv=group.namesrv, start_at=StartAt.FIRST)
        with sync.Producer("makers", namesrv=group.namesrv) as producer, pushed:
            polled.start()
            threads = [threading.Thread(target=send, args=(producer, queue)) for queue in QUEUES]
            threads.append(threading.Thread(target=poll, args=(polled,)))
            for thread in threads:
                thread.start()
            try:
                asyncio.run(goes_on(ledger, 2))
                since = time.monotonic()
                group.switch(how)
                asyncio.run(goes_on(ledger, 2))
                enough.set()
                for thread in threads[:-1]:
                    thread.join()
                until(lambda: ledger.is_read(2), 2 * TOO_LONG)
            finally:
                enough.set()
                polled.close()
                for thread in threads:
                    thread.join()
        return since

    with up_group(tmp_path) as group:
        await created(group)
        since = await asyncio.to_thread(live, group)
    ledger.check(how, since)
