"""Send messages without an event loop, here from several threads.

python examples/sync_send.py [name server, default localhost:9876]
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from pyromq.sync import Producer


def main(namesrv: str) -> None:
    with Producer("order-service", namesrv=namesrv) as producer:
        result = producer.send("orders", b'{"id": "order-7", "total": 70}', tags="created", keys=["order-7"])
        print(f"order-7: {result.status.name}")

        with ThreadPoolExecutor(4) as pool:
            results = pool.map(lambda number: producer.send("orders", b"{}", tags=f"thread-{number}"), range(4))
            print(f"from threads: {', '.join(result.status.name for result in results)}")

        futures = [producer.submit("orders", b"%d" % number, tags="counted") for number in range(100)]
        print(f"submitted: {sum(future.result().status.name == 'SEND_OK' for future in futures)} stored")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NAMESRV_ADDR", "localhost:9876"))
