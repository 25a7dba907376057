"""A Spark of its own on this machine: a master, and workers that each have a Python of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import venv
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark
from tests.ports import free_port
from tests.spark.messages import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
# A JVM that lives for a minute does not pay back what compiling for speed costs, least of all six of them.
HASTY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """A Python with the packages of this one, except those whose files have one of these words in their names."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    [packages] = folder.glob("lib/python*/site-packages")
    for entry in HOME.parent.iterdir():
        if not any(word in entry.name for word in without) and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return folder / "bin"


@contextmanager
def java_of_its_own() -> Iterator[None]:
    """In here PySpark has a JVM that nobody had before, and nobody has after.

    Else it keeps one for all sessions of a process, and that keeps the environment in which it was started.
    """
    _end_java()
    try:
        yield
    finally:
        _end_java()


def _end_java() -> None:
    gateway = pyspark.SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # by this it notices that Python is gone
        gateway.proc.wait()
        pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None


class Standalone:
    """A master, and a worker with one core for each of `pythons`, folders with a `python3`."""

    def __init__(self, folder: Path, pythons: Sequence[Path]) -> None:
        self._folder = folder
        self._pythons = pythons
        self._life = ExitStack()
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        with ExitStack() as life:
            common = ("--host", "127.0.0.1", "--webui-port", "0")
            self._start(life, "master", f"{DEPLOY}.master.Master", *common, "--port", str(self._port))
            until(self._listens)
            for number, python in enumerate(self._pythons):
                size = ("--cores", "1", "--memory", "600m", "--work-dir", str(self._folder / f"work-{number}"))
                worker = f"worker-{number}"
                self._start(life, worker, f"{DEPLOY}.worker.Worker", *common, *size, self.master, python=python)
            self._life = life.pop_all()
        until(lambda: self._log("master").count("Registering worker") == len(self._pythons))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._life.close()

    def _start(self, life: ExitStack, name: str, *command: str, python: Path | None = None) -> None:
        settings = {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": HASTY,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        inherited = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "PYTHONPATH")}
        # Executors inherit it, and start the first python3 that is in it.
        path = f"{python}{os.pathsep}{os.environ['PATH']}" if python else os.environ["PATH"]
        log = life.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *command],
            env={**inherited, **settings, "PATH": path},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        life.callback(process.wait)
        life.callback(process.terminate)

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self._port)) == 0
