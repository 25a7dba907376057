"""Reports a query's progress as a consumer group, so that every tool that knows groups shows its lag.

It is only a report: on a restart the checkpoint counts. Only a new query with `startingOffsets=group` reads it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, ConsumerNotOnline, PyroMQError, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..blocking_client import Link

logger = logging.getLogger(__name__)


class GroupProgress:
    """Reports for one group. Only changes are sent."""

    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group
        self._wire_group = link.namespace.wrap(group)
        self._reported: dict[MessageQueue, int] = {}

    async def check_alone(self, brokers: Iterable[str]) -> None:
        """Refuse a group with live consumers: a report would move them to this query's offsets. Raises ConfigError."""
        for broker in brokers:
            address = self._link.replica(broker)
            if address is None:
                continue
            try:
                members = await self._link.client.calls.consumer_ids(address, self._wire_group)
            except (ServerError, ConsumerNotOnline):  # how brokers say that there are no members
                continue
            if members:
                raise ConfigError(
                    f"consumerGroup={self._group} has live consumers ({', '.join(sorted(members)[:3])}), whose "
                    "progress a report would change; use a group of its own, or set groupShared=true"
                )

    async def report(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store these as the group's offsets, one-way. Brokers that are unreachable now get the next report."""
        changed = {queue: offset for queue, offset in offsets.items() if self._reported.get(queue) != offset}
        for queue, offset in changed.items():
            address = self._link.replica(queue.broker_name, only_this=True)
            if address is None:
                continue
            try:
                await self._link.client.calls.update_offset(
                    address, self._wire_group, self._link.on_wire(queue), offset
                )
            except PyroMQError as exc:
                logger.warning("cannot report progress of group %s: %s", self._group, exc)
                return
            self._reported[queue] = offset
