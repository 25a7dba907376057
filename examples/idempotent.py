"""Book each payment once, even when its message arrives twice: the key and the booking share one transaction.

python examples/idempotent.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, Retry, StartAt

TOPIC, GROUP = "booked-payments", "bookkeeping"
SCHEMA = """
CREATE TABLE processed (message_key TEXT PRIMARY KEY);
CREATE TABLE account (balance INTEGER NOT NULL);
INSERT INTO account VALUES (0);
"""


def book(database: sqlite3.Connection, key: str, amount: int) -> bool:
    """Add a payment to the account. False if it was already booked."""
    with database:  # one transaction: the key and the booking, or neither
        inserted = database.execute("INSERT INTO processed VALUES (?) ON CONFLICT DO NOTHING", (key,)).rowcount
        if inserted:
            database.execute("UPDATE account SET balance = balance + ?", (amount,))
    return bool(inserted)


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create(TOPIC, read_queues=1, write_queues=1)

    async with Producer("payments", namesrv=namesrv) as producer:
        await producer.send(TOPIC, b"10", keys="payment-1")
        await producer.send(
            TOPIC, b"10", keys="payment-1"
        )  # the sender timed out and tried again: a new id, the same key
        await producer.send(TOPIC, b"20", keys="payment-2")

    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    consumer = Consumer(GROUP, namesrv=namesrv, start_at=StartAt.FIRST, max_concurrency=1)
    handled: asyncio.Queue[str] = asyncio.Queue()

    @consumer.on(TOPIC)
    async def pay(message: ReceivedMessage) -> Retry | None:
        (key,) = message.keys
        booked = book(database, key, int(message.body))
        await handled.put(f"{key}: {'booked' if booked else 'already booked'}")
        if key == "payment-2" and message.reconsume_times == 0:
            return Retry(delay_level=1)  # as if it crashed here: booked, but the broker never hears of it
        return None

    async with consumer:
        for _ in range(4):
            print(await handled.get(), flush=True)
    print("balance:", *database.execute("SELECT balance FROM account").fetchone())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
