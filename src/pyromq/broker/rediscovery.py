"""Rediscovery: topics and groups that the store shows but the settings files lack.

A queue that holds messages had a topic once. If topics.json lacks it, because the file was lost, emptied or restored
from an older copy, the topic comes back with as many queues as it has folders: the senders of these messages were told
that they are stored. What else the file said of it (permissions, order, attributes) cannot be recovered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .groups import GroupTable
    from .kept_files import BrokerState
    from .topics import TopicTable

logger = logging.getLogger(__name__)

_SINGLE = (RETRY_PREFIX, DLQ_PREFIX)  # topics of groups, with one queue unless somebody wanted more
LITE_QUEUES = "%LMQ%"  # queues with this prefix belong to clients of another protocol, and never have a topic


def holds_messages(queue: ConsumeQueue, log_start: int) -> bool:
    """Whether a queue has messages that are still in the log."""
    return queue.max_offset > queue.min_offset and queue.max_physical > log_start


def rediscover(
    store: MessageStore, state: BrokerState, topics: TopicTable, groups: GroupTable, *, least_queues: int = 1
) -> None:
    """Bring back what the files in `config` lack but the store shows. Call it once they are loaded.

    A new master may lack a topic that is a few seconds old, whose producers use queues that have no message yet: it
    gets as many as new topics have, `least_queues`.
    """
    found = _topics_of(store, topics, everything=state.topics.was_emptied, least_queues=least_queues)
    if state.topics.was_emptied:
        logger.error(
            "%s is empty and has no usable .bak; found %d topics by their queues", state.topics.path, len(found)
        )
    for topic in found:
        topics.update(topic)
        logger.warning(
            "topic %s has messages but no entry in topics.json; restored it with %d queues, readable and writable",
            topic.topic_name,
            topic.write_queue_nums,
        )
    if state.groups.was_emptied:
        lost = [group for group in _groups_of(store.queues) if group not in groups]
        logger.error(
            "%s is empty and has no usable .bak; found %d groups by their retry topics", state.groups.path, len(lost)
        )
        for group in lost:
            groups.update(SubscriptionGroupConfig(group_name=group))
    if state.offsets.was_emptied and len(store.queues):
        logger.error(
            "%s is empty and has no usable .bak: consumer progress is lost, so each group starts where its consumers "
            "start a new group; if you have a backup, restore the file before consumers connect",
            state.offsets.path,
        )
        state.offsets.write_again()


def _topics_of(store: MessageStore, known: TopicTable, *, everything: bool, least_queues: int) -> list[TopicConfig]:
    counts: dict[str, int] = {}
    shown: set[str] = set()
    start = int(store.log.start)
    for queue in store.queues:
        name = queue.topic
        if name in known or name.startswith(LITE_QUEUES):
            continue
        least = least_queues if not name.startswith(_SINGLE) else 1
        counts[name] = max(counts.get(name, least), queue.queue_id + 1)
        if everything or holds_messages(queue, start):
            shown.add(name)
    return [
        TopicConfig(topic_name=name, read_queue_nums=counts[name], write_queue_nums=counts[name])
        for name in sorted(shown)
    ]


def _groups_of(queues: Iterable[ConsumeQueue]) -> list[str]:
    """Groups with a retry or dead-letter topic."""
    names = {queue.topic for queue in queues}
    return sorted(
        {
            name.removeprefix(prefix)
            for name in names
            for prefix in (RETRY_PREFIX, DLQ_PREFIX)
            if name.startswith(prefix)
        }
    )
