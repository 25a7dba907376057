"""The table of mqadmin's subcommands, their options, and how Java writes values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyromq.cli import mqadmin
from pyromq.cli.classic import java_text
from pyromq.cli.mqadmin import SUBCOMMANDS, main
from pyromq.protocol.permissions import perm_text

SPEC = Path(__file__).parents[3] / "docs" / "spec" / "admin.md"


def test_every_subcommand_is_there_with_its_own_options():
    for name in SUBCOMMANDS:
        command = mqadmin._command(name)
        assert command.name == name
        mqadmin._parser(command)


def test_every_daily_subcommand_of_the_specification_is_there():
    daily = re.findall(r"^\| ([a-z]+[A-Z]\w*) \|.*\| P1 \|", SPEC.read_text(), re.MULTILINE)
    assert len(daily) > 20
    assert [name for name in daily if name not in SUBCOMMANDS] == []


@pytest.mark.parametrize("arguments", [[], ["help"], ["-h"]])
def test_help_lists_every_subcommand(capsys, arguments):
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"   {name} " in out for name in SUBCOMMANDS)


def test_help_of_a_subcommand_lists_its_options(capsys):
    assert main(["help", "TOPICSTATUS"]) == 0
    assert "-t <arg>, --topic <arg>" in capsys.readouterr().out


def test_an_unknown_subcommand_is_answered_with_the_nearest(capsys):
    assert main(["topicLst"]) == 2
    assert capsys.readouterr().err == "mqadmin: no subcommand 'topicLst'; did you mean topicList?\n"


@pytest.mark.parametrize("arguments", [["topicStatus"], ["topicStatus", "-x"], ["queryMsgByOffset", "-t", "a"]])
def test_bad_usage_ends_with_two_before_anybody_is_asked(capsys, arguments):
    assert main(arguments) == 2


def test_values_as_java_writes_them():
    assert java_text.map_text({"a": 1, "b": "x"}) == "{a=1, b=x}"
    assert perm_text(6) == "RW-"
    assert perm_text(4) == "R--"
    assert java_text.front("abc", 2) == "ab"
    assert java_text.signed_bytes(b"\x00\x7f\xff") == "[0, 127, -1]"
    assert java_text.is_true("TRUE")
    assert not java_text.is_true("yes")
    assert java_text.is_true(None, default=True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,123", java_text.millis_text(1700000000123))
