"""Write a repeated warning once, then how often it came."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 60.0


class Folding(logging.Handler):
    """Hands records to `target`, except warnings and errors that repeat the line before word for word.

    It counts them, and writes the count before the next different message, or when the same one comes after `window`
    seconds. Errors with a stack trace always pass, and so does everything below a warning: it tells of a change.
    """

    def __init__(
        self, target: logging.Handler, *, window: float = WINDOW, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.target = target
        self._window = window
        self._clock = clock
        self._said: tuple[str, int, str] | None = None
        self._until = 0.0
        self._again = 0
        self._last: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = (record.name, record.levelno, record.getMessage())
        except (TypeError, ValueError):
            self.target.handle(record)  # arguments do not match the format; logging reports that itself
            return
        now = self._clock()
        if said == self._said and now < self._until and record.levelno >= logging.WARNING and not record.exc_info:
            self._again += 1
            self._last = record
            return
        self._tell_count()
        self._said, self._until = said, now + self._window
        self.target.handle(record)

    def _tell_count(self) -> None:
        if self._last is not None and self._said is not None:
            counted = logging.makeLogRecord(self._last.__dict__)
            counted.msg, counted.args = "%s (+%d more)", (self._said[2], self._again)
            self.target.handle(counted)
        self._again, self._last = 0, None

    def close(self) -> None:
        self.acquire()
        try:
            self._tell_count()
        finally:
            self.release()
        self.target.close()
        super().close()
