"""A Spark Connect server on this machine, in a process and with a Python of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from tests.ports import free_port
from tests.spark.messages import until
from tests.spark.standalone import HASTY, HOME

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """Two cores of a local Spark, at `remote`. Its tasks and plans run with `python`, and see what is in `environ`."""

    def __init__(self, folder: Path, python: Path, **environ: str) -> None:
        self._folder = folder
        self._settings = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            **environ,
        }
        self._life = ExitStack()
        self._port = free_port()
        self.remote = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{HASTY} -Dderby.system.home={self._folder}",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER, *settings]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK_"))}
        with ExitStack() as life:
            log = life.enter_context((self._folder / "server.log").open("wb"))
            process = subprocess.Popen(
                [*command, "spark-internal"],
                env={**inherited, **self._settings},
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            life.callback(process.wait)
            life.callback(process.terminate)
            until(lambda: self._listens() or process.poll() is not None)
            assert process.poll() is None, (self._folder / "server.log").read_text(errors="replace")
            self._life = life.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._life.close()

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self._port)) == 0
