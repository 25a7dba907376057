"""Timer figures for runtime info (docs/spec/broker.md 12.2)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .delivery import TimerService

_SECONDS = 10


class TimerFigures:
    """How many timers wait, how late they are, and how many came and went per second over ten seconds.

    Call `sample` about every second. `clock` gives epoch milliseconds.
    """

    def __init__(self, timers: TimerService, clock: Callable[[], int]) -> None:
        self._timers = timers
        self._clock = clock
        self._samples = deque([(clock(), 0, 0)], maxlen=_SECONDS + 1)

    def sample(self) -> None:
        now = self._clock()
        if abs(now - self._samples[-1][0]) >= 1000:
            self._samples.append((now, self._timers.enqueued, self._timers.delivered))

    def collect(self) -> dict[str, str]:
        late, unread = self._timers.behind
        (began, entered, left), (ended, entered_then, left_then) = self._samples[0], self._samples[-1]
        seconds = max(ended - began, 1000) / 1000
        return {
            "timerReadBehind": str(late // 1000),
            "timerOffsetBehind": str(unread),
            "timerCongestNum": str(self._timers.pending),
            "timerEnqueueTps": str(round((entered_then - entered) / seconds, 1)),
            "timerDequeueTps": str(round((left_then - left) / seconds, 1)),
        }
