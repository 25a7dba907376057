"""Send many messages fast: in batches for one topic, and without waiting for each answer.

python examples/send_many.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from pyromq import Message, Producer

COUNT = 1000


async def main(namesrv: str) -> None:
    messages = [Message("readings", b"%d degrees" % number, tags="indoor") for number in range(COUNT)]

    async with Producer("thermometers", namesrv=namesrv) as producer:
        began = time.perf_counter()
        results = await producer.send_batch(messages)
        print(f"{COUNT} messages in {len(results)} request, {time.perf_counter() - began:.2f} s")

    # Messages submitted to one queue within the linger leave in one request. The window limits how many are under way.
    async with Producer("thermometers", namesrv=namesrv, linger=0.005, window=500) as producer:
        began = time.perf_counter()
        answers = [await producer.submit(message) for message in messages]
        await producer.flush()
        stored = [answer for answer in answers if answer.exception() is None]
        print(f"{len(stored)} of {COUNT} submitted messages stored, {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
