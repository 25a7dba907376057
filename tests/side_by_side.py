"""How `make test` spreads the tests over its processes: a module stays together, and so does what starts Spark.

What the tests of a module share is made once then. A Spark costs seconds and hundreds of megabytes to start, so there
are two at a time at most: that of tests/spark, in one process from the beginning on, and that of the programs which
other tests run. After them come the modules with the most slow tests: otherwise all would wait in the end for one that
began late.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SPARK = "tests/spark/"
PROGRAMS = ("tests/integration/testing/test_demo.py", "tests/integration/testing/test_start_page.py")


def together(nodeid: str) -> str:
    """Tests for which this is the same run one after the other, in one process."""
    if nodeid.startswith(SPARK):
        return SPARK
    return "programs" if nodeid.startswith(PROGRAMS) else nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests into the order in which they are handed out."""
    slow = Counter(together(item.nodeid) for item in items if item.get_closest_marker("slow"))
    names = dict.fromkeys([SPARK, "programs", *(name for name, _ in slow.most_common())])
    order = {name: place for place, name in enumerate(names)}
    items.sort(key=lambda item: order.get(together(item.nodeid), len(order)))


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Hands out what runs together, in the order of the tests."""

    def __init__(self, config: pytest.Config, log: Callable[..., None] | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)
