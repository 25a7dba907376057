"""Requests that were not allowed: counted, and logged so that an attack is seen but cannot fill a disk."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from pyromq.remoting import FoldedLog, host_of

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("pyromq.security")


class Refusals:
    """Each is logged with who, from where, what and why; never with secrets. The same again only counts for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # By request code, since the start.
        self.counts: Counter[int] = Counter()
        self._folded = FoldedLog(clock)

    @property
    def total(self) -> int:
        return self.counts.total()

    def note(self, code: int, peer: str, account: str, why: str) -> None:
        self.counts[code] += 1
        key = (account[:100], host_of(peer), code, why[:200])
        again = self._folded.due(key)
        if again is not None:
            logger.warning("refused request %s of %r from %s: %s%s", code, key[0], key[1], key[3], again)
