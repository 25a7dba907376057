"""What the lake has of the topics that a read subscribes to, so that a read of a topic may begin there.

A message is named by its queue and its offset, in the table as in the broker. So the two fit together at one number per
queue, the table's position: below it the table is read, from it on the broker. Each read takes these numbers once, from
one version of the table, for both sides. Later versions have the same messages below the number, so a batch of a stream
that is repeated after a restart gives the same rows, whichever version it finds.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from pyromq.errors import RouteNotFound

from ..schema import TIMESTAMP
from ..source.broker_metadata import BrokerMetadata
from ..source.offsets import place
from ..source.pulls import tags_of
from .layout import table_name
from .reading import STORED, FilePart, FileReader, Wanted, between, chosen, of_ranges, parts
from .storage import Storage
from .tables import open_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from pyromq.protocol.message_queue import MessageQueue

    from ..blocking_client import Link
    from ..options import SourceOptions
    from ..source.broker_metadata import Sight
    from ..source.planning import QueueRange
    from .reading import Between
    from .table import LakeTable, Snapshot

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 10.0  # seconds between two looks at a table that may have moved on


@dataclass(frozen=True)
class LakePart(InputPartition):
    """What a task reads of a table."""

    storage: Storage
    table: str
    files: FilePart
    wanted: Wanted
    exact: Between = (None, None)  # other rows are left out


def storage_of(options: SourceOptions) -> Storage:
    """Where the options say that the lake is."""
    given = {
        "endpoint": options.lake_endpoint,
        "region": options.lake_region,
        "credentials": options.lake_credentials,
        "accessKey": options.lake_access_key,
        "secretKey": options.lake_secret_key,
        "sessionToken": options.lake_session_token,
    }
    others = {
        key.partition(".")[2].removeprefix("storage."): value for key, value in (options.lake_others or {}).items()
    }
    return Storage.of(options.lake_root or "", {**others, **{key: value for key, value in given.items() if value}})


class History:
    """The tables of some topics, each at one version, until `look_again`."""

    def __init__(self, options: SourceOptions) -> None:
        """Opens nothing yet. Raises ConfigError for a lake that cannot be."""
        self._options = options
        self._storage = storage_of(options)
        self._tables: dict[str, tuple[LakeTable, Snapshot]] = {}

    def of(self, topic: str) -> tuple[LakeTable, Snapshot]:
        """The table of a topic, at its version. Raises LakeError."""
        if topic not in self._tables:
            options = self._options
            table = open_table(self._storage, table_name(topic, options.lake_name), options.lake_format)
            self._tables[topic] = (table, table.snapshot(options.lake_version))
        return self._tables[topic]

    def at(self, topic: str, version: int) -> tuple[LakeTable, Snapshot]:
        """The table of a topic at another version."""
        table, _ = self.of(topic)
        self._tables[topic] = (table, table.snapshot(version))
        return self._tables[topic]

    def positions(self, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """Up to where, exclusive, the tables of these topics have the messages of each queue."""
        return {
            queue: position
            for topic in topics
            for queue, position in self.of(topic)[1].positions.items()
            if queue.topic == topic
        }

    def only_here(self, sight: Sight) -> dict[MessageQueue, int]:
        """The queues that no broker has, from their beginning. Raises RouteNotFound if `failOnDataLoss`."""
        positions = self.positions({queue.topic for queue in sight.queues})
        check_all_there(positions, sight.bounds.keys(), fail=self._options.fail_on_data_loss)
        return {queue: 0 for queue in positions if queue not in sight.bounds}

    def look_again(self) -> None:
        """From now on, the newest versions count."""
        if self._options.lake_version is None:
            self._tables = {topic: (table, table.snapshot()) for topic, (table, _) in self._tables.items()}

    def is_complete(self, topics: Collection[str], until: datetime) -> bool:
        """Whether the tables have everything that was stored before then."""
        return bool(topics) and all(is_complete(self.of(topic)[1], until) for topic in topics)

    def parts(
        self,
        ranges: Iterable[QueueRange],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        exact: Between = (None, None),
    ) -> list[LakePart]:
        """The tasks that read these ranges, all below the positions, as far as they may lie between two times.

        Rows that do not lie between the `exact` ones are left out; the others only say where not to look.
        """
        wanted = Wanted(
            {} if since is None else {"storeTimestamp": since}, {} if until is None else {"storeTimestamp": until}
        )
        by_topic: dict[str, list[QueueRange]] = {}
        for each in ranges:
            by_topic.setdefault(each.queue.topic, []).append(each)
        made = []
        for topic, found in by_topic.items():
            table, snapshot = self.of(topic)
            files = chosen(table.files(snapshot, since, until), wanted)
            for layer in _layers(found):
                layered = of_ranges(files, layer)
                made += [
                    LakePart(self._storage, table.name, part, wanted, exact)
                    for part in parts(layered, self._options.partition_bytes, layer)
                ]
        return made


def _layers(ranges: Iterable[QueueRange]) -> list[dict[MessageQueue, tuple[int, int]]]:
    """Ranges such that no queue appears twice: `queueOffset IN (…)` asks for several of a queue."""
    layers: list[dict[MessageQueue, tuple[int, int]]] = []
    for each in ranges:
        free = next((layer for layer in layers if each.queue not in layer), None)
        if free is None:
            layers.append(free := {})
        free[each.queue] = (each.start, each.end)
    return layers


# Clocks of brokers and archives are a little apart.
_SKEW = 300.0


def is_complete(snapshot: Snapshot, until: datetime) -> bool:
    """Whether a version has everything that was stored before `until`."""
    return snapshot.complete is not None and (snapshot.complete - until).total_seconds() >= _SKEW


def read(part: LakePart, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with the options that apply to what is archived."""
    tags = tags_of(options)
    columns = schema
    for name, kind in (("tags", pa.string()), (STORED, TIMESTAMP)):
        if name not in columns.names:
            columns = columns.append(pa.field(name, kind))
    for batch in FileReader(part.storage, part.table, columns, part.wanted).read(part.files):
        found = between(batch, part.exact)
        if tags is not None:
            found = found.filter(pc.is_in(found.column("tags"), value_set=pa.array(sorted(tags))))
        if not options.include_properties and "properties" in schema.names:
            at = schema.get_field_index("properties")
            found = found.set_column(at, schema.field(at), pa.nulls(found.num_rows, schema.field(at).type))
        if found.num_rows:
            yield found.select(schema.names)


