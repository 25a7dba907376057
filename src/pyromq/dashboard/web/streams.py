"""Server-sent events: a bounded queue for each browser; one that reads too slowly is told how much it missed."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

KEEP_ALIVE = 15.0
BOUND = 64
MOST_STREAMS = 200


@dataclass(frozen=True, slots=True)
class Event:
    """`id` comes back as Last-Event-ID when a browser connects again. Events of a cluster go to its watchers only."""

    name: str
    data: str
    id: str | None = None
    cluster: str | None = None

    def encode(self) -> bytes:
        lines = [f"event: {self.name}"]
        if self.id is not None:
            lines.append(f"id: {self.id}")
        lines += [f"data: {line}" for line in self.data.splitlines() or [""]]
        return ("\n".join(lines) + "\n\n").encode()


class Queue:
    """Events for one browser. When it is full the oldest one goes, and is counted."""

    def __init__(self, bound: int = BOUND) -> None:
        self._events: deque[Event] = deque()
        self._bound = bound
        self._ready = asyncio.Event()
        self._skipped = 0
        self._closed = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) > self._bound:
            self._events.popleft()
            self._skipped += 1
        self._ready.set()

    def close(self) -> None:
        self._closed = True
        self._ready.set()

    async def get(self, timeout: float) -> list[Event] | None:
        """All events that wait, `skipped` first if some are lost; empty after `timeout` seconds, None at the end."""
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            return []
        if self._closed:
            return None
        self._ready.clear()
        events = list(self._events)
        self._events.clear()
        if self._skipped:
            events.insert(0, Event("skipped", str(self._skipped)))
            self._skipped = 0
        return events


class Channel:
    """Passes events to every browser that watches."""

    def __init__(self) -> None:
        self._queues: dict[Queue, str] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def publish(self, event: Event) -> None:
        for queue, cluster in self._queues.items():
            if event.cluster in (None, cluster):
                queue.put(event)

    def close(self) -> None:
        for queue in self._queues:
            queue.close()

    async def watch(self, cluster: str, is_welcome: Callable[[], bool] = lambda: True) -> AsyncIterator[bytes]:
        """What a browser that watches this cluster is sent, as long as it is welcome."""
        queue = Queue()
        self._queues[queue] = cluster
        try:
            yield b"retry: 2000\n\n"
            while (events := await queue.get(KEEP_ALIVE)) is not None and is_welcome():
                yield b"".join(event.encode() for event in events) or b": still here\n\n"
        finally:
            del self._queues[queue]


class EventStream(StreamingResponse):
    """A response that goes on. `open_now` counts those of this process: a browser that opens hundreds is refused."""

    open_now = 0

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        EventStream.open_now += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            EventStream.open_now -= 1
