"""Lines that peers could cause again and again are written once in a while."""

from __future__ import annotations

from pyromq.remoting import FoldedLog
from pyromq.remoting.folded_log import QUIET, REMEMBERED
from pyromq.testing import Clock


def test_the_same_line_is_due_again_after_a_while_and_says_how_many_it_stands_for():
    clock = Clock()
    log = FoldedLog(clock)
    assert [log.due("a") for _ in range(5)] == ["", None, None, None, None]
    assert log.due("b") == ""
    clock.advance(QUIET)
    assert log.due("a") == " (4 more like it in the last 60 s)"
    assert log.due("b") == ""


def test_it_remembers_so_many_lines_and_no_more():
    log = FoldedLog(Clock())
    for number in range(REMEMBERED + 1):
        assert log.due(number) == ""
    assert log.due(1) is None
    assert log.due(0) == ""
