"""Sends without their own task: the first attempt is written, and the connection calls back with the answer.

A task takes over only if that attempt fails or has to wait for a connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, RequestTimeout, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.remoting.calls import next_opaque

from .attempts import FAILURES, Attempts
from .send_result import SendResult

if TYPE_CHECKING:
    from pyromq.protocol.command import Command

    from .outgoing import Outgoing
    from .send_frames import Form
    from .sender import Sender, Target

# Called once, with the result or with the error.
End = Callable[[SendResult | None, BaseException | None], None]

_now = time.monotonic


class Submitted:
    """One such send, and to the connection a `Waiter` (remoting/calls.py)."""

    __slots__ = (
        "_began",
        "_connection",
        "_end",
        "_only",
        "_outgoing",
        "_received",
        "_sender",
        "_target",
        "form",
        "timeout",
    )

    def __init__(
        self, sender: Sender, outgoing: Outgoing, target: Target, only: Form | None, timeout: float, end: End
    ) -> None:
        self._sender = sender
        self._outgoing = outgoing
        self._target = target
        self._only = only
        self._end = end
        self.timeout = timeout
        # Where the first attempt goes.
        self.form = only or sender.choose(target)

    def launch(self) -> bool:
        """Send now; returns False and does nothing if that takes more than writing to a connection."""
        sender, form, outgoing = self._sender, self.form, self._outgoing
        connection = sender.connection(form)
        if connection is None or sender.watched:
            return False
        opaque = next_opaque()
        frame = form.frame(outgoing, opaque, time.time_ns() // 1_000_000)
        self._connection = connection
        self._received = connection.received
        self._began = _now()
        settings = sender.settings
        limit = self.timeout
        if settings.attempt_timeout is not None and settings.retries and self._only is None:
            limit = min(limit, settings.attempt_timeout)
        return frame is not None and connection.start(opaque, outgoing.code, frame, self, limit)

    def start(self) -> None:
        """Send now, or in a task if necessary."""
        if not self.launch():
            self._go_on(None)

    # What the connection calls

    def done(self) -> bool:
        return False

    def set_result(self, response: Command) -> None:
        sender, form = self._sender, self.form
        if response.code == ResponseCode.GO_AWAY:
            sender.left(form, self._connection)
            self._go_on(None)
            return
        try:
            result = sender.result(self._outgoing, form, response)
        except FAILURES as exc:
            self._settle(exc)
            return
        except PyroMQError as exc:
            self._end(None, exc)
            return
        if sender.faults is not None and self._only is None:
            now = _now()
            sender.faults.answered(form.broker, now - self._began, now)
        if response.code == ResponseCode.SUCCESS:
            self._end(result, None)
        else:
            self._settle(result)

    def set_exception(self, error: Exception) -> None:
        if isinstance(error, RequestTimeout):
            self._sender.remoting.give_up_if_silent(self._connection, self._received, error.seconds)
        if isinstance(error, FAILURES):
            self._settle(error)
        else:
            self._end(None, error)

    # Inside

    def _settle(self, outcome: SendResult | PyroMQError) -> None:
        """The attempt failed: decide what that means, and leave further attempts to a task."""
        sender, broker = self._sender, self.form.broker
        attempts = Attempts(sender.settings, self._target.topic, self.timeout, self._began, only=self._only is not None)
        try:
            attempts.begin(self._began)
            if isinstance(outcome, SendResult):
                verdict = attempts.stored(broker, outcome)
            else:
                verdict = sender.failed(attempts, self.form, outcome, pipelined=True)
        except PyroMQError as exc:
            self._end(None, exc)
            return
        if verdict is not None:
            self._end(verdict, None)
        else:
            self._go_on(attempts)

    def _go_on(self, attempts: Attempts | None) -> None:
        """Let a task do the rest."""
        try:
            self._sender.tasks.once(self._rest(attempts), "send", log=False)
        except RuntimeError:
            self._end(None, StateError("the client was closed before the message was sent"))

    async def _rest(self, attempts: Attempts | None) -> None:
        try:
            result = await self._sender.send(
                self._outgoing,
                self._target,
                self._only,
                self.timeout,
                attempts,
                first=self.form if attempts is None else None,
            )
        except asyncio.CancelledError:
            self._end(None, StateError("the client was closed before the message was sent"))
            raise
        except Exception as exc:  # the error belongs to the holder of the future
            self._end(None, exc)
        else:
            self._end(result, None)


def start(sender: Sender, outgoing: Outgoing, target: Target, only: Form | None, timeout: float, end: End) -> None:
    """Send without waiting."""
    Submitted(sender, outgoing, target, only, timeout, end).start()
