"""Receive only the messages that matter: by tag, SQL over properties or a function. Needs enablePropertyFilter=true.

python examples/filtered.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, Sql, StartAt

ORDERS = ((1, "created", 60, "eu"), (2, "paid", 120, "eu"), (3, "paid", 180, "us"))


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create("filtered-orders", read_queues=4, write_queues=4)

    async with Producer("shop", namesrv=namesrv) as producer:
        for number, tag, total, region in ORDERS:
            properties = {"total": str(total), "region": region}
            await producer.send("filtered-orders", b"order-%d" % number, tags=tag, properties=properties)

    await first_of("paid ones", namesrv, "by-tag", "paid")
    await first_of("big ones in the EU", namesrv, "by-sql", Sql("total > 100 AND region = 'eu'"))


async def first_of(what: str, namesrv: str, group: str, expression: str | Sql) -> None:
    """Print the first message that a new group gets."""
    consumer = Consumer(group, namesrv=namesrv, start_at=StartAt.FIRST, max_concurrency=1)
    got: asyncio.Queue[str] = asyncio.Queue()

    # The broker evaluates tags and SQL; the function runs here, once the message has arrived.
    @consumer.on("filtered-orders", expression, where=lambda message: message.properties["region"] == "eu")
    async def take(message: ReceivedMessage) -> None:
        await got.put(message.body.decode())

    async with consumer:
        print(f"{what}: {await got.get()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
