"""Pull messages when you want them: read a topic from its first message, seek back, commit your position.

python examples/pull.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys

from pyromq import AdminClient, Producer, PullConsumer, StartAt

TOPIC = "measurements"


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create(TOPIC)

    async with Producer("sensors", namesrv=namesrv) as producer:
        queue = (await producer.queues(TOPIC))[0]
        for number in range(10):
            await producer.send(TOPIC, b"%d" % number, queue=queue)

    async with PullConsumer("reports", namesrv=namesrv, auto_commit=False) as consumer:
        consumer.assign([queue])  # with subscribe(TOPIC), the members of the group would share the queues
        await consumer.seek(queue, StartAt.FIRST)
        first = await consumer.poll(max=3)
        print("first:", *(message.body.decode() for message in first))

        _, end = await consumer.bounds(queue)
        await consumer.seek(queue, end - 2)
        last = await consumer.poll(max=10)
        print("last:", *(message.body.decode() for message in last))

        await consumer.commit()
        print(f"committed: {end - (await consumer.committed(queue) or 0)} messages before the end")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
