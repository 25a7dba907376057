"""Linger: submitted messages wait a little for others to the same topic, to share one request.

A batch goes to one queue. It is sent after `linger` seconds or at 32 KiB, and retried as a whole; each message gets its
own result. Messages that cannot share a request go alone: delayed ones, and those whose body will be compressed. To
keep the order, messages waiting for the same queue go before them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from .batches import batch, batch_item, batch_item_size
from .send_result import SendResult

if TYPE_CHECKING:
    from .background_sends import End
    from .outgoing import Outgoing
    from .send_frames import Form
    from .sender import Target

# RocketMQ 5's figure for its own batching; at 1 KiB a message a request costs little per message already.
BATCH_BYTES = 32 * 1024

_Key = tuple[str, str, bool]

# Begins a send without waiting for it.
Start = Callable[["Outgoing", "Target", "Form | None", float, "End"], None]


class _Open(msgspec.Struct):
    """A batch that still accepts messages."""

    target: Target
    only: Form | None
    timeout: float
    began: float
    timer: asyncio.TimerHandle
    size: int = 0
    parts: list[Outgoing] = []
    ends: list[End] = []


class Linger:
    """The open batches of one producer."""

    def __init__(self, start: Start, seconds: float, max_bytes: int = BATCH_BYTES) -> None:
        self._start = start
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._open: dict[_Key, _Open] = {}
        self._loop = asyncio.get_running_loop()

    def add(
        self, outgoing: Outgoing, target: Target, only: Form | None, timeout: float, end: End, *, wait_store: bool
    ) -> None:
        """Add a message; `end` is called with its outcome."""
        key = _key(target, only, wait_store)
        size = batch_item_size(outgoing)
        waiting = self._open.get(key)
        if waiting is not None and waiting.size + size > self._max_bytes:
            self._send(key)
            waiting = None
        if waiting is None:
            timer = self._loop.call_later(self._seconds, self._send, key)
            waiting = self._open[key] = _Open(target, only, timeout, time.monotonic(), timer)
        waiting.parts.append(outgoing)
        waiting.ends.append(end)
        waiting.size += size
        if timeout < waiting.timeout:
            waiting.timeout = timeout
        if waiting.size >= self._max_bytes:
            self._send(key)

    def send_waiting(self, target: Target, only: Form | None) -> None:
        """Send what waits for the same queue."""
        for wait_store in (True, False):
            self._send(_key(target, only, wait_store))

    def send_all(self) -> None:
        """Send everything that waits."""
        for key in tuple(self._open):
            self._send(key)

    def _send(self, key: _Key) -> None:
        waiting = self._open.pop(key, None)
        if waiting is None:
            return
        waiting.timer.cancel()
        timeout = max(waiting.timeout - (time.monotonic() - waiting.began), 0.0)
        if len(waiting.parts) == 1:
            self._start(waiting.parts[0], waiting.target, waiting.only, timeout, waiting.ends[0])
            return
        items = [batch_item(part) for part in waiting.parts]
        whole = batch(waiting.parts, items, wait_store=key[2])
        self._start(whole, waiting.target, waiting.only, timeout, _Ends(waiting.parts, waiting.ends))


class _Ends:
    """Passes the outcome of a batch to each of its messages."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: list[Outgoing], ends: list[End]) -> None:
        self._parts = parts
        self._ends = ends

    def __call__(self, result: SendResult | None, error: BaseException | None) -> None:
        if result is None:
            for end in self._ends:
                end(None, error)
            return
        places = result.offset_id.split(",")
        if len(places) != len(self._parts):
            # A broker that stores a batch undivided names one place for all of it.
            places = [result.offset_id] * len(self._parts)
        status, queue, transaction_id, region = result.status, result.queue, result.transaction_id, result.region
        offset = result.offset
        for number, (part, end) in enumerate(zip(self._parts, self._ends, strict=True)):
            end(
                SendResult(status, part.message_id, places[number], queue, offset + number, transaction_id, region),
                None,
            )


def _key(target: Target, only: Form | None, wait_store: bool) -> _Key:
    return target.topic, "" if only is None else f"{only.broker}/{only.queue_text}", wait_store
