"""Consume with a handler until Ctrl-C: failed messages are retried later, hopeless ones become dead letters.

Run examples/send.py before or at the same time.

python examples/consume.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

from pyromq import Consumer, DeadLetter, ReceivedMessage, Retry, StartAt


async def main(namesrv: str) -> None:
    consumer = Consumer("billing", namesrv=namesrv, start_at=StartAt.FIRST, max_retries=5)

    @consumer.on("orders", "created || paid")
    async def bill(message: ReceivedMessage) -> Retry | DeadLetter | None:
        try:
            order = json.loads(message.body)
        except ValueError:
            print(f"{message.body!r} is no order", flush=True)
            return DeadLetter()  # found in the topic %DLQ%billing
        if order["total"] > 100 and message.reconsume_times == 0:
            print(f"{order['id']}: the bank is busy", flush=True)
            return Retry(delay_level=1)  # raising an error would do the same, after the broker's usual delay
        print(f"{order['id']}: {message.tags}, try {message.reconsume_times + 1}", flush=True)
        return None  # done

    await consumer.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
