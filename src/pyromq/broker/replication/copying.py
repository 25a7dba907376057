"""What a slave does with the bytes of its master's log: it keeps them, reports them and dispatches them, in this order.

Senders of the master wait for the report, so it comes first. Under SYNC_FLUSH it says only what the disk has: a master
counts on every byte that was reported, and a power failure here must not take it back. One flush serves all that came
while the last one ran.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, RemoteProtocolError
from pyromq.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

# Many records are dispatched for a fraction of what each costs alone, and meanwhile the next ones wait to be
# acknowledged, with their senders. So they are dispatched together: so many bytes, or so many seconds later.
_DISPATCH_SIZE = 256 << 10
_DISPATCH_AFTER = 0.005

# Bytes to read at most in one turn: a few milliseconds of work.
READ = 512 << 10


class Copying:
    """Belongs to one connection to a master, and to the event loop.

    `report` is called when the master may be told more, `dispatched` with the queues that got messages, `failed` when
    the disk refuses, or what came is no log.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        report: Callable[[], None],
        dispatched: Callable[[list[ConsumeQueue]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._report = report
        self._dispatched = dispatched
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._waits_for_disk = store.config.flush is FlushDiskType.SYNC_FLUSH
        self._is_flushing = False
        self._dispatching: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def safe_end(self) -> int:
        """What the master may be told: where the log ends, under SYNC_FLUSH where it ends on disk.

        That may be within a record. Nobody waits for such a place, so it promises only the records before it.
        """
        end = int(self._store.log.end)
        return min(end, self._store.flusher.flushed) if self._waits_for_disk else end

    async def settled(self) -> None:
        """Return once `safe_end` is the end, which the first report must be: the master sends what follows it."""
        if self._waits_for_disk:
            await asyncio.wrap_future(self._store.flushed())

    def keep(self, pieces: Iterable[tuple[int, memoryview]]) -> None:
        """Keep pieces of the master's log, each with its offset; heartbeats have none.

        RemoteProtocolError at one that does not continue this log, OSError or StoreNotWritable at one that the disk
        refuses; the pieces before that one are kept.
        """
        start = end = int(self._store.log.end)
        wrong: RemoteProtocolError | None = None
        kept: list[memoryview] = []
        for offset, data in pieces:
            if end and offset != end:
                wrong = RemoteProtocolError(f"the master sent what belongs to {offset}; this log ends at {end}")
                break
            if data:
                if not kept:
                    start = offset
                kept.append(data)
                end = offset + len(data)
        if kept:
            waiting = self._store.keep_copy(start, *kept)
            self._grown()
            self._dispatch_later(waiting)
        if wrong is not None:
            raise wrong

    def _grown(self) -> None:
        if self._waits_for_disk:
            self._wait_for_disk()
        else:
            self._report()

    def _wait_for_disk(self) -> None:
        if self._is_flushing:
            return  # `_flushed` looks again

        def done(future: Future[None]) -> None:
            # In the flush thread, or here if the disk was faster.
            self._loop.call_soon_threadsafe(self._flushed, future.exception())

        self._is_flushing = True
        self._store.flushed().add_done_callback(done)

    def _flushed(self, error: BaseException | None) -> None:
        self._is_flushing = False
        if self._is_closed:
            return
        if isinstance(error, Exception):
            self._failed(error)
            return
        self._report()
        if self.safe_end < self._store.log.end:
            self._wait_for_disk()

    def _dispatch_later(self, waiting: int) -> None:
        if waiting >= _DISPATCH_SIZE:
            self.dispatch()
        elif waiting and self._dispatching is None:
            self._dispatching = self._loop.call_later(_DISPATCH_AFTER, self.dispatch)

    @property
    def is_dispatching(self) -> bool:
        """Whether something that was kept will be dispatched in a moment."""
        return self._dispatching is not None

    def dispatch(self) -> None:
        """Show what was kept to readers, as far as records are whole."""
        if self._dispatching is not None:
            self._dispatching.cancel()
            self._dispatching = None
        try:
            queues = self._store.dispatch_copy()
        except (OSError, PyroMQError) as exc:
            self._failed(exc)
        else:
            self._dispatched(queues)

    def close(self) -> None:
        """Nothing more comes. What was kept is dispatched before anybody looks where this log ends."""
        if not self._is_closed:
            self._is_closed = True
            self.dispatch()
