"""TopicWatch: tells listeners when the queues of a topic change."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client

    # Called with a topic and all its queues; plain or async.
    QueuesListener = Callable[[str, frozenset[MessageQueue]], Awaitable[None] | None]

logger = logging.getLogger(__name__)


class TopicWatch:
    """One listener per topic. It is called with the queues at first, and then on every change."""

    def __init__(self, client: Client, bare: Callable[[MessageQueue], MessageQueue]) -> None:
        self._client = client
        self._bare = bare  # a queue as the user knows it, without the namespace
        self._listeners: dict[str, QueuesListener] = {}
        self._known: dict[str, frozenset[MessageQueue]] = {}

    @property
    def topics(self) -> Collection[str]:
        """The watched topics, by their wire names."""
        return self._listeners.keys()

    def add(self, topic: str, listener: QueuesListener) -> None:
        self._listeners[topic] = listener
        self._known.pop(topic, None)

    async def look(self) -> None:
        """Ask the name servers and notify listeners. A failure of one topic does not affect the others."""
        routes = self._client.routes
        for topic, listener in tuple(self._listeners.items()):
            try:
                await routes.refresh(topic)
            except PyroMQError as exc:
                logger.warning("cannot find out the queues of %s: %s", topic, exc)
                continue
            queues = frozenset(routes.cached_subscribe_queues(topic) or ())
            if queues != self._known.get(topic, frozenset()):
                self._known[topic] = queues
                await self._tell(listener, topic, queues)

    async def _tell(self, listener: QueuesListener, topic: str, queues: frozenset[MessageQueue]) -> None:
        try:
            answer = listener(self._client.namespace.unwrap(topic), frozenset(map(self._bare, queues)))
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # user code: its error ends here, and the other topics get their turn
            logger.exception("the listener for the queues of %s failed", topic)
