"""Deliver messages later: after one of the broker's delay levels, or after any delay.

python examples/delayed.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, StartAt


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create("reminders", read_queues=4, write_queues=4)

    async with Producer("reminders", namesrv=namesrv) as producer:
        began = time.monotonic()
        await producer.send("reminders", b"by level 1", delay_level=1)  # one second, unless the broker says otherwise
        await producer.send("reminders", b"after two seconds", delay=timedelta(seconds=2))

        consumer = Consumer("reminded", namesrv=namesrv, start_at=StartAt.FIRST)
        both = asyncio.Event()
        seen: list[str] = []

        @consumer.on("reminders")
        async def show(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())
            print(f"{message.body.decode()}: {time.monotonic() - began:.0f} s", flush=True)
            if len(seen) == 2:
                both.set()

        async with consumer:
            await both.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
