"""MessageQueue: one queue of a topic on one broker, the key of every table that counts offsets."""

from __future__ import annotations

from typing import Annotated

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, kw_only=True, rename="camel"):
    """One queue of a topic on one broker.

    The fields stand in the order in which Java writes them, hence by keyword only: Java's own constructor takes
    them in another order. Sorting the queues of one topic gives Java's order, on which rebalancing relies.
    """

    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    topic: str

    def __str__(self) -> str:
        """Java's text of a queue: consistent hashing hashes it, FastJSON names keys by it."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"
