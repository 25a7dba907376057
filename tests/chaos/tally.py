"""What chaos counts."""

from __future__ import annotations

import time
from collections import Counter


class Tally:
    """Counts of a run. Printed at its end, however it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self.counts: Counter[str] = Counter({"rounds": 0, "acknowledged": 0, "consumed": 0, "fail-overs": 0})
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        faults = "".join(f"\n  {count:4} x {what}" for what, count in sorted(self.faults.items()))
        took = time.monotonic() - self._began
        return (
            f"{self._name}: {counts}, {len(self.violations)} violations; {took:.0f} s, "
            f"{60 * self.counts['rounds'] / took:.1f} rounds a minute{faults}"
        )
