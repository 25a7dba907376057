"""Pulls that found nothing and wait for a message. Decides; the pull processor answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .filters.consumer_filters import Selection


class HeldPull:
    """A pull that waits. `looked_at` is the offset up to which nothing matched, so nothing is looked at twice."""

    __slots__ = ("connection", "deadline", "looked_at", "offset", "queue", "request", "selection")

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

    def goes_on_waiting(self, now: float) -> bool:
        return now < self.deadline and self.looked_at == self.offset and not self.connection.closed


class HeldPulls:
    """The pulls that wait, by queue. Waiting costs nothing; a queue that nobody waits for costs one look-up."""

    def __init__(self) -> None:
        self._by_queue: dict[ConsumeQueue, list[HeldPull]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def hold(self, pull: HeldPull) -> None:
        self._by_queue.setdefault(pull.queue, []).append(pull)

    def take(self, queue: ConsumeQueue) -> list[HeldPull]:
        """Remove and return the pulls that wait for `queue`, which got a message; who is not served is held again."""
        return self._by_queue.pop(queue, [])

    def take_topic(self, topic: str) -> list[HeldPull]:
        """Remove and return the pulls that wait for any queue of `topic`."""
        return [pull for queue in list(self._by_queue) if queue.topic == topic for pull in self.take(queue)]

    def expire(self, now: float) -> list[HeldPull]:
        """Remove and return every pull that has waited long enough, or whose peer is gone.

        Also those that messages were passed over for: their consumers learn how far they are, and commit that.
        """
        expired: list[HeldPull] = []
        for queue, pulls in list(self._by_queue.items()):
            left = [pull for pull in pulls if pull.goes_on_waiting(now)]
            if len(left) < len(pulls):
                expired += [pull for pull in pulls if not pull.goes_on_waiting(now)]
                if left:
                    self._by_queue[queue] = left
                else:
                    del self._by_queue[queue]
        return expired

    def clear(self) -> list[HeldPull]:
        """Remove and return all: the broker stops."""
        pulls = [pull for pulls in self._by_queue.values() for pull in pulls]
        self._by_queue.clear()
        return pulls
