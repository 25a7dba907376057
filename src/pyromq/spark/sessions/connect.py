"""Spark Connect: sessions whose driver is a server elsewhere, and has a Python of its own.

Formats, streams and sinks are the server's business and work as they do with any driver. What is here says early and in
a sentence what would otherwise be said late: that nobody answers, or that the server's Python lacks the package.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

_PORT = 15002  # of a server that says nothing else
_PATIENCE = 10.0
_MISSING = re.compile(r"No module named '([^']+)'")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server. Its class tells, and needs no gRPC to be imported."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def check_reachable(remote: str) -> None:
    """Raise ConfigError if nobody listens at `sc://host:port`.

    PySpark would go on trying for ten minutes without a word.
    """
    try:
        url = urlsplit(remote)
        host, port = url.hostname, url.port or _PORT
    except ValueError:
        return  # PySpark says what is wrong with it
    if url.scheme != "sc" or not host or any(os.environ.get(f"{kind}_proxy") for kind in ("grpc", "https", "http")):
        return
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as exc:
        raise ConfigError(f"no Spark Connect server can be reached at {host}:{port}: {exc}") from exc


def check_package(spark: SparkSession, *, by_value: bool) -> None:
    """Raise ConfigError if the server cannot open the formats that were registered with it.

    It opens them when they are used, and then complains with the stacks of two languages.
    """
    from pyspark.errors import PySparkException

    try:
        # Asks neither a task nor a name server. Not for the schema alone: Spark 4.3 keeps what Python counted while a
        # plan was looked at for the next command, and a listener that is added by that one is dropped.
        spark.read.format("rocketmq_meta").options(namesrv="127.0.0.1:9876", table="topics").load().limit(0).collect()
    except PySparkException as exc:
        said = lacking(exc)
        if said is None:
            raise
        raise ConfigError(
            f"{said}, or enable(spark, by_value=True) sends PyroMQ along" if not by_value else said
        ) from exc


def lacking(error: PySparkException) -> str | None:
    """What the server's Python lacks, if that is why it failed."""
    if error.getCondition() == "DATA_SOURCE_NOT_FOUND" or "[DATA_SOURCE_NOT_FOUND]" in str(error):
        module = "pyromq"  # of which no format was found
    elif found := _MISSING.search(str(error)):
        module = found[1]
    else:
        return None
    return (
        f"the Python of the Spark Connect server has no module {module!r}, which PyroMQ needs there; install it there"
    )
