"""Masters and slaves as processes of their own: pairs of ours, of Apache 5.5.0 and of 4.9.7 in one run."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.interop import wire
from tests.interop.peers import NameServer
from tests.interop.process import PeerFailed

from . import broker_frames as frames
from .broker_peers import APACHE, APACHE_4, OURS, Peer, scratch, spawn
from .broker_rounds import ROUNDS, stored, too_short, warm_seconds
from .broker_table import progress
from .load import drive, drive_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAKES = (OURS, APACHE, APACHE_4)
BODY = 1024
# Up to nine brokers live at once, so each JVM gets a heap that lets the log stay in the page cache.
HEAP = "2g"
TOPIC, QUEUES = frames.TOPIC, 4
PROBE_QUEUE = QUEUES - 1  # the load goes to another
FOLLOWS_WITHIN = 60.0
SETTLE = 1.0  # seconds in which a JVM makes up for what it should have done while it stood still


@dataclass(frozen=True, slots=True)
class Group:
    """A master, and its slave if it has one."""

    home: Path
    master: Peer
    slave: Peer | None = None

    @property
    def make(self) -> str:
        return self.master.make

    @property
    def peers(self) -> list[Peer]:
        return [self.master] if self.slave is None else [self.master, self.slave]

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Run while the others stand still: an idle JVM takes a tenth of a core, and there are many of them."""
        for peer in self.peers:
            os.kill(peer.process.pid, signal.SIGCONT)
        try:
            time.sleep(SETTLE)
            wait_until_followed(self)
            yield
            wait_until_followed(self)
        finally:
            self.pause()

    def pause(self) -> None:
        for peer in self.peers:
            os.kill(peer.process.pid, signal.SIGSTOP)


def rounds(seconds: float) -> int:
    return 1 if too_short(seconds) else ROUNDS


def role(name: str) -> dict[str, Any]:
    """Settings of a master or a slave. `inSyncReplicas`: without it a SYNC_MASTER of 5.5.0 waits for nobody."""
    settings: dict[str, Any] = {"brokerName": "pair", "brokerRole": name, "brokerIP2": "127.0.0.1"}
    if name == "SLAVE":
        settings["brokerId"] = 1
    if name == "SYNC_MASTER":
        settings["inSyncReplicas"] = 2
    return settings


@contextlib.contextmanager
def groups(master_role: str, makes: Sequence[tuple[str, bool]]) -> Iterator[list[Group]]:
    """Groups that serve and stand still, one for each make; True gives it a slave. Each has a name server of its own.

    Masters first: a slave asks the name server only twice a minute who its master is.
    """
    with scratch() as home, contextlib.ExitStack() as stack:
        progress(
            f"starting {', '.join(f'{make} with slave' if slave else make for make, slave in makes)}, {master_role}"
        )
        started = []
        for number, (make, has_slave) in enumerate(makes):
            namesrv = stack.enter_context(NameServer("ours", home / f"namesrv-{number}"))
            folder = home / f"group-{number}"
            master = spawn(make, folder / "master", namesrv.address, memory=HEAP, **role(master_role))
            stack.enter_context(ending(master))
            started.append((folder, master, has_slave))
        for _, master, _ in started:
            master.wait_until_booted()
        found = [
            Group(folder, master, stack.enter_context(slave_of(master, folder / "slave")) if has_slave else None)
            for folder, master, has_slave in started
        ]
        for group in found:
            if group.slave is not None:
                group.slave.wait_until_booted()
            with wire.Connection(group.master.address) as connection:
                wire.create_topic(connection, TOPIC, QUEUES)
            wait_until_followed(group)
            group.pause()
        yield found


@contextlib.contextmanager
def slave_of(master: Peer, home: Path) -> Iterator[Peer]:
    """An empty slave, without waiting for it."""
    slave = spawn(master.make, home, master.namesrv, memory=HEAP, **role("SLAVE"))
    with ending(slave):
        yield slave


@contextlib.contextmanager
def ending(peer: Peer) -> Iterator[None]:
    """Ends a broker without waiting for its last words: its files are thrown away, and it may stand still."""
    try:
        yield
    finally:
        peer.process.kill()


def wait_until_followed(group: Group) -> None:
    """Until a message is acknowledged in full and the slave has it: what follows is measured with both at work."""
    deadline = time.monotonic() + FOLLOWS_WITHIN
    slave, is_acknowledged = group.slave or group.master, False
    while not is_acknowledged or not _has_all(slave, group.master):
        if time.monotonic() > deadline:
            raise PeerFailed(f"the slave of {group.make} does not follow; see {group.home}")
        time.sleep(0.05)
        if not is_acknowledged:
            is_acknowledged = frames.ask(group.master.port, frames.send(BODY, queue=PROBE_QUEUE)).code == 0


def _has_all(slave: Peer, master: Peer) -> bool:
    return all(held(slave, queue) >= held(master, queue) for queue in (PROBE_QUEUE, frames.QUEUE))


def warm(group: Group, seconds: float) -> None:
    """Full load for a while: a JVM compiles what it does often, and ours loads what it needs for many messages."""
    with group.turn():
        drive(group.master.port, frames.send(BODY), 4, 64, seconds if group.make == OURS else warm_seconds(seconds))


def held(peer: Peer, queue: int = frames.QUEUE) -> int:
    """How many messages a queue of the load has at a broker, each entered into it."""
    return stored(peer.address, [(TOPIC, queue)])


def record_size(peer: Peer) -> int:
    """Bytes that a message of the load takes in the log: a pull brings records as they lie there."""
    return len(frames.ask(peer.port, frames.pull(TOPIC, frames.QUEUE, 0, 1)).body_bytes)


def fill(peer: Peer, count: int) -> None:
    drive_count(peer.port, frames.send(BODY), 4, 64, count)
