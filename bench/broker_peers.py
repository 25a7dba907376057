"""Our broker and Apache's as processes of their own, at full speed, and what the kernel knows of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop import apache
from tests.interop.peers import NameServer, heap
from tests.interop.process import Process, free_port

from .broker_table import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, APACHE, APACHE_4 = "ours", "Apache", "Apache 4.9.7"
VERSIONS = {APACHE: "5.5.0", APACHE_4: "4.9.7"}
BOOT_SECONDS = {OURS: 20.0, APACHE: 60.0, APACHE_4: 60.0}
# The harness starts brokers for tests with a simple collector and a quick compiler; here they run as by default.
FULL_SPEED = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")
# What a broker of Apache's has unless it is told otherwise; the harness makes small files.
STOCK: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker that was started; use it as a context, or it is left behind."""

    make: str
    port: int
    namesrv: str
    process: Process

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_until_booted(self) -> None:
        self.process.wait_for("boot success", BOOT_SECONDS[self.make])

    def cpu_seconds(self) -> float:
        """CPU time of all its threads since it was started."""
        return cpu_seconds(self.process.pid)

    def memory(self, field: str) -> int:
        """Resident bytes: VmRSS are all, RssAnon those that are no mapped files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields[field].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process since it was started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spawn(
    make: str,
    home: Path,
    namesrv: str,
    flush: str = "ASYNC_FLUSH",
    *,
    memory: str = "4g",
    sources: Path | None = None,
    **settings: object,
) -> Peer:
    """Start a broker with an empty store and do not wait for it.

    `memory` is what a JVM gets for its heap; `sources` are those of ours to run, if not these.
    """
    home.mkdir(parents=True)
    settings = {"flushDiskType": flush, **settings}
    if make in VERSIONS:
        jvm = (*heap(memory), *FULL_SPEED)
        broker = apache.Broker(VERSIONS[make], home, namesrv, jvm=jvm, **STOCK | settings)
        return Peer(make, broker.port, namesrv, broker.process)
    port = free_port()
    config = home / "broker.conf"
    settings = {
        "brokerName": "ours",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": namesrv,
        "storePathRootDir": home / "store",
        **settings,
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    foreign = ("PYROMQ_", "ROCKETMQ", "NAMESRV")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    if sources is not None:
        inherited["PYTHONPATH"] = str(sources)
    command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(config)]
    process = Process("our broker", command, log=home / "broker.out", env=inherited | {"HOME": str(home)})
    return Peer(make, port, namesrv, process)


@contextlib.contextmanager
def brokers(*makes: str, flush: str = "ASYNC_FLUSH") -> Iterator[list[Peer]]:
    """Brokers that serve, each with a name server of its own (ours): no client of one finds the other.

    Their files are gone afterwards: a run writes some ten gigabytes.
    """
    with scratch() as home, contextlib.ExitStack() as stack:
        peers = []
        progress(f"starting {' and '.join(makes)}, {flush}")
        for number, make in enumerate(makes):
            namesrv = stack.enter_context(NameServer("ours", home / f"namesrv-{number}"))
            peers.append(peer := spawn(make, home / f"broker-{number}", namesrv.address, flush))
            stack.enter_context(peer.process)
        for peer in peers:
            peer.wait_until_booted()
        yield peers


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed even while an ending JVM still writes into it."""
    folder = Path(tempfile.mkdtemp(prefix="pyromq-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
