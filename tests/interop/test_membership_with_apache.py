"""The membership of our brokers under the controller of 5.5.0: joining, a master that is lost, one that is silent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.integration.broker.member_kit import member, until
from tests.interop import apache
from tests.interop.process import Process, free_port, stop_all

from pyromq.broker.failover.role import InSyncSet
from pyromq.remoting import RemotingServer, ServerConfig
from pyromq.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyromq.remoting import Processor

pytestmark = pytest.mark.interop


@pytest.fixture
def controller(java_packages: None, tmp_path: Path) -> Iterator[str]:
    """The address of a controller inside a name server."""
    port = free_port()
    config = {
        "listenPort": free_port(),
        "kvConfigPath": tmp_path / "kv.json",
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": tmp_path / "DLedgerController",
    }
    file = tmp_path / "namesrv.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    command = [*apache.java("5.5.0", tmp_path, apache.SMALL_SERVER), apache.NAMESRV_MAIN, "-c", str(file)]
    process = Process("controller", command, log=tmp_path / "out", env=apache.environment(tmp_path))
    try:
        process.wait_for("ControllerManager boot success", apache.BOOT_SECONDS)
        yield f"127.0.0.1:{port}"
    finally:
        stop_all([process])


@contextlib.asynccontextmanager
async def broker(folder, controller, **settings):
    """A membership behind a proxy, with a port for the controller's notices."""
    folder.mkdir(exist_ok=True)
    processors: dict[int, Processor] = {}
    async with (
        RemotingServer(ServerConfig(listen_port=0, bind_address="127.0.0.1"), processors) as server,
        Proxy(controller) as proxy,
        member(folder, proxy, address=f"127.0.0.1:{server.port}", heartbeat_interval=200, **settings) as joined,
    ):
        processors.update(joined.membership.processors())
        joined.proxy = proxy
        yield joined


async def test_two_brokers_take_over_from_each_other(controller, tmp_path):
    async with broker(tmp_path / "a", controller) as one, broker(tmp_path / "b", controller) as other:
        await asyncio.gather(one.has_role(), other.has_role())
        first, second = (one, other) if one.membership.is_master else (other, one)
        await first.has_lease()
        assert {one.identity(), other.identity()} == {"C#b#1", "C#b#2"}
        assert (await first.membership.alter_in_sync({1, 2})).members == {1, 2}

        first.proxy.refuse()
        first.proxy.cut()  # the controller sees it, and chooses at once
        await second.has_lease()
        assert not first.lease.is_valid()
        first.proxy.restore()
        await until(lambda: first.membership.role.epoch == 2)
        await first.is_well()
        assert await second.membership.alter_in_sync({1, 2}) == InSyncSet(frozenset({1, 2}), 4)

        valid = []
        first.membership.role_changed = lambda role: valid.append(second.lease.is_valid())
        second.proxy.pause()  # silent: the controller waits for its time-out, and the lease ends before
        await first.has_lease()
        assert valid == [False]
        second.proxy.resume()
        await until(lambda: second.membership.role.epoch == 3)
        assert not second.lease.is_valid()


async def test_a_broker_that_crashed_comes_back_with_its_id_in_a_new_epoch(controller, tmp_path):
    async with broker(tmp_path / "a", controller) as first:
        await first.has_lease()
    async with broker(tmp_path / "a", controller, epoch=first.epoch) as again:
        await again.has_lease()
        assert again.membership.broker_id == 1
        assert again.membership.role.epoch > first.epoch
