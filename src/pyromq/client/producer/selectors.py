"""Selectors: which queue a message goes to.

By default queues take turns (`Turns`), and an attempt after a failure goes to another broker. A selector lets the
sender choose: it sees the queues of the topic and the message.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from pyromq.errors import InvalidMessage
from pyromq.protocol.hashing import java_hash
from pyromq.protocol.message import Message
from pyromq.protocol.message_queue import MessageQueue

if TYPE_CHECKING:
    from .faults import LatencyFaults

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue | Awaitable[MessageQueue]]


def shard_index(key: str, count: int) -> int:
    """The queue, of `count`, for `key`: the same one that Java's SelectMessageQueueByHash chooses."""
    return abs(java_hash(key)) % count  # Java drops the sign of its remainder too


def by_hash(key: str) -> Selector:
    """All messages with one key go to one queue, so that they are consumed in order."""
    return lambda queues, message: queues[shard_index(key, len(queues))]


def at_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return random.choice(queues)


async def selected(selector: Selector, queues: Sequence[MessageQueue], message: Message) -> int:
    """The position of the queue that the user's `selector` chooses. InvalidMessage if it chooses none of them."""
    try:
        choice = selector(queues, message)
        if inspect.isawaitable(choice):
            choice = await choice
    except Exception as exc:  # user code: any error means that there is no queue
        raise InvalidMessage(f"{message.topic}: the selector failed: {exc!r}") from exc
    try:
        return queues.index(choice)
    except ValueError:
        raise InvalidMessage(
            f"{message.topic}: the selector chose {choice!r}, which is not a queue of the topic"
        ) from None


class Turns:
    """The queues of one topic in turn, starting anywhere."""

    __slots__ = ("_last", "brokers")

    def __init__(self, brokers: Sequence[str], start: int | None = None) -> None:
        """`brokers` names the broker of each queue."""
        self.brokers = tuple(brokers)
        self._last = random.randrange(1 << 30) if start is None else start

    @property
    def position(self) -> int:
        """The current position, to continue from it with other queues."""
        return self._last

    def next(self) -> int:
        """The position of the next queue."""
        self._last += 1
        return self._last % len(self.brokers)

    def avoiding(self, broker: str | None) -> int:
        """The next queue that is not on `broker`; if there is none, simply the next."""
        if broker is not None:
            for _ in self.brokers:
                position = self.next()
                if self.brokers[position] != broker:
                    return position
        return self.next()

    def healthy(self, faults: LatencyFaults, broker: str | None, now: float) -> int:
        """The next queue on a healthy broker other than `broker`; else on one that answers; else any."""
        for passes in (faults.is_available, faults.is_reachable):
            for _ in self.brokers:
                position = self.next()
                candidate = self.brokers[position]
                if candidate != broker and passes(candidate, now):
                    return position
        return self.next()
