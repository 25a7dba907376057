"""Call the user's handlers: coroutines on the loop, plain functions in threads, hooks around both."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from pyromq.errors import StateError
from pyromq.protocol import properties as props
from pyromq.protocol import sysflag
from pyromq.protocol.names import retry_topic

from ..hooks import ConsumeContext, ConsumeReturn, HookList
from .outcomes import ACK, RETRY, Ack, AckUpTo, Commit, Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..names import Namespace
    from .consume_stats import TopicStats
    from .received_message import ReceivedMessage

    Handler: TypeAlias = Callable[[Any], object]
    Predicate: TypeAlias = Callable[[ReceivedMessage], object]
    OnError: TypeAlias = Callable[[BaseException, ReceivedMessage | None], object]

logger = logging.getLogger(__name__)

# Compressed bodies larger than this are decompressed in a thread.
_LARGE = 64 * 1024


class Listener:
    """The handler for the messages of one topic. Without one they go to `async for` loops."""

    __slots__ = ("handler", "plain", "stats", "topic", "where")

    def __init__(self, topic: str, handler: Handler | None, where: Predicate | None, stats: TopicStats) -> None:
        self.topic = topic
        self.handler = handler
        self.where = where
        self.plain = handler is not None and not _is_async(handler)
        self.stats = stats


class Listeners:
    """The listeners of a consumer, by the topics' wire names."""

    def __init__(self, namespace: Namespace, group: str, make_stats: Callable[[str], TopicStats]) -> None:
        self._namespace = namespace
        self._retry_topic = retry_topic(group)
        self._make_stats = make_stats
        self._listeners: dict[str, Listener] = {}

    def set(self, topic: str, handler: Handler | None, where: Predicate | None) -> None:
        name = self._namespace.unwrap(topic)
        self._listeners[topic] = Listener(name, handler, where, self._make_stats(topic))

    def remove(self, topic: str) -> None:
        self._listeners.pop(topic, None)

    def of_queue(self, topic: str) -> Listener | None:
        """The listener for a queue of `topic`; None if it depends on each message."""
        return self._listeners.get(topic)

    def of_message(self, message: MessageExt) -> Listener:
        """The listener for `message`; for a retry, by its original topic.

        If that topic is no longer subscribed, there is none, which counts as a failure: the message is retried later,
        perhaps by a member that has a handler, and may end up as a dead letter.
        """
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(props.RETRY_TOPIC, topic)
        return self._listeners.get(topic) or Listener(
            self._namespace.unwrap(topic), None, None, self._make_stats(topic)
        )


