"""The producer: sends messages, one at a time or many at once.

async with Producer("orders", namesrv="localhost:9876") as producer:
    result = await producer.send("TopicTest", b"hello", tags="TagA", keys=["order-1"])
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pyromq.errors import ConfigError, InvalidMessage, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import ProducerData
from pyromq.protocol.names import DEFAULT_PRODUCER_GROUP, is_retry_topic

from ..client import Client
from ..hooks import HookList, MessageType
from ..names import check_group
from ..trace import PRODUCE, TraceHook
from ..trace_context import text_for
from . import outgoing as outgoings
from .background_sends import Submitted, start
from .batches import batches
from .linger import Linger
from .outgoing import COMPRESSIONS, Outgoing, as_message, prepare
from .producer_settings import DEFAULT_RETRY_CODES, ProducerSettings, settings_among
from .recall import recall
from .request_reply import request
from .selectors import selected, shard_index
from .sender import Sender
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyromq.protocol.headers import CheckTransactionState
    from pyromq.protocol.message import Message, MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..consumer.received_message import ReceivedMessage
    from .selectors import Selector
    from .send_frames import Form
    from .send_result import SendResult
    from .sender import Target


_now = time.monotonic
# Submits in a row before everything else of the program gets its turn: some three milliseconds.
_SUBMITS_A_TURN = 128


class _State(Enum):
    NEW = "not started; use `async with`, or await its start()"
    RUNNING = "running"
    CLOSED = "closed"


class Producer:
    """Sends the messages of one group.

    `timeout` covers a whole send, all attempts together; without `attempt_timeout` a hanging broker uses it up, and
    retries help only against immediate failures. A message that was stored but not confirmed by disk or replica is a
    result with that status; `retry_not_stored` sends it to another broker too.

    `submit` keeps up to `window` messages and `window_bytes` bytes in flight, and waits when they are. With `linger`
    (seconds), submitted messages to one queue share a request; 0.005 is a good value if throughput matters.

    Making one opens nothing. Any number of tasks of one event loop may use it.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        namesrv: str | Sequence[str] | None = None,
        timeout: float = 3.0,
        attempt_timeout: float | None = None,
        retries: int = 2,
        retry_not_stored: bool = False,
        retry_codes: Iterable[int] = DEFAULT_RETRY_CODES,
        compress_over: int = 4096,
        compression: str = "zlib",
        max_size: int = 4 << 20,
        fault_tolerance: bool = False,
        window: int = 10000,
        window_bytes: int = 100 << 20,
        linger: float = 0.0,
        default_queues: int = 4,
    ) -> None:
        settings = ProducerSettings(**settings_among(locals()))
        check_group(group)
        if group == DEFAULT_PRODUCER_GROUP:
            raise ConfigError(f"RocketMQ refuses producer group {group}; choose your own name")
        if client is not None and namesrv is not None:
            raise ConfigError("give a client or namesrv, not both")
        self.group = group
        self._client = client or Client(namesrv)
        self._settings = settings
        self._window = Window(settings.window, settings.window_bytes)
        self._submits = 0
        self._linger: Linger | None = None
        self._pending: set[asyncio.Future[SendResult]] = set()
        self._hooks = HookList()
        self._trace: TraceHook | None = None
        self._extra = ""
        self._state = _State.NEW
        self._sender: Sender

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group} {self._state.name.lower()}>"

    @property
    def client(self) -> Client:
        return self._client

    # Life

    async def start(self) -> Self:
        """Start it. Does not need a server to be up."""
        if self._state is not _State.NEW:
            raise StateError(f"producer {self.group} cannot be started: it is {self._state.name.lower()}")
        client = self._client
        await client.join(self)
        hooks = HookList(client.hooks)
        if client.trace:
            self._trace = TraceHook(client, self.group, PRODUCE)
            self._trace.start()
            hooks = hooks.with_more([self._trace])
        self._hooks = hooks
        self._sender = Sender(client, client.namespace.wrap(self.group), self._settings, hooks)
        if self._settings.linger:
            self._linger = Linger(partial(start, self._sender), self._settings.linger)
        if client.namespace.name:
            self._extra = (
                f"{props.ITEM_SEPARATOR}{props.INSTANCE_ID}{props.NAME_VALUE_SEPARATOR}{client.namespace.name}"
            )
        self._state = _State.RUNNING
        return self

    async def close(self) -> None:
        """Wait for submitted messages, as long as a send may take, and unregister. Always ends."""
        state, self._state = self._state, _State.CLOSED
        if state is not _State.RUNNING:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.timeout + 1.0):
                    await self._drain()
            if self._trace is not None:
                await self._trace.close()
        finally:
            await self._client.leave(self)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # Sending

    async def send(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> SendResult:
        """Send a message, given whole or as topic, body and further fields of `Message`, and wait until it is stored.

        Unless you choose the queue, further attempts go to other brokers. `shard_key`, here or in the message, sends
        all messages with one key to one queue; `queue` names a queue, and `selector` chooses one.

        Raises InvalidMessage before anything is sent; RouteNotFound if no broker has the topic; a BrokerError for a
        refusal that retrying cannot cure; SendFailed after the last attempt; SendTimeout when the time is up. After
        the last two, and after ConnectionLost or RequestTimeout, the message may be stored.
        """
        sender = self._running()
        message = as_message(msg, body, fields)
        seconds = self._settings.timeout if timeout is None else timeout
        outgoing, target, only, left = await self._ready(sender, message, queue, shard_key, selector, seconds)
        return await sender.send(outgoing, target, only, left)

    async def send_oneway(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> None:
        """Send a message without waiting for an answer: it may get lost. An error means that it was not sent."""
        sender = self._running()
        message = as_message(msg, body, fields)
        seconds = self._settings.timeout if timeout is None else timeout
        outgoing, target, only, left = await self._ready(sender, message, queue, shard_key, selector, seconds)
        await sender.send_oneway(outgoing, only or sender.choose(target), left)

    async def send_batch(
        self,
        msgs: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as their size allows; returns one result per request.

        The requests go one after the other, each within `timeout`. If one fails, those before it are stored.
        Delayed messages cannot be part of a batch, nor can messages that differ in `wait_store`.
        """
        sender = self._running()
        messages = list(msgs)
        parts = list(batches(messages, self._settings.max_size, self._extra_of))
        seconds = self._settings.timeout if timeout is None else timeout
        began = _now()
        target = sender.known_target(messages[0].topic) or await sender.target(messages[0].topic, seconds)
        only = await self._chosen(target, messages[0], queue, shard_key or messages[0].shard_key, selector)
        left = seconds - (_now() - began)
        results = []
        for part in parts:
            results.append(await sender.send(part, target, only, left))
            left = seconds
        return results

    async def submit(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> asyncio.Future[SendResult]:
        """Start sending a message; the future gets what `send` would have returned or raised.

        Waits only while the window is full or the broker does not read, at most `timeout`: then TooManyRequests.
        """
        self._submits += 1
        if self._submits % _SUBMITS_A_TURN == 0:
            await asyncio.sleep(0)
        sender = self._running()
        message = as_message(msg, body, fields)
        seconds = self._settings.timeout if timeout is None else timeout
        outgoing, target, only, left = await self._ready(sender, message, queue, shard_key, selector, seconds)
        size = len(outgoing.body)
        if not self._window.try_enter(size):
            began = _now()
            await self._window.enter(size, left)
            left -= _now() - began
        answer = _Answer(self._window, size, self._pending)
        linger = self._linger
        if linger is not None:
            if outgoing.kind is MessageType.NORMAL and not outgoing.sys_flag and not is_retry_topic(target.topic):
                linger.add(outgoing, target, only, left, answer, wait_store=message.wait_store)
                return answer.future
            linger.send_waiting(target, only)
        submitted = Submitted(sender, outgoing, target, only, left, answer)
        if not submitted.launch():
            began = _now()
            try:
                await sender.writable(submitted.form, left)
            except BaseException:
                answer.withdraw()
                raise
            submitted.timeout = max(left - (_now() - began), 0.0)
            submitted.start()
        return answer.future

    async def flush(self) -> None:
        """Wait until everything submitted so far is answered. Errors go to the futures."""
        self._running()
        await self._drain()

    async def request(
        self,
        msg: Message | str,
        body: bytes | None = None,
        *,
        queue: MessageQueue | None = None,
        shard_key: str | None = None,
        selector: Selector | None = None,
        timeout: float,
        **fields: Any,
    ) -> ReceivedMessage:
        """Send a message and wait for its consumer's reply (`ReceivedMessage.reply`).

        Raises ReplyTimeout if it was sent but no one replied in time; otherwise whatever `send` raises.
        """
        sender = self._running()
        message = as_message(msg, body, fields)
        return await request(
            self._client,
            sender,
            timeout,
            lambda extra: self._ready(sender, message, queue, shard_key, selector, timeout, extra=extra),
            known=sender.known_target(message.topic) is not None,
        )

    async def recall(self, topic: str, handle: str) -> str:
        """Recall a delayed message; `handle` is its SendResult's `recall_handle`. Returns the message's id.

        Only 5.x brokers and PyroMQ's can do that, and only until the message is due.
        """
        return await recall(self._client, self._running(), topic, handle, self._trace)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages to `topic` go to."""
        sender = self._running()
        return (sender.known_target(topic) or await sender.target(topic, self._settings.timeout)).queues

    # As a member of the client

    def topics(self) -> Collection[str]:
        return self._sender.topics() if self._state is _State.RUNNING else ()

    def route_changed(self, topic: str) -> None:
        pass  # the sender looks at the route with every message

    def heartbeat_data(self) -> ProducerData:
        return ProducerData(self._client.namespace.wrap(self.group))

    def check_transaction(self, address: str, header: CheckTransactionState, message: MessageExt) -> None:
        """This producer has no transactions: another member of the group will know."""

    # Inside

    def _running(self) -> Sender:
        """The sender; raises StateError unless the producer is running."""
        if self._state is not _State.RUNNING:
            raise StateError(f"producer {self.group} is {self._state.value}")
        self._client.check_open()
        return self._sender

    def _extra_of(self, message: Message) -> str:
        """The properties that this producer gives a message besides its own, as text."""
        return self._extra + text_for(message.properties) if self._client.trace_context else self._extra

    async def _ready(
        self,
        sender: Sender,
        message: Message,
        queue: MessageQueue | None,
        shard_key: str | None,
        selector: Selector | None,
        seconds: float,
        *,
        extra: str = "",
    ) -> tuple[Outgoing, Target, Form | None, float]:
        """The prepared message, its destination, and the seconds left."""
        settings = self._settings
        shard_key = shard_key or message.shard_key
        outgoing = prepare(message, settings.max_size, shard_key=shard_key, extra=self._extra_of(message) + extra)
        began = 0.0
        if len(outgoing.body) >= settings.compress_over:
            began = _now()
            await outgoings.compressed(outgoing, COMPRESSIONS[settings.compression])
        target = sender.known_target(message.topic)
        if target is None:
            began = began or _now()
            target = await sender.target(message.topic, seconds)
        only = None
        if queue is not None or shard_key is not None or selector is not None:
            began = began or _now()
            only = await self._chosen(target, message, queue, shard_key, selector)
        return outgoing, target, only, seconds - (_now() - began) if began else seconds

    async def _chosen(
        self,
        target: Target,
        message: Message,
        queue: MessageQueue | None,
        shard_key: str | None,
        selector: Selector | None,
    ) -> Form | None:
        """The queue chosen by the caller, if any."""
        if queue is not None:
            if queue.topic != message.topic:
                raise InvalidMessage(f"the message goes to {message.topic}, the queue belongs to {queue.topic}")
            return target.form_of(queue)
        if selector is not None:
            return target.forms[await selected(selector, target.queues, message)]
        if shard_key is not None:
            return target.forms[shard_index(shard_key, len(target.forms))]
        return None

    async def _drain(self) -> None:
        if self._linger is not None:
            self._linger.send_all()
        if self._pending:
            await asyncio.wait(set(self._pending))


class _Answer:
    """The end of a submitted message: makes room in the window, then completes the future."""

    __slots__ = ("_pending", "_size", "_window", "future")

    def __init__(self, window: Window, size: int, pending: set[asyncio.Future[SendResult]]) -> None:
        self._window = window
        self._size = size
        self._pending = pending
        self.future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        pending.add(self.future)

    def __call__(self, result: SendResult | None, error: BaseException | None) -> None:
        self._window.leave(self._size)
        self._pending.discard(self.future)
        if self.future.done():
            return
        if result is not None:
            self.future.set_result(result)
        elif error is not None:
            self.future.set_exception(error)

    def withdraw(self) -> None:
        """It was never sent."""
        self._window.leave(self._size)
        self._pending.discard(self.future)
        self.future.cancel()
