"""An Apache name server and broker of one version, with an official client beside them, for the tests of our client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from tests.interop import wire
from tests.interop.apache import Admin, Broker
from tests.interop.drivers import Driver
from tests.interop.peers import NameServer
from tests.interop.process import wait_until

from pyromq.client import AdminClient, Client, MessageQueue
from pyromq.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path

REGISTERED_WITHIN = 30.0
# The broker's table: a client only sends the number of a level. A retry takes the third and then the ones behind it.
LEVEL_OF_A_SECOND, LEVEL_OF_TEN_SECONDS = 1, 2
DELAY_LEVELS = " ".join(["1s", "10s", "1s", *["0s"] * 15])
SETTINGS: dict[str, Any] = {
    "messageDelayLevel": DELAY_LEVELS,
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    # A half message is asked about after a second, not after a minute.
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    # 5.x writes decisions down together every 3 s, and asks about what was decided in between.
    "transactionOpBatchInterval": 100,
    # Off by default in 5.x, unknown in 4.9.
    "recallMessageEnable": "true",
    # How often the broker looks for files that are too old, for the first time a minute after its start.
    "cleanResourceInterval": 1000,
}
JAVA_CLIENTS = {"4.9.7": "java-4.9.8", "5.5.0": "java-5.5.0"}


class Apache:
    """Both of one version. The broker keeps its port and its files when it is started again."""

    def __init__(self, version: str, home: Path, *, name: str = "", **settings: Any) -> None:
        self.version = version
        self._home = home
        self._settings = SETTINGS | settings
        self._name = name or f"broker-{version}"
        self._namesrv = NameServer(f"apache-{version}", home / "namesrv")
        self._broker: Broker | None = None
        self._java: Driver | None = None
        self._admin: Admin | None = None

    def __enter__(self) -> Self:
        self._namesrv.start()
        try:
            self.spawn_broker()
            self.wait_for_broker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._java is not None:
            self._java.__exit__()
        if self._broker is not None:
            self._broker.process.kill()
        self._namesrv.stop()

    @property
    def namesrv(self) -> str:
        return self._namesrv.address

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    @property
    def java(self) -> Driver:
        """The official client of the broker's line, started when it is first asked for."""
        if self._java is None:
            self._java = Driver(JAVA_CLIENTS[self.version], self._home / "java", self.namesrv).__enter__()
        return self._java

    @property
    def java_home(self) -> Path:
        """What the official client takes for the user's folder."""
        return self._home / "java"

    @property
    def mqadmin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.version, self._home / "admin", self.namesrv)
        return self._admin

    def spawn_broker(self) -> None:
        """Start it and do not wait for it. For the main thread: a process ends with the thread that started it."""
        port = self._broker.port if self._broker else 0
        home = self._home / "broker"
        self._broker = Broker(self.version, home, self.namesrv, name=self._name, port=port, **self._settings)

    def wait_for_broker(self) -> None:
        """Wait until the name server knows the broker and where new topics may go."""
        self.broker.wait_until_booted()
        address = self.broker.address

        def known() -> bool:
            return wire.route(self.namesrv, "TBW102").get(self._name, ("",))[0] == address

        wait_until(known, REGISTERED_WITHIN, f"{self._namesrv.make} knows {self._name}")

    def kill_broker(self) -> None:
        self.broker.process.kill()

    def queue(self, topic: str, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(broker_name=self._name, queue_id=queue_id, topic=topic)

    def client(self, **settings: Any) -> Client:
        """A client that looks for new topics and commits its progress more often than by default."""
        return Client(self.namesrv, **({"route_interval": 0.5, "offset_interval": 0.2} | settings))

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        async with AdminClient(self.namesrv) as admin:
            await admin.topics.create(topic, brokers=self._name, read_queues=queues, write_queues=queues)

    async def ask_java(self, command: str, **options: object) -> list[str]:
        """Have the official client do something while our event loop goes on."""
        return await asyncio.to_thread(self.java.do, command, **options)

    async def java_got(self, consumer: str, bodies: set[str], seconds: float) -> None:
        await asyncio.to_thread(self.java.wait_for_bodies, consumer, bodies, seconds)

    async def run_mqadmin(self, *commands: str) -> list[str]:
        """What mqadmin prints. It prints exceptions, too, and ends well in any case."""
        said = await asyncio.to_thread(self.mqadmin.run, *commands)
        for command, text in zip(commands, said, strict=True):
            assert "Exception" not in text.replace("exceptionDesc=null", ""), f"{command}\n{text}"
        return said


async def committed(admin: AdminClient, group: str, queue: MessageQueue) -> int | None:
    """What a group has committed of a queue; None if it never did."""
    try:
        return await admin.offsets.committed(group, queue)
    except BrokerError:
        return None
