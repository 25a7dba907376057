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


class Took(NamedTuple):
    """Requests of one kind. `counts` has one more than `BOUNDS`; `seconds` is the sum."""

    code: int
    response: int
    held: bool
    oneway: bool
    counts: list[int]
    seconds: float


class RequestLatencies:
    """Counts answered requests. `held` are those that waited on purpose, such as pulls for messages."""

    def __init__(self) -> None:
        # Of each kind: the counts of the buckets, and behind them the sum.
        self._series: dict[tuple[int, int, bool, int], list[float]] = {}

    def answered(self, request: Command, response: int, *, held: bool = False) -> None:
        """A request was answered now."""
        self.add(request.code, response, monotonic() - request.received, held=held, oneway=request.flag & ONEWAY)

    def add(
        self, code: int, response: int, seconds: float, count: int = 1, *, held: bool = False, oneway: int = 0
    ) -> None:
        """So many requests were answered with this code, each after so many seconds."""
        try:
            counts = self._series[code, response, held, oneway]
        except KeyError:
            if len(self._series) >= _MOST:
                return
            counts = self._series[code, response, held, oneway] = [0] * (len(BOUNDS) + 1) + [0.0]
        counts[0 if seconds <= _FAST else bisect_left(BOUNDS, seconds)] += count
        counts[-1] += seconds * count

    def __iter__(self) -> Iterator[Took]:
        for (code, response, held, oneway), counts in list(self._series.items()):
            yield Took(code, response, held, bool(oneway), [int(count) for count in counts[:-1]], counts[-1])
