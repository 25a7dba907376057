"""How long requests took, by their code and their answer's: counted here, shown by whoever monitors the server.

One request costs a third of a microsecond, which is why the compiled path counts whole runs of them.
"""

from __future__ import annotations

from bisect import bisect_left
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from pyromq.protocol.command import ONEWAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyromq.protocol.command import Command

# Upper bounds of the buckets in seconds. RocketMQ's histogram of requests has the same.
BOUNDS = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)
_FAST = BOUNDS[0]
# Request and response codes are few; a server that is driven into making up new ones must not grow for it.
_MOST = 4096


class Took:
    """Requests of one kind. `counts` has one more than `BOUNDS`; `seconds` is the sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """So many requests were answered, each after so many seconds. CPython 3.11: 0.12 µs."""
        self.counts[0 if seconds <= _FAST else bisect_left(BOUNDS, seconds)] += count
        self.seconds += seconds * count


class Kind(NamedTuple):
    """What requests have in common. `held` ones waited on purpose, such as pulls for messages."""

    code: int
    response: int
    held: bool = False
    oneway: bool = False


class RequestLatencies:
    """Counts answered requests, by their kind."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, int, bool, bool], Took] = {}
        self._others = Took()

    def of(self, code: int, response: int, held: bool = False, oneway: bool = False) -> Took:
        """Where to count requests of a kind. You may keep it."""
        try:
            return self._kinds[code, response, held, oneway]
        except KeyError:
            if len(self._kinds) >= _MOST:
                return self._others
            return self._kinds.setdefault((code, response, held, oneway), Took())

    def answered(self, request: Command, response: int, *, held: bool = False) -> None:
        """A request was answered now."""
        took = monotonic() - request.received
        self.of(request.code, response, held, bool(request.flag & ONEWAY)).add(took)

    def __iter__(self) -> Iterator[tuple[Kind, Took]]:
        for kind, took in list(self._kinds.items()):
            if any(took.counts):
                yield Kind(*kind), took
