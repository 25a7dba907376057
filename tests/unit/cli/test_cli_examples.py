"""Every command shows an example in its help, and the example is a command line that makes sense."""

from __future__ import annotations

import functools
import importlib
import re
import shlex

import pytest
import typer

from pyromq.cli.main import NOUNS, common_last, module_of

_EXAMPLE = re.compile(r"Example: (pyromq .+)")


@functools.cache
def tree(module):
    """The command of a noun, with all verbs; none for what is not written with typer."""
    app = getattr(importlib.import_module(module), "app", None)
    return typer.main.get_command(app) if isinstance(app, typer.Typer) else None


def leaves(path, command):
    if hasattr(command, "commands"):
        for name, verb in command.commands.items():
            yield from leaves(f"{path} {name}", verb)
    elif not command.hidden:
        yield path, command


def commands():
    for name, noun in NOUNS.items():
        for module in filter(None, (noun.module, noun.verbs_module)):
            if (command := tree(module)) is not None:
                yield from leaves(f"pyromq {name}", command)


def command_of(words):
    """The command that a line means, and the words that are left for it."""
    _, noun, *rest = words
    rest = common_last(rest)
    command = tree(module_of(NOUNS[noun], rest))
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_the_help_has_an_example_that_can_be_typed(path, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.sql").touch()  # which an example runs
    found = _EXAMPLE.search(" ".join((command.help or "").split("\n")).replace("  ", " "))
    assert found, f"`{path} --help` shows no example"
    line = found[1].partition(" > ")[0].partition(", and")[0]
    meant, rest = command_of(shlex.split(line))
    assert meant.name == command.name
    # Raises for options and values that are not there.
    with meant.make_context(path, rest):
        pass
