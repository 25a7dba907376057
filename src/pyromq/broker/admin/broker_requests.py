"""Admin requests about the broker itself: settings, figures, progress of groups, clean-up.

See docs/spec/broker.md 12.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import ServerError, TopicNotFound
from pyromq.protocol.bodies import KVTable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import (
    GetBrokerConfigReply,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetTopicStatsInfo,
    QueryConsumeTimeSpan,
    ViewBrokerStatsData,
)
from pyromq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC
from pyromq.settings import dump
from pyromq.settings.live import remark_on

from ..rediscovery import LITE_QUEUES, holds_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.protocol.bodies import DelayOffsetTable, TopicConfig
    from pyromq.protocol.bodies.timers import TimerMetricsTable
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore

    from ..config import LiveConfig
    from ..context import Context, Tables
    from ..offsets.progress import Progress
    from ..stats.runtime_info import RuntimeInfo
    from ..stats.statistics import Statistics
    from ..topics import TopicTable

logger = logging.getLogger(__name__)

_TOPIC_SEPARATOR = ";"
# Half messages have their queues before the topics have their entries.
_WITHOUT_ENTRY = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, HALF_OP_TOPIC})


class SettingsProcessors:
    """The broker's settings. A change is in its file before it takes effect; if it cannot be saved, nothing changes.

    `save` receives the text of the file, `changed` the keys with a new value; it returns once they are announced.
    """

    def __init__(
        self,
        live: LiveConfig,
        clock: Callable[[], int],
        save: Callable[[bytes], Awaitable[None]],
        changed: Callable[[list[str]], Awaitable[None]],
    ) -> None:
        self._live = live
        self._clock = clock
        self._save = save
        self._changed = changed
        # One change after the other: each is planned on top of the one before.
        self._turn = asyncio.Lock()

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    async def update(self, connection: Connection, request: Command) -> Command:
        async with self._turn:
            update = self._live.planned(request.body_bytes, connection.peer)
            if update is None:
                return request.reply()
            await self._save(dump(update.settings.items()).encode())
            self._live.apply(update, connection.peer, self._clock())
            await self._changed(update.changed)
        return request.reply(remark=remark_on(update))

    def get(self, connection: Connection, request: Command) -> Command:
        return request.reply(
            header=GetBrokerConfigReply(self._live.version.encode().decode()),
            body=dump(self._live.settings.items(reveal=False)).encode(),
        )


class FigureProcessors:
    """What the broker has counted, and how far delayed messages were delivered.

    `timers` gives the checkpoint of timers as slaves copy it, or None where none are delivered; `timer_counts` how many
    of them wait, by topic.
    """

    def __init__(
        self,
        info: RuntimeInfo,
        statistics: Statistics,
        delay_offsets: Callable[[], DelayOffsetTable],
        timers: Callable[[], bytes | None] = lambda: None,
        timer_counts: Callable[[], Awaitable[TimerMetricsTable]] | None = None,
    ) -> None:
        self._info = info
        self._statistics = statistics
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._timer_counts = timer_counts

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.timer_counts,
        }

    def runtime_info(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=KVTable(self._info.collect()).encode())

    def view_stats(self, connection: Connection, request: Command) -> Command:
        header = request.header(ViewBrokerStatsData)
        view = self._statistics.view(header.stats_name, header.stats_key)
        if view is None:
            raise ServerError(f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return request.reply(body=view.encode())

    def delay_offsets(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=self._delay_offsets().encode())

    def timer_checkpoint(self, connection: Connection, request: Command) -> Command:
        checkpoint = self._timers()
        if checkpoint is None:
            raise ServerError("The checkpoint is null")
        return request.reply(body=checkpoint)

    async def timer_counts(self, connection: Connection, request: Command) -> Command:
        if self._timer_counts is None:
            raise ServerError("The timer message store is null")
        return request.reply(body=(await self._timer_counts()).encode())


class ProgressProcessors:
    """Progress of queues and groups. `address` gives the address that clients are told."""

    def __init__(self, context: Context, tables: Tables, progress: Progress) -> None:
        self._progress = progress
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clock = context.clock
        self._address = context.address

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
        }

    def topic_stats(self, connection: Connection, request: Command) -> Command:
        topic = self._existing(request.header(GetTopicStatsInfo).topic)
        return request.reply(body=self._progress.of_topic(topic).encode())

    def consume_stats(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetConsumeStats)
        group = header.consumer_group
        topics = [topic for topic in (header.topic_list or "").split(_TOPIC_SEPARATOR) if topic.strip()]
        if not topics and header.topic and header.topic.strip():
            topics = [header.topic]
        stats = self._progress.of_group(group, topics or self._offsets.topics_of(group))
        return request.reply(body=stats.encode())

    async def all_consume_stats(self, connection: Connection, request: Command) -> Command:
        only_ordered = request.header(GetBrokerConsumeStats).is_order
        stats = await self._progress.of_all_groups(self._groups, self._address, only_ordered=only_ordered)
        # Encoding a hundred thousand queues takes a fifth of a second; other requests are served meanwhile.
        return request.reply(body=await asyncio.to_thread(stats.encode))

    def time_spans(self, connection: Connection, request: Command) -> Command:
        header = request.header(QueryConsumeTimeSpan)
        topic = self._existing(header.topic)
        return request.reply(body=self._progress.times(header.group, topic, self._clock()).encode())

    def _existing(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic[{name}] not exist")
        return topic


class CleaningProcessors:
    """Deletes what can no longer be read. `delete_queues` removes all queues of a topic from every table."""

    def __init__(self, store: MessageStore, topics: TopicTable, delete_queues: Callable[[str], object]) -> None:
        self._store = store
        self._topics = topics
        self._delete_queues = delete_queues

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_files,
        }

    async def clean_expired_queues(self, connection: Connection, request: Command) -> Command:
        logger.warning("deleting expired consume queues for %s", connection.peer)
        for queue in list(self._store.queues):
            # Its newest message lies before the log, so all of them do. Offsets begin again at 0.
            if not queue.is_schedule and 0 < queue.max_physical <= self._store.log.start:
                logger.info("%r deleted: all its messages are gone", queue)
                queue.delete()
                await asyncio.sleep(0)
        return request.reply()

    async def clean_unused_topics(self, connection: Connection, request: Command) -> Command:
        logger.warning("deleting consume queues without a topic for %s", connection.peer)
        for topic in {queue.topic: None for queue in self._store.queues}:
            if self._topics.get(topic) is not None or topic in _WITHOUT_ENTRY or topic.startswith(LITE_QUEUES):
                continue
            start = int(self._store.log.start)
            if any(holds_messages(queue, start) for queue in self._store.queues.of_topic(topic)):
                # Their senders were told that they are stored. To drop them, create the topic and delete it.
                logger.warning("queues of %s kept: the topic does not exist, but they hold messages", topic)
                continue
            logger.info("queues of %s deleted: the topic does not exist", topic)
            self._delete_queues(topic)
            await asyncio.sleep(0)
        return request.reply()

    def delete_expired_files(self, connection: Connection, request: Command) -> Command:
        logger.warning("deleting expired commit log files for %s", connection.peer)
        self._store.clean_now()
        self._store.clean()
        return request.reply()
