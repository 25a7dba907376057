"""What there is to archive: which topics, and from where to where each queue reaches, in brokers or in their files."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError, PyroMQError, RouteNotFound, StoreError
from pyromq.protocol.message_queue import MessageQueue

from ..blocking_client import Link
from ..log.backlog import Backlog
from ..meta.rows import MetaRows
from ..options import LogOptions
from ..source.broker_metadata import BrokerMetadata
from ..source.planning import FIRST_GUESS, plan
from ..source.pulls import PullPart
from ..source.stream_reader import addresses_of, sampled
from .archive_tasks import StorePart
from .headroom import find_headroom

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..options import SourceOptions
    from ..source.planning import QueueRange
    from .archive_tasks import Part
    from .headroom import Headroom

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_WORTH_A_FILE = 32 << 20  # smaller steps are not split, however many cores there are
PARTITION = 128 << 20
_PATIENCE = 30.0
_LAST_MS = 253_402_300_800_000  # of the year 9999: a clock may be far off


@dataclass(frozen=True, slots=True)
class Seen:
    """The queues of a topic at one moment. `sizes` are mean bytes per message."""

    bounds: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[MessageQueue, float] = field(default_factory=dict)
    failures: tuple[str, ...] = ()  # brokers that did not answer; their queues wait

    def size(self, queue: MessageQueue) -> float:
        return self.sizes.get(queue) or FIRST_GUESS


class Brokers:
    """Topics as brokers have them. Use as a context: it holds connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.link = Link(options)
        self._metadata: dict[str, BrokerMetadata] = {}

    def close(self) -> None:
        self.link.close()

    def topics(self, wanted: Sequence[str]) -> list[str]:
        """The topics that names and patterns mean now. Retry, dead-letter and system topics only by their names."""
        names = [each for each in wanted if _NAME.fullmatch(each)]
        patterns = [_pattern(each) for each in wanted if not _NAME.fullmatch(each)]
        if patterns:
            known = self.link.run(MetaRows(self.link).user_topics())
            names += [topic for topic in known if any(pattern.fullmatch(topic) for pattern in patterns)]
        return list(dict.fromkeys(names))

    def look(self, topic: str, positions: Mapping[MessageQueue, int]) -> Seen:
        """The queues of a topic, all servers asked. Raises PyroMQError if the topic cannot be seen at all."""
        return self.link.run(self._look(topic, positions))

    async def _look(self, topic: str, positions: Mapping[MessageQueue, int]) -> Seen:
        metadata = self._of(topic)
        sight = await metadata.look(afresh=True)
        if sight.absent:
            raise RouteNotFound(f"{topic}: no broker has this topic, says name server {self._options.namesrv}")
        if sight.failures and not sight.bounds:
            raise next(iter(sight.failures.values()))
        behind = {
            queue: (start, maximum)
            for queue, (minimum, maximum) in sight.bounds.items()
            if (start := max(minimum, positions.get(queue, minimum))) < maximum
        }
        sizes = await sampled(metadata, behind)
        return Seen(sight.bounds, sizes, tuple(f"{name}: {exc}" for name, exc in sorted(sight.failures.items())))

    def first_stored(
        self, topic: str, positions: Mapping[MessageQueue, int], seen: Seen
    ) -> dict[MessageQueue, tuple[int, datetime]]:
        """The first message of each queue that the table should have, and when it was stored."""
        firsts = {
            queue: minimum
            for queue, (minimum, maximum) in seen.bounds.items()
            if minimum < min(maximum, positions.get(queue, 0))
        }
        found = self.link.run(self._of(topic).stored_at(firsts))
        return {
            queue: (firsts[queue], datetime.fromtimestamp(time / 1000, UTC))
            for queue, time in found.items()
            if 0 <= time < _LAST_MS
        }

    def parts(self, ranges: Sequence[QueueRange], seen: Seen) -> list[Part]:
        """The tasks that pull `ranges`: as large as a file should be, fewer if there is little to do."""
        options = self._options
        total = sum(len(each) * seen.size(each.queue) for each in ranges)
        planned = plan(
            ranges,
            seen.size,
            partition_bytes=options.partition_bytes,
            max_records=options.max_records_per_partition,
            min_partitions=options.min_partitions,
            parallelism=max(1, min(options.parallelism, round(total / _WORTH_A_FILE))),
        )
        addresses = addresses_of(self.link, {each.queue: None for each in ranges})
        # A step that fails is tried again, so a task need not keep its place for a broker that stays away.
        patience = min(options.broker_gone_timeout, _PATIENCE)
        return [PullPart(task, addresses, patience=patience) for task in planned]

    def cluster(self, topic: str) -> str:
        """The cluster whose brokers have a topic that was seen. Raises ConfigError if there are several."""
        route = self.link.client.routes.cached(self.link.namespace.wrap(topic))
        names = sorted({broker.cluster for broker in route.broker_datas}) if route is not None else []
        if len(names) != 1:
            raise ConfigError(
                f"{topic} is in the clusters {', '.join(names)}; name one" if names else f"{topic} is gone"
            )
        return names[0]

    def headroom(self, topic: str, positions: Mapping[MessageQueue, int]) -> Headroom | None:
        """How long the oldest message has left that is not archived; None if a broker does not say."""
        try:
            return self.link.run(find_headroom(self._of(topic), topic, positions, time.time()))
        except PyroMQError as exc:
            logger.info("%s: headroom is not known: %s", topic, exc)
            return None

    def _of(self, topic: str) -> BrokerMetadata:
        if topic not in self._metadata:
            # Each topic by itself, so that one that is refused keeps no other from it.
            self._metadata[topic] = BrokerMetadata(self.link, replace(self._options, subscribe=(topic,)))
        return self._metadata[topic]


