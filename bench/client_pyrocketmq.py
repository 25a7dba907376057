"""The same loads with pyrocketmq, a client in pure Python (github.com/tt67wq/pyrocketmq), in an environment of its own.

python -m bench.client_pyrocketmq LOAD NAMESRV SECONDS
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time

from pyrocketmq.model.message import Message  # type: ignore[import-not-found]
from pyrocketmq.producer import create_async_producer, create_producer  # type: ignore[import-not-found]

from .client_meter import BODY, Meter, pin

TOPIC, STORED = "client-sends", "client-stored"
TASKS = 64
MOST = 9_000  # requests: it forgets none that was answered, and refuses the ten thousandth


async def send(namesrv: str, seconds: float) -> str:
    meter = Meter(seconds)
    producer = create_async_producer("bench-pure", namesrv)
    await producer.start()
    await producer.send(Message(topic=TOPIC, body=BODY))

    async def work() -> None:
        while not meter.over():
            await producer.send(Message(topic=TOPIC, body=BODY))
            meter.count += 1
            if meter.count >= MOST - TASKS:
                meter.end()

    await asyncio.gather(*(work() for _ in range(TASKS)))
    return meter.report()


def sync_send(namesrv: str, seconds: float, threads: int = 1) -> str:
    meter = Meter(seconds)
    counts = [0] * threads
    producer = create_producer("bench-pure", namesrv)
    producer.start()
    producer.send(Message(topic=TOPIC, body=BODY))

    def work(number: int) -> None:
        while not meter.over():
            producer.send(Message(topic=TOPIC, body=BODY))
            counts[number] += 1
            meter.count = sum(counts)
            if meter.count >= MOST:
                meter.end()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return meter.report()


async def consume(namesrv: str, seconds: float) -> str:
    # Not above: Python 3.11 refuses an annotation in there (`threading.RLock | None`), and producers do without it.
    from pyrocketmq.consumer import (  # type: ignore[import-not-found]
        create_async_concurrent_consumer,
        create_async_message_listener,
    )
    from pyrocketmq.model import SUBSCRIBE_ALL, ConsumeResult  # type: ignore[import-not-found]

    meter, done = Meter(seconds), asyncio.Event()

    async def listener(messages: list[object]) -> object:
        meter.count += len(messages)
        if meter.over():
            done.set()
        return ConsumeResult.SUCCESS

    consumer = create_async_concurrent_consumer(f"bench-pure-{time.time_ns()}", namesrv)
    await consumer.subscribe(STORED, SUBSCRIBE_ALL, create_async_message_listener(listener))
    await consumer.start()
    async with asyncio.timeout(seconds * 3 + 60):
        await done.wait()
    return meter.report()


def main() -> None:
    name, namesrv, number = sys.argv[1:]
    if name != "consume":
        number = str(min(float(number), 2.0))  # so that it is warm long before MOST
    pin()
    logging.disable(logging.CRITICAL)  # it logs every message
    if name == "send":
        report = asyncio.run(send(namesrv, float(number)))
    elif name == "consume":
        print(asyncio.run(consume(namesrv, float(number))), flush=True)
        os._exit(0)
    else:
        report = sync_send(namesrv, float(number), threads=8 if name == "sync_send_8" else 1)
    print(report, flush=True)
    os._exit(0)  # it may leave threads that do not end


if __name__ == "__main__":
    main()
