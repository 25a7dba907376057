"""What Spark gets instead of a stream that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from .plain_errors import plainly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from pyromq.errors import PyroMQError


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that refuses.

    Spark's worker stumbles over an error while it makes a reader, and reports that it stumbled. So the error waits for
    the first question.
    """

    def __init__(self, error: PyroMQError) -> None:
        self._error = error

    @plainly
    def _refuse(self) -> Any:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._refuse()  # type: ignore[no-any-return]

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        return self._refuse()  # type: ignore[no-any-return]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._refuse()  # type: ignore[no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._refuse()  # type: ignore[no-any-return]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())