class Stores:
    """Topics as the files of brokers' stores have them."""

    def __init__(self, folders: Mapping[str, str], options: SourceOptions) -> None:
        self._folders = dict(folders)
        self._options = options

    def topics(self, wanted: Sequence[str]) -> list[str]:
        """The topics in the files that names and patterns mean."""
        from pathlib import Path

        from pyromq.store.format import queue_folders

        from ..decode.selection import is_internal_topic

        patterns = [_pattern(each) for each in wanted if not _NAME.fullmatch(each)]
        known = {topic for folder in self._folders.values() for topic, _, _ in queue_folders(Path(folder))}
        found = [each for each in wanted if _NAME.fullmatch(each)]
        found += [
            topic
            for topic in sorted(known)
            if not is_internal_topic(topic) and any(pattern.fullmatch(topic) for pattern in patterns)
        ]
        return list(dict.fromkeys(found))

    def look(self, topic: str) -> FilesSeen:
        """What the files have of a topic. A store that cannot be read is left out, with a warning."""
        found, failures = {}, []
        for broker, folder in self._folders.items():
            options = LogOptions(
                path=folder,
                topics=(topic,),
                broker_name=broker,
                partition_bytes=self._options.partition_bytes,
                decompress=self._options.decompress,
                verify_crc=self._options.verify_crc,
            )
            try:
                found[broker] = (options, Backlog(options))
            except (OSError, StoreError) as exc:
                logger.warning("the store of %s in %s cannot be read: %s", broker, folder, exc)
                failures.append(f"{broker}: {exc}")
        return FilesSeen(topic, found, tuple(failures))


class FilesSeen:
    """What files have of one topic, at one moment."""

    def __init__(
        self, topic: str, found: Mapping[str, tuple[LogOptions, Backlog]], failures: tuple[str, ...] = ()
    ) -> None:
        self._topic = topic
        self._found = found
        bounds, sizes = {}, {}
        for broker, (_, backlog) in found.items():
            for number, both in backlog.bounds().items():
                queue = MessageQueue(topic=topic, broker_name=broker, queue_id=number)
                bounds[queue] = both
                sizes[queue] = backlog.mean_size(number)
        self.seen = Seen(bounds, sizes, failures)

    def parts(self, ranges: Iterable[QueueRange]) -> list[Part]:
        """The tasks that read `ranges`."""
        wanted: dict[str, dict[int, tuple[int, int]]] = {}
        for each in ranges:
            wanted.setdefault(each.queue.broker_name, {})[each.queue.queue_id] = (each.start, each.end)
        parts: list[Part] = []
        for broker, queues in wanted.items():
            options, backlog = self._found[broker]
            parts += [StorePart(part, self._topic, options) for part in backlog.parts(queues)]
        return parts


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as exc:
        raise ConfigError(f"{text!r} is neither a topic nor a regular expression: {exc}") from exc


def explained(error: PyroMQError | Exception) -> str:
    """One line for people, also of what Spark wraps."""
    from pyspark.errors import PySparkException

    from ..sessions.programs import reason

    return reason(str(error)) if isinstance(error, PySparkException) else str(error)