class Handling:
    """Runs handlers for one consumer. Whatever a handler does, the result is an outcome.

    A plain function runs in a pool of `max_concurrency` threads, created on first use; a slow one blocks only those
    waiting for a free thread.
    """

    def __init__(
        self,
        group: str,
        hooks: HookList,
        *,
        ordered: bool,
        batch: int,
        max_concurrency: int,
        consume_timeout: float,
        on_error: OnError | None,
    ) -> None:
        self._group = group
        self._hooks = hooks
        self._ordered = ordered
        self._batch = batch
        self._threads = max_concurrency
        self._consume_timeout = consume_timeout
        self._on_error = on_error
        self._pool: ThreadPoolExecutor | None = None
        self._reports: set[asyncio.Future[object]] = set()
        self.closing = False

    async def run(self, listener: Listener, queue: MessageQueue, messages: list[ReceivedMessage]) -> Outcome:
        """Call the handler for `messages`. Errors are reported and count as Retry; only close() cancels it.

        A coroutine handler that does not wait: 0.9 µs around it without hooks (CPython 3.11).
        """
        context = await self.begin(queue, messages) if self._hooks.watch_consumes else None
        returned = ConsumeReturn.SUCCESS
        started = time.monotonic()
        for message in messages:
            message.started = started
        outcome: Outcome
        try:
            outcome = await self.call(listener, messages)
        except asyncio.CancelledError as exc:
            if self.closing:
                raise
            # Not us: something the handler awaited was cancelled, or other code cancelled every task.
            _go_on()
            outcome, returned = RETRY, ConsumeReturn.EXCEPTION
            self.report(exc, messages[0])
        except Exception as exc:  # a handler's error ends here: the message is delivered again
            outcome, returned = RETRY, ConsumeReturn.EXCEPTION
            self.report(exc, messages[0])
        seconds = time.monotonic() - started
        if outcome is ACK:
            listener.stats.consumed(len(messages), 0, seconds)
        else:
            done = _count_done(outcome, len(messages))
            listener.stats.consumed(done, len(messages) - done, seconds)
        if context is not None:
            await self.end(context, outcome, seconds, returned)
        return outcome

    async def call(self, listener: Listener, messages: list[ReceivedMessage]) -> Outcome:
        """Just call the handler. Raises its errors, and TypeError for an invalid answer."""
        handler = listener.handler
        if handler is None:
            raise StateError(f"no handler for topic {listener.topic}")
        for message in messages:
            record = message.raw.record
            if record.sys_flag & sysflag.COMPRESSED and len(record.body) > _LARGE:
                await asyncio.to_thread(getattr, message, "body")
        argument = messages if self._batch > 1 else messages[0]
        if listener.plain:
            answer = await self._in_thread(handler, argument)
            if inspect.isawaitable(answer):
                answer = await answer
        else:
            result: Awaitable[object] = handler(argument)  # type: ignore[assignment]  # `plain` has told
            answer = await result
        return ACK if answer is None else outcome_of(answer, ordered=self._ordered)

    async def begin(self, queue: MessageQueue, messages: list[ReceivedMessage]) -> ConsumeContext | None:
        """Tell the hooks that `messages` are about to be consumed; None without hooks."""
        if not self._hooks.watch_consumes:
            return None
        context = ConsumeContext(
            group=self._group,
            queue=queue,
            messages=[message.raw for message in messages],
            started_ms=time.time_ns() // 1_000_000,
        )
        await self._hooks.before_consume(context)
        return context

    async def end(
        self,
        context: ConsumeContext,
        outcome: Outcome,
        seconds: float,
        returned: ConsumeReturn = ConsumeReturn.SUCCESS,
    ) -> None:
        """Tell the hooks the outcome."""
        context.success = isinstance(outcome, Ack | Commit | AckUpTo)
        if returned is ConsumeReturn.SUCCESS and not context.success:
            returned = ConsumeReturn.FAILED
        context.returned = ConsumeReturn.TIMEOUT if seconds > self._consume_timeout else returned
        context.status = type(outcome).__name__
        await self._hooks.after_consume(context)

    def wanted(self, listener: Listener, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The `messages` that the subscription's predicate accepts. The others are marked as consumed.

        If the predicate raises, the message counts as failed: we cannot tell whether it is wanted.
        """
        where = listener.where
        if where is None:
            return messages
        for message in messages:
            try:
                if not where(message):
                    message.mark = ACK
            except Exception as exc:  # a predicate's error ends here: the message is delivered again
                message.mark = RETRY
                self.report(exc, message)
        return [message for message in messages if message.mark is None]

    def report(self, error: BaseException, message: ReceivedMessage | None) -> None:
        """Report an error to the log and the user; no one else hears of it."""
        what = f"handling {message!r}" if message is not None else "consuming"
        logger.warning("group %s: %s failed: %s", self._group, what, _said(error), exc_info=error)
        if self._on_error is None:
            return
        try:
            result = self._on_error(error, message)
            if inspect.isawaitable(result):
                reported = asyncio.ensure_future(result)
                self._reports.add(reported)
                reported.add_done_callback(self._reported)
        except Exception:  # the user's on_error is broken; the log still works
            logger.exception("group %s: on_error failed", self._group)

    def close(self) -> None:
        """Start nothing more in threads. A function still running there cannot be stopped, only abandoned."""
        for reported in self._reports:
            reported.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, handler: Handler, argument: object) -> object:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=f"pyromq {self._group}")
        call = functools.partial(contextvars.copy_context().run, _call, handler, argument)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _reported(self, future: asyncio.Future[object]) -> None:
        self._reports.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            logger.error("group %s: on_error failed", self._group, exc_info=error)


def _call(handler: Handler, argument: object) -> object:
    try:
        return handler(argument)
    except StopIteration as exc:  # no future can hold it, so it would get lost
        raise RuntimeError("the handler raised StopIteration") from exc


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def _go_on() -> None:
    """Undo a cancellation that was not meant for us."""
    task = asyncio.current_task()
    with contextlib.suppress(AttributeError):
        while task is not None and task.cancelling():
            task.uncancel()


def _count_done(outcome: Outcome, count: int) -> int:
    if isinstance(outcome, AckUpTo):
        return max(0, min(outcome.index + 1, count))
    return count if isinstance(outcome, Ack | Commit) else 0


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
