"""Inspect and change a cluster: create a topic, see a group's lag, find a message.

python examples/administer.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys

from pyromq import AdminClient, Producer, PullConsumer, StartAt

TOPIC = "invoices"
GROUP = "archive"


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        brokers = await admin.topics.create(TOPIC, read_queues=2, write_queues=2)
        print(f"{TOPIC} is on {len(brokers)} broker")

        async with Producer("accounting", namesrv=namesrv) as producer:
            sent = [await producer.send(TOPIC, b"invoice %d" % number, keys=[f"I-{number}"]) for number in range(6)]

        async with PullConsumer(GROUP, {TOPIC: "*"}, namesrv=namesrv, start_at=StartAt.FIRST) as consumer:
            read = 0
            while read < 4:
                read += len(await consumer.poll(max=4 - read))
            await consumer.commit()
        print(f"{GROUP} is {(await admin.groups.progress(GROUP, TOPIC)).lag} messages behind")

        by_id = await admin.messages.get(TOPIC, sent[0].id)
        by_key = await admin.messages.by_key(TOPIC, "I-5")
        print(f"found {by_id.body.decode()!r} by its id, {by_key[-1].body.decode()!r} by its key")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
