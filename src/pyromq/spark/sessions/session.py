"""Creates or prepares a Spark session that knows our formats."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

from ..shipping import package_zip
from .connect import check_package, check_reachable, is_connect
from .statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# The default name servers of a session's helpers.
NAMESRV = "spark.pyromq.namesrv"
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = Path(__file__).with_name("log4j2.properties")


def session(
    namesrv: str | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    app: str = "pyromq",
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> SparkSession:
    """See `pyromq.spark.session`."""
    if master is None:
        remote = remote or os.environ.get("SPARK_REMOTE")
    # For remote="local[2]" PySpark starts a Connect server here, so Java is needed all the same.
    is_elsewhere = remote is not None and not remote.startswith("local")
    check_requirements(java=not is_elsewhere, connect=remote is not None)
    if remote is not None and is_elsewhere:
        check_reachable(remote)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    master = master or os.environ.get("MASTER") or "local[*]"
    builder = builder.master(master) if remote is None else builder.remote(remote)
    if not is_elsewhere:
        if (remote or master).startswith("local"):
            # Tasks would otherwise run with whatever python3 is first on PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            # Everything is on this machine, so neither its name nor its network matters.
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        if not verbose:
            # Bars that others' lines run into.
            builder = builder.config("spark.ui.showConsoleProgress", "false")
        for key, value in _java_conf(dict(conf or {}), verbose).items():
            builder = builder.config(key, value)
    for key, value in (conf or {}).items():
        if key != _JAVA_OPTIONS:
            builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            if remote is not None and not is_elsewhere:
                # The server was started with them, and refuses to set them again.
                warnings.filterwarnings("ignore", message="Failed to set spark")
            made = builder.getOrCreate()
    except PySparkException as exc:
        if exc.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigError("Java was found but Spark did not start with it; Spark needs Java 17 or newer") from exc
    enable(made, namesrv=namesrv)
    if not verbose:
        _hush()
    return made


def enable(spark: SparkSession, *, namesrv: str | None = None, by_value: bool = False) -> None:
    """See `pyromq.spark.enable`."""
    from ..lake.source import LakeDataSource
    from ..log.source import LogDataSource
    from ..meta.source import MetaDataSource
    from ..source.source import RocketMQDataSource

    if keeps_filters_apart():
        spark.conf.set(PUSH_DOWN, "true")
    Statements.of(spark)
    if namesrv:
        spark.conf.set(NAMESRV, namesrv)
    if by_value:
        # Before registering the formats: each ships what was added by then.
        spark.addArtifacts(str(package_zip()), pyfile=True)
    for source in (RocketMQDataSource, LogDataSource, MetaDataSource, LakeDataSource):
        spark.dataSource.register(source)
    if is_connect(spark):
        check_package(spark, by_value=by_value)
    if spark.conf.get("spark.speculation", "false") == "true":
        logger.warning(
            "spark.speculation is on: a task that runs twice sends twice; effectively-once writes are refused"
        )


def keeps_filters_apart() -> bool:
    """Whether this Spark may push filters down.

    Up to 4.3 it keeps what was planned for one scan of a DataFrame or view and uses it for every other: after
    `WHERE queueId = 1` a `SELECT` without a filter returns queue 1 alone, and both sides of a union read what one of
    them asked for. The version that plans each scan for itself also pushes limits down.
    """
    from pyspark.sql.datasource import DataSourceReader

    return hasattr(DataSourceReader, "pushLimit")


def namesrv_of(spark: SparkSession, given: str | None) -> str:
    """The name servers to ask: given ones, the session's, or the environment's. Raises ConfigError without any."""
    found = given or spark.conf.get(NAMESRV, "") or os.environ.get("NAMESRV_ADDR")
    if not found:
        raise ConfigError("no name server: give namesrv, here or to enable(), or set NAMESRV_ADDR")
    return found


def check_requirements(*, java: bool = True, connect: bool = False) -> None:
    """Raise ConfigError, with advice, if this machine lacks something that Spark needs."""
    needed = {"pyspark": "spark", "pyarrow": "spark"}
    if connect:
        needed |= {"grpc": "connect", "grpc_status": "connect"}
    for module, extra in needed.items():
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"{module} is not installed; pip install 'pyromq[{extra}]' installs it")
    home = os.environ.get("JAVA_HOME")
    if java and shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise ConfigError(f"Spark needs Java 17 or newer, and there is none {where}")


def _hush() -> None:
    """Keep PySpark from also logging every error it raises, as JSON with both stack traces."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _java_conf(given: dict[str, str], verbose: bool) -> dict[str, str]:
    options = given.get(_JAVA_OPTIONS, "")
    if not verbose and _QUIET.is_file():
        # A file, not a log level: most of the noise comes before Spark has read its settings.
        options = f"-Dlog4j2.configurationFile={_QUIET.as_uri()} {options}".strip()
    return {_JAVA_OPTIONS: options} if options else {}
