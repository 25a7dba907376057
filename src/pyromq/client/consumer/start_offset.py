"""Where a group starts in a queue that is new to it (docs/spec/client.md 3.5)."""

from __future__ import annotations

import logging
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies.heartbeat import ConsumeFromWhere
from pyromq.protocol.names import is_retry_topic

from .offset_store import ReadFrom

if TYPE_CHECKING:
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from .offset_store import OffsetStore

logger = logging.getLogger(__name__)


class StartAt(Enum):
    """Where a group that never committed begins; a datetime means the first message stored since then.

    LAST is RocketMQ's, with its leniency: a young queue, which still has its first message, is read from the start, so
    that messages sent before the first consumer came are not lost. LATEST_STRICT and a datetime are exact, but only
    5.x brokers and PyroMQ's support them.
    """

    LAST = "last"
    FIRST = "first"
    LATEST_STRICT = "latest, strictly"


def is_strict(start_at: StartAt | datetime) -> bool:
    """Whether the broker must not answer 0 for a new group (`strict` of a BrokerOffsetStore)."""
    return start_at is StartAt.LATEST_STRICT or isinstance(start_at, datetime)


def consume_from_where(start_at: StartAt | datetime) -> ConsumeFromWhere:
    """Its value in a heartbeat."""
    if isinstance(start_at, datetime):
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start_at is StartAt.FIRST:
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


async def start_offset(
    client: Client, group: str, queue: MessageQueue, start_at: StartAt | datetime, store: OffsetStore
) -> int | None:
    """The committed offset; without one, where `start_at` says. None if that could not be found out.

    None is not an answer: starting anywhere else would lose messages or repeat them all. Ask again later.
    """
    try:
        stored = await store.read(queue, ReadFrom.STORE)
        if stored is not None and stored >= 0:
            return stored
        return await find_offset(client, queue, start_at)
    except (PyroMQError, OSError) as exc:
        logger.warning("%s: no start offset for %s: %s; asking again later", group, queue, exc)
        return None


async def find_offset(client: Client, queue: MessageQueue, start_at: StartAt | datetime) -> int:
    """The offset of the first message in `queue`, the next one, or the first since a time. Raises if asking fails.

    A retry topic is younger than its group's first failure: read everything in it, unless a time was given.
    """
    retry = is_retry_topic(queue.topic)
    if retry and not isinstance(start_at, datetime):
        return 0
    address = await client.routes.master_or_refresh(queue)
    if isinstance(start_at, datetime) and not retry:
        return await client.calls.search_offset(address, queue, int(start_at.timestamp() * 1000))
    if start_at is StartAt.FIRST:
        return await client.calls.min_offset(address, queue)
    return await client.calls.max_offset(address, queue)
