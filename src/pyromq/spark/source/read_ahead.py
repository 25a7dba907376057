"""Reads ahead: a thread makes the next item while the caller works on the current one.

A task turns records into rows and hands them to Spark, which takes about as long as a broker takes to send the next.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """An iterator over `items`, one ahead. Errors come where their item would have been.

    Until it is closed, `items` belongs to the thread. Closing ends the thread: `interrupt` is called from outside
    to end whatever `items` waits for, with any error.
    """

    def __init__(self, items: Iterator[T], interrupt: Callable[[], None]) -> None:
        self._items = items
        self._interrupt = interrupt
        self._made: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        # One more may be made; there is no room for others.
        self._wanted = threading.Semaphore()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_closed = True
        self._wanted.release()
        self._interrupt()
        self._thread.join()

    def __iter__(self) -> Iterator[T]:
        while True:
            made = self._made.get()
            if made is None:
                return
            if isinstance(made, BaseException):
                raise made
            self._wanted.release()
            yield made[0]

    def _run(self) -> None:
        try:
            while True:
                self._wanted.acquire()
                if self._is_closed:
                    return
                self._made.put((next(self._items),))
        except StopIteration:
            self._made.put(None)
        except BaseException as exc:  # goes to the caller, wherever it arose
            self._made.put(exc)
