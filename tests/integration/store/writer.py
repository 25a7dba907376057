"""A process that stores numbered messages, tells of each on its standard output, and waits to be killed.

python writer.py ROOT FLUSH [KEY=VALUE …]
"""

from __future__ import annotations

import sys
from typing import Any

from pyromq.protocol.record import MessageRecord
from pyromq.store import FlushDiskType, MessageStore, PutStatus, StoreConfig


def main(root: str, flush: str, *settings: str) -> None:
    pairs = (setting.split("=") for setting in settings)
    sizes: dict[str, Any] = {name: int(value) for name, value in pairs}
    store = MessageStore(StoreConfig(root=root, flush=FlushDiskType(flush), **sizes))
    store.open()
    number = int(store.queue("T", 0).max_offset)
    while True:
        batch = [MessageRecord("T", b"m%d" % at, b"KEYS\x01k%d" % at) for at in range(number, number + 7)]
        results = store.put([(store.queue("T", 0), [record]) for record in batch])
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        if flush == "SYNC_FLUSH":
            store.flushed().result()
        number += len(batch)
        # Said only when it is stored: what was said must be there after a crash.
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        store.maintain()


if __name__ == "__main__":
    main(*sys.argv[1:])
