"""An etcd of three members behind proxies, for groups with three controllers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from tests.chaos.server import BOOTED_WITHIN, Server

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyromq.testing import Proxy

# A member is missed after a second: soon, and yet a busy machine is no reason for an election.
QUICK = ("--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error")
_PATIENCE = 30.0  # seconds
NEW = ("--initial-cluster-state", "new", "--initial-cluster-token", "chaos")


class EtcdMember(Server):
    """One process of etcd. It says nothing when it is ready: it is once it takes connections."""

    def __init__(self, home: Path, number: int, ports: tuple[int, int], peers: Proxy, cluster: str) -> None:
        client, peer = ports
        self.port = client
        self.peers = peers
        name = f"etcd-{number}"
        here = f"http://127.0.0.1:{client}"
        command = ["etcd", "--name", name, "--data-dir", str(home / name), *QUICK, *NEW, "--initial-cluster", cluster]
        command += ["--listen-client-urls", here, "--advertise-client-urls", here]
        command += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
        command += ["--initial-advertise-peer-urls", f"http://{peers.address}"]
        super().__init__(home, name, command)

    def _booted(self, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + BOOTED_WITHIN
        while process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError(f"{self.name} did not start: {self.last_words()}")

    async def stop(self) -> None:
        """Stop it as operators do. It ends by the signal."""
        self.signal(signal.SIGTERM)
        code = await self.died()
        assert code in (0, -signal.SIGTERM), f"{self.name} ended with {code}: {self.last_words()}"

    def ask(self, path: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """What it answers; None if it does not."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v3/{path}", json.dumps(asked).encode())
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(request, timeout=1) as reply:
            found: dict[str, Any] = json.load(reply)
            return found
        return None


class Etcd:
    """The members, and what they know."""

    def __init__(self, members: list[EtcdMember], key: str) -> None:
        self.members = members
        self._key = b64encode(key.encode()).decode()
        self._chosen: dict[int, str] = {}
        self._read = 0  # the revision up to which `_chosen` is complete

    async def leader(self) -> EtcdMember | None:
        """The member that leads; None if nobody says so."""
        for member in self.members:
            said = await asyncio.to_thread(member.ask, "maintenance/status", {})
            if said is not None and said["header"]["member_id"] == said.get("leader"):
                return member
        return None

    async def masters(self) -> dict[int, str]:
        """The addresses of the masters by epoch, by every value that the key of the group ever had."""
        return await asyncio.to_thread(self._masters)

    def _masters(self) -> dict[int, str]:
        newest = revision = 0
        while True:
            found = self._find(revision)
            kvs = found.get("kvs")
            if not kvs:
                break
            changed = int(kvs[0]["mod_revision"])
            newest = newest or changed
            if changed <= self._read:
                break
            group = json.loads(b64decode(kvs[0]["value"]))["group"]
            if group.get("master") is not None:
                address = group["members"][str(group["master"])]["address"]
                before = self._chosen.setdefault(group["masterEpoch"], address)
                assert before == address, f"epoch {group['masterEpoch']} has two masters: {before} and {address}"
            revision = changed - 1
        self._read = max(self._read, newest)
        return self._chosen

    def _find(self, revision: int) -> dict[str, Any]:
        # After a fault the members may still be choosing their leader, on a busy machine for a while.
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            for member in self.members:
                found = member.ask("kv/range", {"key": self._key, "revision": str(revision)})
                if found is not None:
                    return found
            time.sleep(0.2)
        raise AssertionError(f"no member of etcd answers within {_PATIENCE:g} s")
