"""Fakes and fixtures for testing programs built on PyroMQ. Nothing else in PyroMQ imports them.

Each name loads on first use: pytest loads `plugin` in every project where PyroMQ is installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import Clock
    from .cluster import Cluster, running_cluster
    from .disk import FaultyDisk
    from .proxy import Proxy
    from .waiting import NotThereInTime, TestBroker

__all__ = ["Clock", "Cluster", "FaultyDisk", "NotThereInTime", "Proxy", "TestBroker", "running_cluster"]

_PLACES = {
    "Clock": ".clock",
    "Cluster": ".cluster",
    "FaultyDisk": ".disk",
    "NotThereInTime": ".waiting",
    "Proxy": ".proxy",
    "TestBroker": ".waiting",
    "running_cluster": ".cluster",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
