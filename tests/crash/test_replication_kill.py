"""A master and its slave, killed at random under load: what was answered with 0 is on both, and both logs agree."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import pytest
from tests.crash.lives import SMALL, chances
from tests.integration.broker.command_kit import line_with, started, stop
from tests.integration.broker.life_kit import Peer, new_name_server
from tests.ports import free_port

from pyromq.errors import PyroMQError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import SendMessageV2
from pyromq.protocol.record import decode_record
from pyromq.store.scan import scan

if TYPE_CHECKING:
    import random
    import subprocess
    from pathlib import Path

    from tests.crash.conftest import Tally

TOPIC = "T"
CAUGHT_UP_WITHIN = 60.0
FILE_SIZE = 256 << 10


class Pair:
    """A master and a slave in folders of their own, started and killed one by one."""

    def __init__(self, home: Path, namesrv: str, flush: str) -> None:
        self._home = home
        self._ports = {"master": free_port(), "slave": free_port()}
        roles = {"master": ["brokerRole=SYNC_MASTER"], "slave": ["brokerRole=SLAVE", "brokerId=1"]}
        self._settings = {
            name: [*SMALL, *role, "brokerName=pair", f"namesrvAddr={namesrv}", f"flushDiskType={flush}"]
            for name, role in roles.items()
        }
        self._lives: dict[str, contextlib.ExitStack] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports['master']}"

    async def start(self, name: str) -> None:
        place = [f"storePathRootDir={self._home / name}", f"listenPort={self._ports[name]}"]
        local = ["brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1"]
        life = self._lives[name] = contextlib.ExitStack()
        arguments = ["broker", "--log-level", "error", *place, *local, *self._settings[name]]
        process = self.processes[name] = life.enter_context(started(self._home, *arguments))
        await asyncio.to_thread(line_with, process, "boot success")

    async def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.processes[name].wait)
        self._lives.pop(name).close()

    async def stop(self, name: str) -> None:
        code, _, err = await asyncio.to_thread(stop, self.processes[name], signal.SIGTERM)
        self._lives.pop(name).close()
        assert code == 0, err

    def log(self, name: str) -> dict[str, bytes]:
        folder = self._home / name / "commitlog"
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def bodies(self, name: str) -> set[bytes]:
        """The bodies of all messages in the log of a broker that has stopped."""
        found = set()
        for file, data in self.log(name).items():
            for record in scan(data, 0, int(file), check_crc=True):
                at = record.physical_offset - int(file)
                found.add(decode_record(data[at : at + record.size]).body)
        return found


class Load:
    """Sends messages and notes which were answered with 0: they are on two brokers."""

    def __init__(self, client: Peer, address: str, prefix: str) -> None:
        self._client = client
        self._address = address
        self._prefix = prefix
        self._number = 0
        self.acknowledged: set[bytes] = set()
        self.running = True

    async def run(self) -> None:
        await asyncio.gather(*(self._send(queue_id) for queue_id in range(16)))

    async def _send(self, queue_id: int) -> None:
        while self.running:
            self._number += 1
            body = f"{self._prefix}-{self._number}".encode() + b"x" * (self._number % 700)
            header = SendMessageV2("producers", TOPIC, "TBW102", 4, queue_id % 4, 0, 1, 0)
            try:
                reply = await self._client.invoke(
                    self._address, Command.request(RequestCode.SEND_MESSAGE_V2, header, body), 10
                )
            except PyroMQError:
                await asyncio.sleep(0.02)
                continue
            if reply.code == 0:
                self.acknowledged.add(body)
            else:
                await asyncio.sleep(0.01)  # 11 or 12: it is stored, and nobody promised a second copy


async def caught_up(client: Peer, pair: Pair) -> None:
    """Wait until a message is answered with 0: the slave has all that came before it."""
    header = SendMessageV2("producers", TOPIC, "TBW102", 4, 0, 0, 1, 0)
    async with asyncio.timeout(CAUGHT_UP_WITHIN):
        while True:
            with contextlib.suppress(PyroMQError):
                request = Command.request(RequestCode.SEND_MESSAGE_V2, header, b"are you there?")
                if (await client.invoke(pair.address, request, 10)).code == 0:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.crash
async def test_what_two_brokers_promised_both_have_whoever_is_killed(
    tmp_path: Path, rounds: int, seed: int, tally: Tally
) -> None:
    acknowledged: set[bytes] = set()
    async with new_name_server(tmp_path) as name_server, Peer() as client:
        pair = Pair(tmp_path, f"127.0.0.1:{name_server.port}", "ASYNC_FLUSH" if seed % 2 else "SYNC_FLUSH")
        await pair.start("master")
        await pair.start("slave")
        await caught_up(client, pair)
        for number in range(rounds):
            with chances(seed, number) as chance:
                acknowledged |= await one_round(client, pair, f"{seed}-{number}", chance, tally)
        await caught_up(client, pair)
        await pair.stop("master")
        await pair.stop("slave")
    missing = {name: len(acknowledged - pair.bodies(name)) for name in ("master", "slave")}
    tally.add("acknowledged", len(acknowledged))
    tally.add("missing", sum(missing.values()))
    assert missing == {"master": 0, "slave": 0}
    assert pair.log("slave") == pair.log("master")


async def one_round(client: Peer, pair: Pair, prefix: str, chance: random.Random, tally: Tally) -> set[bytes]:
    """Kill one of the two, or both, under load, and let them find together again."""
    load = Load(client, pair.address, prefix)
    working = asyncio.create_task(load.run())
    await asyncio.sleep(chance.random())
    victims = chance.choice((["master"], ["slave"], ["slave"], ["master", "slave"], ["slave", "master"]))
    for victim in victims:
        await pair.kill(victim)
        tally.add(f"kills of the {victim}")
    load.running = len(victims) == 1 and victims[0] == "slave" and chance.random() < 0.5
    for victim in victims:
        await pair.start(victim)
    load.running = False
    await working
    await caught_up(client, pair)
    return load.acknowledged
