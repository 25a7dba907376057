"""Requests waiting for their reply, matched by number."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import ConnectionLost, RequestTimeout

if TYPE_CHECKING:
    import asyncio

    from pyromq.protocol.command import Command

_numbers = itertools.count()

# The timer checks every call, so it fires less often the more there are: 5 ms apart, or 1 µs per call, which keeps it
# below a tenth of the processor when all 65535 permits are taken and deadlines pass all the time.
_TICK = 0.005
_TICK_PER_CALL = 1e-6


def next_opaque() -> int:
    """The number of the next request: one count per process, wrapping around as a signed 32-bit integer."""
    return ((next(_numbers) + 2**31) & 0xFFFFFFFF) - 2**31


class Waiter(Protocol):
    """The receiver of a reply: an asyncio.Future, or an object that acts on the reply at once.

    It is called while the connection reads, so it must neither wait nor raise.
    """

    def done(self) -> bool: ...

    def set_result(self, response: Command, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class _Call:
    __slots__ = ("code", "deadline", "future", "timeout")

    def __init__(self, future: Waiter, code: int, timeout: float, deadline: float) -> None:
        self.future = future
        self.code = code
        self.timeout = timeout
        self.deadline = deadline


class PendingCalls:
    """The calls of one connection. One timer serves them all: at the earliest deadline it fails the late ones.

    A timer per call would cost more than the rest of the call.
    """

    __slots__ = ("_calls", "_loop", "_peer", "_timer", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        self._loop = loop
        self._peer = peer
        self._calls: dict[int, _Call] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._when = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def start(self, opaque: int, code: int, deadline: float, timeout: float) -> asyncio.Future[Command]:
        """Wait for the reply to request `opaque`: the future ends with it, or with RequestTimeout at `deadline`.

        The error reports `timeout`, the time the caller gave.
        """
        future: asyncio.Future[Command] = self._loop.create_future()
        self.expect(opaque, code, future, deadline, timeout)
        return future

    def expect(self, opaque: int, code: int, waiter: Waiter, deadline: float, timeout: float) -> None:
        """Like `start`, with the caller's own waiter."""
        self._calls[opaque] = _Call(waiter, code, timeout, deadline)
        if self._timer is None or deadline < self._when:
            self._set_timer(deadline)

    def resolve(self, response: Command) -> bool:
        """Give `response` to the call it answers; False if no one waits for it (any more)."""
        call = self._calls.pop(response.opaque, None)
        if call is None or call.future.done():
            return False
        call.future.set_result(response)
        return True

    def forget(self, opaque: int) -> None:
        """The caller stopped waiting."""
        self._calls.pop(opaque, None)

    def fail_all(self, reason: str) -> None:
        """The connection ended: fail all its calls."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.future.done():
                call.future.set_exception(ConnectionLost(self._peer, reason))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._when = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = [opaque for opaque, call in self._calls.items() if call.deadline <= now]
        for opaque in late:
            call = self._calls.pop(opaque)
            if not call.future.done():
                call.future.set_exception(RequestTimeout(self._peer, call.code, call.timeout))
        if self._calls:
            soonest = now + _TICK + len(self._calls) * _TICK_PER_CALL
            self._set_timer(max(soonest, min(call.deadline for call in self._calls.values())))
