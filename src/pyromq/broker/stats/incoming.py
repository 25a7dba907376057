"""Messages that came in, by topic and type, with the distribution of their sizes: what metrics show of sends.

A type is one of RocketMQ's words for it. Nothing is counted per message here: whoever stores messages counts them in
its own numbers, and adds those before each report (`SendProcessor.count`).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from pyromq.metrics.broker_metrics import SIZE_BOUNDS
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"

# Nearly all messages are no larger, so those above are counted one by one, and the others follow. Compiled code counts
# by the same bounds (pyromq/_native/send_run.pyx).
SMALL = SIZE_BOUNDS[0]
LARGE = len(SIZE_BOUNDS)  # buckets above that

_NOT_COUNTED = (RETRY_PREFIX, DLQ_PREFIX)  # these were counted when they came in


class Incoming:
    """The messages of one topic and type. `large` counts those in the buckets above the first."""

    __slots__ = ("bytes", "count", "large")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.large = [0] * LARGE

    def add(self, count: int, size: int, large: Sequence[int] = ()) -> None:
        self.count += count
        self.bytes += size
        for bucket, more in enumerate(large):
            self.large[bucket] += more

    def note(self, size: int) -> None:
        """Count one message."""
        self.count += 1
        self.bytes += size
        if size > SMALL:
            self.large[bucket_of(size)] += 1

    @property
    def buckets(self) -> list[int]:
        """How many messages each bucket has."""
        return [self.count - sum(self.large), *self.large]

    def clear(self) -> None:
        self.count = self.bytes = 0
        self.large = [0] * LARGE


class IncomingCounts:
    """All of them. A topic that is gone stays until `forget`."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Incoming] = {}

    def of(self, topic: str, kind: str) -> Incoming:
        """The count to add to."""
        try:
            return self._counts[topic, kind]
        except KeyError:
            return self._counts.setdefault((topic, kind), Incoming())

    def note(self, topic: str, kind: str, size: int) -> None:
        """Count a stored message, unless it was counted before it became a retry or a dead letter."""
        if not topic.startswith(_NOT_COUNTED):
            self.of(topic, kind).note(size)

    def forget(self, topic: str) -> None:
        for key in [key for key in self._counts if key[0] == topic]:
            del self._counts[key]

    def __iter__(self) -> Iterator[tuple[str, str, Incoming]]:
        for (topic, kind), incoming in list(self._counts.items()):
            yield topic, kind, incoming


def bucket_of(size: int) -> int:
    """Which of the buckets above the first a size belongs to."""
    return bisect_left(SIZE_BOUNDS, size) - 1
