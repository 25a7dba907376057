"""Counts what a client gets done, after a time to warm up. Plain Python: programs in other environments use it, too."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

WARM = 0.25  # of the measured time
BODY = b"0123456789abcdef" * 64  # one of the peers cuts bodies at a zero byte
CORE = 0


class Meter:
    """`count` things; once it is `over`, `report` says how many a second, and what each took of the process's CPU."""

    def __init__(self, seconds: float) -> None:
        self.count = 0
        self._seconds = seconds
        self._starts = time.perf_counter() + WARM * seconds
        self._began: tuple[float, float, int] | None = None
        self._ended: tuple[float, float, int] | None = None

    def over(self) -> bool:
        """To be asked now and then: it also takes the readings."""
        now = time.perf_counter()
        if self._began is None:
            if now >= self._starts:
                self._began = (now, time.process_time(), self.count)
            return False
        if self._ended is None and now - self._began[0] >= self._seconds:
            self.end()
        return self._ended is not None

    def end(self) -> None:
        """There is no more to count."""
        if self._ended is None:
            self._ended = (time.perf_counter(), time.process_time(), self.count)

    def report(self) -> str:
        assert self._began is not None, "it ended before it was warm"
        assert self._ended is not None
        seconds, cpu, count = (end - begin for begin, end in zip(self._began, self._ended, strict=True))
        if not count:
            raise RuntimeError("nothing was done in the measured time")
        return json.dumps({"rate": count / seconds, "cpu": cpu / count * 1e6})


def pin() -> None:
    """Let this process have one core, whatever threads it starts."""
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {CORE})


def anonymous_memory() -> int:
    """Resident bytes of this process that are no mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [found] = [line for line in lines if line.startswith("RssAnon:")]
    return int(found.split()[1]) * 1024
