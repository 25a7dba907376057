"""Consumer: messages come to you as they arrive.

    consumer = Consumer("billing", namesrv="localhost:9876")

    @consumer.on("orders", "created || paid")
    async def bill(message: ReceivedMessage) -> None:
        ...

    await consumer.run()

or without handlers:

    async with Consumer("billing", {"orders": "*"}, namesrv="localhost:9876") as consumer:
        async for message in consumer:
            ...
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

from pyromq.errors import ConfigError, StateError

from ..client import Client
from ..identity import DEFAULT_INSTANCE, fork_generation
from ..names import check_topic
from .allocation import Averagely
from .consumer_settings import ConsumerSettings
from .iteration import Iteration
from .push_member import PushMember, Subscription
from .start_offset import StartAt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from pyromq.protocol.message_queue import MessageQueue

    from .allocation import Strategy
    from .handlers import Handler, OnError, Predicate
    from .offset_store import OffsetStore
    from .received_message import ReceivedMessage
    from .subscriptions import Sql

    H = TypeVar("H", bound=Handler)


class Consumer:
    """A member of a consumer group: it gets its share of the group's messages, each at least once.

    A handler is a coroutine function, or a plain one, which runs in a thread. It gets one message, or with `batch`
    above 1 a list. Returning None means done, raising means try again later; the other answers are in `results`. At
    most `max_concurrency` handlers run at once, in as many tasks, which they share: a handler may find context
    variables that another one set.

    | setting | |
    |---|---|
    | `broadcast` | every member gets every message; progress is kept in a file; failures are not retried |
    | `ordered` | consume the messages of a queue one by one; a failure stops the queue for `suspend` seconds |
    | `start_at` | where a group that never committed begins: `StartAt`, or a datetime |
    | `allocate` | how members share the queues; all must use the same strategy |
    | `max_cached`, `max_cached_mib`, `max_span` | how many messages, MiB and offsets of one queue to pull ahead |
    | `max_retries` | retries before a message becomes a dead letter; None: 16, forever if ordered |
    | `consume_timeout` | give a message back if its handler takes longer, and ignore the handler's answer |
    | `drain` | seconds that `close` waits for handlers before it cancels them |
    | `on_error` | called with errors that go nowhere else, and the message if there is one |

    A client you pass in may be shared; it keeps running while others use it.
    """

    def __init__(
        self,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        broadcast: bool = False,
        ordered: bool = False,
        start_at: StartAt | datetime = StartAt.LAST,
        allocate: Strategy = Averagely(),  # noqa: B008 - has no state
        max_concurrency: int = 20,
        batch: int = 1,
        pull_batch: int = 32,
        max_cached: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        max_retries: int | None = None,
        suspend: float = 1.0,
        consume_timeout: float = 900.0,
        drain: float = 10.0,
        on_error: OnError | None = None,
        offset_store: OffsetStore | None = None,
    ) -> None:
        if client is not None and namesrv is not None:
            raise ConfigError("give a client or namesrv, not both; a client has its own name servers")
        self._settings = ConsumerSettings(
            group=group,
            broadcast=broadcast,
            ordered=ordered,
            start_at=start_at,
            allocate=allocate,
            max_concurrency=max_concurrency,
            batch=batch,
            pull_batch=pull_batch,
            max_cached=max_cached,
            max_cached_mib=max_cached_mib,
            max_span=max_span,
            max_retries=max_retries,
            suspend=suspend,
            consume_timeout=consume_timeout,
            drain=drain,
            on_error=on_error,
            offset_store=offset_store,
        )
        # A broadcasting consumer keeps its name across restarts: its offset file is named after it.
        self.client = client or Client(namesrv, instance_name=DEFAULT_INSTANCE if broadcast else None)
        self._subscriptions: dict[str, Subscription] = {}
        self._iterated = False
        self._member: PushMember | None = None
        self._starting = False
        self._generation = fork_generation()
        self._asked_to_close: asyncio.Event | None = None
        self._closing: asyncio.Task[None] | None = None
        for topic, expression in (topics or {}).items():
            self.subscribe(topic, expression)

    def __repr__(self) -> str:
        return f"<Consumer {self.group} {self._state}>"

    @property
    def group(self) -> str:
        return self._settings.group

    # What it wants

    def subscribe(
        self,
        topic: str,
        expr: str | Sql = "*",
        handler: Handler | None = None,
        *,
        where: Predicate | None = None,
    ) -> None:
        """Consume messages of `topic` with `handler`; without one they come through `async for`.

        `expr` filters at the broker: tags (`"paid || sent"`) or `Sql("amount > 100")`. `where` filters here: messages
        for which it returns False count as consumed. All members of a group must subscribe to the same.

        May be called while the consumer runs: it replaces the topic's earlier subscription.
        """
        check_topic(topic)
        if where is not None and not callable(where):
            raise TypeError(f"where must be a function of a message, not {where!r}")
        if handler is not None and not callable(handler):
            raise TypeError(f"a handler must be a function, not {handler!r}")
        subscription = Subscription(topic, expr, handler, where)
        if self._member is not None:
            self._running()
            if (handler is None) is not self._iterated:
                raise StateError(_EXCLUSIVE)
            self._member.subscribe(subscription)
        self._subscriptions[topic] = subscription

    def on(self, topic: str, expr: str | Sql = "*", *, where: Predicate | None = None) -> Callable[[H], H]:
        """Decorator: `subscribe` with this function as the handler."""

        def subscribed(handler: H) -> H:
            self.subscribe(topic, expr, handler, where=where)
            return handler

        return subscribed

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from `topic`. When this returns, its progress is committed and its queues are given up."""
        self._subscriptions.pop(topic, None)
        if self._member is not None:
            await self._running().unsubscribe(topic)

    # Life

    async def start(self) -> Self:
        """Start consuming. If that fails, it raises the reason in bounded time and undoes everything.

        A topic need not exist yet: its messages come when it does.
        """
        if self._member is not None or self._starting:
            raise StateError(f"consumer {self.group} is {self._state}; a consumer can be started only once")
        if not self._subscriptions:
            raise ConfigError(f"consumer {self.group} has no subscriptions")
        handlers = [subscription.handler is not None for subscription in self._subscriptions.values()]
        if any(handlers) and not all(handlers):
            raise StateError(_EXCLUSIVE)
        self._iterated = not any(handlers)
        member = PushMember(self.client, self._settings, iterated=self._iterated)
        for subscription in self._subscriptions.values():
            member.subscribe(subscription)
        self._starting = True
        try:
            await member.start()
        finally:
            self._starting = False
        self._asked_to_close = asyncio.Event()
        self._generation = fork_generation()
        self._member = member
        return self

    async def close(self) -> None:
        """Stop pulling, let handlers finish, commit their work, unregister. Always ends, after `drain` and 5 seconds.

        In a handler, which cannot wait for its own end, it returns at once and closing goes on.
        """
        if self._member is None:
            return
        caller = asyncio.current_task()
        if self._closing is None:
            if self._generation != fork_generation():
                raise StateError(f"consumer {self.group} belongs to the parent process")
            assert self._asked_to_close is not None
            self._asked_to_close.set()
            closing = self._member.close(caller)
            self._closing = asyncio.create_task(closing, name=f"close consumer {self.group}")
        if not self._member.consumption.is_worker(caller):
            await asyncio.shield(self._closing)

    async def run(self) -> None:
        """Start, consume until `close` is called or this is cancelled, and close."""
        await self.start()
        assert self._asked_to_close is not None
        try:
            await self._asked_to_close.wait()
        finally:
            await self.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """The messages, one at a time, until the consumer is closed.

        A message is done when you ask for the next one or call its `ack()`. If you leave the loop by an exception or
        `break`, its message is delivered again. Several loops share the messages.
        """
        member = self._running()
        if not self._iterated:
            raise StateError(_EXCLUSIVE)
        return Iteration(member.consumption, asyncio.get_running_loop())

    # While it runs

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues it owns now; empty before the first rebalancing and after the end."""
        return frozenset() if self._member is None else self._member.assignment

    def pause(self) -> None:
        """Stop pulling and rebalancing. Messages already pulled are still consumed."""
        self._running().pause()

    async def resume(self) -> None:
        """Continue after `pause`."""
        self._running().resume()

    @property
    def _state(self) -> str:
        if self._member is None:
            return "starting" if self._starting else "not started"
        return "running" if self._closing is None else "closed"

    def _running(self) -> PushMember:
        if self._member is None or self._closing is not None:
            raise StateError(f"consumer {self.group} is {self._state}")
        self.client.check_open()
        return self._member


_EXCLUSIVE = "give every topic a handler, or none and use `async for`; not both"
