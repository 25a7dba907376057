"""The trace of a message as a drawing: one line for each event, as long as it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyromq.admin.messages.traces import TraceEvent

WIDTH = 860
_LEFT = 230
_RIGHT = 140
_ROW = 30


@dataclass(frozen=True, slots=True)
class Bar:
    """One event. `mark` is its colour: pub, ok, no, or open if nobody reported how it ended."""

    label: str
    who: str
    y: int
    x: float
    width: float
    mark: str
    note: str


@dataclass(frozen=True, slots=True)
class Picture:
    width: int
    height: int
    left: int
    bars: tuple[Bar, ...]
    total: str


def timeline(events: Sequence[TraceEvent]) -> Picture | None:
    """None without events that have a time."""
    timed = [(event, event.time.timestamp() * 1000) for event in events if event.time is not None]
    if not timed:
        return None
    first = min(at for _, at in timed)
    last = max(at + (event.cost_ms or 0) for event, at in timed)
    length = max(last - first, 1.0)
    room = WIDTH - _LEFT - _RIGHT
    bars = []
    for number, (event, at) in enumerate(timed):
        cost = event.cost_ms or 0
        good = event.status in ("success", "COMMIT_MESSAGE", "COMMIT")
        mark = (
            "open" if event.status is None else "pub" if event.event == "publish" and good else "ok" if good else "no"
        )
        x = _LEFT + (at - first) / length * room
        took = f"{cost} ms" if event.cost_ms is not None else "…"
        bars.append(
            Bar(
                event.event + (f" ×{event.retries}" if event.retries else ""),
                event.group,
                number * _ROW + 8,
                round(x, 1),
                round(max(cost / length * room, 4.0), 1),
                mark,
                f"{took} · +{at - first:.0f} ms",
            )
        )
    return Picture(WIDTH, len(bars) * _ROW + 10, _LEFT, tuple(bars), f"{length:.0f} ms")
