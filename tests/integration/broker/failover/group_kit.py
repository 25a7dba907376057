"""A name server, a controller, and brokers of one group whose roles the controller decides."""

from __future__ import annotations

import contextlib

from tests.integration.broker.life_kit import eventually, new_broker
from tests.integration.broker.scene_kit import Scene
from tests.ports import free_port

from pyromq.controller.config import load_settings
from pyromq.controller.server import Controller

MODE = ("enableControllerMode=true", "brokerName=g", "brokerHeartbeatInterval=100", "syncBrokerMetadataPeriod=200")


@contextlib.asynccontextmanager
async def new_controller(folder, *sets, port=None):
    peers = f"controllerDLegerPeers=n0-127.0.0.1:{port or free_port()}"
    settings = load_settings(sets=[peers, f"controllerStorePath={folder / 'controller'}", *sets])
    async with Controller(settings) as controller:
        yield controller


class FailoverGroup:
    """Brokers of one name, by names of their own."""

    def __init__(self, folder, name_server, controller, life):
        self.folder = folder
        self.namesrv = f"127.0.0.1:{name_server.port}"
        self.controller = controller
        self._life = life
        self._ends = {}

    @contextlib.asynccontextmanager
    async def broker(self, name, *sets):
        settings = [*MODE, f"controllerAddr={self.controller.address}", "slaveSyncInterval=100", *sets]
        async with (
            new_broker(self.folder / name, *settings, namesrv_addr=self.namesrv) as broker,
            contextlib.AsyncExitStack() as clients,
        ):
            yield Scene(broker, clients)

    async def start(self, name, *sets):
        end = self._ends[name] = contextlib.AsyncExitStack()
        self._life.push_async_callback(end.aclose)
        return await end.enter_async_context(self.broker(name, *sets))

    async def stop(self, name):
        await self._ends.pop(name).aclose()

    def log(self, name):
        return {path.name: path.read_bytes() for path in sorted((self.folder / name / "commitlog").iterdir())}


def member(scene):
    return scene.broker._parts._member


async def is_master(scene):
    async def master():
        return member(scene) is not None and member(scene).is_master and member(scene).membership.lease.is_valid()

    await eventually(master)


async def is_slave(scene):
    async def slave():
        following = scene.broker._parts.replication._following
        return following is not None and following.following is not None

    await eventually(slave)


async def in_sync(scene, *ids):
    async def same():
        keeper = scene.broker._parts.replication._keeper
        return keeper is not None and keeper.in_sync.taken.members == set(ids)

    await eventually(same)
