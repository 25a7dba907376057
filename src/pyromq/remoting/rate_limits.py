"""How much one account or address may ask for: a token bucket each, for requests and for bytes. Decides; others act.

A bucket holds what may come in one second and fills all the time, so a short burst passes and a flood does not.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import ServerConfig

# The buckets that are remembered: those used last. A forgotten one is full again.
_REMEMBERED = 10_000
# Seconds until more is taken from whoever exceeds a limit. Then there is room for more than a single request, so that
# a flood costs little; and nobody is forgotten for long.
_SHORTEST, _LONGEST = 0.05, 1.0
# And until a bucket is full again after no matter how many bytes.
_LONGEST_DEBT = 10.0


class Excess(NamedTuple):
    """A request too many: why, and for how many seconds nothing more should be read from that peer."""

    why: str
    wait: float


class _Bucket:
    __slots__ = ("at", "refused", "requests", "size")

    def __init__(self, requests: float, size: float, at: float) -> None:
        self.requests = requests
        self.size = size
        self.refused = 0  # and not made up for by requests that passed since
        self.at = at


class RateLimits:
    """The buckets of a server. 0 means no limit."""

    def __init__(self, requests: int = 0, size: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests = requests
        self._size = size
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    @classmethod
    def of(cls, config: ServerConfig) -> RateLimits:
        return cls(config.max_requests_per_second, config.max_bytes_per_second)

    @property
    def is_on(self) -> bool:
        return bool(self._requests or self._size)

    def change(self, config: ServerConfig) -> None:
        """Take over changed settings. With other limits, all buckets are full again."""
        limits = config.max_requests_per_second, config.max_bytes_per_second
        if limits != (self._requests, self._size):
            self._requests, self._size = limits
            self._buckets.clear()

    def excess(self, who: str, size: int) -> Excess | None:
        """Take a request of `size` bytes from the bucket of `who`; if that is empty, say so and take nothing more.

        A request larger than what may come in a second passes, too, and is paid for by those after it.
        """
        bucket = self._filled(who)
        is_empty = bucket.size <= 0
        # Also for what is refused: it has come.
        bucket.size = max(bucket.size - size, -_LONGEST_DEBT * self._size)
        if self._requests and bucket.requests < 1:
            bucket.refused += 1
            why = f"more than {self._requests} requests a second from {who} (maxRequestsPerSecond)"
            # Those of many connections wait for each other's turn.
            return Excess(why, _within((bucket.refused - bucket.requests) / self._requests))
        if self._size and is_empty:
            why = f"more than {self._size} bytes a second from {who} (maxBytesPerSecond)"
            return Excess(why, _within(-bucket.size / self._size))
        bucket.requests -= 1
        if bucket.refused:
            bucket.refused -= 1
        return None

    def _filled(self, who: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(who)
        if bucket is None:
            bucket = self._buckets[who] = _Bucket(self._requests, self._size, now)
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
            return bucket
        self._buckets.move_to_end(who)
        passed = now - bucket.at
        bucket.at = now
        bucket.requests = min(self._requests, bucket.requests + passed * self._requests)
        bucket.size = min(self._size, bucket.size + passed * self._size)
        return bucket


def _within(wait: float) -> float:
    return max(_SHORTEST, min(wait, _LONGEST))
