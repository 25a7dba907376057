"""What a session does around each statement: views see new messages, and text may be inserted as a body.

Spark plans the read of a view once and keeps the plan, so every later `SELECT` would return the messages of the first.
It makes no difference between a table of files and one that grows, and a source is not asked again. So the
statements of an enabled session pass through here, and a view of ours that was read before is created again first. That
is one more call into Python, no request to a broker.

Spark also refuses to store text in a column of bytes, which a body is. An `INSERT` into a topic that it refuses for
this is tried again with the text cast to bytes, which encodes it as UTF-8.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..options import TABLE_METADATA
from ..schema import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_NAME = r"(?:`((?:[^`]|``)+)`|([^\W\d]\w*))"
_NAMES = re.compile(_NAME)
_NEW_VIEW = re.compile(rf"\s*CREATE\b.*?\bVIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE | re.DOTALL)
_INSERT = re.compile(
    rf"\s*INSERT\s+INTO\s+(?:TABLE\s+)?{_NAME}\s*\((?P<columns>[^()]*)\)\s*(?P<query>(?:VALUES|SELECT|WITH|FROM|TABLE)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_CAST = "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"
_KEPT_IN = "_pyromq_statements"


@dataclass(slots=True)
class _View:
    """A view of ours. `plan` identifies what Spark knows under its name since it was first read."""

    create: Callable[[], object]
    plan: int | None = None


class Statements:
    """The statements of one session. `sql` and `table` stand in for the session's own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sql = spark.sql
        self._table = spark.table
        self._views: dict[str, _View] = {}
        # Views that are made of ours, by name: reading them reads ours.
        self._made_of: dict[str, set[str]] = {}

    @classmethod
    def of(cls, spark: SparkSession) -> Statements:
        """Those of a session, whose methods are replaced the first time."""
        found = spark.__dict__.get(_KEPT_IN)
        if found is None:
            found = cls(spark)
            setattr(spark, _KEPT_IN, found)
            for name in ("sql", "table"):
                setattr(spark, name, getattr(found, name))
        return found

    def create_view(self, name: str, create: str | Callable[[], object]) -> None:
        """Create a view, by a statement or a call, and again before each later read: it sees new messages."""
        made = functools.partial(self._sql, create) if isinstance(create, str) else create
        made()
        self._views[name.lower()] = _View(made)

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        """As `SparkSession.sql`."""
        self._refresh(_names(sqlQuery))
        if (made := _NEW_VIEW.match(sqlQuery)) is not None:
            name = (made[1] or made[2]).lower()
            self._views.pop(name, None)
            self._made_of[name] = _names(sqlQuery[made.end() :])
        from pyspark.errors import AnalysisException

        try:
            return self._sql(sqlQuery, args, **kwargs)
        except AnalysisException as exc:
            if exc.getCondition() != _NO_CAST or (cast := self._with_bytes(sqlQuery, args, kwargs)) is None:
                raise
            return self._sql(cast, args, **kwargs)

    def table(self, tableName: str) -> DataFrame:
        """As `SparkSession.table`."""
        self._refresh({tableName.strip("`").lower()})
        return self._table(tableName)

    def _refresh(self, names: set[str]) -> None:
        while more := {each for name in names for each in self._made_of.get(name, ())} - names:
            names |= more
        for name in names & self._views.keys():
            view = self._views[name]
            now = self._plan_of(name)
            if view.plan is not None and now == view.plan:
                view.create()
                now = self._plan_of(name)
            elif view.plan is not None:
                # Somebody replaced or dropped it.
                del self._views[name]
                continue
            view.plan = now

    def _plan_of(self, name: str) -> int | None:
        from pyspark.errors import PySparkException

        try:
            return self._table(f"`{name}`").semanticHash()
        except PySparkException:
            return None

    def _with_bytes(self, statement: str, args: Any, kwargs: dict[str, Any]) -> str | None:
        """An INSERT into a topic, with text cast to bytes where its columns want these; None for other statements."""
        from pyspark.sql.types import BinaryType, StringType

        found = _INSERT.match(statement)
        if found is None:
            return None
        target = f"`{found[1] or found[2]}`"
        schema = self._table(target).schema
        if TABLE_METADATA not in metadata_of(schema):
            return None
        wanted = [name.strip().strip("`").lower() for name in found["columns"].split(",")]
        of_bytes = {field.name.lower() for field in schema if isinstance(field.dataType, BinaryType)}
        given = self._sql(found["query"], args, **kwargs).schema
        names = [f"c{number}" for number in range(len(given))]
        cast = [
            f"CAST({name} AS BINARY)" if column in of_bytes and isinstance(field.dataType, StringType) else name
            for name, column, field in zip(names, wanted, given, strict=True)
        ]
        rows = f"({found['query']}\n) AS rows ({', '.join(names)})"
        return f"INSERT INTO {target} ({found['columns']}) SELECT {', '.join(cast)} FROM {rows}"


def _names(statement: str) -> set[str]:
    return {(quoted or plain).lower() for quoted, plain in _NAMES.findall(statement)}
