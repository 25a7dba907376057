"""Finds the topics that a sink writes to, and creates them if asked to.

A missing topic is refused, never guessed: a broker with automatic creation would make one for every typo. If
a name server cannot be reached, the sink waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.client import AdminClient
from pyromq.client.names import check_topic_for_send
from pyromq.errors import NoPermission, PyroMQError, RouteNotFound

from ..blocking_client import Link

if TYPE_CHECKING:
    from pyromq.protocol.message_queue import MessageQueue

    from ..options import SinkOptions

logger = logging.getLogger(__name__)

# Seconds that a plan or a task waits for a name server. A stream survives its restart.
BATCH_PATIENCE, STREAM_PATIENCE = 5.0, 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CREATED_WITHIN = 10.0
_BELIEVED_FOR = 30.0

Queues = tuple["MessageQueue", ...]

# A stream is planned for every batch, in one process: no need to ask again for what was seen a moment ago.
_seen: dict[tuple[str, str | None, str], tuple[float, Queues]] = {}


def check_topics(options: SinkOptions, *, streams: bool) -> dict[str, Queues]:
    """The queues of the topics in the options, for all tasks to agree on. ConfigError for a missing topic."""
    topics = [topic for topic in (options.topic, options.dead_letter_topic) if topic is not None]
    found: dict[str, Queues] = {}
    if streams:
        for topic in topics:
            seen = _seen.get((options.namesrv, options.namespace, topic))
            if seen is not None and time.monotonic() - seen[0] < _BELIEVED_FOR:
                found[topic] = seen[1]
    missing = [topic for topic in topics if topic not in found]
    if missing:
        with Link(options) as link:
            for topic in missing:
                patience = STREAM_PATIENCE if streams else BATCH_PATIENCE
                queues = found[topic] = link.run(find_topic(link, options, topic, patience))
                _seen[options.namesrv, options.namespace, topic] = time.monotonic(), queues
    return found


async def find_topic(link: Link, options: SinkOptions, topic: str, patience: float) -> Queues:
    """The writable queues of `topic`, in order; with `createTopic` a missing topic is created.

    Raises RouteNotFound for a topic that no broker has or that has no writable queue; the last error
    after `patience` seconds. Where a master has just failed, it waits as long for the next.
    """
    wire = link.namespace.wrap(topic)
    check_topic_for_send(wire)
    deadline = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            queues = await _queues(link, wire)
            if queues is None and options.create_topic is not None:
                queues = await _create(link, wire, options.create_topic)
            if queues == [] and link.client.routes.awaits_master(wire):
                raise _no_queue(topic, retriable=True)
            break
        except PyroMQError as exc:
            if not exc.retriable or isinstance(exc, NoPermission) or time.monotonic() + pause > deadline:
                raise
            logger.warning("cannot find the route of %s: %s; trying again in %g s", topic, exc, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    if queues is None:
        raise _absent(
            f"{topic}: no broker has this topic, says name server {options.namesrv}; createTopic=8 creates it"
        )
    if not queues:
        raise _no_queue(topic)
    return tuple(sorted(map(link.for_user, queues)))


async def _queues(link: Link, wire: str) -> list[MessageQueue] | None:
    if await link.client.routes.refresh(wire) is None:
        return None
    info = link.client.routes.cached_publish_info(wire)
    return [] if info is None else list(info.queues)


async def _create(link: Link, wire: str, count: int) -> list[MessageQueue] | None:
    """Create the topic on all masters, and wait until name servers know it."""
    admin = await AdminClient(client=link.client).start()
    await admin.topics.create(wire, read_queues=count, write_queues=count)
    logger.info("topic %s created with %d queues on each broker", wire, count)
    deadline = time.monotonic() + _CREATED_WITHIN
    while True:
        queues = await _queues(link, wire)
        if queues or time.monotonic() > deadline:
            return queues
        await asyncio.sleep(_FIRST_PAUSE)


def _absent(text: str) -> RouteNotFound:
    return RouteNotFound(text)


def _no_queue(topic: str, *, retriable: bool = False) -> RouteNotFound:
    error = _absent(f"{topic}: none of its queues can be written to now")
    error.retriable = retriable
    return error
