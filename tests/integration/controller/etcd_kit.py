"""A real etcd of one or three members on this machine, and controllers that keep their decisions there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.bounds import TOO_LONG
from tests.integration.controller.controller_kit import Scene
from tests.ports import free_port

from pyromq.controller import Controller, load_settings
from pyromq.testing import Proxy

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

needs_etcd = [
    pytest.mark.etcd,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed; `make etcd` installs it"),
]
# Longer than any pause of a busy machine. Where a lease has to end, a test takes a shorter one.
LEASE = 10.0
# No member waits long for another: whole rounds of elections fit into a test.
QUICK = ("--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error")


class Member:
    """One process of etcd, and its files."""

    def __init__(self, folder: Path, name: str, options: Iterable[str] = ()) -> None:
        self.folder = folder / name
        self.name = name
        self.port, self.peer_port = free_port(), free_port()
        self.options = list(options)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, cluster: str, scheme: str = "http") -> None:
        client, peer = f"{scheme}://{self.address}", f"http://127.0.0.1:{self.peer_port}"
        command = ["etcd", "--name", self.name, "--data-dir", str(self.folder), *QUICK, "--initial-cluster", cluster]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client, *self.options]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        environ = {"PATH": os.environ["PATH"], "ETCD_UNSUPPORTED_ARCH": "arm64"}
        with (self.folder.with_suffix(".log")).open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(TOO_LONG)
            self.process = None


class Cluster:
    """Members `a`, `b`, `c`. They can be killed, stopped, resumed and started again with their files."""

    def __init__(self, folder: Path, count: int, *, scheme: str = "http", options: Iterable[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.scheme = scheme
        self.members = [Member(folder, name, options) for name in "abc"[:count]]

    @property
    def endpoints(self) -> str:
        return ";".join(member.address for member in self.members)

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.process is not None]

    def start(self, *members: Member) -> None:
        cluster = ",".join(f"{member.name}=http://127.0.0.1:{member.peer_port}" for member in self.members)
        for member in members or self.members:
            member.start(cluster, self.scheme)

    def stop(self) -> None:
        for member in self.running:
            member.kill()

    def call(self, path: str, asked: dict[str, Any], member: Member | None = None) -> dict[str, Any]:
        """Ask etcd as no code under test does. URLError or an answer that says no."""
        address = (member or self.running[0]).address
        request = urllib.request.Request(f"http://{address}/v3/{path}", json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=2) as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    async def ready(self, member: Member | None = None) -> None:
        await until(lambda: asyncio.to_thread(self._answers, member), "etcd answers")

    def _answers(self, member: Member | None) -> bool:
        with contextlib.suppress(urllib.error.URLError, OSError):
            self.call("kv/range", {"key": encoded("x")}, member)
            return True
        return False

    def keys(self, prefix: str = "/") -> dict[str, Any]:
        """The keys and their values."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("kv/range", {"key": encoded(prefix), "range_end": encoded(end)})
        return {
            b64decode(kv["key"]).decode(): json.loads(b64decode(kv.get("value", ""))) for kv in found.get("kvs", [])
        }


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


