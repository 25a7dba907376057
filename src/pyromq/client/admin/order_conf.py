"""Ordered topics: how many queues each broker has for one, `broker-a:4;broker-b:4`.

The name servers keep it as a key-value pair and send it with the topic's route. Producers then use exactly these
queues, even while a broker is down: a message waits rather than change its queue (docs/spec/client.md 2.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyromq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = "ORDER_TOPIC_CONFIG"

_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)


def parse(text: str) -> dict[str, int]:
    """Queues by broker name, in the order of the text. Raises RemoteProtocolError."""
    queues = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        broker, colon, count = item.rpartition(":")
        if not broker or not colon or not _COUNT.fullmatch(count):
            raise RemoteProtocolError(f"{item[:80]!r} is not a valid entry of an order configuration")
        queues[broker] = int(count)
    return queues


def render(queues: Mapping[str, int]) -> str:
    for broker, count in queues.items():
        if not broker or ";" in broker or ":" in broker or count < 0:
            raise LocalProtocolError(f"{broker}:{count} cannot be part of an order configuration")
    return ";".join(f"{broker}:{count}" for broker, count in queues.items())


def merge(text: str, changes: Mapping[str, int]) -> str:
    """`text` with the queues of some brokers changed or added."""
    return render(parse(text) | dict(changes))
