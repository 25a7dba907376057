"""Metrics of the process itself: time, memory, open files, garbage collection, and the event loop.

The names of `process_*` and `python_gc_*` are those that every Prometheus client for Python uses.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq import __version__, _native

from .model import Sample
from .server_metrics import (
    BUILD_INFO,
    GC_COLLECTED,
    GC_COLLECTIONS,
    GC_UNCOLLECTABLE,
    LOOP_LAG,
    PROCESS_CPU,
    PROCESS_FDS,
    PROCESS_MAX_FDS,
    PROCESS_RSS,
    PROCESS_START,
    PROCESS_VIRTUAL,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .health import LoopWatch

_PROC = Path("/proc/self")
_PAGE = resource.getpagesize()


def process_samples(watch: LoopWatch) -> Iterator[Sample]:
    """What the system and the interpreter say about this process. Takes 0.1 ms."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Sample(PROCESS_CPU, (), usage.ru_utime + usage.ru_stime)
    yield Sample(PROCESS_START, (), _started())
    try:
        virtual, resident, *_ = (_PROC / "statm").read_text().split()
        yield Sample(PROCESS_RSS, (), int(resident) * _PAGE)
        yield Sample(PROCESS_VIRTUAL, (), int(virtual) * _PAGE)
        yield Sample(PROCESS_FDS, (), sum(1 for _ in (_PROC / "fd").iterdir()))
    except (OSError, ValueError):  # not Linux
        unit = 1 if sys.platform == "darwin" else 1024
        yield Sample(PROCESS_RSS, (), usage.ru_maxrss * unit)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY:
        yield Sample(PROCESS_MAX_FDS, (), limit)
    for generation, stats in enumerate(gc.get_stats()):
        labels = (str(generation),)
        yield Sample(GC_COLLECTIONS, labels, stats["collections"])
        yield Sample(GC_COLLECTED, labels, stats["collected"])
        yield Sample(GC_UNCOLLECTABLE, labels, stats["uncollectable"])
    yield Sample(LOOP_LAG, (), watch.lag)
    yield Sample(BUILD_INFO, (__version__, platform.python_version(), _native.state()), 1)


@cache
def _started() -> float:
    """When this process began, in seconds since the epoch."""
    try:
        ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time()
