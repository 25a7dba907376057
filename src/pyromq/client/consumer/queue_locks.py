"""Queue locks: while an ordered consumer holds the lock of a queue, no other member of its group reads it (3.6).

The broker releases a lock after 60 silent seconds, so holders renew it every 20; a holder that could not renew stops
after 30, long before anyone else can get it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)

FIRST_REFRESH, REFRESH = 1.0, 20.0
# A handler that does not end keeps its queue this long after the last renewal; then the queue is given up anyway.
FORCE_AFTER = 20.0


class QueueLocks:
    """Locks queues at their brokers for one group, by its wire name."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    async def lock(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Get or renew one lock; False if another member has it, or the broker cannot be asked."""
        return queue in await self._lock(queue.broker_name, {queue: held})

    async def refresh(self, owned: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Renew the locks of all queues. The locks of an unreachable broker stay as they are."""
        by_broker: dict[str, dict[MessageQueue, ProcessQueue]] = defaultdict(dict)
        for queue, held in owned.items():
            if not held.dropped:
                by_broker[queue.broker_name][queue] = held
        await asyncio.gather(*(self._lock(broker, queues) for broker, queues in by_broker.items()))

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Release locks. Failures are logged: the broker releases them later anyway."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._unlock(broker, those, wait) for broker, those in by_broker.items()))

    async def _lock(self, broker: str, queues: Mapping[MessageQueue, ProcessQueue]) -> set[MessageQueue]:
        address = self._client.routes.master(broker)
        if address is None:
            return set()
        try:
            got = await self._client.calls.lock(address, self._group, self._client.client_id, queues)
        except PyroMQError as exc:
            logger.warning("%s: queues of %s not locked: %s", self._group, broker, exc)
            return set()
        now = time.monotonic()
        for queue, held in queues.items():
            if queue in got:
                held.locked = True
                held.last_lock = now
            elif held.locked:
                logger.warning("%s: lost the lock of %s", self._group, queue)
                held.locked = False
        return got

    async def _unlock(self, broker: str, queues: list[MessageQueue], wait: bool) -> None:
        address = self._client.routes.master(broker)
        if address is None:
            return
        try:
            await self._client.calls.unlock(address, self._group, self._client.client_id, queues, oneway=not wait)
        except PyroMQError as exc:
            logger.warning("%s: queues of %s not unlocked: %s", self._group, broker, exc)
