"""Rows on stdout, in the chosen format.

A row is a frozen dataclass. Its fields are the columns and give the headings and JSON names. An unknown value is None:
`-` in a table, null in JSON, empty in CSV. A field made with `hidden()` is left out of tables only.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from .tables import aligned, table, width
from .times import show_time, show_time_for_programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_UNKNOWN = "-"
_PLAIN_YAML = re.compile(r"[A-Za-z_/%][A-Za-z0-9_./%@-]*", re.ASCII)
_YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


class Output(StrEnum):
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    yaml = "yaml"
    name = "name"


def hidden(default: Any = dataclasses.MISSING) -> Any:
    """A field that tables leave out to save room."""
    return dataclasses.field(default=default, metadata={"hidden": True})


class Printer:
    """Prints results in one format. `bold` makes table headings stand out on a terminal."""

    def __init__(self, output: Output, *, bold: bool = False) -> None:
        self.output = output
        self._bold = bold

    def rows(self, of: type, rows: Sequence[Any]) -> None:
        match self.output:
            case Output.table:
                self._table(_shown(of), rows)
            case Output.json:
                _say(json.dumps([_object(row) for row in rows], indent=2, ensure_ascii=False))
            case Output.ndjson:
                for row in rows:
                    _say(json.dumps(_object(row), ensure_ascii=False))
            case Output.csv:
                _csv([_key(name) for name in _names(of)], ([_flat(value) for value in _values(row)] for row in rows))
            case Output.yaml:
                _say("\n".join(_yaml([_object(row) for row in rows])))
            case Output.name:
                for name in dict.fromkeys(_cell(_values(row)[0]) for row in rows):
                    _say(name)

    def record(self, fields: Mapping[str, Any]) -> None:
        """One thing, field by field, with field names printed unchanged."""
        match self.output:
            case Output.table:
                self._lines(["KEY", "VALUE"], [[key, _cell(value)] for key, value in fields.items()], [False, False])
            case Output.json:
                _say(json.dumps(_plain(fields), indent=2, ensure_ascii=False))
            case Output.ndjson:
                _say(json.dumps(_plain(fields), ensure_ascii=False))
            case Output.csv:
                _csv(["key", "value"], ([key, _flat(value)] for key, value in fields.items()))
            case Output.yaml:
                _say("\n".join(_yaml(_plain(fields))))
            case Output.name:
                for key in fields:
                    _say(key)

    def stream(self, of: type) -> Stream:
        return Stream(self, of)

    def _table(self, names: list[str], rows: Sequence[Any]) -> None:
        columns = [[getattr(row, name) for row in rows] for name in names]
        right = [_is_number(column) for column in columns]
        cells = [[_cell(getattr(row, name)) for name in names] for row in rows]
        self._lines([heading(name) for name in names], cells, right)

    def _lines(self, headings: list[str], cells: list[list[str]], right: list[bool]) -> None:
        first, *others = table(headings, cells, right)
        _say(self.headline(first))
        for line in others:
            _say(line)

    def headline(self, line: str) -> str:
        return f"\x1b[1m{line}\x1b[0m" if self._bold else line


class Stream:
    """Rows one by one, as they come. JSON is one array, complete only after `end`."""

    def __init__(self, printer: Printer, of: type) -> None:
        self._printer = printer
        self._of = of
        self._names = _shown(of)
        self._widths = [width(heading(name)) for name in self._names]
        self._right = [False] * len(self._names)
        self._count = 0

    def row(self, row: Any) -> None:
        output, first = self._printer.output, not self._count
        self._count += 1
        if output is Output.table:
            self._table_row(row, first=first)
        elif output is Output.json:
            _say(("[" if first else ",") + json.dumps(_object(row), ensure_ascii=False))
        elif output is Output.csv:
            heads = [_key(name) for name in _names(self._of)] if first else None
            _csv(heads, [[_flat(value) for value in _values(row)]])
        else:
            self._printer.rows(self._of, [row])
        sys.stdout.flush()

    def end(self) -> None:
        if self._printer.output is Output.json:
            _say("]" if self._count else "[]")

    def _table_row(self, row: Any, *, first: bool) -> None:
        values = [getattr(row, name) for name in self._names]
        cells = [_cell(value) for value in values]
        # Columns only ever grow, so that lines mostly line up.
        self._widths = [max(had, width(cell)) for had, cell in zip(self._widths, cells, strict=True)]
        if first:
            self._right = [_is_number([value]) for value in values]
            _say(self._printer.headline(aligned([heading(name) for name in self._names], self._widths, self._right)))
        _say(aligned(cells, self._widths, self._right))


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A temporary file that replaces `file` at the end, unless something fails: `file` is never half written."""
    part = file.with_name(file.name + ".part")
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def heading(name: str) -> str:
    return name.upper().replace("_", " ")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _names(of: type) -> list[str]:
    return [field.name for field in dataclasses.fields(of)]


def _shown(of: type) -> list[str]:
    return [field.name for field in dataclasses.fields(of) if not field.metadata.get("hidden")]


def _values(row: Any) -> list[Any]:
    return [getattr(row, name) for name in _names(type(row))]


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _object(row: Any) -> dict[str, Any]:
    return {_key(name): _plain(getattr(row, name)) for name in _names(type(row))}


def _plain(value: Any) -> Any:
    """The value as JSON can express it."""
    if dataclasses.is_dataclass(value):
        return _object(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return show_time_for_programs(value)
    if isinstance(value, float):
        return round(value, 4)
    return value.value if isinstance(value, Enum) else value


def _is_number(values: Iterable[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _cell(value: Any) -> str:
    """The text in a table, always one line: texts from servers and messages may contain anything."""
    if value is None or value in ("", (), {}):
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, datetime):
        return show_time(value)
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}={_cell(each)}" for key, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        text = ", ".join(map(_cell, value))
    else:
        text = str(value.value if isinstance(value, Enum) else value)
    return one_line(text)


def one_line(text: str) -> str:
    """`text` without characters that would move a terminal's cursor."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _flat(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain)


def _csv(heads: Sequence[str] | None, lines: Iterable[Sequence[str]]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if heads is not None:
        writer.writerow(heads)
    writer.writerows(lines)


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """The YAML lines of a JSON value."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            if isinstance(each, dict | list) and each:
                yield f"{indent}{_yaml_scalar(key)}:"
                yield from _yaml(each, indent + "  ")
            else:
                yield f"{indent}{_yaml_scalar(key)}: {_yaml_scalar(each)}"
    elif isinstance(value, list) and value:
        for each in value:
            first, *others = _yaml(each, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from others
    else:
        yield indent + _yaml_scalar(value)


def _yaml_scalar(value: Any) -> str:
    """Quote text that YAML could mistake for something else, as JSON does; YAML 1.2 reads that."""
    if isinstance(value, str) and _PLAIN_YAML.fullmatch(value) and value.lower() not in _YAML_WORDS:
        # A leading % would start a directive.
        return json.dumps(value) if value.startswith("%") else value
    return json.dumps(value, ensure_ascii=False)