class Controllers:
    """Some controllers of one group in this process, each with its own way to etcd."""

    def __init__(self, folder: Path, group: str, ways: list[str], sets: Iterable[str] = ()) -> None:
        self.folder = folder
        self.group = group
        self.ways = ways
        self.sets = sets
        self.peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(len(ways)))
        self.scenes: dict[str, Scene] = {}
        self._lives: dict[str, contextlib.AsyncExitStack] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def prefix(self) -> str:
        return f"/pyromq/{self.group}/"

    def settings(self, number: int) -> list[str]:
        return [
            "bindAddress=127.0.0.1",
            f"controllerDLegerPeers={self.peers}",
            f"controllerDLegerGroup={self.group}",
            f"controllerDLegerSelfId=n{number}",
            f"controllerStorePath={self.folder}/n{number}",
            f"configStorePath={self.folder}/n{number}/controller.properties",
            "controllerStore=etcd",
            f"controllerEtcdEndpoints={self.ways[number]}",
            f"controllerEtcdLease={int(LEASE * 1000)}",
            *self.sets,
        ]

    async def start(self, number: int, clock: Callable[[], float] = time.monotonic) -> Scene:
        life = contextlib.AsyncExitStack()
        controller = Controller(load_settings(sets=self.settings(number)), clock=clock)
        scene = Scene(controller)
        life.push_async_callback(scene.close)
        await life.enter_async_context(controller)
        self.scenes[f"n{number}"] = scene
        self._lives[f"n{number}"] = life
        return scene

    async def spawn(self, number: int) -> Scene:
        """The same as a process of its own."""
        address = dict(peer.split("-", 1) for peer in self.peers.split(";"))[f"n{number}"]
        folder = self.folder / f"n{number}"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pyromq.cli.main", "controller", *self.settings(number)]
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log)  # noqa: ASYNC220 - short
        life = contextlib.AsyncExitStack()
        life.callback(_end, process)
        self._lives[f"n{number}"] = life
        assert process.stdout is not None
        said = await asyncio.to_thread(process.stdout.readline)
        assert b"boot success" in said, (folder / "log").read_text()
        scene = Scene(Spawned(address))  # type: ignore[arg-type]  # what a scene needs of a controller
        life.push_async_callback(scene.close)
        self.scenes[f"n{number}"] = scene
        self._processes[f"n{number}"] = process
        return scene

    async def stop(self, name: str) -> None:
        del self.scenes[name]
        await self._lives.pop(name).aclose()

    async def close(self) -> None:
        for name in [*self._lives]:
            await self.stop(name)

    async def leader(self, *, not_: str = "") -> Scene:
        """The controller that leads, once it does and all others know it."""
        found: list[str] = []

        async def agreed() -> bool:
            told = {name: await metadata(scene) for name, scene in self.scenes.items()}
            found[:] = [name for name, said in told.items() if said["isLeader"] == "true"]
            return (
                len(found) == 1
                and found[0] != not_
                and {said.get("controllerLeaderId") for said in told.values()} == {found[0]}
            )

        await until(agreed, "one controller leads")
        return self.scenes[found[0]]

    def process_of(self, scene: Scene) -> subprocess.Popen[bytes]:
        return self._processes[self.name_of(scene)]

    def name_of(self, scene: Scene) -> str:
        return next(name for name, known in self.scenes.items() if known is scene)


@dataclass
class Spawned:
    """A controller that is a process."""

    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(TOO_LONG)
    assert process.stdout is not None
    process.stdout.close()


@contextlib.asynccontextmanager
async def controllers(
    folder: Path, ways: list[str], *sets: str, group: str = "group1", processes: bool = False
) -> AsyncIterator[Controllers]:
    """One controller for each way to etcd."""
    made = Controllers(folder, group, ways, sets)
    try:
        await asyncio.gather(*((made.spawn if processes else made.start)(number) for number in range(len(ways))))
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def way_to(cluster: Cluster) -> AsyncIterator[Way]:
    """Proxies before all members, so that one controller can be cut off."""
    async with contextlib.AsyncExitStack() as life:
        yield Way([await life.enter_async_context(Proxy(member.address)) for member in cluster.members])


@dataclass
class Way:
    proxies: list[Proxy]

    @property
    def endpoints(self) -> str:
        return ";".join(proxy.address for proxy in self.proxies)

    def pause(self) -> None:
        for proxy in self.proxies:
            proxy.pause()

    def resume(self) -> None:
        for proxy in self.proxies:
            proxy.resume()

    def delay(self, seconds: float) -> None:
        for proxy in self.proxies:
            proxy.delay(seconds)


async def metadata(scene: Scene) -> dict[str, str]:
    reply = await scene.call(1005)
    assert reply.code == 0
    ext: dict[str, str] = reply.ext
    return ext


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(TOO_LONG):
            while True:
                held = holds()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
