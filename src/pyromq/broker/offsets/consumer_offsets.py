"""Consumer offsets: how far each group has come in each queue.

    group -> topic -> queue id -> the next offset that the group will read

`kept_files` keeps them in consumerOffset.json, under the key `topic@group`. docs/spec/broker.md 9.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyromq.protocol.bodies import ConsumerOffsetTable, DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

logger = logging.getLogger(__name__)

# QUERY_CORRECTION_OFFSET's answer for a queue where no group lags behind the one compared with.
NOTHING_TO_CORRECT = 2**63 - 1

_SEPARATOR = "@"


class ConsumerOffsets:
    """What groups committed. Nothing is checked: group, topic and message need not exist.

    Each change sets `dirty`; saving the table clears it.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        # From 5.x, whose file has a version. Kept as found.
        self._data_version: DataVersion | None = None
        self.dirty = False

    def __len__(self) -> int:
        """How many offsets there are. Takes time proportional to groups and topics."""
        return sum(len(queues) for topics in self._groups.values() for queues in topics.values())

    def knows(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether there is, or was, an offset of this group in this queue."""
        return queue_id in self._queues(group, topic)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset `group` will read, or None if it never committed on this queue.

        None is not 0: it leaves the starting point to the consumer (first, last, or a time).
        """
        topics = self._groups.get(group)
        if topics is None:
            return None
        queues = topics.get(topic)
        if queues is None:
            return None
        offset = queues.get(queue_id, -1)
        return offset if offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset. The last one counts, even if smaller; a negative one counts as none."""
        before = self.get(group, topic, queue_id)
        if offset == before or (before is None and offset < 0):
            return
        if before is not None and offset < before:
            logger.warning(
                "group %s goes back in topic %s queue %d: from %d to %d", group, topic, queue_id, before, offset
            )
        self._groups.setdefault(group, {}).setdefault(topic, {})[queue_id] = offset
        self.dirty = True

    def of(self, group: str, topic: str) -> dict[int, int]:
        """A copy of a group's offsets in the queues of a topic."""
        return {queue_id: offset for queue_id, offset in self._queues(group, topic).items() if offset >= 0}

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group ever committed offsets."""
        return list(self._groups.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that ever committed offsets in a topic."""
        return [group for group, topics in self._groups.items() if topic in topics]

    def groups(self) -> list[str]:
        """All groups that ever committed anything."""
        return list(self._groups)

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        if self._groups.pop(group, None) is not None:
            self.dirty = True

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets of a topic."""
        for group in self.groups_of(topic):
            topics = self._groups[group]
            del topics[topic]
            if not topics:
                del self._groups[group]
            self.dirty = True

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give group `target` the offsets of group `source` in all queues of a topic."""
        queues = self._queues(source, topic)
        if queues:
            self._groups.setdefault(target, {})[topic] = queues.copy()
            self.dirty = True

    def correction(
        self, topic: str, compare_group: str, ignored_groups: Collection[str], min_offset: Callable[[int], int]
    ) -> dict[int, int]:
        """For each queue the smallest offset of any group (308) whose message still exists.

        NOTHING_TO_CORRECT where `compare_group` is behind even that one. `min_offset` gives the start of a queue.
        """
        smallest: dict[int, int] = {}
        for group in self.groups_of(topic):
            if group in ignored_groups:
                continue
            for queue_id, offset in self._queues(group, topic).items():
                if offset >= min_offset(queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in self._queues(compare_group, topic).items():
            if offset < smallest.get(queue_id, offset):
                smallest[queue_id] = NOTHING_TO_CORRECT
        return smallest

    def _queues(self, group: str, topic: str) -> dict[int, int]:
        return self._groups.get(group, {}).get(topic, {})

    # The file, and what slaves copy

    def snapshot(self) -> ConsumerOffsetTable:
        """A copy of the table that does not change, for another thread."""
        table = {
            f"{topic}{_SEPARATOR}{group}": queues.copy()
            for group, topics in self._groups.items()
            for topic, queues in topics.items()
        }
        return ConsumerOffsetTable(data_version=self._data_version, offset_table=table)

    def load(self, saved: ConsumerOffsetTable) -> None:
        """Replace everything by what was saved."""
        self._groups = {}
        for name, queues in saved.offset_table.items():
            # Topic names contain no @, so the group begins after the first one.
            topic, separator, group = name.partition(_SEPARATOR)
            if not separator:
                logger.warning("offsets of %r dropped: not a topic@group", name)
                continue
            self._groups.setdefault(group, {})[topic] = queues.copy()
        self._data_version = saved.data_version
        self.dirty = False

    def merge(self, masters: ConsumerOffsetTable) -> None:
        """Take the offsets that the master has, also where they are smaller. Those that only this broker has stay."""
        for name, queues in masters.offset_table.items():
            topic, separator, group = name.partition(_SEPARATOR)
            known = self._queues(group, topic)
            if separator and queues.items() - known.items():
                self._groups.setdefault(group, {})[topic] = known | queues
                self.dirty = True
        if masters.data_version not in (None, DataVersion(), self._data_version):
            self._data_version = masters.data_version
            self.dirty = True
