"""Processes that are started, watched, started again, and ended."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pyromq.cli.servers import fleet
from pyromq.cli.servers.fleet import Fleet, Member
from pyromq.errors import ConfigError

pytestmark = pytest.mark.slow

PATIENCE = 30.0
BOOT = "import sys, time; print('boot success', flush=True); "
FOREVER = "time.sleep(600)"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(fleet, "_FIRST_PAUSE", 0.01)


def member(name, program):
    return Member(name, ["-c", program], {})


async def test_it_is_there_when_all_have_booted_and_gone_when_all_have_ended(tmp_path):
    mark = tmp_path / "mark"
    late = f"import time, pathlib; time.sleep(0.1); pathlib.Path({str(mark)!r}).touch(); "
    async with Fleet([member("a", BOOT + FOREVER), member("b", late + BOOT + FOREVER)]):
        assert mark.exists()


async def test_one_that_never_boots_stops_all_and_says_who_it_was():
    with pytest.raises(ConfigError, match=r"b did not start \(exit code 7\)"):
        async with asyncio.timeout(PATIENCE), Fleet([member("a", BOOT + FOREVER), member("b", "raise SystemExit(7)")]):
            pass


async def test_one_that_crashes_is_started_again_and_again(tmp_path, caplog):
    log = tmp_path / "log"
    log.touch()
    note = f"log = open({str(log)!r}, 'a+'); log.write('x'); log.flush(); log.seek(0); "
    program = note + BOOT + f"sys.exit(3) if len(log.read()) < 3 else {FOREVER}"
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(PATIENCE), Fleet([member("a", program)]):
            while len(log.read_text()) < 3:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
    assert caplog.messages == [
        "a ended with exit code 3; starting it again in 0.01 s",
        "a ended with exit code 3; starting it again in 0.02 s",
    ]


async def test_one_that_does_not_listen_to_signals_is_killed(monkeypatch):
    monkeypatch.setattr(fleet, "_STOP_TIMEOUT", 0.1)
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + BOOT + FOREVER
    async with asyncio.timeout(PATIENCE):
        async with Fleet([member("a", program)]):
            pass
