"""Latency fault tolerance: producers avoid slow or failing brokers for a while.

    latency of the last send, ms   below 550   550   1800   3000   5000   15000
    avoided for, s                         0     2      5      6     10      30

An error counts as ten seconds of latency. These are RocketMQ 5's figures (docs/spec/client.md 2.7).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

_LATENCIES = (0.55, 1.8, 3.0, 5.0, 15.0)
_PAUSES = (0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
_ERROR_LATENCY = 10.0


def pause(latency: float) -> float:
    """How many seconds to avoid a broker whose last answer took `latency` seconds."""
    return _PAUSES[bisect_right(_LATENCIES, latency)]


class _Fault(NamedTuple):
    available_from: float
    reachable: bool


class LatencyFaults:
    """How the last send to each broker went. `now` is any clock in seconds."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def answered(self, broker: str, latency: float, now: float) -> None:
        self._faults[broker] = _Fault(now + pause(latency), True)

    def failed(self, broker: str, now: float, *, refused: bool = False) -> None:
        """An attempt failed. If it was `refused` with a code, the broker stays in doubt until a send succeeds."""
        self._faults[broker] = _Fault(now + pause(_ERROR_LATENCY), not refused)

    def is_available(self, broker: str, now: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or now >= fault.available_from

    def is_reachable(self, broker: str, now: float) -> bool:
        fault = self._faults.get(broker)
        return fault is None or fault.reachable
