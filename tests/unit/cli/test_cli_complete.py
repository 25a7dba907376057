"""Completion: suggestions for the next word of a command line."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pyromq.cli.main import NOUNS
from pyromq.cli.nouns.complete import candidates
from pyromq.cli.nouns.completion import SCRIPTS, Shell, main


def test_the_first_word_is_a_command():
    assert set(NOUNS) < set(candidates([""]))
    assert candidates(["topi"]) == ["topic"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["topic", "st"], ["stats"]),
        (["group", "offsets", ""], ["clone", "export", "reset", "skip"]),
        (["broker", "config", ""], ["get", "set"]),
        (["controller", ""], ["clean", "config", "elect", "list", "status"]),
        (["check", ""], ["broker", "disk", "lag"]),
        (["topic", "list", "-o", "n"], ["name", "ndjson"]),
        (["-o", "json", "topic", "st"], ["stats"]),
        (["topic", "list", "--sys"], ["--system"]),
        (["group", "create", "g", "--no-b"], ["--no-broadcast"]),
        (["nope", ""], []),
        (["topic", "list", "nope", ""], []),
    ],
)
def test_verbs_options_and_their_values_are_completed(words, found):
    assert candidates(words) == found


@pytest.mark.parametrize("shell", Shell)
def test_every_shell_gets_a_script_that_asks_us(capsys, shell):
    assert main([shell.value]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]
    assert "pyromq complete -- " in SCRIPTS[shell]


def test_a_script_is_one_that_its_shell_can_read():
    # Bash is everywhere; of the others those that this machine has.
    programs = {shell: program for shell in Shell if (program := shutil.which(shell.value)) is not None}
    assert Shell.bash in programs
    for shell, program in programs.items():
        subprocess.run([program, "-n"], input=SCRIPTS[shell], text=True, check=True)
