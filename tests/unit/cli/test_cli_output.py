"""Rows in every form that can be asked for."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.cli.output import Output, Printer, hidden, one_line
from pyromq.cli.tables import table, width


@dataclass(frozen=True, slots=True)
class Queue:
    broker_name: str
    lag: int | None
    rate: float | None = None
    last: datetime | None = None
    tags: tuple[str, ...] = ()
    ordered: bool = False
    note: str = hidden("")


ROWS = [
    Queue("broker-a", 12, 1.5, datetime(2026, 1, 31, 12, tzinfo=UTC), ("red", "blue"), True, "x"),
    Queue("b", None),
]


def printed(capsys, output, rows=ROWS):
    Printer(output).rows(Queue, rows)
    return capsys.readouterr().out


def test_a_table_aligns_numbers_to_the_right_and_shows_the_unknown_as_a_dash(capsys):
    lines = printed(capsys, Output.table).splitlines()
    assert lines[0].split("  ") == [each for each in lines[0].split("  ") if each is not None]
    assert lines[0].startswith("BROKER NAME  LAG  RATE  LAST")
    assert lines[1].startswith("broker-a      12  1.50  2026-01-31 ")
    assert lines[1].endswith("red, blue  yes")
    assert lines[2].startswith("b              -     -  -")
    assert "NOTE" not in lines[0]


def test_json_has_names_like_rocketmq_and_null_for_the_unknown(capsys):
    first, second = json.loads(printed(capsys, Output.json))
    assert first["brokerName"] == "broker-a"
    assert first["tags"] == ["red", "blue"]
    assert first["note"] == "x"
    assert datetime.fromisoformat(first["last"]) == ROWS[0].last
    assert second["lag"] is None


def test_ndjson_has_a_row_per_line(capsys):
    lines = printed(capsys, Output.ndjson).splitlines()
    assert [json.loads(line)["brokerName"] for line in lines] == ["broker-a", "b"]


def test_csv_leaves_the_unknown_empty(capsys):
    head, first, second = csv.reader(io.StringIO(printed(capsys, Output.csv)))
    assert head[:2] == ["brokerName", "lag"]
    assert dict(zip(head, first, strict=True))["ordered"] == "true"
    assert dict(zip(head, second, strict=True))["lag"] == ""


def test_yaml_quotes_what_could_be_taken_for_something_else(capsys):
    out = printed(capsys, Output.yaml, [Queue("yes", 1, tags=("a:b",)), Queue("%RETRY%g", None), Queue("plain-1", 0)])
    assert '- brokerName: "yes"\n  lag: 1\n' in out
    assert '  tags:\n    - "a:b"\n' in out
    assert '- brokerName: "%RETRY%g"\n  lag: null\n' in out
    assert "- brokerName: plain-1\n" in out


def test_name_prints_each_name_once(capsys):
    assert printed(capsys, Output.name, [*ROWS, *ROWS]) == "broker-a\nb\n"


@pytest.mark.parametrize(
    ("output", "said"), [(Output.json, "[]\n"), (Output.ndjson, ""), (Output.yaml, "[]\n"), (Output.name, "")]
)
def test_no_rows_are_still_well_formed(capsys, output, said):
    assert printed(capsys, output, []) == said


def test_no_rows_leave_the_headings(capsys):
    assert printed(capsys, Output.table, []).startswith("BROKER NAME  LAG")
    assert printed(capsys, Output.csv, []).startswith("brokerName,lag,")


@pytest.mark.parametrize("output", Output)
def test_one_thing_is_printed_by_its_fields(capsys, output):
    Printer(output).record({"brokerIP1": "127.0.0.1", "listenPort": "10911"})
    out = capsys.readouterr().out
    assert "brokerIP1" in out
    if output is Output.json:
        assert json.loads(out) == {"brokerIP1": "127.0.0.1", "listenPort": "10911"}
    if output is Output.table:
        assert out == "KEY         VALUE\nbrokerIP1   127.0.0.1\nlistenPort  10911\n"


@pytest.mark.parametrize("output", Output)
def test_a_stream_of_rows_has_one_heading_and_ends_well_formed(capsys, output):
    stream = Printer(output).stream(Queue)
    for row in ROWS:
        stream.row(row)
    stream.end()
    out = capsys.readouterr().out
    if output is Output.json:
        assert [row["brokerName"] for row in json.loads(out)] == ["broker-a", "b"]
    if output in (Output.table, Output.csv):
        assert len(out.splitlines()) == 3
    if output is Output.name:
        assert out == "broker-a\nb\n"


@given(st.text())
def test_a_cell_never_breaks_the_line_or_moves_the_cursor(text):
    assert one_line(text).isprintable()


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_columns_stand_under_each_other(cells):
    lines = list(table(["A", "B"], [[one_line(a), one_line(b)] for a, b in cells], [False, False]))
    wide = max(width(one_line(a)) for a, _ in [("A", ""), *cells])
    for line, (first, second) in zip(lines[1:], cells, strict=True):
        padded = one_line(first) + " " * (wide - width(one_line(first))) + "  " + one_line(second)
        assert line == padded.rstrip()


def test_chinese_characters_take_two_places():
    assert list(table(["NAME", "N"], [["订单", "1"], ["ab", "2"]], [False, True])) == ["NAME  N", "订单  1", "ab    2"]
