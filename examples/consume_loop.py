"""Consume with `async for`, until Ctrl-C. A message is done when the loop asks for the next one.

Run examples/send.py before or at the same time.

python examples/consume_loop.py [name server, default localhost:9876]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from pyromq import Consumer, StartAt


async def main(namesrv: str) -> None:
    async with Consumer("auditing", {"orders": "*"}, namesrv=namesrv, start_at=StartAt.FIRST) as consumer:
        async for message in consumer:
            sent = message.born_at.astimezone()
            print(f"{sent:%H:%M:%S} {message.tags} {message.body.decode()}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876")))
