"""Spark Connect: checks for sessions whose driver is a remote server with its own Python.

Formats, streams and sinks run on the server as with any driver. The checks here say early and in
one sentence what would otherwise show late: that no server answers, or that its Python lacks the package.
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

_PORT = 15002  # the error of a server that gives no reason
_PATIENCE = 10.0
_MISSING = re.compile(r"No module named '([^']+)'")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session talks to a Connect server. Judged by its class, without importing gRPC."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def check_reachable(remote: str) -> None:
    """Raise ConfigError if no server listens at `sc://host:port`.

    PySpark would keep trying for ten minutes without a word.
    """
    try:
        url = urlsplit(remote)
        host, port = url.hostname, url.port or _PORT
    except ValueError:
        return  # PySpark reports what is wrong with it
    if url.scheme != "sc" or not host or any(os.environ.get(f"{kind}_proxy") for kind in ("grpc", "https", "http")):
        return
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as exc:
        raise ConfigError(f"no Spark Connect server can be reached at {host}:{port}: {exc}") from exc


def check_package(spark: SparkSession, *, by_value: bool) -> None:
    """Raise ConfigError if the server cannot load the formats registered with it.

    It loads them on first use, and then fails with stack traces in two languages.
    """
    from pyspark.errors import PySparkException

    try:
        # Needs neither a task nor a name server. Not just the schema: Spark 4.3 keeps what Python counted while a
        # plan was analysed for the next command, and drops a listener that this command adds.
        spark.read.format("rocketmq_meta").options(namesrv="127.0.0.1:9876", table="topics").load().limit(0).collect()
    except PySparkException as exc:
        said = lacking(exc)
        if said is None:
            raise
        raise ConfigError(
            f"{said}, or enable(spark, by_value=True) sends PyroMQ along" if not by_value else said
        ) from exc


def lacking(error: PySparkException) -> str | None:
    """The module that the server's Python lacks, if that is why it failed."""
    if error.getCondition() == "DATA_SOURCE_NOT_FOUND" or "[DATA_SOURCE_NOT_FOUND]" in str(error):
        module = "pyromq"  # no format of it was found
    elif found := _MISSING.search(str(error)):
        module = found[1]
    else:
        return None
    return (
        f"the Python of the Spark Connect server has no module {module!r}, which PyroMQ needs there; install it there"
    )
