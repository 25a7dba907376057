"""Send messages with a tag to select by and a key to find them by, and one that arrives a second later.

python examples/send.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from pyromq import Message, Producer


async def main(namesrv: str) -> None:
    async with Producer("order-service", namesrv=namesrv) as producer:
        for number in (1, 2, 3):
            order = {"id": f"order-{number}", "total": 60 * number}
            result = await producer.send("orders", json.dumps(order).encode(), tags="created", keys=[f"order-{number}"])
            print(f"order-{number}: {result.status.name}, {result.queue.broker_name} queue {result.queue.queue_id}")

        reminder = Message("orders", b'{"id": "order-1", "total": 60}', tags="paid", keys="order-1", delay_level=1)
        result = await producer.send(reminder)
        print(f"a payment that is seen in a second: {result.status.name}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
