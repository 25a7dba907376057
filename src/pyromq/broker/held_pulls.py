"""Pulls that found nothing and wait for a message. Decides; the pull processor answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .filters.consumer_filters import Selection


_USUAL_SIZE = 4096


class HeldPull:
    """A waiting pull. Nothing before `looked_at` matched, so nothing is looked at twice."""

    __slots__ = ("connection", "deadline", "looked_at", "offset", "queue", "request", "selection", "weight")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        queue: ConsumeQueue,
        offset: int,
        deadline: float,
        selection: Selection = (None, None, None),
    ) -> None:
        self.connection = connection
        self.request = request
        self.queue = queue
        self.offset = offset
        self.looked_at = offset
        self.deadline = deadline
        self.selection = selection
        # What is kept of its request: a long filter, or fields that nobody reads, count as several pulls.
        self.weight = 1 + sum(map(len, (request.ext or {}).values())) // _USUAL_SIZE

    def goes_on_waiting(self, now: float) -> bool:
        return now < self.deadline and self.looked_at == self.offset and not self.connection.closed


class HeldPulls:
    """The waiting pulls by queue. Waiting costs nothing; a queue without waiting pulls costs one lookup.

    A pull stays until it is answered and `remove`d, so a loop over many of them that takes several turns
    of the event loop can be overtaken by others.
    """

    def __init__(self) -> None:
        self._by_queue: dict[ConsumeQueue, dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, int] = {}
        self.weight = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def of_queue(self, queue: ConsumeQueue) -> int:
        return len(self._by_queue.get(queue, ()))

    def of_connection(self, connection: Connection) -> int:
        """The weight of its pulls: their number, unless they are very long."""
        return self._by_connection.get(connection, 0)

    def hold(self, pull: HeldPull) -> None:
        self._by_queue.setdefault(pull.queue, {})[pull] = None
        self._by_connection[pull.connection] = self._by_connection.get(pull.connection, 0) + pull.weight
        self.weight += pull.weight

    def remove(self, pull: HeldPull) -> bool:
        """Whether the pull was still here."""
        pulls = self._by_queue.get(pull.queue)
        if pulls is None or pull not in pulls:
            return False
        del pulls[pull]
        if not pulls:
            del self._by_queue[pull.queue]
        self.weight -= pull.weight
        left = self._by_connection[pull.connection] - pull.weight
        if left:
            self._by_connection[pull.connection] = left
        else:
            del self._by_connection[pull.connection]
        return True

    def __contains__(self, pull: HeldPull) -> bool:
        return pull in self._by_queue.get(pull.queue, ())

    def waiting_for(self, queue: ConsumeQueue) -> list[HeldPull]:
        """The pulls that wait for `queue`, those that came first in front."""
        return list(self._by_queue.get(queue, ()))

    def queues(self) -> list[ConsumeQueue]:
        """The queues with waiting pulls."""
        return list(self._by_queue)

    def clear(self) -> list[HeldPull]:
        """Remove and return all pulls: the broker stops."""
        pulls = [pull for pulls in self._by_queue.values() for pull in pulls]
        self._by_queue.clear()
        self._by_connection.clear()
        self.weight = 0
        return pulls
