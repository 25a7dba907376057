"""A master dies or falls silent: how long until the other takes messages, ours next to Apache's with equal time-outs.

A pair under a controller in a name server, both of one make. After the signal the other broker is sent a message again
and again, by bare requests: no client, no route. Ours runs with the time-outs of 5.5.0 here, ten times the heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any

from tests.interop import wire
from tests.interop.failover_group import APACHE, TOPIC, group_under
from tests.interop.peers import OURS
from tests.interop.process import PeerFailed

from .broker_peers import scratch
from .broker_table import progress, show

if TYPE_CHECKING:
    from tests.interop.failover_group import Group

# Kills and stops of each make. A round of 5.5.0 takes half a minute: a slave that returns asks twice a minute.
ROUNDS = {OURS: (20, 5), APACHE: (5, 3)}
QUICK = 2.0  # seconds per round below which this is only a look
PATIENCE = 60.0
EVERY = 0.01  # seconds between two attempts
# What 5.5.0 has by default. Its brokers send a heartbeat each second, its controllers wait for ten of them.
CONTROLLER = {"scanNotActiveBrokerInterval": 5_000}
BROKER = {
    "brokerHeartbeatInterval": 1_000,
    "controllerHeartBeatTimeoutMills": 10_000,
    "checkSyncStateSetPeriod": 5_000,
}


def main(seconds: float) -> None:
    rows: list[tuple[object, ...]] = []
    for make in (OURS, APACHE):
        kills, stops = ROUNDS[make] if seconds > QUICK else (2, 1)
        with scratch() as home, group_under(make, home, **CONTROLLER) as group:
            group.add(make, **BROKER)
            group.create_topic()
            group.add(make, **BROKER)
            for number, count in ((signal.SIGKILL, kills), (signal.SIGSTOP, stops)):
                times = [_taken_over(group, number) for _ in range(count)]
                rows.append((number.name, make, count, statistics.median(times), max(times)))
    columns = ("", "", "rounds", "median s", "worst s")
    show("From a signal to the master to the first message that the other accepts, equal time-outs", columns, rows)


def _taken_over(group: Group, number: signal.Signals) -> float:
    both = sorted(group.replicas)
    group.wait_for("both are in sync", PATIENCE, set=both)
    old = group.state["master"]
    [new] = [each for each in both if each != old]
    group.send(1)
    began = time.monotonic()
    os.kill(group.replicas[old].process.pid, number)
    while not _takes(group.replicas[new].address):
        if time.monotonic() > began + PATIENCE:
            raise PeerFailed(f"broker {new} did not take over; see {group.home}")
        time.sleep(EVERY)
    taken = time.monotonic() - began
    progress(f"{number.name}: {group.replicas[new].make} {taken:.2f} s")
    if number is signal.SIGSTOP:
        os.kill(group.replicas[old].process.pid, signal.SIGCONT)
    else:
        group.replicas[old].process.kill()  # reaps it
        group.replicas[old].start()
    return taken


def _takes(address: str) -> bool:
    fields: dict[str, Any] = wire.message(TOPIC, 0)
    with contextlib.suppress(OSError), wire.Connection(address) as connection:
        return connection.ask(wire.SEND_MESSAGE, b"x" * 1000, **fields).code == 0
    return False
