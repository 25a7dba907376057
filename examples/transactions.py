"""Send a message that consumers see if and only if the local work was done, here a row in a database.

python examples/transactions.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys

from pyromq import ReceivedMessage, TransactionProducer, TxState

TOPIC = "paid"


async def main(namesrv: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE payments (id TEXT PRIMARY KEY, amount INTEGER)")
    producer = TransactionProducer("payments", namesrv=namesrv)

    @producer.check
    async def was_paid(message: ReceivedMessage) -> TxState:
        """The broker asks when it has not heard the outcome: the process may have died."""
        found = database.execute("SELECT 1 FROM payments WHERE id = ?", (message.id,)).fetchone()
        return TxState.COMMIT if found else TxState.ROLLBACK

    async with producer:
        for amount in (30, -5):
            async with producer.transaction(TOPIC, b"%d" % amount) as transaction:
                if amount > 0:
                    with database:
                        database.execute("INSERT INTO payments VALUES (?, ?)", (transaction.id, amount))
                else:
                    transaction.rollback()
            print(f"{amount}: {transaction.result.state.name}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
