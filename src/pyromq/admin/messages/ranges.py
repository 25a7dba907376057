"""Parts of a topic's queues: everything, between two times, from an offset on, or the last messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyromq.client.admin.fan_out import fan_out, partly
from pyromq.client.admin.times import to_millis
from pyromq.errors import RouteNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.fan_out import Missing
    from pyromq.protocol.bodies import TopicOffset
    from pyromq.protocol.message_queue import MessageQueue

_EVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A part of one queue: offsets from `begin` up to `end`, limited to messages stored from `since` to `until`.

    Brokers find times only roughly, so the offsets may include a message too many; the times, in ms, decide.
    """

    queue: MessageQueue
    address: str
    begin: int
    end: int
    since: int = 0
    until: int = _EVER

    @property
    def count(self) -> int:
        return max(0, self.end - self.begin)


@dataclass(frozen=True, slots=True)
class TopicRanges:
    """Parts of the queues of one topic, without those of brokers in `missing`."""

    topic: str
    queues: tuple[QueueRange, ...]
    missing: tuple[Missing, ...] = ()

    @property
    def count(self) -> int:
        """How many messages they hold, as exactly as brokers know times."""
        return sum(part.count for part in self.queues)


async def topic_ranges(
    admin: AdminClient,
    topic: str,
    *,
    broker: str | None = None,
    queue_id: int | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    offset: int | None = None,
) -> TopicRanges:
    """A topic's queues, those of one broker, or one queue; between two times, or from an offset on.

    Raises TopicNotFound, and RouteNotFound for a broker or queue that the topic does not have.
    """
    addresses = await admin.brokers.of_topic(topic)
    if broker is not None and broker not in addresses:
        raise RouteNotFound(f"topic {topic} is not on broker {broker}; it is on: {', '.join(sorted(addresses))}")
    table, missing = await partly(admin.topics.stats(topic))
    chosen = {
        queue: ends
        for queue, ends in sorted(table.items())
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    }
    if not chosen and not missing:
        where = f" on broker {broker}" if broker else ""
        raise RouteNotFound(f"topic {topic} has no queue{'' if queue_id is None else f' {queue_id}'}{where}")
    first, first_missing = await _at_time(admin, chosen, begin)
    last, last_missing = await _at_time(admin, chosen, end)
    unknown = {each.server: each for each in (*first_missing, *last_missing)}
    ranges = []
    for queue, ends in chosen.items():
        if queue.broker_name in addresses and str(queue) not in unknown:
            low = max(ends.min_offset, first.get(queue, ends.min_offset), offset or 0)
            # The message that a broker finds for a time may be the last one in range.
            high = min(ends.max_offset, last[queue] + 1) if queue in last else ends.max_offset
            since, until = to_millis(begin) if begin else 0, to_millis(end) if end else _EVER
            ranges.append(QueueRange(queue, addresses[queue.broker_name], low, max(low, high), since, until))
    return TopicRanges(topic, tuple(ranges), (*missing, *unknown.values()))


def last_messages(ranges: TopicRanges, count: int) -> TopicRanges:
    """At most the last `count` of each queue: they include the last `count` of the topic."""
    return replace(
        ranges, queues=tuple(replace(part, begin=max(part.begin, part.end - count)) for part in ranges.queues)
    )


async def _at_time(
    admin: AdminClient, queues: Mapping[MessageQueue, TopicOffset], when: datetime | None
) -> tuple[dict[MessageQueue, int], tuple[Missing, ...]]:
    if when is None:
        return {}, ()
    answers = await fan_out({str(queue): queue for queue in queues}, lambda queue: admin.offsets.at_time(queue, when))
    by_name = {str(queue): queue for queue in queues}
    return {by_name[name]: offset for name, offset in answers.results.items()}, answers.missing


def parse_place(text: str) -> tuple[str, int, int | None]:
    """`broker:queue` or `broker:queue:offset`. Raises ValueError."""
    broker, *numbers = text.rsplit(":", 2) if text.count(":") > 1 else text.rsplit(":", 1)
    if not broker or not 1 <= len(numbers) <= 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ValueError(f"{text!r} is not a place")
    return broker, int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else None


def place_of(queue: MessageQueue, offset: int) -> str:
    return f"{queue.broker_name}:{queue.queue_id}:{offset}"
