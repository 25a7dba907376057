"""A broker, ours or Apache's, at which our clients and official ones meet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tests.interop import wire
from tests.interop.apache_with_client import Apache
from tests.interop.drivers import Driver
from tests.interop.pyromq_up import PyroMQ

from pyromq.client import Client, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OURS, APACHE = "ours", "apache-5.5.0"
MAKES = (OURS, APACHE)
JAVA = ("5.5.0", "4.9.8")
ROOM = "room"  # the strategy MACHINE_ROOM reads it out of the broker's name
NAME = f"{ROOM}@one"


class Meeting:
    """A running broker with its name server. The official clients are started when they are first asked for."""

    def __init__(self, namesrv: str, address: str, home: Path) -> None:
        self.namesrv = namesrv
        self._address = address
        self._home = home
        self._drivers: dict[str, Driver] = {}

    def java(self, version: str) -> Driver:
        if version not in self._drivers:
            home = self._home / f"java-{version}"
            self._drivers[version] = Driver(f"java-{version}", home, self.namesrv).__enter__()
        return self._drivers[version]

    def client(self, **settings: Any) -> Client:
        """A client that looks for new topics and commits its progress more often than by default."""
        return Client(self.namesrv, **({"route_interval": 0.5, "offset_interval": 0.2} | settings))

    def queues(self, topic: str, count: int) -> list[MessageQueue]:
        return [MessageQueue(broker_name=NAME, queue_id=queue_id, topic=topic) for queue_id in range(count)]

    async def create_topic(self, topic: str, queues: int) -> None:
        def create() -> None:
            with wire.Connection(self._address) as connection:
                wire.create_topic(connection, topic, queues)

        await asyncio.to_thread(create)

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.__exit__()


@contextlib.contextmanager
def meeting_at(make: str, home: Path) -> Iterator[Meeting]:
    with contextlib.ExitStack() as running:
        if make == OURS:
            up = running.enter_context(PyroMQ(home / "up", brokerName=NAME, enablePropertyFilter="true"))
            meeting = Meeting(up.namesrv, up.address, home)
        else:
            apache = running.enter_context(Apache(make.removeprefix("apache-"), home / make, name=NAME))
            meeting = Meeting(apache.namesrv, apache.broker.address, home)
        running.callback(meeting.close)
        yield meeting
