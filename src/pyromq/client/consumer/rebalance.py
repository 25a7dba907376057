"""Rebalancing: which queues this member of a group reads, decided again whenever members or queues come and go.

No one hands queues out. Every member asks a broker for the members, computes its share with the common strategy, gives
up queues that are not in it and takes new ones (docs/spec/client.md 3.3 to 3.6).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, RouteNotFound
from pyromq.protocol.names import is_retry_topic

from .process_queue import ProcessQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from .allocation import Strategy
    from .offset_store import OffsetStore

logger = logging.getLogger(__name__)

PERIOD = 20.0
SOON = 1.0  # the next round after one that could not do everything


class Rebalancer:
    """The queues a consumer owns, and the rounds in which they change. Names are those on the wire.

    `topics` are the subscribed ones. For each new queue, `start` gives the offset to begin at (None: not now), then
    `added` is called; for each queue given up, `removed`, after its progress was committed. Before a change takes
    effect, `renew` gives the topic's subscription a new version for the brokers; `changed` is called after it.

    Ordered consumers also pass `lock`, which must agree before a queue is taken, and `release`, which replaces
    committing and forgetting; if it refuses, the queue stays here, dropped, until the next round.

    `run_once` must not run twice at once: have it run by `Tasks.every(name, 0.0, rebalancer.period, …run_once)`.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        strategy: Strategy,
        store: OffsetStore,
        *,
        topics: Callable[[], Collection[str]],
        start: Callable[[MessageQueue], Awaitable[int | None]],
        added: Callable[[MessageQueue, ProcessQueue, int], None],
        removed: Callable[[MessageQueue, ProcessQueue], None],
        renew: Callable[[str], None] | None = None,
        changed: Callable[[], None] | None = None,
        lock: Callable[[MessageQueue, ProcessQueue], Awaitable[bool]] | None = None,
        release: Callable[[MessageQueue, ProcessQueue], Awaitable[bool]] | None = None,
        broadcast: bool = False,
        watch_pulls: bool = True,
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._store = store
        self._topics = topics
        self._start = start
        self._added = added
        self._removed = removed
        self._renew = renew
        self._changed = changed
        self._lock = lock
        self._release = release
        self._broadcast = broadcast
        self._watch_pulls = watch_pulls
        self.owned: dict[MessageQueue, ProcessQueue] = {}
        self.balanced = True

    def period(self) -> float:
        """Seconds until the next round, unless one is requested earlier."""
        return PERIOD if self.balanced else SOON

    async def run_once(self) -> None:
        """One round over all topics. A topic stays unchanged if its members or queues cannot be found out."""
        balanced = True
        topics = tuple(self._topics())
        for topic in topics:
            balanced = await self._rebalance(topic) and balanced
        gone = [(queue, held) for queue, held in self.owned.items() if queue.topic not in topics]
        if gone:
            balanced = await self._remove_all(gone) and balanced
            if self._changed is not None:
                self._changed()
        self.balanced = balanced

    async def drop(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Give up a queue at once; the next round takes it again if it is still ours. False: not yet possible."""
        process_queue.dropped = True
        if self.owned.get(queue) is not process_queue:
            return True
        if self._release is not None:
            if not await self._release(queue, process_queue):
                return False
        else:
            await self._commit(queue)
        # While that was awaited another call may have done the same.
        if self.owned.get(queue) is process_queue:
            self._store.remove(queue)
            del self.owned[queue]
            logger.info("%s: gave up %s", self._group, queue)
            self._removed(queue, process_queue)
        return True

    async def _rebalance(self, topic: str) -> bool:
        """One round for one topic; returns whether we now own exactly our share."""
        try:
            queues = sorted(await self._client.routes.subscribe_queues(topic))
            members = [] if self._broadcast else await self._members(topic)
        except RouteNotFound as exc:
            if not is_retry_topic(topic):  # the broker makes that one when it hears of the group
                logger.warning("%s: %s", self._group, exc)
            return True  # there is nothing to read, and the client hears of it when there is
        except PyroMQError as exc:
            logger.warning("%s: cannot find out who reads %s: %s; the assignment stays", self._group, topic, exc)
            return False
        target = queues if self._broadcast else self._share(topic, queues, members)
        if target is None:
            return False
        known = self._broadcast or self._client.client_id in members
        if not known:
            logger.warning("%s: the broker does not know %s as a member", self._group, self._client.client_id)
            await self._client.heartbeat()
        now = time.monotonic()
        leaving = [
            (queue, held)
            for queue, held in self.owned.items()
            if queue.topic == topic
            and (queue not in target or held.dropped or (self._watch_pulls and held.is_pull_expired(now)))
        ]
        for queue, held in leaving:
            if queue in target and not held.dropped:
                logger.warning("%s: %s was not pulled for %.0f s", self._group, queue, now - held.last_pull)
        balanced = await self._remove_all(leaving)
        new = [queue for queue in target if queue not in self.owned]
        prepared = [found for found in await asyncio.gather(*map(self._prepare, new)) if found is not None]
        if leaving or prepared:
            await self._tell(topic)
            # No await from here on: an owned queue is always being read.
            for queue, process_queue, offset in prepared:
                self.owned[queue] = process_queue
                logger.info("%s: took %s at offset %d", self._group, queue, offset)
                self._added(queue, process_queue, offset)
            if self._changed is not None:
                self._changed()
        return balanced and known and len(prepared) == len(new)

    async def _members(self, topic: str) -> list[str]:
        routes = self._client.routes
        addresses = [
            found[0] for name in routes.brokers_of(topic) if (found := routes.replica(name, 0, False)) is not None
        ]
        if not addresses:
            return []
        address = random.choice(addresses)  # every one of them knows all members
        return sorted(set(await self._client.calls.consumer_ids(address, self._group)))

    def _share(self, topic: str, queues: list[MessageQueue], members: list[str]) -> list[MessageQueue] | None:
        """The queues that should be ours; None if unknown."""
        if not members:
            return None
        try:
            share = self._strategy.allocate(self._group, self._client.client_id, queues, members)
        except Exception:  # a strategy may be user code: its errors must not cost us our queues
            logger.exception("%s: %s failed; the assignment stays", self._group, self._strategy.name)
            return None
        # A strategy with its own list may name queues of other topics: they have their own turn.
        return [queue for queue in dict.fromkeys(share) if queue.topic == topic]

    async def _prepare(self, queue: MessageQueue) -> tuple[MessageQueue, ProcessQueue, int] | None:
        """Prepare to own `queue`; None if that is not possible now."""
        process_queue = ProcessQueue(time.monotonic())
        if self._lock is not None:
            if not await self._lock(queue, process_queue):
                logger.info("%s: %s is still locked by another member", self._group, queue)
                return None
            process_queue.locked = True
            process_queue.last_lock = time.monotonic()
        self._store.remove(queue)  # another member may have moved on since
        offset = await self._start(queue)
        if offset is None or offset < 0:
            return None
        process_queue.last_pull = time.monotonic()
        return queue, process_queue, offset

    async def _remove_all(self, leaving: Iterable[tuple[MessageQueue, ProcessQueue]]) -> bool:
        leaving = list(leaving)
        for _, process_queue in leaving:
            process_queue.dropped = True
        return all(await asyncio.gather(*(self.drop(queue, held) for queue, held in leaving)))

    async def _commit(self, queue: MessageQueue) -> None:
        try:
            await self._store.persist(queue)
        except (PyroMQError, OSError) as exc:
            logger.warning("%s: progress at %s not committed: %s", self._group, queue, exc)

    async def _tell(self, topic: str) -> None:
        """Send the new version of the subscription to the brokers before the first pull uses it."""
        if self._renew is not None:
            self._renew(topic)
        await self._client.heartbeat()
