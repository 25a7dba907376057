"""What the crash tests of replication share: a load that notes what it was promised, and a look at both logs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, RequestTimeout
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import SendMessageV2
from pyromq.protocol.record import decode_record
from pyromq.store.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.broker.life_kit import Peer

TOPIC = "T"
SENDERS = 8
ANSWERED_WITHIN = 30.0
CAUGHT_UP_WITHIN = 60.0
FILLER = b"x"


async def sent(client: Peer, address: str, queue_id: int, body: bytes) -> int | None:
    """The code that a message is answered with; None if the master is gone. One that is there must answer."""
    header = SendMessageV2("producers", TOPIC, "TBW102", 4, queue_id, 0, 1, 0)
    request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
    try:
        return (await client.invoke(address, request, ANSWERED_WITHIN)).code
    except RequestTimeout:
        raise
    except PyroMQError:
        return None


class Load:
    """Sends messages, and notes those that were answered with 0: they are on two brokers."""

    def __init__(self, client: Peer, address: str, prefix: str) -> None:
        self._client = client
        self._address = address
        self._prefix = prefix
        self._number = 0
        self._is_running = True
        self._counts = True
        self.acknowledged: set[bytes] = set()
        self.answers: Counter[int] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._send(queue_id) for queue_id in range(SENDERS)))

    def end(self) -> None:
        """Send nothing more."""
        self._is_running = False

    def master_is_gone(self) -> None:
        """What is answered from now on was never said: the master has lost its power."""
        self._counts = False
        self._is_running = False

    async def _send(self, queue_id: int) -> None:
        while self._is_running:
            self._number += 1
            key = f"{self._prefix}-{self._number}-".encode()
            code = await sent(self._client, self._address, queue_id % 4, key + FILLER * (self._number % 700))
            if not self._counts:
                return
            if code is not None:
                self.answers[code] += 1
            if code == 0:
                self.acknowledged.add(key)
            else:
                # Nobody is there, or it is stored and nobody promised a second copy (11, 12).
                await asyncio.sleep(0.01)


async def caught_up(client: Peer, address: str) -> None:
    """Wait until a message is answered with 0: the slave has all that came before it."""
    async with asyncio.timeout(CAUGHT_UP_WITHIN):
        while await sent(client, address, 0, b"are you there?") != 0:  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.05)


class Logs:
    """The logs of a master and a slave, as they are in their files."""

    def __init__(self, master: Path, slave: Path) -> None:
        self._folders = {"master": master / "commitlog", "slave": slave / "commitlog"}
        self._seen = 0  # files that begin before were compared by an earlier `agree`

    async def agree(self, acknowledged: set[bytes]) -> set[bytes]:
        """Wait until both are equal, byte for byte; gives what was acknowledged since the last time and is not there.

        A slave that began anew has no older files, and the master's are looked at alone.
        """
        async with asyncio.timeout(CAUGHT_UP_WITHIN):
            while (unlike := self._unlike()) is not None:
                try:
                    await asyncio.sleep(0.05)  # masters also write on their own
                except asyncio.CancelledError as exc:
                    exc.add_note(f"the logs differ from {unlike} on")
                    raise
        files = self._files("master", self._seen)
        missing = acknowledged - {key for start, data in files.items() for key in _keys(start, data)}
        self._seen = max(files, default=0)
        return missing

    async def agree_all(self, acknowledged: set[bytes]) -> set[bytes]:
        """As `agree`, of all there ever was."""
        self._seen = 0
        return await self.agree(acknowledged)

    def first(self, name: str) -> int:
        return min(self._files(name, 0), default=0)

    def differ_before(self, end: int) -> bool:
        """Whether the log of the slave, which ends at `end`, is not the beginning of the master's."""
        master, slave = self._files("master", 0), self._files("slave", 0)
        return any(data[: end - start] != master.get(start, b"")[: end - start] for start, data in slave.items())

    def _unlike(self) -> int | None:
        """Where the logs differ, as far as the slave has files."""
        master, slave = self._files("master", self._seen), self._files("slave", self._seen)
        for start in sorted(master.keys() | slave.keys()):
            ours, theirs = master.get(start, b""), slave.get(start, b"")
            if ours != theirs and (theirs or start > min(slave, default=0)):
                return start + next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
        return None if slave else 0

    def _files(self, name: str, since: int) -> dict[int, bytes]:
        """The files by their first offset, without those that were made in advance."""
        paths = [path for path in self._folders[name].iterdir() if int(path.name) >= since]
        files = {int(path.name): path.read_bytes() for path in sorted(paths)}
        return {start: data for start, data in files.items() if any(data)}


def _keys(start: int, data: bytes) -> Iterator[bytes]:
    for record in scan(data, 0, start, check_crc=True):
        at = record.physical_offset - start
        yield decode_record(data[at : at + record.size]).body.rstrip(FILLER)
