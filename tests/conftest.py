"""What every test shares: what runs side by side, how hypothesis runs, that Ctrl-C is heard."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator

# A slow machine is not a failure, and a failure elsewhere is repeated here from the blob it prints.
settings.register_profile("pyromq", deadline=None, print_blob=True)
settings.load_profile("pyromq")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyromq")
    group.addoption(
        "--rounds", default=12, type=int, help="how often each crash test lets a store crash, or a chaos test a group"
    )
    group.addoption("--seed", default=None, type=int, help="the chance that crash tests run by")
    group.addoption(
        "--faults", default=None, help="words that the faults of `make chaos` must have, as 'power,controller'"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        side_by_side.longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return side_by_side.Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Tests press Ctrl-C here and in processes that they start, also where all of them are a shell's background job.

    Such a job ignores SIGINT, as whatever it starts does then; so would our commands, and not end.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
