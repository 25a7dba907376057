"""Health over real HTTP: alive, started, ready, and why not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading

import pytest
from tests.integration.broker.life_kit import Peer, eventually, new_broker, new_name_server
from tests.integration.metrics.monitor_kit import monitored, page, scrape

from pyromq.errors import ServiceNotAvailable
from pyromq.metrics import ExporterType
from pyromq.store import failpoints
from pyromq.testing.disk import FaultyDisk

pytestmark = pytest.mark.slow


async def until(monitor, path, status):
    async def look():
        found, text = await page(monitor.url, path)
        return text if found == status else None

    return await eventually(look)


async def test_a_running_broker_is_alive_started_and_ready(tmp_path):
    async with contextlib.AsyncExitStack() as life:
        name_server = await life.enter_async_context(new_name_server(tmp_path))
        broker = await life.enter_async_context(new_broker(tmp_path / "store", namesrv_addr=name_server.address))
        async with monitored(name_server, broker) as monitor:
            for path in ("/livez", "/healthz", "/startupz", "/readyz"):
                assert (await page(monitor.url, path))[0] == 200, path
            _, text = await page(monitor.url, "/readyz")
            assert text.splitlines() == [
                "ok   name server listening",
                "ok   broker recovery",
                "ok   broker draining",
                "ok   broker disk: 50 % full",
                "ok   broker store",
                "ok   broker registration: 1 of 1 name servers know it",
                "ready",
            ]
            status, text = await page(monitor.url, "/version")
            assert status == 200
            assert json.loads(text)["servers"] == ["name server", "broker"]
            assert (await page(monitor.url, "/nothing"))[0] == 404


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path):
    async with (
        new_broker(tmp_path, namesrv_addr="127.0.0.1:1") as broker,
        monitored(broker) as monitor,
    ):
        status, text = await page(monitor.url, "/readyz")
        assert status == 503
        assert "FAIL broker registration: 0 of 1 name servers know it" in text
        assert (await page(monitor.url, "/livez"))[0] == 200


async def test_a_broker_that_refuses_messages_on_purpose_is_draining(tmp_path):
    async with new_broker(tmp_path) as broker, monitored(broker) as monitor, Peer() as peer:
        await peer.configure(broker.address, "brokerPermission=4")
        text = await until(monitor, "/readyz", 503)
        assert "FAIL broker draining: brokerPermission 4 refuses messages" in text
        await peer.configure(broker.address, "brokerPermission=6")
        await until(monitor, "/readyz", 200)


async def test_a_stopping_broker_is_not_ready_while_clients_are_still_served(tmp_path):
    broker = new_broker(tmp_path, "drainSeconds=3600")
    async with monitored(broker) as monitor, Peer() as peer:
        await broker.__aenter__()
        await peer.create_topic(broker.address, "orders", 1)
        stopping = asyncio.create_task(broker.__aexit__(None, None, None))
        text = await until(monitor, "/readyz", 503)
        assert "FAIL broker draining: it is stopping" in text
        await peer.send(broker.address)
        await peer.close()
        await stopping


@pytest.mark.scenario("admin 49")
async def test_a_full_disk_makes_it_unready_until_there_is_room(tmp_path):
    disk = FaultyDisk()
    disk.used = 0.5
    async with (
        new_broker(tmp_path, "cleanResourceInterval=20", disk=disk) as broker,
        monitored(broker) as monitor,
        Peer() as peer,
    ):
        await peer.create_topic(broker.address, "orders", 1)
        await peer.send(broker.address)
        disk.used = 0.97
        text = await until(monitor, "/readyz", 503)
        assert "FAIL broker disk: 97 % full" in text
        with pytest.raises(ServiceNotAvailable, match="97 %"):
            await peer.send(broker.address)
        assert (await scrape(monitor)).one("pyromq_store_writable") == 0
        disk.used = 0.5
        await until(monitor, "/readyz", 200)
        await peer.send(broker.address)


@pytest.mark.scenario("admin 40")
async def test_recovery_shows_its_progress_and_the_broker_is_not_ready_until_it_is_done(tmp_path):
    """The log of 50 GB is one of a few MB here, and its recovery waits after each file until somebody has looked."""
    killed = tmp_path / "killed"
    async with new_broker(tmp_path / "store", "flushDiskType=SYNC_FLUSH") as broker, Peer() as peer:
        await peer.create_topic(broker.address, "orders", 1)
        for _ in range(40):
            await peer.send(broker.address, b"x" * 100_000)
        # What `kill -9` would leave now, with a checkpoint that says nothing.
        shutil.copytree(tmp_path / "store", killed)
        (killed / "checkpoint").unlink(missing_ok=True)
    looked = threading.Semaphore(0)
    files = 0

    def recovered():
        nonlocal files
        files += 1
        assert looked.acquire(timeout=60)

    again = new_broker(killed)
    with failpoints.active("log.recovered", recovered):
        async with monitored(again) as monitor:
            starting = asyncio.create_task(again.__aenter__())
            seen = []
            try:
                while not starting.done():
                    ready, _ = await page(monitor.url, "/readyz")
                    status, text = await page(monitor.url, "/startupz")
                    if status == 503:
                        assert ready == 503
                        seen.append(int(text.split("starting, ")[1].split(" %")[0]))
                    looked.release()
                await starting
                assert files >= 4
                assert seen == sorted(seen)
                assert {*seen} - {0, 100}, seen
                assert (await page(monitor.url, "/startupz"))[0] == 200
                assert (await page(monitor.url, "/readyz"))[0] == 200
                async with Peer() as peer:
                    assert await peer.send(again.address) == 40
            finally:
                looked.release(1000)
                await again.__aexit__(None, None, None)


async def test_disabled_metrics_open_no_port(tmp_path):
    async with new_broker(tmp_path, "metricsExporterType=DISABLE") as broker:
        async with monitored(broker, exporter=ExporterType.DISABLE) as monitor:
            assert monitor.url is None
        assert broker._latencies is None
