"""Send a question as a message and get the answer as another: any consumer of the topic may reply.

python examples/request_reply.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import os
import sys

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, StartAt
from pyromq.errors import ReplyTimeout

TOPIC = "questions"


async def main(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.topics.create(TOPIC)

    consumer = Consumer("answering", namesrv=namesrv, start_at=StartAt.FIRST)

    @consumer.on(TOPIC, "question")
    async def answer(message: ReceivedMessage) -> None:
        await message.reply(message.body.upper())

    async with consumer, Producer("asking", namesrv=namesrv) as producer:
        reply = await producer.request(TOPIC, b"how are you?", tags="question", timeout=10.0)
        print("answer:", reply.body.decode())

        try:
            await producer.request(TOPIC, b"and the weather?", tags="chat", timeout=0.5)
        except ReplyTimeout:
            print("nobody answers chat")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
