"""A name server or a controller as a process of its own, ours or Apache's, started the same way.

    with NameServer("apache-5.5.0", folder, jvm=heap("1g")) as peer:
        drive(peer.address), resident(peer.pid)

The tests here use it, and `bench/` for its ratios.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Self

from tests.interop import apache, wire
from tests.interop.process import Process, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OURS = "ours"
BOOT_SECONDS = 60.0


def heap(size: str) -> tuple[str, ...]:
    """JVM flags for a fixed heap and otherwise what the JVM chooses by itself, all its compilers included."""
    return (f"-Xms{size}", f"-Xmx{size}")


class NameServer:
    """A name server on loopback: `make` is "ours", "apache-5.5.0" or "apache-4.9.7".

    Its port and its files stay the same when it is started again, so that brokers and clients find it where it was.
    `tls_mode` is disabled, permissive or enforcing; `jvm` matters to Apache's alone.
    """

    def __init__(
        self, make: str, home: Path, *, jvm: Sequence[str] = apache.SMALL_SERVER, tls_mode: str = "permissive"
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.make = make
        self.port = free_port()
        self._home = home
        self._process: Process | None = None
        self._starts = 0
        config = home / "namesrv.properties"
        # Kept under `home`: by default the KV config lies in the user's own folder.
        config.write_text(f"listenPort={self.port}\nkvConfigPath={home / 'kvConfig.json'}\n")
        if make == OURS:
            with config.open("a") as file:
                file.write(f"tls.server.mode={tls_mode}\ntls.test.mode.enable=true\n")
            self._command = [sys.executable, "-m", "pyromq.cli.main", "namesrv", "-c", str(config)]
            settings = ("PYROMQ_", "ROCKETMQ")  # those of the machine are not meant for this one
            inherited = {key: value for key, value in os.environ.items() if not key.startswith(settings)}
            self._environment = inherited | {"HOME": str(home)}
        else:
            version = make.removeprefix("apache-")
            flags = (*jvm, f"-Dtls.server.mode={tls_mode}")
            self._command = [*apache.java(version, home, flags), apache.NAMESRV_MAIN, "-c", str(config)]
            self._environment = apache.environment(home)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> Process:
        assert self._process is not None, "the name server was not started"
        return self._process

    def start(self) -> Self:
        """Start it and wait until it serves."""
        self._starts += 1
        log = self._home / f"namesrv-{self._starts}.out"
        self._process = Process(f"name server {self.make}", self._command, log=log, env=self._environment)
        self._process.wait_for("boot success", BOOT_SECONDS)
        return self

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class Controller:
    """A controller on loopback: `make` is "ours" or "apache-5.5.0". Port and files outlive a restart."""

    def __init__(self, make: str, home: Path, *, port: int = 0, **settings: object) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.make = make
        self.port = port or free_port()
        self._home = home
        self._process: Process | None = None
        self._starts = 0
        config = {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "store",
            "mappedFileSize": 16 << 20,
            **settings,
        }
        file = home / "controller.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        if make == OURS:
            self._command = [sys.executable, "-m", "pyromq.cli.main", "controller", "-c", str(file)]
            inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYROMQ_", "ROCKETMQ"))}
            self._environment = inherited | {"HOME": str(home)}
        else:
            start = apache.java(make.removeprefix("apache-"), home, apache.SMALL_SERVER)
            self._command = [*start, apache.CONTROLLER_MAIN, "-c", str(file)]
            self._environment = apache.environment(home)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.process.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        assert self._process is not None, "the controller was not started"
        return self._process

    def start(self) -> Self:
        """Start it and wait until it leads."""
        self.launch()
        self.wait_until_booted()
        wait_until(self._leads, BOOT_SECONDS, "the controller leads")
        return self

    def launch(self) -> None:
        """Start it and do not wait: of several, none boots before the others run."""
        self._starts += 1
        log = self._home / f"controller-{self._starts}.out"
        self._process = Process(f"controller {self.make}", self._command, log=log, env=self._environment)

    def wait_until_booted(self) -> None:
        self.process.wait_for("boot success", BOOT_SECONDS)

    def _leads(self) -> bool:
        return wire.ask(self.address, 1005).ext.get("isLeader") == "true"
