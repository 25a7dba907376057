"""What a store shows of topics and groups that the settings files do not know.

A queue that holds messages had a topic once. If topics.json lacks it, because the file was lost, emptied or restored
from an older copy, the topic comes back with as many queues as it has folders: whoever wrote these messages was told
that they are kept. What else the file said of it (permissions, order, attributes) is not to be seen in a store.
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

LITE_QUEUES = "%LMQ%"  # queues of this prefix belong to clients of another protocol, and never have a topic


def holds_messages(queue: ConsumeQueue, log_start: int) -> bool:
    """Whether a queue leads to messages that are still in the log."""
    return queue.max_offset > queue.min_offset and queue.max_physical > log_start


def rediscover(store: MessageStore, state: BrokerState, topics: TopicTable, groups: GroupTable) -> None:
    """Bring back what the files in `config` lack and the store shows. To be called once they are loaded."""
    found = _topics_of(store, topics, everything=state.topics.was_emptied)
    if state.topics.was_emptied:
        logger.error(
            "%s is empty and has no usable .bak; %d topics are known by their queues", state.topics.path, len(found)
        )
    for topic in found:
        topics.update(topic)
        logger.warning(
            "topic %s has messages but no entry in topics.json; it is back with %d queues, open to reads and writes",
            topic.topic_name,
            topic.write_queue_nums,
        )
    if state.groups.was_emptied:
        lost = [group for group in _groups_of(store.queues) if group not in groups]
        logger.error(
            "%s is empty and has no usable .bak; %d groups are known by their retries", state.groups.path, len(lost)
        )
        for group in lost:
            groups.update(SubscriptionGroupConfig(group_name=group))
    if state.offsets.was_emptied and len(store.queues):
        logger.error(
            "%s is empty and has no usable .bak: how far consumer groups were is lost, each starts where its consumers "
            "let a new group start; restore the file from a backup before consumers connect, if you have one",
            state.offsets.path,
        )
        state.offsets.write_again()


def _topics_of(store: MessageStore, known: TopicTable, *, everything: bool) -> list[TopicConfig]:
    counts: dict[str, int] = {}
    shown: set[str] = set()
    start = int(store.log.start)
    for queue in store.queues:
        name = queue.topic
        if name in known or name.startswith(LITE_QUEUES):
            continue
        counts[name] = max(counts.get(name, 0), queue.queue_id + 1)
        if everything or holds_messages(queue, start):
            shown.add(name)
    return [
        TopicConfig(topic_name=name, read_queue_nums=counts[name], write_queue_nums=counts[name])
        for name in sorted(shown)
    ]


def _groups_of(queues: Iterable[ConsumeQueue]) -> list[str]:
    """Groups that have, or had, messages to try again or to give up."""
    names = {queue.topic for queue in queues}
    return sorted(
        {
            name.removeprefix(prefix)
            for name in names
            for prefix in (RETRY_PREFIX, DLQ_PREFIX)
            if name.startswith(prefix)
        }
    )
