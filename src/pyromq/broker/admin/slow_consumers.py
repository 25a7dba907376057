"""Protection from slow consumers: a group that reads far behind the end of the log reads from the disk, not from
memory, and takes the disk from all the others. An operator may have such groups stopped (docs/spec/broker.md 1.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from ..clients.connected import ConsumerGroup
    from ..context import Context, Tables

logger = logging.getLogger(__name__)


class Protection:
    """Watches the groups that are online; the others read nothing."""

    def __init__(self, context: Context, tables: Tables) -> None:
        self._store = context.store
        self._groups = tables.groups
        self._clients = tables.clients
        self._offsets = tables.offsets
        self._live = context.live

    def stop_slow_groups(self) -> list[str]:
        """Stop every group that lags by more than the threshold, if enabled; returns their names.

        They stay stopped, also after a restart, until an operator sets consumeEnable again.
        """
        config = self._live.config
        if not config.disable_slow_consumers:
            return []
        stopped = []
        for group in self._groups:
            online = self._clients.consumer_group(group.group_name)
            if online is None or not group.consume_enable:
                continue
            behind = self.behind(online)
            if behind > config.consumer_fall_behind:
                logger.warning("group %s stopped: it lags %d bytes behind", group.group_name, behind)
                self._groups.update(replace(group, consume_enable=False))
                stopped.append(group.group_name)
        return stopped

    def behind(self, group: ConsumerGroup) -> int:
        """How many bytes lie between the oldest message that `group` has not consumed and the end of the log."""
        end = int(self._store.log.end)
        oldest = end
        for topic in group.subscriptions:
            for queue_id, offset in self._offsets.of(group.name, topic).items():
                queue = self._store.queues.find(topic, queue_id)
                if queue is None:
                    continue
                # A group whose next message is gone continues with the first one.
                entry = queue.entry(max(offset, queue.min_offset))
                if entry is not None:
                    oldest = min(oldest, entry[0])
        return end - oldest
