"""The same loads with the official C++ client in its Python wheel (PyPI `rocketmq`), in an environment of its own.

python -m bench.client_cpp LOAD NAMESRV SECONDS
"""

from __future__ import annotations

import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

from .client_meter import BODY, Meter, pin

TOPIC, STORED = "client-sends", "client-stored"


def sync_send(namesrv: str, seconds: float, threads: int = 1) -> str:
    meter = Meter(seconds)
    counts = [0] * threads
    producer = Producer("bench-cpp")
    producer.set_namesrv_addr(namesrv)
    producer.start()

    def work(number: int) -> None:
        while not meter.over():
            message = Message(TOPIC)
            message.set_body(BODY)
            producer.send_sync(message)
            counts[number] += 1
            meter.count = sum(counts)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return meter.report()


def consume(namesrv: str, seconds: float) -> str:
    meter, done = Meter(seconds), threading.Event()
    lock = threading.Lock()  # handlers run in threads of the library's own

    def handler(message: object) -> None:
        with lock:
            meter.count += bool(message.body)  # type: ignore[attr-defined]
            if meter.over():
                done.set()

    consumer = PushConsumer(f"bench-cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(STORED, handler)
    consumer.start()
    if not done.wait(seconds * 3 + 60):
        raise RuntimeError(f"only {meter.count} messages came")
    return meter.report()


def main() -> None:
    name, namesrv, number = sys.argv[1:]
    pin()
    if name == "consume":
        report = consume(namesrv, float(number))
    else:
        report = sync_send(namesrv, float(number), threads=8 if name == "sync_send_8" else 1)
    print(report, flush=True)
    os._exit(0)  # its threads do not always end, and its destructors may crash


if __name__ == "__main__":
    main()
