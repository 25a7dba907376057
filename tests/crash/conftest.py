"""How long crash tests go on, what chance they run by, and the line that says how it went."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

TALLIES = pytest.StashKey[list[str]]()


class Tally:
    """What a crash test counts. Printed at its end, however it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: dict[str, int] = {}
        self._began = time.monotonic()

    def add(self, what: str, count: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + count

    def lost(self, missing: Collection[object]) -> None:
        """What a checker looked for in vain: counted, shown, and the end of the test."""
        self.add("lost", len(missing))
        assert not missing, f"{len(missing)} that were acknowledged are gone: {list(missing)[:5]}"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self._counts.items())
        return f"{self._name}: {counts}; {time.monotonic() - self._began:.1f} s"


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins; round n of a run has the seed of the run plus n."""
    given = request.config.getoption("--seed")
    return int(time.time()) if given is None else int(given)


@pytest.fixture
def tally(request: pytest.FixtureRequest, seed: int) -> Iterator[Tally]:
    tally = Tally(f"{request.node.name} (seed {seed})")
    yield tally
    request.config.stash.setdefault(TALLIES, []).append(str(tally))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(TALLIES, []):
        terminalreporter.write_line(line)
