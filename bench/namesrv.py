"""Our name server next to Apache's 5.5.0 on this machine: route queries, memory, many connections, a large cluster."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.peers import OURS, NameServer, heap

from pyromq.protocol import frame
from pyromq.protocol.bodies.register import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command, SerializeType
from pyromq.protocol.headers import GetRouteInfo, RegisterBroker
from pyromq.remoting import run

from .load import drive
from .table import show

if TYPE_CHECKING:
    from collections.abc import Iterator

APACHE = "apache-5.5.0"
LOADS = ((64, 1), (4, 64))
ROUNDS = 3
WARM_SECONDS = 30.0
IDLE_CONNECTIONS = 10_000


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _route_queries(Path(folder), seconds)
        _large_cluster(Path(folder))
        run(_idle_connections(Path(folder)))


def _route_queries(folder: Path, seconds: float) -> None:
    rates: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    with NameServer(OURS, folder / "ours") as ours, NameServer(APACHE, folder / "apache", jvm=heap("4g")) as apache:
        servers = {OURS: ours, APACHE: apache}
        starting = {name: _resident(server.pid) for name, server in servers.items()}
        brokers = [_register(server.port, 0, ["TopicTest", "Other"]) for server in servers.values()]
        query = frame.encode(_route_query("TopicTest"))
        drive(apache.port, query, 4, 64, WARM_SECONDS)  # cold, the JVM does half
        for _ in range(ROUNDS):
            for connections, window in LOADS:
                for name, server in servers.items():
                    measured = drive(server.port, query, connections, window, seconds)
                    rates.setdefault((name, connections, window), []).append((measured.rate, measured.p99))
        loaded = {name: _resident(server.pid) for name, server in servers.items()}
        for broker in brokers:
            broker.close()
    rows = []
    for connections, window in LOADS:
        mine, theirs = (
            [statistics.median(values) for values in zip(*rates[name, connections, window], strict=True)]
            for name in (OURS, APACHE)
        )
        rows.append((f"{connections} × {window}", mine[0], theirs[0], mine[0] / theirs[0], mine[1], theirs[1]))
    show(
        f"route queries, median of {ROUNDS} interleaved rounds of {seconds:g} s",
        ("load", "ours/s", "Apache/s", "ratio", "ours p99 ms", "Apache p99 ms"),
        rows,
    )
    show(
        "resident memory, MB (Apache with the 4 GB heap of its own start script)",
        ("when", "ours", "Apache", "ratio"),
        [
            (when, sizes[OURS] / 1e6, sizes[APACHE] / 1e6, sizes[OURS] / sizes[APACHE])
            for when, sizes in (("started", starting), ("after the load", loaded))
        ],
    )


def _large_cluster(folder: Path) -> None:
    """1,000 topics on 10 brokers: what one registration of that size costs."""
    topics = [f"topic-{number:04d}" for number in range(1000)]

    def register(port: int, sockets: list[socket.socket]) -> list[float]:
        took = []
        for broker in range(10):
            began = time.perf_counter()
            sockets.append(_register(port, broker, topics))
            took.append(1000 * (time.perf_counter() - began))
        return took

    sockets: list[socket.socket] = []
    with NameServer(OURS, folder / "large") as server:
        took, again = register(server.port, sockets), register(server.port, sockets)
        memory = _resident(server.pid) / 1e6
        for sock in sockets:
            sock.close()
    show(
        "1,000 topics × 10 brokers, ms per registration",
        ("registration", "median", "longest", "resident MB"),
        [
            ("first", statistics.median(took), max(took), memory),
            ("repeated", statistics.median(again), max(again), memory),
        ],
    )


async def _idle_connections(folder: Path) -> None:
    """10,000 connections that ask once and then stay: are all served, and what does each cost?"""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    query = frame.encode(_route_query("TopicTest"))
    with NameServer(OURS, folder / "idle") as server:
        before = _resident(server.pid)
        began = time.perf_counter()
        async with contextlib.AsyncExitStack() as stack:
            for chunk in _chunks(IDLE_CONNECTIONS, 500):
                await asyncio.gather(*(_ask(server.port, query, stack) for _ in range(chunk)))
            took = time.perf_counter() - began
            after = _resident(server.pid)
    show(
        f"{IDLE_CONNECTIONS:,} connections held, each answered once",
        ("seconds to open", "resident MB", "KB each"),
        [(took, after / 1e6, (after - before) / IDLE_CONNECTIONS / 1e3)],
    )


async def _ask(port: int, query: bytes, stack: contextlib.AsyncExitStack) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    writer.write(query)
    size = int.from_bytes(await reader.readexactly(4), "big")
    await reader.readexactly(size)


def _route_query(topic: str) -> Command:
    return Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic), serialize=SerializeType.JSON)


def _register(port: int, broker: int, topics: list[str]) -> socket.socket:
    """Register a broker. Its connection is its life: the route is gone when the socket that is returned is closed."""
    table = {topic: TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8) for topic in topics}
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=1, timestamp=1), topic_config_table=table)
    address = 10911 + 10 * broker
    header = RegisterBroker(f"broker-{broker}", f"127.0.0.1:{address}", "DefaultCluster", f"127.0.0.1:{address + 1}", 0)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(frame.encode(Command.request(RequestCode.REGISTER_BROKER, header, body)))
    with sock.makefile("rb") as replies:
        decoder = frame.FrameDecoder()
        length = replies.read(4)
        decoder.feed(length + replies.read(int.from_bytes(length, "big")))
    reply = decoder.next()
    assert reply is not None, "half a reply"
    assert reply.code == 0, reply.remark
    return sock


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _chunks(total: int, size: int) -> Iterator[int]:
    while total > 0:
        yield min(total, size)
        total -= size
