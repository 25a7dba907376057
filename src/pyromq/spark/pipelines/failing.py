"""Spark's errors in our words."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError

from ..sessions.programs import our_words, reason

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def spark_words() -> Iterator[None]:
    """Turn an error of Spark's into one of ours that says the same in a line.

    ConfigError if the query itself is wrong: it will not get better.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except PySparkException as exc:
        said = reason(str(exc))
        if isinstance(exc, AnalysisException | ParseException):
            raise ConfigError(said) from exc
        raise PyroMQError(said) from exc
    except Exception as exc:
        # An error of Java's that PySpark has no class for.
        ours = our_words(str(exc))
        if ours is None or isinstance(exc, PyroMQError):
            raise
        raise PyroMQError(ours) from exc
