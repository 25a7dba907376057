"""Hooks: user code that watches messages being sent and consumed.

A hook is a subclass of `Hook` that overrides the methods it needs, plain or async. They run in line with the work they
watch, so a plain one must not block. An error in a hook is logged and changes nothing, except in `check_forbidden`,
whose error goes to the caller.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pyromq.errors import PyroMQError
    from pyromq.protocol.command import Command
    from pyromq.protocol.message import Message, MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from .producer.send_result import SendResult, TxState

logger = logging.getLogger(__name__)


class MessageType(IntEnum):
    """What kind of message is sent, as trace records number it."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3


class ConsumeReturn(IntEnum):
    """How a handler ended, as trace records number it."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One attempt to send one message, or one batch. `result` or `error` is filled in for `after_send`."""

    group: str
    client_id: str
    messages: Sequence[Message]
    message_id: str
    queue: MessageQueue
    address: str
    message_type: MessageType
    body_length: int  # as sent: a compressed body counts compressed
    oneway: bool
    started_ms: int
    cost_ms: int = 0
    result: SendResult | None = None
    error: PyroMQError | None = None
    trace_on: bool = True  # what the broker said


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a handler. `success`, `returned` and `status` are filled in for `after_consume`."""

    group: str
    queue: MessageQueue
    messages: Sequence[MessageExt]
    started_ms: int = 0
    success: bool = False
    returned: ConsumeReturn = ConsumeReturn.FAILED
    status: str = ""
    # For hooks: a place for notes from before to after.
    notes: dict[object, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class EndTransactionContext:
    """A half message is committed, rolled back, or left undecided."""

    group: str
    topic: str
    tags: str | None
    keys: str | None
    region: str
    message_id: str
    transaction_id: str | None
    address: str
    state: TxState
    from_check: bool


class Hook:
    """Base class of hooks: override what you need."""

    def check_forbidden(self, context: SendContext) -> Awaitable[None] | None:
        """Called before every attempt to send. Raise to forbid it: the caller gets the error and nothing is sent."""

    def before_send(self, context: SendContext) -> Awaitable[None] | None: ...

    def after_send(self, context: SendContext) -> Awaitable[None] | None: ...

    def before_consume(self, context: ConsumeContext) -> Awaitable[None] | None: ...

    def after_consume(self, context: ConsumeContext) -> Awaitable[None] | None: ...

    def end_transaction(self, context: EndTransactionContext) -> Awaitable[None] | None: ...

    def before_rpc(self, address: str, request: Command) -> None:
        """Called for every request of this client, with the header that goes out. Always plain."""

    def after_rpc(self, address: str, request: Command, response: Command | None) -> None:
        """Called with every reply. Always plain."""


class HookList:
    """Several hooks behind one call. False if there are none, so that no contexts are made for nothing."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)
        self._forbidding = self._overriding("check_forbidden")
        self._watching_sends = self._overriding("before_send", "after_send", "check_forbidden")
        self._watching_consumes = self._overriding("before_consume", "after_consume")
        self._watching_ends = self._overriding("end_transaction")

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def with_more(self, more: Sequence[Hook]) -> HookList:
        return HookList((*self._hooks, *more))

    @property
    def watch_sends(self) -> bool:
        return bool(self._watching_sends)

    @property
    def watch_consumes(self) -> bool:
        return bool(self._watching_consumes)

    async def check_forbidden(self, context: SendContext) -> None:
        for hook in self._forbidding:
            result = hook.check_forbidden(context)
            if inspect.isawaitable(result):
                await result

    async def before_send(self, context: SendContext) -> None:
        for hook in self._watching_sends:
            await _call(hook, hook.before_send, context)

    async def after_send(self, context: SendContext) -> None:
        for hook in self._watching_sends:
            await _call(hook, hook.after_send, context)

    async def before_consume(self, context: ConsumeContext) -> None:
        for hook in self._watching_consumes:
            await _call(hook, hook.before_consume, context)

    async def after_consume(self, context: ConsumeContext) -> None:
        for hook in self._watching_consumes:
            await _call(hook, hook.after_consume, context)

    async def end_transaction(self, context: EndTransactionContext) -> None:
        for hook in self._watching_ends:
            await _call(hook, hook.end_transaction, context)

    def rpc_hooks(self) -> list[RpcHook]:
        """The hooks that watch requests, in the form that connections call."""
        return [RpcHook(hook) for hook in self._overriding("before_rpc", "after_rpc")]

    def _overriding(self, *methods: str) -> list[Hook]:
        return [
            hook
            for hook in self._hooks
            if any(getattr(type(hook), name, None) is not getattr(Hook, name) for name in methods)
        ]


class RpcHook:
    """A user's hook in the form that connections call (pyromq.remoting.Hook)."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def before_request(self, peer: str, request: Command) -> None:
        try:
            self._hook.before_rpc(peer, request)
        except Exception:  # a hook's error ends here: the request goes out anyway
            logger.exception("hook %r failed before request %s", self._hook, request.code)

    def after_response(self, peer: str, request: Command, response: Command | None) -> None:
        self._hook.after_rpc(peer, request, response)  # the connection logs what this raises


async def _call(hook: Hook, method: Any, context: object) -> None:
    try:
        result = method(context)
        if inspect.isawaitable(result):
            await result
    except Exception:  # a hook's error ends here: the work it watches goes on
        logger.exception("hook %r failed", hook)
