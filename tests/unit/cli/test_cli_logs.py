"""The format of log lines."""

from __future__ import annotations

import json
import logging
import re

import pytest

from pyromq.cli.servers import logs


@pytest.fixture(autouse=True)
def restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_time_zone_level_and_the_package_that_speaks(capsys):
    logs.set_up()
    logging.getLogger("pyromq.namesrv.server").info("broker gone addr=%s", "10.0.0.1:10911")
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d INFO namesrv: broker gone addr=10\.0\.0\.1:10911\n", line
    )


def test_a_line_break_in_a_message_does_not_start_another_event(capsys):
    logs.set_up()
    logging.getLogger("other").warning("topic a\nb\rc")
    assert capsys.readouterr().err.endswith(" WARNING other: topic a\\nb\\rc\n")


def test_json_has_an_object_per_line_with_the_error_inside(capsys):
    logs.set_up(style=logs.LogFormat.json)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("pyromq.remoting").exception("failed")
    [line] = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["level"], event["logger"], event["message"]) == ("ERROR", "remoting", "failed")
    assert event["error"].endswith("ValueError: boom")


def test_the_level_decides_what_is_said(capsys):
    logs.set_up(logs.LogLevel.error)
    logging.getLogger("pyromq.namesrv").warning("hush")
    assert capsys.readouterr().err == ""
