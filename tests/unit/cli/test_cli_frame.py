"""The frame of verbs: options, questions before changes, results, failures. No server is needed for these."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from pyromq.admin.listing import Listing
from pyromq.cli.failures import CommandFailed, Exit
from pyromq.cli.main import common_last
from pyromq.cli.session import Session
from pyromq.cli.verbs import changing, narrowed, new_app, reading, run_app
from pyromq.client.admin.fan_out import Missing
from pyromq.errors import ConnectFailed

app = new_app("Things.")
inner = new_app("More of them.")
app.add_typer(inner, name="inner")


@dataclass(frozen=True, slots=True)
class Thing:
    name: str
    size: int


@reading(app, "list", connects=False)
async def list_things(session: Session, many: Annotated[int, typer.Option("--many")] = 1) -> Listing[Thing]:
    """All things."""
    return Listing.make(Thing, [Thing("a", many)], summary="1 thing")


@reading(app, "part", connects=False)
async def part(session: Session) -> Listing[Thing]:
    """Some things."""
    return Listing.make(Thing, [Thing("a", 1)], [Missing("broker-b", ConnectFailed("b:1", "refused"))])


@reading(app, "stream", connects=False)
async def stream(session: Session, fail: bool = False):
    """Things as they come."""
    yield Thing("a", 1)
    if fail:
        raise CommandFailed("no more", Exit.THRESHOLD)
    yield Thing("b", 2)


@dataclass(frozen=True, slots=True)
class Shape:
    colour: Annotated[str | None, typer.Option("--colour")] = None
    sides: Annotated[int, typer.Option("--sides", min=3)] = 4


@reading(app, "shaped", connects=False)
async def shaped(session: Session, name: Annotated[str, typer.Argument()], shape: Shape, long: bool = False):
    """A thing with a shape."""
    return {"name": name, "shape": shape, "long": long}


@reading(app, "foreign", connects=False)
async def foreign(session: Session) -> Listing[Thing]:
    """A thing with letters that few terminals have."""
    session.note("订单")
    return Listing.make(Thing, [Thing("订单\ud800", 1)])


@changing(app, "drop", connects=False)
async def drop(session: Session, thing: Annotated[str, typer.Argument()], soft: bool = False) -> dict[str, str] | None:
    """Drop a thing."""
    if session.agreed(f"drop {thing}", dangerous=not soft):
        return {"dropped": thing}
    return None


@reading(inner, "one", connects=False)
async def one(session: Session) -> None:
    """Nothing."""
    session.note("a remark\nin two lines")


def run(capsys, *arguments):
    code = run_app(app, "thing", list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_rows_are_printed_in_the_form_that_was_asked_for(capsys):
    assert run(capsys, "list") == (0, "NAME  SIZE\na        1\n\n1 thing\n", "")
    code, out, _ = run(capsys, "list", "--many", "7", "-o", "json")
    assert (code, json.loads(out)) == (0, [{"name": "a", "size": 7}])


def test_common_options_may_stand_before_the_verb(capsys):
    assert run(capsys, "-o", "name", "list") == (0, "a\n", "")
    assert common_last(["-n", "x:1", "--yes", "topic", "delete", "a"]) == ["topic", "delete", "a", "-n", "x:1", "--yes"]
    assert common_last(["--output=json", "send", "--", "-n"]) == ["send", "--output=json", "--", "-n"]
    assert common_last(["--help"]) == ["--help"]


def test_options_that_verbs_share_are_the_fields_of_a_dataclass(capsys):
    code, out, _ = run(capsys, "shaped", "a", "--sides", "6", "--long", "-o", "json")
    assert (code, json.loads(out)) == (0, {"name": "a", "shape": {"colour": None, "sides": 6}, "long": True})
    assert run(capsys, "shaped", "a", "--sides", "2")[0] == 2
    assert "--colour" in run(capsys, "shaped", "--help")[1]


def test_what_is_missing_is_said_and_changes_the_exit_code(capsys):
    code, out, err = run(capsys, "part")
    assert (code, out) == (1, "NAME  SIZE\na        1\n")
    assert err == "pyromq thing part: incomplete: broker-b: b:1: refused\n"


def test_rows_of_a_generator_are_printed_as_they_come(capsys):
    assert run(capsys, "stream")[:2] == (0, "NAME  SIZE\na        1\nb        2\n")
    code, out, err = run(capsys, "stream", "--fail", "-o", "ndjson")
    assert (code, json.loads(out), err) == (6, {"name": "a", "size": 1}, "pyromq thing stream: no more\n")


def test_a_dangerous_change_needs_a_yes(capsys):
    code, out, err = run(capsys, "drop", "x")
    assert (code, out) == (2, "")
    assert err == "pyromq thing drop: nothing was changed; to drop x, add --yes\n"
    assert run(capsys, "drop", "x", "--yes")[:2] == (0, "KEY      VALUE\ndropped  x\n")


def test_a_harmless_change_is_made_without_a_question(capsys):
    assert run(capsys, "drop", "x", "--soft", "-o", "name")[:2] == (0, "dropped\n")


def test_a_dry_run_only_says_what_would_be_done(capsys):
    assert run(capsys, "drop", "x", "--dry-run", "--yes") == (0, "", "pyromq thing drop: would drop x\n")


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("yes\n", 0), ("\n", 1), ("", 1)])
def test_at_a_terminal_the_question_is_asked(capsys, monkeypatch, said, code):
    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return said

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ended, out, err = run(capsys, "drop", "Orders")
    assert (ended, "dropped" in out) == (code, code == 0)
    assert err.startswith("Drop Orders? [y/N] ")


def test_a_remark_is_one_line_on_stderr(capsys):
    assert run(capsys, "inner", "one") == (0, "", "pyromq thing inner one: a remark\\nin two lines\n")


@pytest.mark.parametrize("arguments", [("--help",), ("help",)])
def test_help_lists_all_verbs(capsys, arguments):
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert all(name in out for name in ("list", "part", "stream", "drop", "inner"))


@pytest.mark.parametrize("arguments", [("nope",), ("list", "--nope"), ("drop",), ("list", "-o", "xml")])
def test_bad_usage_ends_with_2(capsys, arguments):
    assert run(capsys, *arguments)[0] == 2


def test_reading_verbs_can_be_watched_and_changing_ones_can_be_tried(capsys):
    from pyromq.cli.nouns.topic import app as topics

    assert run_app(topics, "topic", ["list", "--help"]) == 0
    read = capsys.readouterr().out
    assert run_app(topics, "topic", ["delete", "--help"]) == 0
    change = capsys.readouterr().out
    assert "--watch" in read
    assert "--dry-run" not in read
    assert "--dry-run" in change
    assert "--yes" in change
    for option in ("--namesrv", "--context", "--output", "--timeout", "--no-color"):
        assert option in read
        assert option in change


def test_only_the_verb_that_is_asked_for_is_built():
    slim = narrowed(app, ["inner", "one"])
    assert slim.registered_commands == []
    assert [each.name for each in slim.registered_groups] == ["inner"]
    assert narrowed(app, ["nope"]) is app


@pytest.mark.parametrize("output", ["table", "json", "ndjson", "csv", "yaml", "name"])
def test_letters_that_a_terminal_has_not_are_written_otherwise(monkeypatch, output):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert run_app(app, "thing", ["foreign", "-o", output]) == 0
    assert b"\\u8ba2\\u5355" in written.getvalue()
