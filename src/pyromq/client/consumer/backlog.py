"""Backlog: pulled messages waiting for a free handler or `async for` loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

# Seconds that takers may go on before the event loop gets its turn.
TURN = 0.002


def on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call `function` now in the thread of `loop`, else schedule it there. A closed loop calls nothing."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        function(*args)
        return
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


class BacklogClosed(Exception):
    """Nothing more will be handed out."""


class Backlog(Generic[T]):
    """A queue for takers that mostly do not wait between two takes.

    `asyncio.Queue` wakes a taker for every item. If handlers never wait, as is common, one taker can empty the whole
    queue, and waking twenty for 32 items costs more than consuming them. So here a taker that leaves something behind
    wakes the next one, which finds something only if the first had to wait meanwhile.

    And because takers may never wait, the backlog makes sure that the event loop gets its turn.

    Items put 32 at a time, 20 takers that do not wait (CPython 3.11): 0.44 µs each, `asyncio.Queue` 1.6 µs.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._woken = False  # a taker is on its way
        self._stepped_aside = 0  # takers that only give the loop its turn, and go on
        self._turn_ends = 0.0  # 0: no taker has had anything in this turn of the loop
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def put(self, items: Iterable[T]) -> None:
        self._items.extend(items)
        self._wake()

    def put_first(self, item: T) -> None:
        """Put an item back in front."""
        self._items.appendleft(item)
        self._wake()

    async def take(self) -> T:
        """Wait for the next item. Raises BacklogClosed once it is closed, even if items are left."""
        while not self._closed:
            if not self._items:
                await self._come()
            elif self._turn_is_over():
                await self._step_aside()
            else:
                item = self._items.popleft()
                self._wake()
                return item
        raise BacklogClosed

    def close(self) -> None:
        """Hand out nothing more, and end all waits."""
        self._closed = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)

    def _wake(self) -> None:
        if self._idle and not self._woken and self._items:
            self._woken = True
            # Wake the latest: the same few takers do the work as long as they can, with warm caches.
            waiter = self._idle.pop()
            if waiter.done():  # cancelled in this very turn
                self._woken = False
                self._wake()
            else:
                waiter.set_result(None)

    async def _come(self) -> None:
        """Wait until there may be something that no one else is taking."""
        loop = asyncio.get_running_loop()
        while True:
            waiter: asyncio.Future[None] = loop.create_future()
            self._idle.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._idle:
                    self._idle.remove(waiter)
                else:
                    self._woken = False
                    self._wake()  # woken but cancelled: wake another instead
                raise
            self._woken = False
            if self._closed or not self._stepped_aside:
                return

    def _turn_is_over(self) -> bool:
        now = time.monotonic()
        if not self._turn_ends:
            self._turn_ends = now + TURN
            asyncio.get_running_loop().call_soon(self._next_turn)
        return now > self._turn_ends

    def _next_turn(self) -> None:
        self._turn_ends = 0.0

    async def _step_aside(self) -> None:
        self._stepped_aside += 1
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._stepped_aside -= 1
            self._wake()  # what it would have taken is left to another
            raise
        self._stepped_aside -= 1
