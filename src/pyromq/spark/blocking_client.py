"""A client for blocking code: it has its own event loop, which runs only while a caller waits.

Spark calls a reader from one thread. Between calls nothing of ours runs: what arrives meanwhile stays in the socket. So
there is no thread to end, and an abandoned reader leaves nothing behind. (Only a reading task has a thread, which
then does the waiting: `read_ahead.py`.)
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from pyromq.client import Client
from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from .options import ConnectionOptions

T = TypeVar("T")


class Reach:
    """A client, what users call its queues, and where brokers are to be reached."""

    def __init__(self, client: Client, mapped: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.namespace = client.namespace
        self._mapped = mapped or {}

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers call it, with the namespace in front of the topic."""
        return replace(queue, topic=self.namespace.wrap(queue.topic)) if self.namespace.name else queue

    def for_user(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the user calls it."""
        return replace(queue, topic=self.namespace.unwrap(queue.topic)) if self.namespace.name else queue

    def reached_at(self, advertised: str) -> str:
        """Where to reach the broker that advertises this address (`brokerAddressMap`)."""
        return self._mapped.get(advertised, advertised)

    def replica(self, broker_name: str, broker_id: int = 0, *, only_this: bool = False) -> str | None:
        """An address to read from: that of this broker id, or else any; None if the routes have none."""
        found = self.client.routes.replica(broker_name, broker_id, only_this)
        return None if found is None else self.reached_at(found[0])

    def broker_addresses(self, topic: str) -> dict[str, dict[int, str]]:
        """The addresses of each broker of `topic` by id, from the route, for tasks to start with."""
        route = self.client.routes.cached(self.namespace.wrap(topic))
        brokers: Mapping[str, Mapping[int, str]] = (
            {} if route is None else {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
        )
        return {name: dict(addresses) for name, addresses in brokers.items()}


class Link(Reach):
    """The connection of a driver-side reader or of a task to its cluster. For one thread at a time."""

    def __init__(self, options: ConnectionOptions) -> None:
        """Connects to nothing yet. Raises ConfigError for missing keys or certificates."""
        client = Client(
            options.namesrv,
            namespace=options.namespace,
            credentials=options.resolve_credentials(),
            tls=_tls(options),
        )
        super().__init__(client, options.broker_address_map or {})
        self._is_closed = False
        self._is_interrupted = False
        self._running: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner(loop_factory=_new_loop)
        self.run(self.client.start())

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run `coro` to its end. Tasks that it leaves behind continue with the next call."""
        # Not the runner's own `run`: its handling of Ctrl-C costs a millisecond per call.
        loop = self._runner.get_loop()
        task = loop.create_task(coro)
        self._running = task
        if self._is_interrupted:
            task.cancel()
        try:
            return loop.run_until_complete(task)
        finally:
            self._running = None

    def interrupt(self) -> None:
        """From another thread: end the current or next wait with a CancelledError."""
        self._is_interrupted = True
        if (task := self._running) is not None:
            self._runner.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Close all connections and cancel whatever still runs; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            self._is_interrupted = False
            try:
                self.run(self.client.close())
            finally:
                self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _tls(options: ConnectionOptions) -> ssl.SSLContext | bool:
    if not (options.tls and (options.tls_ca or options.tls_cert)):
        return options.tls
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_ca is None:
            # As RocketMQ's own clients do by default.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if options.tls_cert is not None:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"tls: cannot use the certificates: {exc}") from exc
    return context
