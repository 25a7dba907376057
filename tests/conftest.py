"""What every test shares: how hypothesis runs, and how long crash tests go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# A slow machine is not a failure, and a failure elsewhere is repeated here from the blob it prints.
settings.register_profile("pyromq", deadline=None, print_blob=True)
settings.load_profile("pyromq")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyromq")
    group.addoption("--rounds", default=12, type=int, help="how often each crash test lets a store crash")
    group.addoption("--seed", default=None, type=int, help="the chance that crash tests run by")
