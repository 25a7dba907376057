"""Runs programs in a session: a Python or SQL file, and the streaming queries it leaves running."""

from __future__ import annotations

import re
import runpy
import sys
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError

from .sql_text import statements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

# The second comes from an executor that lacks our classes (`shipping`).
_OURS = re.compile(
    r"(?:^|(?<=: ))(?:pyromq(?:\.\w+)+: |RuntimeError: (?=.* which PyroMQ needs there))(.*?)(?: SQLSTATE: \w+)*$",
    re.MULTILINE,
)


class StatementFailed(PyroMQError):
    """Spark refused a statement or failed to run it: `line` is where it begins in the file."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


def run_sql(spark: SparkSession, path: Path, values: Mapping[str, str], *, rows: int = 100) -> None:
    """Run the statements of a file in order, and print at most `rows` rows of each result.

    `values` replace `:name`, as strings. Raises StatementFailed at the first failure.
    """
    from pyspark.errors import PySparkException

    for statement in statements(_text(path)):
        try:
            frame = spark.sql(statement.text, args=dict(values)) if values else spark.sql(statement.text)
            if frame.columns:
                frame.show(rows, truncate=False)
        except PySparkException as exc:
            raise StatementFailed(statement.line, reason(str(exc))) from exc


def our_words(said: str) -> str | None:
    """Our own message inside an error of Spark's; None if it comes from elsewhere."""
    found = _OURS.findall(said)
    return found[-1] if found else None


def reason(said: str) -> str:
    """The gist of an error of Spark's: our own message if our code raised it, else the first line."""
    if ours := our_words(said):
        return ours
    head, _, sql = said.strip().partition("\n")
    # For a statement it cannot parse, Spark points at the place. A plan would only hide what is wrong.
    return f"{head}\n{sql}" if "== SQL" in sql else head.rstrip(";")


def run_python(path: Path, arguments: list[str], names: Mapping[str, object]) -> None:
    """Run a program as Python itself would, with `names` known to it from the start."""
    _text(path)
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent.absolute())
    try:
        runpy.run_path(str(path), dict(names), run_name="__main__")
    finally:
        sys.argv, sys.path[0] = before


def wait_for_queries(spark: SparkSession) -> None:
    """Wait until no streaming query runs any more. Raises the error of a failed one."""
    while spark.streams.active:
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()


def named(arguments: list[str]) -> dict[str, str]:
    """The `name=value` arguments of an SQL file. Raises ConfigError for others."""
    pairs = [argument.partition("=") for argument in arguments]
    for name, equals, _ in pairs:
        if not equals or not name.isidentifier():
            raise ConfigError(f"an SQL file takes arguments as name=value, for its :name parameters, not {name!r}")
    return {name: value for name, _, value in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
