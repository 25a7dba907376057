"""A cluster inside this process: a name server and a broker on free ports, for tests, demos and notebooks.

async with Cluster() as cluster, Producer("orders", namesrv=cluster.namesrv) as producer:
    await producer.send("orders", b"hello")

with running_cluster() as cluster:  # in a thread of its own, for programs without an event loop
    ...
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyromq import broker, namesrv
from pyromq.auth.config import inner_credentials
from pyromq.client import Credentials
from pyromq.namesrv import config as namesrv_config
from pyromq.remoting import TlsConfig, run
from pyromq.settings import options_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyromq.settings import Settings

# Whoever wants to try TLS need not make certificates first.
_TLS = "tls.test.mode.enable=true"
# Settings for a short-lived cluster: small files, a quick stop.
_SETTINGS = (
    _TLS,
    "mappedFileSizeCommitLog=64m",
    "traceTopicEnable=true",
    "drainSeconds=0",
    # A test may hold up the loop it shares with the broker; that is not overload.
    "brokerFastFailureEnable=false",
)


class Cluster:
    """A name server and the broker `broker-a`, reachable from this machine only.

    Without a `folder` its messages are deleted with it. `settings` are `"key=value"` lines as in broker.conf, and
    override a small cluster's defaults. Those that name servers have, too, are for both: TLS and access control, say.

    `client_settings` are keyword arguments for clients that may do anything: `tls`, and as `credentials` those of
    innerClientAuthenticationCredentials.
    """

    def __init__(self, folder: Path | None = None, *settings: str) -> None:
        self._given = folder
        self._settings = settings
        self._life = contextlib.AsyncExitStack()
        self.namesrv = ""  # the address to point clients at, once it runs
        self.folder: Path  # where it keeps everything
        self.broker: broker.Broker
        self.client_settings: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as life:
            folder = self.folder = self._given or Path(
                life.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-"))
            )
            folder.mkdir(parents=True, exist_ok=True)
            here = ("bindAddress=127.0.0.1", "listenPort=0")
            kept = (f"kvConfigPath={folder / 'kvConfig.json'}", f"configStorePath={folder / 'namesrv.properties'}")
            of_name_server = namesrv.load_settings(
                environ={}, sets=[_TLS, *_of_name_servers(self._settings), *here, *kept]
            )
            name_server = await life.enter_async_context(namesrv.NameServer(of_name_server))
            of_broker = [
                *(*here, "brokerIP1=127.0.0.1", "brokerName=broker-a", "brokerClusterName=DefaultCluster"),
                *(f"storePathRootDir={folder / 'broker-a'}", f"brokerConfigPath={folder / 'broker.properties'}"),
                *(*_SETTINGS, *self._settings),
            ]
            settings = broker.load_settings(environ={}, sets=of_broker, namesrv_addr=name_server.address)
            self.client_settings = _for_clients(settings)
            self.broker = await life.enter_async_context(broker.Broker(settings))
            self.namesrv = name_server.address
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._life.aclose()


def _of_name_servers(settings: Iterable[str]) -> list[str]:
    known = {option.key for config in namesrv_config.CONFIGS for option in options_of(config)}
    return [each for each in settings if each.partition("=")[0].strip() in known]


def _for_clients(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (inner := inner_credentials(settings)) is not None:
        found["credentials"] = Credentials(inner.access_key, inner.secret_key, inner.security_token or None)
    if settings[TlsConfig].client_enable:
        found["tls"] = settings[TlsConfig]
    return found


@contextlib.contextmanager
def running_cluster(folder: Path | None = None, *settings: str) -> Iterator[Cluster]:
    """A cluster that runs in its own thread until the block ends."""
    cluster = Cluster(folder, *settings)
    started = threading.Event()
    failures: list[BaseException] = []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def life() -> None:
        async with cluster:
            ended = asyncio.Event()
            stop.append((asyncio.get_running_loop(), ended))
            started.set()
            await ended.wait()

    def work() -> None:
        try:
            run(life())
        except BaseException as exc:  # raised where the start or the end is awaited
            failures.append(exc)
        finally:
            started.set()

    thread = threading.Thread(target=work, name="pyromq cluster", daemon=True)
    thread.start()
    started.wait()
    try:
        if not failures:
            yield cluster
    finally:
        for loop, ended in stop:
            with contextlib.suppress(RuntimeError):  # it ended on its own
                loop.call_soon_threadsafe(ended.set)
        thread.join()
    if failures:
        raise failures[0]
