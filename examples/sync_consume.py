"""Consume without an event loop until Ctrl-C: with a `for` loop, or with plain functions as handlers.

Run examples/send.py before or at the same time.

python examples/sync_consume.py [name server, default localhost:9876]
"""

from __future__ import annotations

import os
import sys

from pyromq import StartAt
from pyromq.sync import Consumer, ReceivedMessage


def main(namesrv: str) -> None:
    consumer = Consumer("counting", namesrv=namesrv, start_at=StartAt.FIRST)

    @consumer.on("orders", "created")
    def count(message: ReceivedMessage) -> None:  # runs in one of the consumer's threads
        print(f"handler: {message.keys[0]}", flush=True)

    with consumer, Consumer("listing", {"orders": "paid"}, namesrv=namesrv, start_at=StartAt.FIRST) as payments:
        try:
            for message in payments:
                print(f"loop: {message.keys[0]}", flush=True)
        except KeyboardInterrupt:
            print("bye", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876"))
