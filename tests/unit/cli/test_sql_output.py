"""How `pyromq sql` shows values, in every format. (With a real Spark: tests/spark/test_pipelines_lake.py.)"""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from pyromq.cli.nouns.sql import Form, _lines, main

NAMES = ["n", "text", "body", "map", "at"]
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS = [
    (1, 'a,"b"\n', b"text", {"k": "v"}, AT),
    (None, None, b"\xff\x00", None, None),
]


def lines(form: Form, rows=ROWS, limit=0, names=NAMES) -> list[str]:
    return list(_lines(names, iter(rows), form, limit))


def test_a_table_has_one_line_for_each_row():
    head, first, second = lines(Form.table)
    assert head.split() == NAMES
    assert 'a,"b"\\n' in first
    assert '{"k": "v"}' in first
    assert second.split() == ["-", "-", "0xff00", "-", "-"]


def test_a_long_table_says_that_there_is_more():
    assert lines(Form.table, [(n,) for n in range(4)], 3, ["n"]) == [
        "n", "0", "1", "2", "… the first 3 rows; --rows 0 shows all",
    ]  # fmt: skip
    [cell] = lines(Form.table, [("x" * 500,)], 3, ["n"])[1:]
    assert len(cell) == 80


def test_csv_is_read_back_as_it_was():
    head, *rows = csv.reader("\n".join(lines(Form.csv)).splitlines(keepends=True))
    assert head == NAMES
    assert rows[0][:4] == ["1", 'a,"b"\n', "text", '{"k": "v"}']
    assert rows[1] == ["", "", "/wA=", "", ""]


@pytest.mark.parametrize("form", [Form.json, Form.ndjson])
def test_json_has_all_values(form):
    text = lines(form)
    found = json.loads("".join(text)) if form is Form.json else [json.loads(line) for line in text]
    assert found[0] | {"at": None} == {"n": 1, "text": 'a,"b"\n', "body": "text", "map": {"k": "v"}, "at": None}
    assert datetime.fromisoformat(found[0]["at"]) == AT
    assert found[1]["body"] == "/wA="
    assert json.loads("".join(lines(Form.json, []))) == []
    odd = [(Decimal("1.10"), date(2026, 1, 31), [b"x", None])]
    assert json.loads(lines(Form.ndjson, odd, names=["a", "b", "c"])[0]) == {
        "a": "1.10",
        "b": "2026-01-31",
        "c": ["x", None],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["select 1", "-o", "parquet"], "parquet is no text: give --file FILE"),
        ([" ; "], "there is no query"),
        (["select 1; select 2", "-o", "csv"], "csv is for one statement, not 2"),
        (["select 1", "--lake", "x", "--lake-option", "key"], "--lake-option must be KEY=VALUE, not 'key'"),
        (
            ["select 1", "--lake", "x", "--lake-option", "key=env:NOWHERE_1"],
            "the environment has no variable NOWHERE_1",
        ),
    ],
)
def test_a_command_line_that_makes_no_sense_starts_no_spark(capsys, arguments, said):
    assert main(arguments) == 1
    assert said in capsys.readouterr().err
