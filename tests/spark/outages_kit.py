"""A name server and a broker that come and go, each by itself, with the same ports and the same files."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tests.ports import free_port

from pyromq import broker, namesrv
from pyromq.sync import AdminClient, Producer

if TYPE_CHECKING:
    from pathlib import Path


class Server:
    """A server in a thread of its own, that can be stopped and started again with the same port and the same files."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started: Future[None] = Future()

        async def live() -> None:
            self._loop = asyncio.get_running_loop()
            self._ended = asyncio.Event()
            async with self._make():
                started.set_result(None)
                await self._ended.wait()

        def work() -> None:
            try:
                asyncio.run(live())
            except BaseException as exc:
                if started.done():
                    raise
                started.set_exception(exc)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        started.result(60)

    def stop(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()
            self._thread = None


class Pair:
    """A name server and a broker, each with a life of its own."""

    def __init__(self, folder: Path) -> None:
        first, second = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{first}"
        of_name_server = (
            "bindAddress=127.0.0.1",
            f"listenPort={first}",
            f"kvConfigPath={folder / 'kvConfig.json'}",
            f"configStorePath={folder / 'namesrv.properties'}",
        )
        of_broker = (
            "bindAddress=127.0.0.1",
            f"listenPort={second}",
            "brokerIP1=127.0.0.1",
            "brokerName=broker-a",
            f"storePathRootDir={folder / 'store'}",
            f"brokerConfigPath={folder / 'broker.properties'}",
            "mappedFileSizeCommitLog=64m",
            "drainSeconds=0",
            "registerNameServerPeriod=10000",
            "brokerFastFailureEnable=false",
        )
        self.name_server = Server(
            lambda: namesrv.NameServer(namesrv.load_settings(environ={}, sets=list(of_name_server)))
        )
        self.broker = Server(
            lambda: broker.Broker(broker.load_settings(environ={}, sets=list(of_broker), namesrv_addr=self.namesrv))
        )

    def send(self, topic: str, numbers: range) -> None:
        with Producer("tests", namesrv=self.namesrv) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number, timeout=20.0)


def is_answering(pair: Pair, topic: str) -> bool:
    from pyromq.errors import PyroMQError

    try:
        with AdminClient(pair.namesrv) as admin:
            return bool(admin.topics.stats(topic))
    except PyroMQError:
        return False
