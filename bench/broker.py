"""Our broker next to Apache RocketMQ 5.5.0 on this machine, under the same load driver with ready-made frames."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.interop import apache
from tests.interop.peers import NameServer, heap
from tests.interop.process import Process, free_port

from pyromq.protocol import frame
from pyromq.protocol.command import SerializeType

from .codec import send_request
from .load import drive
from .table import show

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, APACHE = "ours", "Apache"
# Connections, requests in flight on each, bytes of body.
LOADS = ((4, 64, 1024), (4, 64, 128), (64, 1, 1024), (64, 1, 128), (1, 1, 128))
SYNC_LOADS = ((4, 64, 1024), (64, 1, 1024))
ROUNDS = 3
# The harness starts brokers for tests with a simple collector and a quick compiler; here they run as by default.
FULL_SPEED = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")
WARM_SECONDS = 30.0


class Round(NamedTuple):
    rate: float
    p50: float
    p99: float
    cpu: float  # µs of the broker's CPU per message


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as name:
        _sending(Path(name), "ASYNC_FLUSH", LOADS, seconds)
        _sending(Path(name), "SYNC_FLUSH", SYNC_LOADS, seconds)


def _sending(folder: Path, flush: str, loads: tuple[tuple[int, int, int], ...], seconds: float) -> None:
    rows = []
    with contextlib.ExitStack() as stack:
        home = folder / flush
        namesrv = stack.enter_context(NameServer("ours", home / "namesrv"))
        ours = stack.enter_context(_our_broker(home / "ours", namesrv.address, flush))
        theirs = stack.enter_context(_apache_broker(home / "apache", namesrv.address, flush))
        brokers = {OURS: ours, APACHE: theirs}
        for port, _ in brokers.values():
            drive(port, _frame(SerializeType.JSON, 128), 1, 1, 1)  # makes the topic
        drive(theirs[0], _frame(SerializeType.JSON, 1024), 4, 64, WARM_SECONDS)  # cold, the JVM does half
        for connections, window, body in loads:
            for serialize in SerializeType:
                if serialize is SerializeType.ROCKETMQ and (connections, window) != (4, 64):
                    continue
                sending = _frame(serialize, body)
                rounds: dict[str, list[Round]] = {OURS: [], APACHE: []}
                for _ in range(ROUNDS):
                    for name, (port, pid) in brokers.items():
                        rounds[name].append(_round(port, pid, sending, connections, window, seconds))
                mine, other = (_median(rounds[name]) for name in (OURS, APACHE))
                rows.append(
                    (
                        f"{connections} × {window}, {body} B, {serialize.name}",
                        f"{mine.rate:,.0f}",
                        f"{other.rate:,.0f}",
                        mine.rate / other.rate,
                        mine.p50,
                        other.p50,
                        mine.p99,
                        other.p99,
                        mine.cpu,
                        other.cpu,
                        mine.cpu / other.cpu,
                    )
                )
    show(
        f"sends, {flush}, median of {ROUNDS} interleaved rounds of {seconds:g} s",
        ("load", "ours/s", "Apache/s", "ratio", "p50", "Apache", "p99 ms", "Apache", "CPU µs", "Apache", "ratio"),
        rows,
    )


def _median(rounds: list[Round]) -> Round:
    return Round(*map(statistics.median, zip(*rounds, strict=True)))


def _frame(serialize: SerializeType, body: int) -> bytes:
    return frame.encode(send_request(serialize, body))


def _round(port: int, pid: int, sending: bytes, connections: int, window: int, seconds: float) -> Round:
    before = _cpu_seconds(pid)
    measured = drive(port, sending, connections, window, seconds)
    cpu = (_cpu_seconds(pid) - before) / measured.count * 1e6
    return Round(measured.rate, measured.p50, measured.p99, cpu)


@contextlib.contextmanager
def _our_broker(home: Path, namesrv: str, flush: str) -> Iterator[tuple[int, int]]:
    home.mkdir(parents=True)
    port = free_port()
    config = home / "broker.conf"
    config.write_text(
        f"brokerName=ours\nbrokerIP1=127.0.0.1\nlistenPort={port}\nnamesrvAddr={namesrv}\nflushDiskType={flush}\n"
        f"storePathRootDir={home / 'store'}\n"
    )
    command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(config)]
    with Process("our broker", command, log=home / "broker.out", env=os.environ | {"HOME": str(home)}) as process:
        process.wait_for("boot success", 20)
        yield port, process.pid


@contextlib.contextmanager
def _apache_broker(home: Path, namesrv: str, flush: str) -> Iterator[tuple[int, int]]:
    home.mkdir(parents=True)
    broker = apache.Broker(
        "5.5.0",
        home,
        namesrv,
        jvm=(*heap("4g"), *FULL_SPEED),
        flushDiskType=flush,
        mappedFileSizeCommitLog=1 << 30,
        mappedFileSizeConsumeQueue=6_000_000,
        maxHashSlotNum=5_000_000,
        maxIndexNum=20_000_000,
    )
    with broker.process:
        broker.wait_until_booted()
        yield broker.port, broker.process.pid


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
