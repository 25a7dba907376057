"""A message as a blocking consumer delivers it: the same, except that `reply` waits."""

from __future__ import annotations

import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any

from pyromq import client

from .portal import portal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.client import SendResult

# The consumer whose handler runs in this context.
handled: contextvars.ContextVar[object] = contextvars.ContextVar("handled", default=None)


class ReceivedMessage(client.ReceivedMessage):
    """A delivered message, see `pyromq.ReceivedMessage`."""

    __slots__ = ()

    def reply(  # type: ignore[override]  # blocking is what this class is for
        self, body: bytes, *, timeout: float = 3.0
    ) -> SendResult:
        """Answer a message sent with `request()`. Raises ReplyError if no one waits for an answer."""
        through = portal("pyromq.sync.ReceivedMessage.reply", "pyromq.Consumer")
        return through.wait(super().reply(body, timeout=timeout))


def blocking(value: Any) -> Any:
    """`value`; if it is a message or a list of them, with methods that block.

    The objects stay the same, so that the consumer sees what the user does with a message.
    """
    for message in value if isinstance(value, list) else (value,):
        if type(message) is not client.ReceivedMessage:
            break
        message.__class__ = ReceivedMessage
    return value


def listener(function: Any, consumer: object) -> Any:
    """The user's `function` for `consumer`: if it is a plain one, it gets messages whose methods block.

    A coroutine function runs on the loop, where nothing may block, and gets async messages.
    """
    if not callable(function) or _is_async(function):
        return function

    @functools.wraps(function, updated=())
    def with_blocking_messages(messages: Any, *more: Any) -> object:
        reset = handled.set(consumer)
        try:
            answer: object = function(blocking(messages), *more)
        finally:
            handled.reset(reset)
        return answer

    return with_blocking_messages


def _is_async(function: Callable[..., object]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
