"""Pops that found nothing and wait for a message. They are retried in the same turn in which one arrives.

    topic, and its retry topics  ──>  groups that wait  ──>  by queue (-1 is any): who waits, the longest first

All members of a group want the same messages, so if one finds nothing, those behind it need not try. A topic that
no pop waits for costs one lookup, and waiting costs only a timer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pyromq.protocol.pop_handle import pop_retry_topic

from ..turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyromq.remoting import Connection
    from pyromq.store.queues.consume_queue import ConsumeQueue

ANY_QUEUE = -1

_LONGEST = 24 * 3600.0  # seconds; no connection lasts that long


class Wanted(NamedTuple):
    """What a pop is for."""

    topic: str
    group: str
    queue_id: int = ANY_QUEUE


class HeldPop:
    """A request that waits. `serve` is called when there may be messages and returns whether it answered; `give_up`
    answers it when it has waited long enough.
    """

    __slots__ = ("connection", "give_up", "serve", "timer", "wanted")

    def __init__(
        self,
        connection: Connection,
        wanted: Wanted,
        serve: Callable[[], bool],
        give_up: Callable[[], None],
    ) -> None:
        self.connection = connection
        self.wanted = wanted
        self.serve = serve
        self.give_up = give_up
        self.timer: asyncio.TimerHandle | None = None


class HeldPops:
    """The pops that wait."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._groups: dict[tuple[str, str], dict[int, OrderedDict[HeldPop, None]]] = {}
        # For each topic, including retry topics: the groups that wait for it, with the topic they ask for.
        self._watchers: dict[str, set[tuple[str, str]]] = {}
        self._count = 0
        # The queues whose waiting pops are being woken, and whether messages came meanwhile.
        self._waking: dict[ConsumeQueue, bool] = {}

    def __len__(self) -> int:
        return self._count

    def count(self, wanted: Wanted) -> int:
        return len(self._groups.get((wanted.topic, wanted.group), {}).get(wanted.queue_id, ()))

    def hold(self, pop: HeldPop, seconds: float) -> None:
        """Let a pop wait, at most this long."""
        topic, group, queue_id = pop.wanted
        queues = self._groups.get((topic, group))
        if queues is None:
            queues = self._groups[topic, group] = {}
            for name in _topics(topic, group):
                self._watchers.setdefault(name, set()).add((topic, group))
        queues.setdefault(queue_id, OrderedDict())[pop] = None
        self._count += 1
        pop.timer = self._loop.call_later(min(seconds, _LONGEST), self._expire, pop)

    def arrived(self, queue: ConsumeQueue) -> None:
        """A queue got messages: answer the pops that wait for them."""
        if queue.topic not in self._watchers:
            return
        if queue in self._waking:
            self._waking[queue] = True
            return
        self._waking[queue] = True
        in_turns(self._loop, self._wake_watchers(queue))

    def _wake_watchers(self, queue: ConsumeQueue) -> Iterator[None]:
        try:
            while self._waking[queue]:
                self._waking[queue] = False
                for topic, group in list(self._watchers.get(queue.topic, ())):
                    yield from self._wake(topic, group, queue.queue_id if queue.topic == topic else ANY_QUEUE)
        finally:
            del self._waking[queue]

    def wake(self, topic: str, group: str, queue_id: int = ANY_QUEUE) -> None:
        """There may be messages for a group, in this queue or in any."""
        in_turns(self._loop, self._wake(topic, group, queue_id))

    def _wake(self, topic: str, group: str, queue_id: int) -> Iterator[None]:
        queues = self._groups.get((topic, group))
        if queues is None:
            return
        for waiting_for in list(queues) if queue_id == ANY_QUEUE else (ANY_QUEUE, queue_id):
            waiting = queues.get(waiting_for)
            while waiting:
                pop = next(iter(waiting))
                if not pop.connection.closed and not pop.serve():
                    yield
                    break
                self._remove(pop)
                yield

    def _expire(self, pop: HeldPop) -> None:
        self._remove(pop)
        if not pop.connection.closed and not pop.serve():
            pop.give_up()

    def _remove(self, pop: HeldPop) -> None:
        topic, group, queue_id = pop.wanted
        queues = self._groups.get((topic, group), {})
        waiting = queues.get(queue_id)
        if waiting is None or pop not in waiting:
            return
        if pop.timer is not None:
            pop.timer.cancel()
        self._count -= 1
        del waiting[pop]
        if waiting:
            return
        del queues[queue_id]
        if queues:
            return
        del self._groups[topic, group]
        for name in _topics(topic, group):
            self._watchers[name].discard((topic, group))
            if not self._watchers[name]:
                del self._watchers[name]

    def _all(self) -> Iterator[HeldPop]:
        return (pop for queues in self._groups.values() for waiting in queues.values() for pop in waiting)

    def sweep(self) -> None:
        """Forget pops whose clients are gone."""
        self._take(pop for pop in self._all() if pop.connection.closed)

    def forget(self, topic: str) -> None:
        """A topic is gone: answer the pops that wait for it."""
        self._give_up(pop for pop in self._all() if pop.wanted.topic == topic)

    def stop(self) -> None:
        """Answer all: the broker is about to stop."""
        self._give_up(self._all())

    def _give_up(self, pops: Iterable[HeldPop]) -> None:
        for pop in self._take(pops):
            if not pop.connection.closed:
                pop.give_up()

    def _take(self, pops: Iterable[HeldPop]) -> list[HeldPop]:
        taken = list(pops)
        for pop in taken:
            self._remove(pop)
        return taken


def _topics(topic: str, group: str) -> tuple[str, str, str]:
    return topic, pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)
