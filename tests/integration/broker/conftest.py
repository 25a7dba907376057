"""What the scenarios of the broker share."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.broker.life_kit import new_name_server
from tests.integration.broker.replication_kit import DeafSlave, FakeMaster, Group
from tests.integration.broker.scene_kit import Shift, running

from pyromq.broker import assembly
from pyromq.broker import broker as broker_module
from pyromq.broker.timers import schedule


@pytest.fixture
def shift(monkeypatch):
    """The broker's time, apart from that of its store, can pass faster."""
    shift = Shift()
    monkeypatch.setattr(broker_module, "_now", shift)
    monkeypatch.setattr(broker_module, "_monotonic", shift)
    return shift


@pytest.fixture
def hurry(monkeypatch):
    """What the broker does every few seconds it does every few milliseconds."""
    for name in ("_HOUSEKEEPING", "_LOOK_AT_HELD_PULLS", "_SAMPLE", "_PROTECT"):
        monkeypatch.setattr(assembly, name, 0.02)
    monkeypatch.setattr(schedule, "_FIRST", 0.0)
    monkeypatch.setattr(schedule, "_PAUSE", 0.02)


@pytest.fixture
def no_rounds(monkeypatch):
    """The broker never looks by itself at the pulls that it holds, so only what happens can wake one."""
    monkeypatch.setattr(assembly, "_LOOK_AT_HELD_PULLS", 3600.0)


@pytest.fixture
def start(tmp_path, shift):
    """Start a broker with more settings than usual; again in the same folder, once it has ended."""

    def starting(*sets, namesrv_addr=None):
        return running(tmp_path / "store", *sets, namesrv_addr=namesrv_addr)

    return starting


@pytest.fixture
async def scene(start):
    async with start() as scene:
        yield scene


@pytest.fixture
async def client(scene):
    return await scene.connect()


@pytest.fixture
async def group(tmp_path):
    async with new_name_server(tmp_path) as name_server, contextlib.AsyncExitStack() as life:
        yield Group(tmp_path, name_server, life)


@pytest.fixture
async def deaf():
    slaves = []

    async def connect(scene, report=None):
        slave = DeafSlave(*await asyncio.open_connection("127.0.0.1", scene.broker._ports.ha_port))
        slaves.append(slave)
        if report is not None:
            slave.report(report)
        return slave

    yield connect
    for slave in slaves:
        slave.writer.close()
        with contextlib.suppress(ConnectionError):
            await slave.writer.wait_closed()


@pytest.fixture
async def fake_master():
    connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    writers = []

    async def connected(reader, writer):
        writers.append(writer)
        await connections.put((reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield FakeMaster(server, connections)
    server.close()
    for writer in writers:
        writer.close()
