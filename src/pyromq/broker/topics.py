"""The topic table: which topics exist, how they are created automatically, and which names are allowed.

The table is memory only; `kept_files` keeps it in topics.json. A changed topic gets a new TopicConfig, so identity
tells whether a cached one is still current. docs/spec/broker.md 2.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import ServerError, TopicNotFound
from pyromq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from pyromq.protocol.names import (
    BENCHMARK_TOPIC,
    BROKER_ONLY_TOPICS,
    MAX_TOPIC_LENGTH,
    NAME_PATTERN,
    OFFSET_MOVED_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    dlq_topic,
    is_legal_name,
    is_retry_topic,
    reply_topic,
    retry_topic,
    revive_topic,
)
from pyromq.protocol.permissions import PERM_INHERIT, PERM_READ, PERM_WRITE
from pyromq.protocol.sysflag import TOPIC_UNIT, TOPIC_UNIT_SUBSCRIBED

from .unsaved import Unsaved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from .config import BrokerConfig, LiveConfig

logger = logging.getLogger(__name__)

_READ_WRITE = PERM_READ | PERM_WRITE
_OPEN = _READ_WRITE | PERM_INHERIT

_DELAY_QUEUES = 18

# System topics whether or not this broker has them; those it creates at the start are, too.
_SYSTEM = BROKER_ONLY_TOPICS | {TEMPLATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}


def can_be_topic(name: str) -> bool:
    """Whether a topic may have this name. A group's retry topic is longer than the group's name, and may not."""
    return len(name) <= MAX_TOPIC_LENGTH and is_legal_name(name)


def next_version(version: DataVersion, now: int) -> DataVersion:
    """The version of a table after a change."""
    return replace(version, counter=version.counter + 1, timestamp=now)


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that every broker creates at its start."""
    topics = [
        _topic(SELF_TEST_TOPIC, 1),
        _topic(OFFSET_MOVED_TOPIC, 1),
        _topic(reply_topic(config.cluster_name), 1),
        _topic(BENCHMARK_TOPIC, 1024),
        _topic(config.cluster_name, 16, _OPEN if config.cluster_topic else PERM_INHERIT),
        _topic(config.broker_name, 1, _OPEN if config.broker_topic else PERM_INHERIT),
        _topic(SCHEDULE_TOPIC, _DELAY_QUEUES),
    ]
    if config.timer_wheel:
        topics.append(_topic(TIMER_TOPIC, 1))
        topics.append(_topic(revive_topic(config.cluster_name), config.revive_queues))
    if config.auto_create_topic:
        topics.append(_topic(TEMPLATE_TOPIC, config.default_topic_queues, _OPEN))
    if config.trace_topic_enable:
        topics.append(_topic(config.trace_topic_name, 1))
    return topics


