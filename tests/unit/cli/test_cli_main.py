"""`pyromq` itself: finds commands, says what there is, imports only what it needs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from pyromq import __version__, _native
from pyromq.cli.main import NOUNS, main, module_of


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    captured = capsys.readouterr()
    return done.value.code, captured.out, captured.err


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",), ("help",)])
def test_help_lists_every_command_with_a_sentence(capsys, arguments):
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    for name, noun in NOUNS.items():
        assert f"  {name:<{max(map(len, NOUNS))}}  {noun.help}\n" in out


def test_the_version_is_that_of_the_package(capsys):
    assert run(capsys, "--version") == (0, f"pyromq {__version__}, {_native.state()}\n", "")


def test_an_unknown_command_is_answered_with_the_nearest(capsys):
    assert run(capsys, "namserv") == (2, "", "pyromq: no command 'namserv'; did you mean namesrv?\n")
    assert run(capsys, "zzz") == (2, "", "pyromq: no command 'zzz'; pyromq --help lists all commands\n")


def test_help_imports_no_command_and_no_framework():
    program = (
        "import sys\nfrom pyromq.cli.main import _run\n_run(['--help'])\n"
        "print(sorted({'typer', 'rich', 'asyncio', 'msgspec', 'pyromq.namesrv'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")


@pytest.mark.parametrize(
    ("noun", "rest", "module"),
    [
        ("broker", [], "servers.broker"),
        ("broker", ["-c", "broker.conf"], "servers.broker"),
        ("broker", ["autoCreateTopicEnable=true"], "servers.broker"),
        ("broker", ["status"], "nouns.broker"),
        ("broker", ["config", "get"], "nouns.broker"),
        ("namesrv", ["listenPort=1"], "servers.namesrv"),
        ("namesrv", ["kv", "list"], "nouns.namesrv"),
        ("controller", ["controllerDLegerPeers=n0-127.0.0.1:9878"], "servers.controller"),
        ("controller", ["status"], "nouns.controller"),
        ("check", ["./store"], "nouns.store_check"),
        ("check", ["store"], "nouns.store_check"),
        ("check", ["lag"], "nouns.check"),
        ("topic", ["list"], "nouns.topic"),
    ],
)
def test_a_server_is_run_without_a_verb_and_looked_at_with_one(noun, rest, module):
    assert module_of(NOUNS[noun], rest) == f"pyromq.cli.{module}"


def test_every_command_has_a_main():
    for noun in NOUNS.values():
        for module in filter(None, (noun.module, noun.verbs_module)):
            assert callable(importlib.import_module(module).main)
