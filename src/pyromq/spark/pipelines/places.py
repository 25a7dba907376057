"""The queues of topics and their offsets, as pipelines pin them: what comes later is not part of a run."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError
from pyromq.protocol.message_queue import MessageQueue

from ..meta.cluster_rows import rows_of, user_topics
from .near import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class TopicRanges:
    """The first and the next offset of each queue of a topic, at one moment."""

    topic: str
    ranges: Mapping[MessageQueue, tuple[int, int]]

    @property
    def messages(self) -> int:
        return sum(end - start for start, end in self.ranges.values())

    @property
    def ends(self) -> str:
        """As the options startingOffsets and endingOffsets want it."""
        return offsets_json({queue: end for queue, (_, end) in self.ranges.items()})

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each broker has."""
        counts: dict[str, int] = defaultdict(int)
        for queue in self.ranges:
            counts[queue.broker_name] += 1
        return dict(counts)


def ranges_of(where: Surroundings, topic: str) -> TopicRanges:
    """Ask the brokers. Raises PyroMQError if the topic does not exist or a broker does not answer."""
    found: dict[MessageQueue, tuple[int, int]] = {}
    for row in rows_of(where.spark, "queues", where.connection, topic):
        if row.get("error"):
            raise PyroMQError(f"{topic}: broker {row.get('brokerName')} does not answer: {row['error']}")
        queue = MessageQueue(topic=topic, broker_name=row["brokerName"], queue_id=row["queueId"])
        found[queue] = (row["minOffset"], row["maxOffset"])
    return TopicRanges(topic, found)


def matching_topics(where: Surroundings, patterns: Iterable[str]) -> list[str]:
    """The users' topics whose whole name matches one of `patterns`. A plain name that does not exist is an error."""
    known = user_topics(where.spark, where.connection)
    found: dict[str, None] = {}
    for pattern in patterns:
        fits = [topic for topic in known if re.fullmatch(pattern, topic)]
        if not fits:
            if re.fullmatch(r"[\w%|-]+", pattern):
                raise ConfigError(f"there is no topic {pattern}{nearest(pattern, known)}")
            raise ConfigError(f"no topic matches {pattern}")
        found |= dict.fromkeys(fits)
    return list(found)


def offsets_json(offsets: Mapping[MessageQueue, int]) -> str:
    """`{"orders":{"broker-a":{"0":23}}}`."""
    found: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for queue, offset in sorted(offsets.items()):
        found[queue.topic][queue.broker_name][str(queue.queue_id)] = offset
    return json.dumps(found, separators=(",", ":"))