class TopicTable:
    """All topics of a broker by name.

    `changed` is called after each change with the topic's name, or with None when several changed. `dirty` is set by
    each change; saving the table clears it. Changes that cannot be saved are rolled back.
    """

    def __init__(self, live: LiveConfig, clock: Callable[[], int]) -> None:
        self._live = live
        self._clock = clock
        self._built_in = {topic.topic_name: topic for topic in built_in_topics(live.config)}
        self._topics = self._built_in.copy()
        self._queues = _queues_of(self._topics.values())
        self.system_topics = _SYSTEM | self._topics.keys()
        self.data_version = DataVersion(timestamp=clock())
        self.changed: Callable[[str | None], None] | None = None
        self.dirty = False
        self._unsaved: Unsaved[TopicConfig] = Unsaved()
        # The version counter at the last change of each topic, the newest last; and at the last change that a list
        # of topics cannot express: a deleted topic, or a change of the broker's permission.
        self._change_counters: dict[str, int] = {}
        self._untold_counter = -1

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        """A copy of the topics; the table may change during iteration."""
        return iter(list(self._topics.values()))

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def is_new(self, topic: str) -> bool:
        """Whether a topic is so new that topics.json does not have it yet."""
        return self._unsaved.is_new(topic)

    def changed_since(self, counter: int) -> list[TopicConfig] | None:
        """The topics that changed after this version counter; None if more changed than topics."""
        if counter < self._untold_counter:
            return None
        names = itertools.takewhile(lambda name: self._change_counters[name] > counter, reversed(self._change_counters))
        return [self._topics[name] for name in names]

    # Names

    def check_name(self, topic: str) -> None:
        """ServerError unless a topic may have this name."""
        if not topic or topic.isspace():
            raise ServerError("The specified topic is blank.")
        if not is_legal_name(topic):
            raise ServerError(f"The specified topic contains illegal characters, allowing only {NAME_PATTERN}")
        if len(topic) > MAX_TOPIC_LENGTH:
            raise ServerError("The specified topic is longer than topic max length.")

    def is_system(self, topic: str) -> bool:
        """Whether a topic belongs to the broker: operators cannot create, change or delete it."""
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    def may_send(self, topic: str) -> bool:
        """Whether clients may send to a topic of this name; the broker itself may send to any."""
        return topic not in BROKER_ONLY_TOPICS and not topic.startswith(REVIVE_PREFIX)

    # Automatic creation

    def for_send(
        self, topic: str, default_topic: str, default_queue_nums: int, unit_mode: bool = False
    ) -> TopicConfig | None:
        """The topic that a message is sent to, created from `default_topic` if that is allowed; None otherwise.

        The name must have been checked. The steps are those of docs/spec/broker.md 2.3.
        """
        known = self._topics.get(topic)  # 1
        if known is not None:
            return known
        is_retry = is_retry_topic(topic)
        sys_flag = (TOPIC_UNIT_SUBSCRIBED if is_retry else TOPIC_UNIT) if unit_mode else 0  # 6
        default = self._default(default_topic)
        if default is not None and default.perm & PERM_INHERIT:  # 4
            queues = max(0, min(default_queue_nums, default.write_queue_nums))  # 5
            self._check_room_for_send(topic, queues)
            made = _topic(topic, queues, default.perm & ~PERM_INHERIT, sys_flag)
            return self._made(replace(made, topic_filter_type=default.topic_filter_type))
        if is_retry:
            self._check_room_for_send(topic, 1)
            return self._made(_topic(topic, 1, sys_flag=sys_flag))
        return None

    def _check_room_for_send(self, topic: str, queues: int) -> None:
        limit = self._live.config.max_auto_created_topics
        full = f"there are {limit} topics or more (maxAutoCreatedTopics)"
        if len(self._topics) < limit:
            full = self._why_no_room(None, queues)
        if full:
            raise TopicNotFound(f"topic[{topic}] not exist, and is not created: {full}")

    def check_room(self, config: TopicConfig) -> None:
        """ServerError if an operator may not make or change this topic, because there would be too many of something.

        What is there already may stay as it is, and may shrink.
        """
        topic, queues = config.topic_name, max(config.read_queue_nums, config.write_queue_nums)
        known = self._topics.get(topic)
        most = self._live.config.max_queues_per_topic
        if queues > most and (known is None or queues > _queues_of((known,))):
            raise ServerError(f"The topic[{topic}] can have at most {most} queues (maxQueuesPerTopic).")
        full = self._why_no_room(known, queues)
        if full:
            raise ServerError(f"The topic[{topic}] is not {'created' if known is None else 'changed'}: {full}.")

    def _why_no_room(self, known: TopicConfig | None, queues: int) -> str:
        """Why a topic cannot be made, or given this many queues. Empty if it can."""
        config = self._live.config
        if known is None and len(self._topics) >= config.max_topics:
            return f"there are {config.max_topics} topics or more (maxTopics)"
        more = queues - (0 if known is None else _queues_of((known,)))
        if more > 0 and self._queues + more > config.max_queues:
            return f"all topics together can have at most {config.max_queues} queues (maxQueues)"
        return ""

    def ensure(self, topic: str, queues: int, *, sys_flag: int = 0) -> TopicConfig:
        """The topic; if it does not exist, it is created with this many queues, readable and writable."""
        known = self._topics.get(topic)
        return self._made(_topic(topic, queues, sys_flag=sys_flag)) if known is None else known

    def ensure_retry(self, group: str, queues: int, unit_mode: bool = False) -> TopicConfig:
        """The retry topic of a group."""
        return self.ensure(retry_topic(group), queues, sys_flag=TOPIC_UNIT_SUBSCRIBED if unit_mode else 0)

    def ensure_dlq(self, group: str) -> TopicConfig:
        """The dead-letter topic of a group."""
        return self.ensure(dlq_topic(group), 1)

    def _default(self, topic: str) -> TopicConfig | None:
        """The topic that serves as a template."""
        default = self._topics.get(topic)  # 2
        is_template = topic == TEMPLATE_TOPIC
        if is_template and default is not None and default.perm & PERM_INHERIT and not self._may_create:  # 3
            # Left over in the file from a time when the setting was different.
            default = replace(default, perm=_READ_WRITE)
            self.update(default)
        return default

    @property
    def _may_create(self) -> bool:
        return self._live.config.auto_create_topic

    def _made(self, topic: TopicConfig) -> TopicConfig:
        self.update(topic)
        logger.info("topic %s created queues=%d perm=%d", topic.topic_name, topic.write_queue_nums, topic.perm)
        return topic

    # Changes

    def update(self, config: TopicConfig) -> None:
        """Create or replace a topic."""
        known = self._topics.get(config.topic_name)
        self._unsaved.note(config.topic_name, known)
        self._topics[config.topic_name] = config
        self._queues += _queues_of((config,)) - (0 if known is None else _queues_of((known,)))
        self._moved_on(config.topic_name)

    def delete(self, topic: str) -> bool:
        """Forget a topic. False if there is none."""
        known = self._topics.pop(topic, None)
        if known is None:
            return False
        self._unsaved.note(topic, known)
        self._queues -= _queues_of((known,))
        self._moved_on(topic)
        return True

    def set_order_topics(self, names: Collection[str]) -> None:
        """Mark exactly these topics as ordered, as the name server says."""
        wrong = [topic for topic in self._topics.values() if topic.order != (topic.topic_name in names)]
        for topic in wrong:
            self._topics[topic.topic_name] = replace(topic, order=not topic.order)
        if wrong:
            self._moved_on(wrong[0].topic_name if len(wrong) == 1 else None)

    def apply_settings(self) -> None:
        """Call it when settings changed: with automatic creation switched on, TBW102 must be open for it."""
        repaired = self._repaired_default()
        if repaired is not None:
            self.update(repaired)

    def begin_epoch(self, epoch: int) -> None:
        """This broker became master. Name servers then believe no master of an earlier epoch."""
        self.data_version = replace(self.data_version, state_version=epoch)
        self._bump()

    def touch(self) -> None:
        """Bump the version although no topic changed: their registered permissions did (brokerPermission)."""
        self._moved_on(None)

    def _repaired_default(self) -> TopicConfig | None:
        """TBW102 as it should be, or None if it is fine.

        Apache's broker leaves it closed for good once the setting was off; switching it on again has no effect there.
        """
        if not self._may_create:
            return None
        known = self._topics.get(TEMPLATE_TOPIC)
        if known is None:
            return _topic(TEMPLATE_TOPIC, self._live.config.default_topic_queues, _OPEN)
        return None if known.perm & PERM_INHERIT else replace(known, perm=_OPEN)

    def _moved_on(self, topic: str | None) -> None:
        self._bump(topic)
        if self.changed is not None:
            self.changed(topic)

    def _bump(self, topic: str | None = None) -> None:
        self.data_version = next_version(self.data_version, self._clock())
        self.dirty = True
        if topic is not None:
            self._change_counters.pop(topic, None)
        if topic in self._topics:
            self._change_counters[topic] = self.data_version.counter
        else:
            self._untold_counter = self.data_version.counter

    # The file, and what peers copy

    def writing(self) -> None:
        """The current table is being written to the file."""
        self._unsaved.begin()

    def written(self) -> None:
        self._unsaved.written()

    def take_back(self) -> None:
        """The file cannot be written: roll the topics back to what it holds."""
        for name, before in self._unsaved.failed().items():
            if before is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = before
            logger.warning("topic %s rolled back to topics.json", name)
            self._bump(name)
        self._queues = _queues_of(self._topics.values())

    def snapshot(self) -> TopicConfigSerializeWrapper:
        """A copy of the table that does not change, for another thread."""
        return TopicConfigSerializeWrapper(data_version=self.data_version, topic_config_table=self._topics.copy())

    def load(self, saved: TopicConfigSerializeWrapper) -> None:
        """Load the saved table; it overrides built-in topics.

        The version is bumped if that added topics, or name servers that know the old version would not ask.
        """
        self._topics.update(saved.topic_config_table)
        self.data_version = saved.data_version
        self.dirty = False
        repaired = self._repaired_default()
        if repaired is not None:
            self._topics[TEMPLATE_TOPIC] = repaired
        self._queues = _queues_of(self._topics.values())
        if repaired is not None or len(self._topics) > len(saved.topic_config_table):
            self._bump()

    def take_over(self, masters: TopicConfigSerializeWrapper) -> bool:
        """Become what the master's table is, version included; built-in topics that it lacks stay.

        False if it is that already. Topics that are the same on both sides keep their TopicConfig.
        """
        if masters.data_version == self.data_version:
            return False
        before, theirs = self._topics, masters.topic_config_table
        self._topics = {
            name: topic if before.get(name) != topic else before[name]
            for name, topic in (self._built_in | theirs).items()
        }
        self._queues = _queues_of(self._topics.values())
        # The new version has nothing to do with those before it: whoever knows one of them is told everything.
        self._untold_counter = 1 + max(self._untold_counter, self.data_version.counter, masters.data_version.counter)
        self._change_counters.clear()
        self._unsaved = Unsaved()
        self.data_version = masters.data_version
        self.dirty = True
        if self.changed is not None:
            self.changed(None)
        return True


def _queues_of(topics: Iterable[TopicConfig]) -> int:
    return sum(max(topic.read_queue_nums, topic.write_queue_nums, 0) for topic in topics)


def _topic(name: str, queues: int, perm: int = _READ_WRITE, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=sys_flag
    )
