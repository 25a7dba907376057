"""Lines of the log that many peers could cause again and again: each is written once in a while, with how many it
stands for, so that an attack is seen and cannot fill a disk.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

# The same line is written once in so many seconds; so many different ones are remembered.
QUIET = 60.0
REMEMBERED = 1000


class FoldedLog:
    """Decides whether a line is due; others write it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When it was written, and how often it came since.
        self._written: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, key: Hashable) -> str | None:
        """What to write behind the line about `key`, mostly nothing; None if the line is not due yet."""
        now = self._clock()
        before, silent = self._written.get(key, (-QUIET, 0))
        if now - before < QUIET:
            self._written[key] = (before, silent + 1)
            return None
        self._written[key] = (now, 0)
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return f" ({silent} more like it in the last {now - before:.0f} s)" if silent else ""
