"""Stand-ins for brokers: they speak the wire by themselves and do with each request what a broker does first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.integration.namesrv.raw_client import PATIENCE, RawClient, Reply, json_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.controller import Controller

CLUSTER = "c"


@dataclass
class StandIn:
    """A broker of the group `name`: a connection to the controller, and a port that hears 1008."""

    scene: Scene
    name: str
    client: RawClient
    address: str
    server: asyncio.Server
    id: int = 0
    told: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    async def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Reply:
        return await self.client.call(code, {"brokerName": self.name, "clusterName": CLUSTER} | (ext or {}), body)

    async def join(self) -> int:
        """1012, 1013 and 1003, as a broker starts; returns its id."""
        while not self.id:
            wanted = int((await self.call(1012)).ext["nextBrokerId"])
            code = f"{self.address};1000"
            if (await self.call(1013, {"appliedBrokerId": wanted, "registerCheckCode": code})).code == 0:
                self.id = wanted
        reply = await self.register()
        assert reply.code == 0, reply
        return self.id

    async def register(self) -> Reply:
        return await self.call(1003, {"brokerId": self.id, "brokerAddress": self.address})

    async def beat(
        self, epoch: int = 1, offset: int = 0, *, timeout: int = 10_000, priority: int = 2**31 - 1, **more: str
    ) -> Reply:
        """904, as a two-way request, so that it has arrived."""
        said = {"brokerId": self.id, "brokerAddr": self.address, "epoch": epoch, "maxOffset": offset}
        said |= {"confirmOffset": offset, "heartbeatTimeoutMills": timeout, "electionPriority": priority}
        reply = await self.call(904, said | more)
        assert (reply.code, reply.remark) == (0, "Heart beat success")
        return reply

    def beat_oneway(self) -> None:
        said = {"brokerName": self.name, "clusterName": CLUSTER, "brokerId": self.id, "brokerAddr": self.address}
        self.client.send(json_request(904, said, flag=2))

    async def elect(self, wanted: int | None = None, *, designate: bool = False) -> Reply:
        asked = {"brokerId": self.id if wanted is None else wanted, "designateElect": str(designate).lower()}
        return await self.call(1002, asked)

    async def alter(self, ids: list[int], *, epoch: int = 1, set_epoch: int = 1, master: int | None = None) -> Reply:
        body = json.dumps({"syncStateSet": ids, "syncStateSetEpoch": set_epoch}).encode()
        return await self.call(1001, {"masterBrokerId": master or self.id, "masterEpoch": epoch}, body)

    async def info(self) -> dict[str, Any]:
        return await self.scene.info(self.name)

    async def dies(self) -> None:
        """All its connections close, as when its process is killed."""
        await self.client.close()
        self.server.close()

    async def notice(self) -> dict[str, Any]:
        """The next 1008."""
        async with asyncio.timeout(PATIENCE):
            return await self.told.get()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size, word = struct.unpack(">iI", await reader.readexactly(8))
                rest = await reader.readexactly(size - 4)
                length = word & 0xFFFFFF
                header = json.loads(rest[:length])
                self.told.put_nowait(header | {"body": json.loads(rest[length:])})
        writer.close()


class Scene:
    """One controller and those who talk to it."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.brokers: list[StandIn] = []
        self._clients: list[RawClient] = []
        self._tool: RawClient | None = None

    async def connect(self) -> RawClient:
        client = await RawClient.connect(self.controller.port)
        self._clients.append(client)
        return client

    async def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Reply:
        """A request of a tool."""
        if self._tool is None:
            self._tool = await self.connect()
        return await self._tool.call(code, ext, body)

    async def broker(self, name: str = "b") -> StandIn:
        """A broker that has only connected."""
        client = await self.connect()
        made: list[StandIn] = []
        server = await asyncio.start_server(lambda *streams: made[0]._hear(*streams), "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made.append(StandIn(self, name, client, address, server))
        self.brokers.append(made[0])
        return made[0]

    async def group(self, count: int, name: str = "b") -> list[StandIn]:
        """Live brokers of which the first is master, alone in the in-sync set."""
        brokers = [await self.broker(name) for _ in range(count)]
        for broker in brokers:
            await broker.join()
            await broker.beat(-1)  # its epoch table is empty
        assert (await brokers[0].elect()).code == 0
        return brokers

    async def info(self, name: str = "b") -> dict[str, Any]:
        """Master, epoch, set and its epoch, as 1004 tells them."""
        reply = await self.call(1004, {"brokerName": name})
        assert reply.code == 0, reply
        master = reply.ext.get("masterBrokerId")
        return {
            "master": int(master) if master is not None else None,
            "epoch": int(reply.ext["masterEpoch"]),
            "set": reply.json["syncStateSet"],
            "set_epoch": reply.json["syncStateSetEpoch"],
        }

    async def until(self, holds: Callable[[dict[str, Any]], bool], name: str = "b") -> dict[str, Any]:
        """Ask until the answer fits."""
        async with asyncio.timeout(PATIENCE):
            while True:
                info = await self.info(name)
                if holds(info):
                    return info
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for broker in self.brokers:
            broker.server.close()
        for client in self._clients:
            await client.close()


async def in_time(waiting: Awaitable[Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await waiting
