"""Failpoints do nothing, unless a test wants it; and all of them are where they should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyromq.errors import ConfigError
from pyromq.store import failpoints

SOURCE = Path(failpoints.__file__).parent


def test_every_name_has_its_place_and_every_place_its_name():
    calls = [
        name
        for path in SOURCE.rglob("*.py")
        if path.name != "failpoints.py"
        for name in re.findall(r'failpoints\.hit\("([^"]+)"\)', path.read_text())
    ]
    assert sorted(calls) == sorted(failpoints.NAMES)


def test_what_is_active_happens_until_it_is_not():
    seen = []
    failpoints.hit("log.roll.blank")
    with failpoints.active("log.roll.blank", lambda: seen.append(1)):
        failpoints.hit("log.roll.blank")
        failpoints.hit("log.roll.made")
    failpoints.hit("log.roll.blank")
    assert seen == [1]


def test_a_crash_can_wait_for_the_nth_time():
    with failpoints.active("queue.cut", failpoints.nth(3, failpoints.crash)):
        failpoints.hit("queue.cut")
        failpoints.hit("queue.cut")
        with pytest.raises(failpoints.Crashed):
            failpoints.hit("queue.cut")
        failpoints.hit("queue.cut")


def test_a_name_that_is_none_is_refused():
    with pytest.raises(KeyError, match=r"log\.rol"), failpoints.active("log.rol", failpoints.crash):
        pass


def test_a_process_is_told_by_its_environment():
    program = (
        "from pyromq.store import failpoints; failpoints.hit('log.create'); print(1); failpoints.hit('log.create')"
    )
    env = os.environ | {failpoints.VARIABLE: "log.create=exit:2;queue.cut=raise"}
    ended = subprocess.run([sys.executable, "-u", "-c", program], env=env, stdout=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stdout) == (failpoints.EXIT_CODE, b"1\n")


@pytest.mark.parametrize("text", ["log.rol=exit", "log.create", "log.create=explode", "log.create=exit:x"])
def test_nonsense_in_the_environment_is_refused(text):
    with pytest.raises(ConfigError, match="is not a failpoint"):
        failpoints.activate_from(text)
