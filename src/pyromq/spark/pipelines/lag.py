"""`lag`: how far consumer groups are behind, per queue, and alarms by rules.

The offsets come from `rocketmq_meta`. How old the oldest unread message is, no table of a broker says: one message of
each queue that is behind is read to see.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyromq.protocol.message_queue import MessageQueue

from ..meta.cluster_rows import rows_of
from .failing import spark_words
from .pipelines_file import in_folder, name_of
from .places import offsets_json
from .progress import count, span
from .surroundings import Outcome, Plan, append_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .settings import AlarmRule, LagSettings
    from .surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class LagRow:
    """A group in a queue. `oldest` is the age of the oldest unread message in seconds; None if nothing is unread."""

    group: str
    topic: str
    broker: str
    queue: int
    offset: int | None
    end: int | None
    lag: int | None
    oldest: float | None
    seen: datetime
    error: str | None


class Lag:
    """Looks at groups."""

    def __init__(self, settings: LagSettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("lag", settings)
        self.every: float | None = settings.every
        self._where = where

    def plan(self) -> Plan:
        found = self._wanted()
        groups = sorted({row["group"] for row in found})
        lines = [f"{self.name}: look at {count(len(groups), 'group')}: {', '.join(groups) or 'none yet'}"]
        lines += [f"  alarm: {rule.words}" for rule in self.settings.alarms]
        if self.settings.table:
            lines.append(f"  append rows to {self.settings.table}")
        return Plan(tuple(lines), len(found))

    def run(self) -> Outcome:
        found = self._wanted()
        unread = self._first_unread(found)
        now = datetime.now(UTC)
        rows = [_row(each, unread, now) for each in found]
        rows.sort(key=lambda row: (-(row.lag or 0), row.group, row.topic, row.broker, row.queue))
        if self.settings.table:
            append_table(self._where.spark, rows, LagRow, in_folder(self.settings.table, self._where.folder))
        total = sum(row.lag or 0 for row in rows)
        groups = len({row.group for row in rows})
        said = f"{self.name}: {count(groups, 'group')}, {count(total, 'message')} behind"
        failures = tuple(sorted({f"{row.group}: {row.error}" for row in rows if row.error}))
        return Outcome(said, len(rows), rows, LagRow, raised(self.settings.alarms, rows), failures)

    def _wanted(self) -> list[Mapping[str, Any]]:
        found = rows_of(self._where.spark, "groups", self._where.connection)
        return [
            row
            for row in found
            if row.get("error") or (row.get("queueId") is not None and self._is_wanted(row["group"], row["topic"]))
        ]

    def _is_wanted(self, group: str, topic: str) -> bool:
        return _matches(group, self.settings.groups) and _matches(topic, self.settings.topics)

    def _first_unread(self, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[MessageQueue, int], datetime]:
        """When the first unread messages were stored."""
        wanted = {
            (MessageQueue(topic=row["topic"], broker_name=row["brokerName"], queue_id=row["queueId"]), offset)
            for row in rows
            if (offset := row.get("consumerOffset")) is not None and (row.get("lag") or 0) > 0
        }
        found: dict[tuple[MessageQueue, int], datetime] = {}
        # Two groups may be at different places of one queue, and a read has one range for each.
        while wanted:
            at = dict(sorted(wanted))
            wanted -= set(at.items())
            topics = ",".join(sorted({queue.topic for queue in at}))
            everywhere = self._ends(rows, topics.split(","))
            starts = everywhere | at
            ends = everywhere | {queue: offset + 1 for queue, offset in at.items()}
            with spark_words():
                read = self._where.read(
                    topics,
                    startingOffsets=offsets_json(starts),
                    endingOffsets=offsets_json(ends),
                    columns="topic,brokerName,queueId,queueOffset,storeTimestamp",
                    failOnDataLoss="false",
                ).collect()
            for row in read:
                queue = MessageQueue(topic=row["topic"], broker_name=row["brokerName"], queue_id=row["queueId"])
                found[queue, at.get(queue, -1)] = row["storeTimestamp"].astimezone(UTC)
        return found

    @staticmethod
    def _ends(rows: Sequence[Mapping[str, Any]], topics: Sequence[str]) -> dict[MessageQueue, int]:
        """Where the queues of topics end: nothing of the others is read."""
        return {
            MessageQueue(topic=row["topic"], broker_name=row["brokerName"], queue_id=row["queueId"]): row[
                "brokerOffset"
            ]
            for row in rows
            if row.get("topic") in topics and row.get("brokerOffset") is not None
        }


def raised(rules: Sequence[AlarmRule], rows: Sequence[LagRow]) -> tuple[str, ...]:
    """The alarms: the lag of a group is that of all its queues together, in one topic."""
    lags: dict[tuple[str, str], int] = {}
    ages: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.lag is not None:
            lags[row.group, row.topic] = lags.get((row.group, row.topic), 0) + row.lag
        if row.oldest is not None:
            ages[row.group, row.topic] = max(ages.get((row.group, row.topic), 0.0), row.oldest)
    said = []
    for rule in rules:
        for (group, topic), lag in sorted(lags.items()):
            oldest = ages.get((group, topic))
            if rule.is_broken(group, lag, oldest):
                what = (
                    f"{lag:,} behind" if rule.measure == "lag" else f"oldest unread message is {span(oldest or 0)} old"
                )
                said.append(f"{group} in {topic}: {what} ({rule.words})")
    return tuple(said)


def _row(row: Mapping[str, Any], unread: Mapping[tuple[MessageQueue, int], datetime], now: datetime) -> LagRow:
    lag, offset = row.get("lag"), row.get("consumerOffset")
    oldest = None
    if lag and offset is not None:
        queue = MessageQueue(topic=row["topic"], broker_name=row["brokerName"], queue_id=row["queueId"])
        stored = unread.get((queue, offset))
        oldest = None if stored is None else max(0.0, (now - stored).total_seconds())
    return LagRow(
        row.get("group") or "",
        row.get("topic") or "",
        row.get("brokerName") or "",
        -1 if row.get("queueId") is None else row["queueId"],
        offset,
        row.get("brokerOffset"),
        lag,
        oldest,
        now,
        row.get("error"),
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(re.fullmatch(pattern, name) for pattern in patterns)
