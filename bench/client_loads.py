"""What our client is measured with, each in a process of its own: python -m bench.client_loads LOAD NAMESRV SECONDS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import threading
import time
from typing import TYPE_CHECKING

import uvloop

from pyromq.client import Client, Consumer, Message, Producer, PullConsumer, StartAt

from .client_meter import BODY, Meter, anonymous_memory, pin

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyromq.client import ReceivedMessage, SendResult

TOPIC, STORED, LARGE = "client-sends", "client-stored", "client-large"
TASKS, WINDOW, BATCH = 64, 1000, 100
LINGER = 0.005
LARGE_BODY = 100 << 10
# No message fails while the broker does not answer; the sender waits so long for room in the window, then looks around.
TIMEOUT = 120.0
WAIT = 0.2


# Sending


async def send(namesrv: str, seconds: float) -> str:
    meter = Meter(seconds)
    async with Producer("bench", namesrv=namesrv) as producer:

        async def work() -> None:
            while not meter.over():
                await producer.send(TOPIC, BODY)
                meter.count += 1

        await producer.send(TOPIC, BODY)
        await asyncio.gather(*(work() for _ in range(TASKS)))
    return meter.report()


async def submit(namesrv: str, seconds: float, linger: float = 0.0) -> str:
    meter = Meter(seconds)

    def answered(future: asyncio.Future[SendResult]) -> None:
        future.result()
        meter.count += 1

    async with Producer("bench", namesrv=namesrv, window=WINDOW, linger=linger) as producer:
        await producer.send(TOPIC, BODY)
        while not meter.over():
            for _ in range(BATCH):
                (await producer.submit(TOPIC, BODY)).add_done_callback(answered)
    return meter.report()


async def submit_linger(namesrv: str, seconds: float) -> str:
    return await submit(namesrv, seconds, LINGER)


async def send_batch(namesrv: str, seconds: float) -> str:
    meter = Meter(seconds)
    async with Producer("bench", namesrv=namesrv) as producer:
        await producer.send(TOPIC, BODY)
        while not meter.over():
            await producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])
            meter.count += BATCH
    return meter.report()


# Receiving what `fill` has stored, from the first message on


async def fill(namesrv: str, count: float) -> str:
    """Store so many messages, and some large ones."""
    async with Producer("bench", namesrv=namesrv, window=WINDOW, linger=LINGER, compress_over=1 << 30) as producer:
        for _ in range(int(count)):
            await producer.submit(STORED, BODY)
        await producer.flush()
        for _ in range(max(int(count) // 500, 40)):
            await producer.submit(LARGE, bytes(LARGE_BODY))
        await producer.flush()
    return json.dumps({"stored": int(count)})


async def consume(namesrv: str, seconds: float) -> str:
    meter, done = Meter(seconds), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        meter.count += 1
        if meter.over():
            done.set()

    consumer = Consumer(_fresh_group(), namesrv=namesrv, start_at=StartAt.FIRST, pull_batch=128, drain=0.0)
    consumer.subscribe(STORED, "*", handler)
    async with consumer:
        await _until_done_or_idle(meter, done)
    return meter.report()


async def poll(namesrv: str, seconds: float) -> str:
    meter, done = Meter(seconds), asyncio.Event()
    async with PullConsumer(
        _fresh_group(), {STORED: "*"}, namesrv=namesrv, start_at=StartAt.FIRST, pull_batch=128
    ) as consumer:

        async def work() -> None:
            async for batch in consumer:
                for message in batch:
                    meter.count += bool(message.body)
                if meter.over():
                    done.set()
                    return

        working = asyncio.create_task(work())
        await _until_done_or_idle(meter, done)
    await asyncio.wait([working], timeout=1.0)
    return meter.report()


async def _until_done_or_idle(meter: Meter, done: asyncio.Event) -> None:
    """Until the time is over, or what was stored: then the last readings are those of the last message."""
    last = -1
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 0.5)
        if meter.count == last and meter.count:
            raise RuntimeError(f"no more than {meter.count} messages came; more must be stored for this long")
        last = meter.count


def _fresh_group() -> str:
    return f"bench-{time.time_ns()}"


# Without an event loop


def sync_send(namesrv: str, seconds: float, threads: int = 1) -> str:
    from pyromq import sync

    meter = Meter(seconds)
    counts = [0] * threads
    with sync.Producer("bench", namesrv=namesrv) as producer:

        def work(number: int) -> None:
            while not meter.over():
                producer.send(TOPIC, BODY)
                counts[number] += 1
                meter.count = sum(counts)

        producer.send(TOPIC, BODY)
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return meter.report()


def sync_send_8(namesrv: str, seconds: float) -> str:
    return sync_send(namesrv, seconds, threads=8)


# Memory


async def stalled_broker(namesrv: str, seconds: float, body: int = 1024, window_bytes: int = 100 << 20) -> str:
    """Submit to a broker that stops answering. It is stopped by whoever reads `ready`, once the topic is known."""
    async with Client(namesrv) as client, Producer(
        "bench", client=client, window=WINDOW * 10, window_bytes=window_bytes, timeout=TIMEOUT, compress_over=1 << 30
    ) as producer:  # fmt: skip
        await producer.send(TOPIC, bytes(body))
        before = _settled_memory()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        most, waited = before, False
        end = time.monotonic() + seconds
        pending = []
        while time.monotonic() < end:
            try:
                pending.append(await asyncio.wait_for(producer.submit(TOPIC, bytes(body)), WAIT))
            except TimeoutError:
                waited = True  # the window is full, so this one would have to wait for an answer
            if waited or len(pending) % 100 == 0:
                most = max(most, anonymous_memory())
        report = {"under way": len(pending), "waited": waited, "grown": most - before}
        print(json.dumps(report), flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # until the broker goes on
        await asyncio.wait(pending)
    return "{}"


async def stalled_broker_large(namesrv: str, seconds: float) -> str:
    return await stalled_broker(namesrv, seconds, body=LARGE_BODY, window_bytes=20 << 20)


async def stalled_handler(namesrv: str, seconds: float, topic: str = STORED, cached_mib: int = 100) -> str:
    """Consume with handlers that never end."""
    before = _settled_memory()
    called = 0
    never = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        nonlocal called
        called += 1
        await never.wait()

    consumer = Consumer(
        _fresh_group(), namesrv=namesrv, start_at=StartAt.FIRST, drain=0.0, max_cached_mib=cached_mib, max_cached=1000
    )
    consumer.subscribe(topic, "*", handler)
    most = 0
    async with consumer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            most = max(most, anonymous_memory())
    return json.dumps({"handlers": called, "grown": most - before})


async def stalled_handler_large(namesrv: str, seconds: float) -> str:
    return await stalled_handler(namesrv, seconds, LARGE, 5)


def _settled_memory() -> int:
    gc.collect()
    return anonymous_memory()


LOADS: dict[str, Callable[[str, float], str | Coroutine[object, object, str]]] = {
    each.__name__: each
    for each in (
        fill,
        send,
        submit,
        submit_linger,
        send_batch,
        consume,
        poll,
        sync_send,
        sync_send_8,
        stalled_broker,
        stalled_broker_large,
        stalled_handler,
        stalled_handler_large,
    )
}


def main() -> None:
    name, namesrv, number = sys.argv[1:]
    pin()
    result = LOADS[name](namesrv, float(number))
    print(result if isinstance(result, str) else uvloop.run(result))


if __name__ == "__main__":
    main()
