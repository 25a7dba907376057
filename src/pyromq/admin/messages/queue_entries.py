"""The entries of consume queues: where each message lies in the log, and whether a group's filter accepts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..listing import Listing

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient
    from pyromq.protocol.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """Where a message lies in the commit log. `matches` refers to the given group."""

    offset: int
    commit_log_offset: int
    size: int
    tags_code: int
    matches: bool | None
    note: str | None


async def queue_entries(
    admin: AdminClient, queue: MessageQueue, begin: int | None = None, count: int = 20, group: str | None = None
) -> Listing[QueueEntry]:
    """Entries of a queue from `begin` on, or the last ones; `group` adds which of them it wants.

    Raises NoMessage if the queue ends before `begin`.
    """
    if begin is None:
        begin = max(await admin.offsets.maximum(queue) - count, await admin.offsets.minimum(queue))
    found = await admin.messages.consume_queue(queue, begin, count, group)
    rows = [
        QueueEntry(
            index,
            entry.physic_offset,
            entry.physic_size,
            entry.tags_code,
            entry.eval if group else None,
            entry.msg,
        )
        for index, entry in enumerate(found.queue_data, start=begin)
    ]
    parts = [f"the queue begins at {found.min_queue_index} and ends before {found.max_queue_index}"]
    if group:
        subscribed = found.subscription_data
        parts.append(f"group {group} wants {subscribed.sub_string if subscribed else 'nothing that is known'}")
    return Listing.make(QueueEntry, rows, summary="; ".join(parts))
