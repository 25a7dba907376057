"""Requests that were not allowed: counted, and logged so that an attack is seen but cannot fill a disk."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from pyromq.remoting import host_of

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("pyromq.security")

# The same refusal is logged once in so many seconds; of so many different ones at most.
QUIET = 60.0
REMEMBERED = 1000


class Refusals:
    """Each is logged with who, from where, what and why; never with secrets. The same again only counts for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By request code, since the start.
        self.counts: Counter[int] = Counter()
        # When it was logged, and how often it came since. By account, host, code and reason.
        self._logged: OrderedDict[tuple[str, str, int, str], tuple[float, int]] = OrderedDict()

    @property
    def total(self) -> int:
        return self.counts.total()

    def note(self, code: int, peer: str, account: str, why: str) -> None:
        self.counts[code] += 1
        key = (account[:100], host_of(peer), code, why[:200])
        now = self._clock()
        before, silent = self._logged.get(key, (-QUIET, 0))
        if now - before < QUIET:
            self._logged[key] = (before, silent + 1)
            return
        again = f" ({silent} more like it in the last {now - before:.0f} s)" if silent else ""
        logger.warning("refused request %s of %r from %s: %s%s", code, key[0], key[1], key[3], again)
        self._logged[key] = (now, 0)
        self._logged.move_to_end(key)
        while len(self._logged) > REMEMBERED:
            self._logged.popitem(last=False)
