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
    """Where a group begins that has never committed; a datetime instead means the first message stored since then.

    LAST is RocketMQ's, and has its leniency: of a young queue, which still has its first message, it reads
    everything, so that what was sent before the first consumer came is not lost. LATEST_STRICT and a datetime mean
    what they say; but only brokers of 5.x, and PyroMQ's, can be asked for that.
    """

    LAST = "last"
    FIRST = "first"
    LATEST_STRICT = "latest, strictly"


def is_strict(start_at: StartAt | datetime) -> bool:
    """Whether the broker must not answer 0 for a group that never committed (`strict` of a BrokerOffsetStore)."""
    return start_at is StartAt.LATEST_STRICT or isinstance(start_at, datetime)


def consume_from_where(start_at: StartAt | datetime) -> ConsumeFromWhere:
    """How a heartbeat tells it."""
    if isinstance(start_at, datetime):
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start_at is StartAt.FIRST:
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


async def start_offset(
    client: Client, group: str, queue: MessageQueue, start_at: StartAt | datetime, store: OffsetStore
) -> int | None:
    """The committed offset; without one, what `start_at` says. None if that could not be found out.

    None must not be taken for an answer: who starts anywhere else loses messages or gets them all again. Ask later.
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
    """Where in `queue` the first message is, the next one will be, or the time is reached. Raises what asking raises.

    A retry topic is younger than its group's first failure: whatever it holds is to be read, unless a time was given.
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
