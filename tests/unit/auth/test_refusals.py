"""Refusals are counted, and logged once a while."""

from __future__ import annotations

import logging
from typing import cast

from pyromq.auth.refusals import Refusals
from pyromq.remoting.folded_log import QUIET, REMEMBERED
from pyromq.testing import Clock


def test_the_same_refusal_is_logged_once_a_while_and_counted_always(caplog):
    clock = Clock()
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING, "pyromq.security"):
        for port in range(5):
            refusals.note(10, f"127.0.0.1:{4000 + port}", "alice", "no")
        assert [record.getMessage() for record in caplog.records] == [
            "refused request 10 of 'alice' from 127.0.0.1: no"
        ]
        clock.advance(QUIET)
        refusals.note(10, "127.0.0.1:5000", "alice", "no")
    assert caplog.records[-1].getMessage().endswith("no (4 more like it in the last 60 s)")
    assert refusals.counts == {10: 6}
    assert refusals.total == 6


def test_others_are_logged_at_once(caplog):
    refusals = Refusals(Clock())
    with caplog.at_level(logging.WARNING, "pyromq.security"):
        refusals.note(10, "127.0.0.1:1", "alice", "no")
        refusals.note(11, "127.0.0.1:1", "alice", "no")
        refusals.note(10, "127.0.0.2:1", "alice", "no")
        refusals.note(10, "127.0.0.1:1", "bob", "no")
        refusals.note(10, "127.0.0.1:1", "alice", "never")
    assert len(caplog.records) == 5


def test_those_who_change_their_name_each_time_do_not_fill_the_memory():
    refusals = Refusals(Clock())
    for number in range(REMEMBERED + 100):
        refusals.note(10, "127.0.0.1:1", f"account {number}" + "x" * 1000, "y" * 10_000)
    remembered = cast("list[tuple[str, str, int, str]]", list(refusals._folded._written))
    assert len(remembered) == REMEMBERED
    assert max(len(account) + len(why) for account, _, _, why in remembered) <= 300
