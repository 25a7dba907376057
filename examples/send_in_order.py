"""Messages with the same shard key stay in order: they share a queue, and an ordered consumer handles them one by one.

python examples/send_in_order.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, StartAt

STEPS = ("created", "paid", "packed", "sent")
ORDERS = ("order-1", "order-2", "order-3")


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create("order-steps", read_queues=4, write_queues=4)

    async with Producer("warehouse", namesrv=namesrv) as producer:
        for step in STEPS:
            for order in ORDERS:
                await producer.send("order-steps", step.encode(), shard_key=order, keys=[order])

    consumer = Consumer("warehouse-screen", namesrv=namesrv, ordered=True, start_at=StartAt.FIRST)
    seen: dict[str, list[str]] = {order: [] for order in ORDERS}
    complete = asyncio.Event()

    @consumer.on("order-steps")
    async def show(message: ReceivedMessage) -> None:
        (order,) = message.keys
        seen[order].append(message.body.decode())
        if all(len(steps) == len(STEPS) for steps in seen.values()):
            complete.set()

    async with consumer:
        await complete.wait()
    for order, steps in seen.items():
        print(f"{order}: {' > '.join(steps)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
