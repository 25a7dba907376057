"""`pyromq up` as a process: our name server and broker, to be met by clients that nobody here wrote."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Self

from tests.interop import wire
from tests.interop.process import Process, free_port

if TYPE_CHECKING:
    from pathlib import Path

READY_SECONDS = 15.0
BROKER = "broker-a"
CLUSTER = "DefaultCluster"


class PyroMQ:
    """A name server and a broker with a data directory under `home`. Ports and data outlive a restart.

    `settings` are those of the broker. With `namesrv`, a broker alone that registers there.
    """

    def __init__(self, home: Path, *, namesrv: str | None = None, **settings: object) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self.port = free_port()
        pairs = [f"{key}={value}" for key, value in settings.items()]
        run = [sys.executable, "-m", "pyromq.cli.main"]
        if namesrv is None:
            self.namesrv = f"127.0.0.1:{free_port()}"
            ports = ["--namesrv-port", self.namesrv.rpartition(":")[2], "--broker-port", str(self.port)]
            self._command = [*run, "up", "--data", str(home / "data"), "--log-level", "info", *ports, *pairs]
            self._ready = "is ready"
        else:
            self.namesrv = namesrv
            own = {"listenPort": self.port, "brokerIP1": "127.0.0.1", "storePathRootDir": home / "data"}
            own["brokerFastFailureEnable"] = "false"  # a machine that is busy with tests is no overload
            more = [f"{key}={value}" for key, value in own.items() if key not in settings]
            self._command = [*run, "broker", "-n", namesrv, *more, *pairs]
            self._ready = "boot success"
        foreign = ("PYROMQ_", "ROCKETMQ", "NAMESRV")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self._environment = inherited | {"HOME": str(home)}
        self._starts = 0
        self._process: Process | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.process.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was not started"
        return self._process

    def start(self) -> Self:
        """Start it and wait until it serves."""
        self._starts += 1
        log = self._home / f"pyromq-{self._starts}.out"
        self._process = Process("pyromq", self._command, log=log, env=self._environment)
        self._process.wait_for(self._ready, READY_SECONDS)
        return self

    def restart(self, *, kill: bool = False) -> None:
        """Stop it, or with `kill` give it no chance to, and start it again."""
        if kill:
            self.process.kill()
        else:
            self.process.stop()
        self.start()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic as an operator does. Once this returns, its route is known."""
        with wire.Connection(self.address) as connection:
            wire.create_topic(connection, topic, queues)
