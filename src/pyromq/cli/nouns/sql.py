"""`pyromq sql`: ask topics and the lake in SQL, with Spark behind it."""

from __future__ import annotations

import base64
import csv
import json
import re
import sys
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pyromq.spark as mq
from pyromq.errors import ConfigError, PyroMQError
from pyromq.spark.pipelines.failing import spark_words
from pyromq.spark.sessions.sql_text import statements

from ..output import one_line, whole_file
from ..servers import serving
from ..tables import table
from ..times import show_time, show_time_for_programs
from .spark import LOCAL, Conf, Master, Namesrv, Remote, Verbose, failures, wanted_session
from .spark_pipelines import Lake, LakeOption, SourceOption, lake_place, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyromq.spark.pipelines.pipelines_file import LakePlace

app = serving.new_app()

_WORD = re.compile(r"[A-Za-z0-9_%|-]+")
_NOT_FOUND = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\].*?`([^`]+)`(?: cannot|$)")
_SUFFIXES = ("_lake", "_all")
_WIDEST = 80  # characters of a cell


class Form(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    ndjson = "ndjson"
    parquet = "parquet"


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    return serving.run_app(app, "sql", arguments)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL; - reads it from stdin.")],
    *,
    form: Annotated[Form, typer.Option("-o", "--output", help="Format of the result.")] = Form.table,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Write the result there; parquet needs it.")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of a table, at most; 0 for all.", min=0)] = 100,
    lake: Lake = None,
    lake_option: LakeOption = None,
    option: SourceOption = None,
    namesrv: Namesrv = LOCAL,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Run a query in which every topic is a table.

    With --lake, TOPIC_lake is what is archived, and TOPIC_all that and what brokers have beyond it.

    Example: pyromq sql "select tags, count(*) from orders_all group by tags" --lake /data/lake
    """
    with failures(noun="sql"):
        if form is Form.parquet and file is None:
            raise ConfigError("parquet is no text: give --file FILE")
        text = sys.stdin.read() if query == "-" else query
        wanted = [each.text for each in statements(text)]
        if not wanted:
            raise ConfigError("there is no query")
        if form is not Form.table and len(wanted) > 1:
            raise ConfigError(f"{form.value} is for one statement, not {len(wanted)}")
        place = lake_place(lake, None, pairs("--lake-option", lake_option))
        with wanted_session(namesrv, master, remote, conf, verbose).session() as spark:
            _register(spark, namesrv, text, place, pairs("--option", option))
            for each in wanted:
                frame = _asked(spark, each)
                if frame.columns:
                    _show(frame, form, file, rows)


def _register(spark: Any, namesrv: str, text: str, place: LakePlace | None, options: dict[str, str]) -> None:
    """Make views of the topics that a query may mean: all of them would take longer than most queries."""
    words = {word.lower() for word in _WORD.findall(text)}
    words |= {word.removesuffix(suffix) for word in words for suffix in _SUFFIXES}
    pattern = "(?i:" + "|".join(sorted(map(re.escape, words))) + ")"
    more: dict[str, Any] = dict(options)
    if place is not None:
        more |= {"lake": place.root, "lake_options": place.options}
    mq.register_topics(spark, namesrv, pattern=pattern, **more)


def _asked(spark: Any, statement: str) -> Any:
    try:
        with spark_words():
            return spark.sql(statement)
    except PyroMQError as exc:
        if found := _NOT_FOUND.search(str(exc)):
            raise PyroMQError(f"there is no topic, view or table {found[1]}{_hint(found[1])}") from exc
        raise


def _hint(name: str) -> str:
    if name.lower().endswith(_SUFFIXES):
        return "; --lake ROOT says where the archive is"
    return "; `pyromq topic list` lists the topics"


def _show(frame: Any, output: Form, file: Path | None, limit: int) -> None:
    from pyromq.spark.sessions.results import rows, write_parquet

    with spark_words():
        if output is Form.parquet:
            assert file is not None
            with whole_file(file) as part:
                count = write_parquet(frame, part)
            print(f"{count:,} rows in {file}", file=sys.stderr)
            return
        found = rows(frame, limit + 1 if output is Form.table and limit else None)
        lines = _lines(frame.columns, found, output, limit)
        if file is None:
            for line in lines:
                sys.stdout.write(line + "\n")
        else:
            with whole_file(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
                stream.writelines(line + "\n" for line in lines)


def _lines(names: Sequence[str], rows: Iterator[tuple[Any, ...]], output: Form, limit: int) -> Iterator[str]:
    match output:
        case Form.table:
            yield from _table(names, list(rows), limit)
        case Form.csv:
            line = _Line()
            writer = csv.writer(line, lineterminator="")
            writer.writerow(names)
            yield line.text
            for row in rows:
                writer.writerow([_flat(value) for value in row])
                yield line.text
        case Form.ndjson:
            for row in rows:
                yield json.dumps(dict(zip(names, map(_json, row), strict=True)), ensure_ascii=False)
        case _:
            before = "["
            for row in rows:
                yield before + json.dumps(dict(zip(names, map(_json, row), strict=True)), ensure_ascii=False)
                before = ","
            yield "[]" if before == "[" else "]"


class _Line:
    """What a csv.writer writes to: keeps the last line."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _table(names: Sequence[str], rows: list[tuple[Any, ...]], limit: int) -> Iterator[str]:
    shown = rows[:limit] if limit else rows
    right = [
        any(row[at] is not None for row in shown)
        and all(
            row[at] is None or (isinstance(row[at], int | float | Decimal) and row[at] is not True) for row in shown
        )
        for at in range(len(names))
    ]
    yield from table(names, [[_cell(value) for value in row] for row in shown], right)
    if len(rows) > len(shown):
        yield f"… the first {limit:,} rows; --rows 0 shows all"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return show_time(value)
    if isinstance(value, bytes):
        text = _decoded(value)
        return _cut(one_line(text) if text is not None else f"0x{value[:40].hex()}")
    if isinstance(value, float):
        return f"{value:g}" if abs(value) >= 1e15 else f"{value:,.6f}".rstrip("0").rstrip(".").replace(",", "")
    if isinstance(value, dict | list):
        return _cut(one_line(json.dumps(_json(value), ensure_ascii=False)))
    return _cut(one_line(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _json(value: Any) -> Any:
    """The value as JSON has it; bytes as text, or in base64 if they are none."""
    if isinstance(value, bytes):
        text = _decoded(value)
        return base64.b64encode(value).decode() if text is None else text
    if isinstance(value, datetime):
        return show_time_for_programs(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _flat(value: Any) -> str:
    plain = _json(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain)


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
