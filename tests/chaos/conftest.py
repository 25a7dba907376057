"""How long chaos goes on, what chance it runs by, and the lines that say how it went."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

TALLIES = pytest.StashKey[list[str]]()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where chance begins; a run with the same seed has the same faults."""
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