def check_all_there(positions: Mapping[MessageQueue, int], known: Collection[MessageQueue], *, fail: bool) -> None:
    """Refuse queues that the lake has and no broker: what they got since would be missing. Raises RouteNotFound."""
    if gone := sorted(queue for queue in positions if queue not in known):
        what = f"{place(gone[0])} is in the lake, but no broker has it"
        if fail:
            raise RouteNotFound(f"{what}; failOnDataLoss=false reads the others without it")
        logger.warning("%s; reading the others without it", what)


class HistoryMetadata(BrokerMetadata):
    """Sees queues as if they began where their tables begin."""

    def __init__(self, link: Link, options: SourceOptions, history: History) -> None:
        super().__init__(link, options)
        self._history = history
        self._looked_at = time.monotonic()

    async def _see(self) -> Sight:
        sight = await super()._see()
        is_apart = any(self._is_behind(queue, minimum) for queue, (minimum, _) in sight.bounds.items())
        if is_apart and time.monotonic() >= self._looked_at + _LOOK_AGAIN:
            # A slow stream may need what was archived after it began, and is gone from the broker.
            self._looked_at = time.monotonic()
            self._history.look_again()
        bounds = {
            queue: both if self._is_behind(queue, both[0]) else (0, both[1]) for queue, both in sight.bounds.items()
        }
        return replace(sight, bounds=bounds)

    def _is_behind(self, queue: MessageQueue, minimum: int) -> bool:
        """Whether table and broker do not meet."""
        return self._history.positions((queue.topic,)).get(queue, -1) < minimum
