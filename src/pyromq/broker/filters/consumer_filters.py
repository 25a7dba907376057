"""Registered SQL92 filters: which group filters which topic by which expression.

A group names its expression for a topic in its heartbeats. It is compiled once and kept, even across a restart
(consumerFilter.json), so that the bits that stand for it in the bitmaps of stored messages keep their meaning. A group
without members is dead, and forgotten after a while (docs/spec/broker.md 7.3, 7.4).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from pyromq.errors import BrokerError, InvalidFilter, ServerError, SubscriptionParseFailed
from pyromq.filter import BloomFilter, compile_filter
from pyromq.filter.bloom import has_all, mask_of
from pyromq.protocol import properties as props
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.record import stored_properties
from pyromq.store.metadata.json_files import BloomFilterData, ConsumerFilter, ConsumerFilterTable, TopicFilters

from .evaluation import match_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyromq.filter import Filter
    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.store.queues.consume_queue_ext import ExtUnit

    from ..config import LiveConfig

    Tags: TypeAlias = Callable[[int], bool]
    Match: TypeAlias = Callable[[memoryview], bool]
    Units: TypeAlias = Callable[[ExtUnit], bool]
    # What a read selects by: the tags code of an entry, the record itself, the unit in the ext files. None: everything.
    Selection: TypeAlias = tuple[Tags | None, Match | None, Units | None]

logger = logging.getLogger(__name__)

TAG = "TAG"
SQL92 = "SQL92"

# At a start, a group counts as gone for at most this long; it may have left before the broker stopped.
_GONE_BEFORE_START_MS = 30_000


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def not_allowed(expression_type: str | None) -> BrokerError:
    """The answer of a broker that has `enablePropertyFilter` off."""
    return ServerError(f"The broker does not support consumer to filter message by {expression_type}")


def compiled(expression_type: str | None, expression: str | None) -> Filter:
    """The compiled filter of a subscription. InvalidFilter if its type is unknown or its expression is malformed."""
    if expression_type != SQL92:
        raise InvalidFilter(f"unknown filter type {expression_type}", 1)
    return compile_filter(expression or "")


def selection_of_expression(expression_type: str | None, expression: str | None) -> Selection:
    """The selection of an expression that came with the pull itself. It is not registered, so it has no bits."""
    try:
        return (None, match_of(compiled(expression_type, expression)), None)
    except InvalidFilter as exc:
        raise SubscriptionParseFailed("parse the consumer's subscription failed") from exc


class FilterData:
    """The filter of one group on one topic, and when it was registered."""

    __slots__ = ("born_time", "client_version", "dead_time", "expression", "positions", "selection")

    def __init__(
        self, wanted: Filter, client_version: int, born_time: int, bloom: BloomFilter, positions: tuple[int, ...]
    ) -> None:
        self.expression = wanted.text
        self.client_version = client_version
        self.born_time = born_time
        self.dead_time = 0
        self.positions = positions
        self.selection: Selection = (
            None,
            match_of(wanted),
            _bitmap_test(positions, bloom.bits // 8, born_time),
        )

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


class Filters:
    """The filters that groups registered, by group and topic. `clock` gives epoch milliseconds."""

    def __init__(self, live: LiveConfig, clock: Callable[[], int]) -> None:
        self._live = live
        self._clock = clock
        config = live.config
        self._bloom = BloomFilter.of(config.filter_error_rate, config.filter_consumers)
        self._by_group: dict[str, dict[str, FilterData]] = {}
        self.dirty = False
        # Grows whenever a filter is added, removed or changed.
        self.changes = 0

    def get(self, topic: str, group: str) -> FilterData | None:
        """The filter of a group on a topic; None if there is none, or if its expression was refused."""
        known = self._by_group.get(group)
        return None if known is None else known.get(topic)

    @property
    def bloom(self) -> BloomFilter:
        """The shape of this broker's bitmaps."""
        return self._bloom

    def of_topic(self, topic: str) -> list[FilterData]:
        """All filters on a topic, including those of groups that are offline: they may come back and read on."""
        return [known[topic] for known in self._by_group.values() if topic in known]

    def for_retries(self, selection: Selection, topic: str) -> Selection:
        """A selection of messages of a retry topic, each tested also by the filter of the topic that it came from."""
        known = self._by_group.get(topic.removeprefix(RETRY_PREFIX))
        tags, match, _ = selection
        if not known:
            return selection

        def matches_original(record: memoryview) -> bool:
            origin = props.find(stored_properties(record), props.RETRY_TOPIC.encode())
            data = None if origin is None else known.get(origin.decode("utf-8", "replace"))
            if data is None:
                return match is None or match(record)
            original = data.selection[1]
            return original is None or original(record)

        return (tags, matches_original, None)

    # Groups come and go

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over the filters in a heartbeat. A topic it no longer names loses its live filter."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        known = self._by_group.get(group)
        if known:
            self._bury(group, known.keys() - topics)

    def unregister(self, group: str) -> None:
        """The last member of a group is gone."""
        known = self._by_group.get(group)
        if known:
            self._bury(group, known.keys())

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version, text = subscription.topic, subscription.sub_version, subscription.sub_string
        known = self._by_group.setdefault(group, {})
        old = known.get(topic)
        if old is not None:
            if version < old.client_version:
                return
            if version == old.client_version or text == old.expression:
                if version > old.client_version or old.is_dead:
                    old.client_version = version
                    old.dead_time = 0
                    self.dirty = True
                return
        try:
            wanted = compiled(subscription.expression_type, text)
        except InvalidFilter as exc:
            logger.warning("group %s has an invalid filter on %s: %s; refusing its pulls", group, topic, exc)
            if known.pop(topic, None) is not None:
                self.dirty = True
                self.changes += 1
            if not known:
                del self._by_group[group]
            return
        positions = self._bloom.positions(group, topic)
        known[topic] = FilterData(wanted, version, self._clock(), self._bloom, positions)
        self.dirty = True
        self.changes += 1
        logger.info("group %s filters %s by %s", group, topic, text)

    def _bury(self, group: str, topics: Iterable[str]) -> None:
        known = self._by_group[group]
        now = self._clock()
        for topic in topics:
            if not known[topic].is_dead:
                known[topic].dead_time = max(now, known[topic].born_time)
                self.dirty = True
                logger.info("group %s no longer filters %s", group, topic)

    def clean(self) -> None:
        """Forget filters that have been dead for too long. Call it now and then."""
        last = self._clock() - self._live.config.filter_data_clean
        for group, known in tuple(self._by_group.items()):
            for topic, data in tuple(known.items()):
                if data.is_dead and data.dead_time <= last:
                    del known[topic]
                    self.dirty = True
                    self.changes += 1
            if not known:
                del self._by_group[group]

    # The file

    def snapshot(self) -> ConsumerFilterTable:
        by_topic: dict[str, TopicFilters] = {}
        for group, known in self._by_group.items():
            for topic, data in known.items():
                filters = by_topic.setdefault(topic, TopicFilters(group_filter_data={}, topic=topic))
                filters.group_filter_data[group] = self._entry(group, topic, data)
        return ConsumerFilterTable(filter_data_by_topic=by_topic)

    def entry(self, group: str, topic: str) -> ConsumerFilter | None:
        """A group's filter as an entry of the file."""
        data = self.get(topic, group)
        return None if data is None else self._entry(group, topic, data)

    def _entry(self, group: str, topic: str, data: FilterData) -> ConsumerFilter:
        return ConsumerFilter(
            bloom_filter_data=BloomFilterData(bit_num=self._bloom.bits, bit_pos=list(data.positions)),
            born_time=data.born_time,
            client_version=data.client_version,
            consumer_group=group,
            dead=data.is_dead,
            dead_time=data.dead_time,
            expression=data.expression,
            expression_type=SQL92,
            topic=topic,
        )

    def load(self, saved: ConsumerFilterTable) -> None:
        """Load the file. No client is connected yet, so every filter is dead until a heartbeat names it.

        If its bits do not match our settings, the whole file is ignored: existing bitmaps would be misread.
        """
        loaded: dict[str, dict[str, FilterData]] = {}
        for topic, filters in saved.filter_data_by_topic.items():
            for group, entry in filters.group_filter_data.items():
                positions = self._positions_in(entry.bloom_filter_data)
                if positions is None:
                    logger.warning(
                        "consumerFilter.json was written with other Bloom filter settings; dropping its filters"
                    )
                    return
                try:
                    wanted = compiled(entry.expression_type, entry.expression)
                except InvalidFilter as exc:
                    logger.warning("group %s had an invalid filter on %s: %s; dropped", group, topic, exc)
                    continue
                data = FilterData(wanted, entry.client_version, entry.born_time, self._bloom, positions)
                data.dead_time = entry.dead_time or max(data.born_time, self._clock() - _GONE_BEFORE_START_MS)
                loaded.setdefault(group, {})[topic] = data
        self._by_group = loaded
        self.changes += 1

    def _positions_in(self, saved: BloomFilterData | None) -> tuple[int, ...] | None:
        if saved is None or saved.bit_num != self._bloom.bits or len(saved.bit_pos) != self._bloom.hashes:
            return None
        if not all(0 <= position < self._bloom.bits for position in saved.bit_pos):
            return None
        return tuple(saved.bit_pos)


# Bitmaps


def _bitmap_test(positions: tuple[int, ...], size: int, born_time: int) -> Units:
    """Rules out messages by their bitmaps. A bitmap of another size, or older than the filter, is ignored."""
    mask = mask_of(positions)

    def test(unit: ExtUnit) -> bool:
        return unit.store_time <= born_time or len(unit.bitmap) != size or has_all(unit.bitmap, mask)

    return test
