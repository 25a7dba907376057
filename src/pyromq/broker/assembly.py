"""Everything that a broker is made of, put together in one place. It knows all parts; none of them knows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.protocol import properties as props
from pyromq.protocol.bodies import OffsetMovedEvent
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord
from pyromq.settings.saved_file import SavedFile
from pyromq.store.config import FlushDiskType, StoreConfig
from pyromq.store.metadata.json_files import consumer_filters_file, delay_offsets_file
from pyromq.store.tags import parse_delay_levels

from .admin.broker_requests import CleaningProcessors, FigureProcessors, ProgressProcessors, SettingsProcessors
from .admin.lookup_requests import LookupProcessors
from .admin.slow_consumers import Protection
from .admin.topic_requests import ConsumptionProcessors, GroupProcessors, TopicProcessors
from .appends import Appends
from .clients.connected import Clients
from .clients.consumer_calls import ConsumerCallProcessors, RebalanceNotices
from .clients.queue_locks import QueueLocks
from .clients.requests import ClientProcessors, LockProcessors
from .filters.bitmaps import FilterBits
from .filters.consumer_filters import Filters
from .groups import GroupTable
from .kept_files import BrokerState
from .offsets.consumer_offsets import ConsumerOffsets
from .offsets.progress import Progress
from .offsets.requests import OffsetProcessors, QueueProcessors
from .offsets.server_side_resets import ServerSideResets
from .pop.assembly import PopParts
from .pull import PullProcessor
from .registration import Registration
from .registration_requests import RegistrationRequests
from .request_reply import ReplyProcessor
from .send import SendProcessor
from .send_back import SendBackProcessor
from .stats.runtime_info import RuntimeInfo
from .stats.statistics import Statistics
from .timers.checkpoint import TimerCheckpoint
from .timers.delivery import TimerService
from .timers.figures import TimerFigures
from .timers.parking import TimerParking
from .timers.recalls import RecallProcessor
from .timers.schedule import ScheduleService
from .timers.upkeep import TimerUpkeep
from .topics import OFFSET_MOVED, TopicTable
from .transactions.check_back import CheckBack
from .transactions.end_transaction import TransactionProcessors
from .transactions.half_queue import HalfQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from pyromq.remoting import Processor, RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .config import LiveConfig

_MAINTAIN = 0.1
_SAMPLE = 1.0
_HOUSEKEEPING = 10.0
_LOOK_AT_HELD_PULLS = 5.0
_PROTECT = 180.0
_LAST_FLUSH = 10.0


class Parts:
    """The parts of one broker, ready to be loaded and run.

    `address` is what clients are told, `ha_address` what slaves are, `store_host` the bytes that stand for it in every
    message. `clock` gives epoch milliseconds.
    """

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        client: RemotingClient,
        clock: Callable[[], int],
        *,
        address: str,
        ha_address: str,
        store_host: bytes,
    ) -> None:
        self._live = live
        self._store = store
        self._clock = clock
        self._address = address
        self._store_host = store_host
        store_config = store.config
        delays = parse_delay_levels(store_config.delay_levels)

        self._topics = TopicTable(live, clock)
        self._groups = GroupTable(live, clock)
        self._offsets = ConsumerOffsets()
        self._stats = Statistics(clock())
        self._notices = RebalanceNotices(live)
        self.clients = Clients(self._notices.post)
        self._filters = Filters(live, clock)
        self.clients.emptied = self._filters.unregister
        if store_config.consume_queue_ext:
            store.bitmaps = FilterBits(self._filters, live).of_topic
        self.pulls = PullProcessor(
            *(store, self._topics, self._groups, self.clients, self._offsets, self._stats, live, self._filters),
            offset_moved=self._offset_moved,
        )
        self._appends = Appends(
            store,
            self._arrived,
            self._stats.throughput,
            sync_flush=store_config.flush is FlushDiskType.SYNC_FLUSH,
            sync_flush_timeout=store_config.sync_flush_timeout / 1000,
        )
        self._schedule = ScheduleService(store, self._appends, delays, clock, self._stats, live.config.cluster_name)
        self._timers = TimerService(store, self._appends, self._stats, live, clock)
        self._timer_upkeep = TimerUpkeep(self._timers, store, live, clock, TimerCheckpoint(store.root))
        self._parking = TimerParking(live, self._timers.congestion)
        self._halves = HalfQueue(store, self._appends, self._offsets, clock, store_host)
        self._check_back = CheckBack(
            *(store, self._appends, self._halves, self._topics, self.clients, live, clock), store_host=store_host
        )

        self._client = client
        self._pops = PopParts(
            *(store, self._appends, self._timers, self._topics, self._groups, self._offsets, self._stats, live, clock),
            store_host=store_host,
        )

        self.state = BrokerState(store.root, live, self._topics, self._groups, self._offsets)
        self.state.keep(
            delay_offsets_file(store.root), self._schedule.kept, lambda: live.config.delay_offset_flush_interval
        )
        self.state.keep(consumer_filters_file(store.root), self._filters)
        self._pops.keep(self.state)
        self._settings_file = SavedFile(Path(live.config.config_path))

        requests = RegistrationRequests(live, self._topics, address=address, ha_address=ha_address)
        self.registration = Registration(client, live, requests, self._topics.set_order_topics)
        self._topics.changed = self._topic_changed
        self._groups.changed = self.state.groups_changed

    def load(self) -> None:
        """Take over what an earlier broker left in the store. StoreError if some of it cannot be used."""
        self.state.load()
        self._halves.load()
        if self._live.config.timer_wheel:
            self._timer_upkeep.load()
            self._pops.load()

    # Requests

    def processors(self) -> dict[int, Processor]:
        """Who serves which request."""
        live, clock, store = self._live, self._clock, self._store
        topics, groups, offsets, clients, stats = self._topics, self._groups, self._offsets, self.clients, self._stats
        levels = self._schedule.levels
        send = self._send = SendProcessor(
            *(store, self._appends, topics, groups, stats, live, clock),
            delay_levels=levels,
            store_host=self._store_host,
            timers=self._parking,
        )
        recalls = RecallProcessor(
            *(store, self._appends, topics, self._parking, stats, live, clock), store_host=self._store_host
        )
        stats.sources.append(send.count)
        resets = self._resets = ServerSideResets(store, topics, groups, offsets, live, self.pulls.forget)
        progress = Progress(store, topics, offsets, clients, stats, live)
        timers = TimerFigures(self._timers, clock) if live.config.timer_wheel else None
        if timers is not None:
            stats.sources.append(timers.sample)
        info = RuntimeInfo(store, stats, live, clock, self._schedule.snapshot, self._backlog, timers=timers)
        replies = ReplyProcessor(
            *(store, self._appends, topics, clients, stats, live, clock),
            address=self._address,
            store_host=self._store_host,
        )
        table: dict[int, Processor] = {
            **send.table(),
            **SendBackProcessor(store, self._appends, topics, groups, stats, live, delay_levels=levels).table(),
            **TransactionProcessors(
                *(store, self._appends, self._halves, topics, stats, live, clock),
                placed=send.placed,
                store_host=self._store_host,
            ).table(),
            **recalls.table(),
            **self.pulls.table(),
            **self._pops.processors(clients, self._client, lambda: self.registration.name_servers),
            **replies.table(),
            **ClientProcessors(clients, topics, groups, self._filters, live, clock).table(),
            **LockProcessors(QueueLocks(), clock).table(),
            **ConsumerCallProcessors(clients, topics, offsets, store, live).table(),
            **OffsetProcessors(offsets, topics, clients, store).table(),
            **QueueProcessors(store).table(),
            **TopicProcessors(
                topics,
                live,
                settled=self._topic_settled,
                saved=self.state.topics.saved,
                delete_queues=self._delete_queues,
            ).table(),
            **GroupProcessors(
                groups, offsets, live, saved=self.state.groups.saved, deleted=self._group_deleted
            ).table(),
            **ConsumptionProcessors(offsets, clients, lambda: self._address).table(),
            **SettingsProcessors(live, clock, self._settings_settled, self._settings_changed).table(),
            **FigureProcessors(info, stats, self._schedule.snapshot).table(),
            **ProgressProcessors(progress, topics, groups, offsets, clock, lambda: self._address).table(),
            **CleaningProcessors(store, topics, self._delete_queues).table(),
            **LookupProcessors(store, clients, self._filters).table(),
        }
        return table | resets.before(table)

    # What goes on by itself

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        """What runs while the broker does, but for the registration; each with its name."""
        yield "save state", self.state.run()
        yield "deliver delayed messages", self._schedule.run()
        if self._live.config.timer_wheel:
            yield "deliver timers", self._timers.run()
            yield "save timers", self._timer_upkeep.run()
            yield from self._pops.services()
        yield "check transactions", self._check_back.run()
        yield "notify consumers", self._notices.run()
        yield "maintain store", self._maintain_store()
        yield "clean store", self._clean_store()
        yield "expire clients", self._expire_clients()
        yield "expire held pulls", self._expire_held_pulls()
        yield "sample statistics", self._sample_statistics()
        yield "stop slow consumers", self._stop_slow_consumers()

    async def _maintain_store(self) -> None:
        while True:
            await asyncio.sleep(_MAINTAIN)
            self._store.maintain()

    async def _clean_store(self) -> None:
        while True:
            self._store.clean()
            await asyncio.sleep(self._store.config.clean_interval / 1000)

    async def _expire_clients(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            for connection in self.clients.expire(self._clock()):
                connection.close()
            self._filters.clean()

    async def _expire_held_pulls(self) -> None:
        while True:
            config = self._live.config
            await asyncio.sleep(_LOOK_AT_HELD_PULLS if config.long_polling else config.short_polling_ms / 1000)
            self.pulls.expire()

    async def _sample_statistics(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self._stats.sample(self._clock())

    async def _stop_slow_consumers(self) -> None:
        protection = Protection(self._store, self._groups, self.clients, self._offsets, self._live)
        while True:
            await asyncio.sleep(_PROTECT)
            protection.stop_slow_groups()

    def stop_waiting(self) -> None:
        """Answer all who wait for messages."""
        self.pulls.stop()
        self._pops.stop()

    async def finish(self, timeout: float) -> None:
        """Store what has arrived and answer all who wait: pulls at once, senders when their messages are on disk."""
        self.stop_waiting()
        self._appends.flush()
        if self._store.config.flush is FlushDiskType.SYNC_FLUSH:
            # Those who were first to wait are the first to be answered.
            await asyncio.wait([asyncio.wrap_future(self._store.flushed())], timeout=timeout)

    async def close(self) -> None:
        """Keep all that is known for the next start. Everything has come to an end before this."""
        self._appends.flush()
        if self._live.config.timer_wheel:
            await self._timer_upkeep.close()
        flushed = asyncio.wrap_future(self._store.flushed())
        await asyncio.wait([flushed], timeout=_LAST_FLUSH)
        if flushed.done() and flushed.exception() is None:
            await self._pops.settle()
        await self.state.close()

    def _arrived(self, queue: ConsumeQueue) -> None:
        self.pulls.arrived(queue)
        self._pops.arrived(queue)

    # What follows from a change

    def _delete_queues(self, topic: str) -> int:
        self._appends.flush()  # what arrived in this turn still belongs to the queues that go
        deleted = self._store.delete_topic(topic)
        self._send.forget(topic)
        self.pulls.forget(topic)
        self._pops.forget_topic(topic)
        self._resets.forget_topic(topic)
        if self._live.config.auto_delete_unused_stats:
            self._stats.forget_topic(topic)
        return deleted

    def _group_deleted(self, group: str) -> None:
        self._resets.forget_group(group)
        self._pops.forget_group(group)
        if self._live.config.auto_delete_unused_stats:
            self._stats.forget_group(group)

    def _backlog(self, kind: str) -> tuple[int, int]:
        """Requests that wait. Only sends do, for the disk; everything else is answered in the turn that reads it."""
        return (self._appends.waiting if kind == "send" else 0, 0)

    def _offset_moved(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        """Leave a note for operators: a consumer asked for messages that are not there (any more)."""
        queue = MessageQueue(topic=topic, broker_name=self._live.config.broker_name, queue_id=queue_id)
        body = OffsetMovedEvent(consumer_group=group, message_queue=queue, offset_new=given, offset_request=asked)
        record = MessageRecord(
            OFFSET_MOVED,
            body.encode(),
            props.encode(props.render({props.TAGS: group, props.KEYS: group})),
            born_timestamp=self._clock(),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        self._appends.put(self._store.queue(OFFSET_MOVED, 0), (record,), lambda results: None, wait=False)

    def _topic_changed(self, topic: str | None) -> None:
        self.state.topics_changed(topic)
        self.registration.announce()

    async def _topic_settled(self, topic: str) -> None:
        await asyncio.gather(self.state.topics.saved(), self.registration.register_topic(topic))

    def _settings_changed(self, keys: list[str]) -> None:
        self._store.reconfigure(self._live.settings[StoreConfig])
        self._topics.apply_settings()
        if "brokerPermission" in keys:
            self._topics.touch()
        if "namesrvAddr" in keys:
            self.registration.refresh_soon()

    async def _settings_settled(self, text: bytes) -> None:
        await asyncio.gather(self._settings_file.save(text), self.registration.settle())
