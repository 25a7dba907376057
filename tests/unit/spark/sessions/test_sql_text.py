"""Files of SQL are cut where statements end, and nowhere else."""

from __future__ import annotations

import pytest

from pyromq.spark.sessions.sql_text import statements


def cut(text):
    return [(statement.line, statement.text) for statement in statements(text)]


def test_statements_end_with_semicolons_and_know_their_line():
    assert cut("SELECT 1;\n\nSELECT\n  2;\nSELECT 3") == [(1, "SELECT 1"), (3, "SELECT\n  2"), (5, "SELECT 3")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ';'",
        'SELECT ";"',
        "SELECT 'it''s; one'",
        r"SELECT 'it\'s; one'",
        "SELECT `a;b` FROM t",
        "SELECT 1 -- one; two\n + 1",
        "SELECT 1 /* one;\n two; */ + 1",
    ],
)
def test_a_semicolon_inside_of_something_ends_nothing(statement):
    assert cut(f"{statement};\nSELECT 2;") == [(1, statement), (statement.count("\n") + 2, "SELECT 2")]


def test_what_is_only_a_comment_is_no_statement():
    assert cut("-- nothing;\n;;\n/* and; nothing */ ;\n  \n") == []


def test_a_script_is_one_statement():
    script = "-- a script\nBEGIN\n  DECLARE x INT;\n  SELECT x;\nEND"
    assert cut(f"SELECT 1;\n{script};\n") == [(1, "SELECT 1"), (2, script)]


@pytest.mark.parametrize("text", ["SELECT 'open; ", 'SELECT "open; ', "SELECT `open; ", "SELECT /* open; "])
def test_what_is_never_closed_goes_to_the_end(text):
    assert cut(text) == [(1, text.strip().removesuffix(";"))]


@pytest.mark.slow
def test_a_large_file_takes_no_quadratic_time():
    assert len(cut("SELECT 'a;b' -- c;\n;\n" * 20_000)) == 20_000
    assert len(cut("'" * 200_001)) == 1
