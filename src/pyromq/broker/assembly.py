"""Everything that a broker is made of, put together in one place. It knows all parts; none of them knows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import AccessControl, Server
from pyromq.auth.users.requests import UserProcessors
from pyromq.protocol import properties as props
from pyromq.protocol.bodies import OffsetMovedEvent
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.names import HALF_TOPIC, OFFSET_MOVED_TOPIC
from pyromq.protocol.record import MessageRecord
from pyromq.settings.saved_file import SavedFile
from pyromq.store.config import StoreConfig
from pyromq.store.metadata.json_files import consumer_filters_file, delay_offsets_file
from pyromq.store.tags import parse_delay_levels

from .admin.account_requests import AccountProcessors
from .admin.broker_requests import CleaningProcessors, FigureProcessors, ProgressProcessors, SettingsProcessors
from .admin.lookup_requests import LookupProcessors
from .admin.slow_consumers import Protection
from .admin.topic_requests import ConsumptionProcessors, GroupProcessors, TopicProcessors
from .appends import Appends
from .clients.connected import Clients
from .clients.consumer_calls import ConsumerCallProcessors, RebalanceNotices
from .clients.queue_locks import QueueLocks
from .clients.requests import ClientProcessors, LockProcessors
from .config import BrokerConfig, store_config
from .context import Context, Tables
from .durability import DurabilityGate
from .failover.assembly import GroupReplication
from .failover.config import FailoverConfig
from .fast_failure import FastFailure
from .fast_paths import FastPaths
from .fast_pulls import fast_pulls
from .fast_sends import fast_sends
from .filters.bitmaps import FilterBits
from .filters.consumer_filters import Filters
from .groups import GroupTable
from .kept_files import BrokerState
from .offsets.archives import Archives
from .offsets.consumer_offsets import ConsumerOffsets
from .offsets.progress import Progress
from .offsets.requests import OffsetProcessors, QueueProcessors
from .offsets.room import OffsetRoom
from .offsets.server_side_resets import ServerSideResets
from .pop.assembly import PopParts
from .pull import PullProcessor
from .rediscovery import rediscover
from .registration import Registration
from .registration_requests import RegistrationRequests
from .replication.assembly import PlainReplication
from .replication.config import ReplicationConfig
from .replication.follower import Masters
from .replication.metadata import MetadataCopy
from .replication.protection import OPEN, LineProtection
from .replication.slave_reads import refused_by_slaves
from .request_reply import ReplyProcessor
from .requests import RULES
from .send import SendProcessor
from .send_back import SendBackProcessor
from .stats.metrics import BrokerMetrics
from .stats.runtime_info import RuntimeInfo
from .stats.statistics import Statistics
from .timers.checkpoint import TimerCheckpoint, encode_progress
from .timers.delivery import TimerService
from .timers.figures import TimerFigures
from .timers.parking import TimerParking
from .timers.recalls import RecallProcessor
from .timers.schedule import ScheduleService
from .timers.topic_counts import TopicCounts
from .timers.upkeep import TimerUpkeep
from .topics import TopicTable
from .transactions.check_back import CheckBack
from .transactions.end_transaction import TransactionProcessors
from .transactions.half_queue import HalfQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from pyromq.remoting import Processor, RemotingClient
    from pyromq.remoting.latencies import RequestLatencies
    from pyromq.settings import Settings
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from .config import LiveConfig
    from .failover.member import Member

_MAINTAIN = 0.1
_SAMPLE = 1.0
_HOUSEKEEPING = 10.0
_LOOK_AT_HELD_PULLS = 5.0
_PROTECT = 180.0
_LAST_FLUSH = 10.0


def access_control(settings: Settings) -> AccessControl:
    """Who may ask a broker for what. ConfigError for settings that cannot work."""
    asks = ""
    if settings[FailoverConfig].enabled:
        asks = "controllers and other brokers of the group"
    elif settings[BrokerConfig].is_slave:
        asks = "its master"
    home = Path(settings[StoreConfig].root)
    return AccessControl(settings, Server(rules=RULES, home=home, asks=asks))


class Parts:
    """The parts of one broker, ready to be loaded and run. Its store is open.

    `address` is what clients are told, `ha_address` what slaves are, `store_host` the bytes that stand for it in every
    message. `access` decides who may do what. `clock` gives epoch milliseconds, `monotonic` those that leases are
    measured by.

    In a group that fails over, a `member` knows its role, and each role has parts of its own: what clients said, and
    what was counted, goes over from those of the `earlier` role; everything else is loaded as after a start.
    """

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        client: RemotingClient,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        *,
        address: str,
        ha_address: str,
        store_host: bytes,
        access: AccessControl,
        protection: LineProtection = OPEN,
        member: Member | None = None,
        earlier: Parts | None = None,
        latencies: RequestLatencies | None = None,
    ) -> None:
        self._live = live
        self._store = store
        self._clock = clock

        # What is below the processors.
        self.notices: RebalanceNotices = RebalanceNotices(live) if earlier is None else earlier.notices
        tables: Tables = Tables(
            topics=TopicTable(live, clock),
            groups=GroupTable(live, clock),
            offsets=ConsumerOffsets(),
            filters=Filters(live, clock),
            clients=Clients(self.notices.post) if earlier is None else earlier.tables.clients,
        )
        self.tables: Tables = tables
        requests = RegistrationRequests(live, tables.topics, address=address, ha_address=ha_address)
        self.registration = Registration(client, live, requests, tables.topics.set_order_topics)
        self.state = BrokerState(store.root, live, tables.topics, tables.groups, tables.offsets, store.disk)
        self._ha_address = ha_address
        self._is_slave = live.config.is_slave
        replication: PlainReplication | GroupReplication = (
            PlainReplication(
                live,
                store,
                client,
                clock,
                address=address,
                ha_address=ha_address,
                masters=self._masters,
                seek=self.registration.ask_for_master,
                arrived=self._came_from_master,
                protection=protection,
            )
            if member is None
            else GroupReplication(
                member,
                live,
                store,
                client,
                self.registration,
                clock,
                arrived=self._arrived,
                dispatched=self._copied,
                protection=protection,
                guard=access.guard,
            )
        )
        self.replication = replication
        # Whether name servers are told: they must not send clients to a broker that has no role.
        self.is_registered = member is None or member.has_role
        self._is_over = self._is_closed = False
        self._member = member
        self.gate = DurabilityGate(
            store,
            self.state,
            tables.topics,
            tables.groups,
            self.registration.settle,
            copies=replication.copies,
            permit=replication.permit,
        )
        stats: Statistics = Statistics(clock())
        began: int = monotonic()
        if earlier is not None:
            stats, began = earlier.context.stats, earlier.context.began
            stats.take_sources()
        self._appends = Appends(store, self.gate, self._arrived, stats.throughput, replication.appended)
        self.fast_failure = FastFailure(live, lambda: self.gate.waiting)
        self.context: Context = Context(
            live=live,
            clock=clock,
            monotonic=monotonic,
            began=began,
            store=store,
            gate=self.gate,
            appends=self._appends,
            stats=stats,
            address=address,
            store_host=store_host,
            access=access,
            latencies=latencies,
        )
        context = self.context
        if store.config.consume_queue_ext:
            store.bitmaps = FilterBits(tables.filters, live).of_topic

        # What runs by itself.
        self.schedule = ScheduleService(context, parse_delay_levels(store.config.delay_levels))
        self.timers = TimerService(context)
        self.timer_upkeep = TimerUpkeep(context, self.timers, TimerCheckpoint(store.root))
        self.halves = HalfQueue(context, tables.offsets)
        self.check_back = CheckBack(context, tables, self.halves)

        # What is kept in files.
        self._settings_file = SavedFile(Path(live.config.config_path))
        self.state.keep(
            delay_offsets_file(store.root, store.disk),
            self.schedule.kept,
            lambda: live.config.delay_offset_flush_interval,
        )
        self.archives = Archives(store, tables.offsets, clock)
        self.state.keep(consumer_filters_file(store.root, store.disk), tables.filters)

        # What serves requests. The others that do are known by their table alone.
        parking = TimerParking(live, self.timers.congestion)
        self.sends = SendProcessor(context, tables, delay_levels=self.schedule.levels, timers=parking)
        self._offset_room = OffsetRoom(live, tables.offsets)
        self.pulls = PullProcessor(context, tables, self._offset_room, self._offset_moved)
        self.fast = FastPaths.of(fast_pulls(context, tables, self.pulls), fast_sends(context, tables, self.sends))
        self._pops = PopParts(
            context,
            tables,
            self.state,
            client,
            timers=self.timers,
            name_servers=lambda: self.registration.name_servers,
        )
        self.metadata = (
            MetadataCopy(
                store,
                client,
                self._master_for_clients,
                lambda: live.settings[ReplicationConfig].sync_interval,
                has_left=lambda: replication.has_master_left,
                epoch=self._epoch,
                state=self.state,
                tables=tables,
                modes=self._pops.modes,
                schedule=self.schedule,
                timers=self.timer_upkeep if live.config.timer_wheel else None,
                users=None if access.users is None else access.users.directory,
            )
            if self._is_slave
            else None
        )
        self._resets = ServerSideResets(context, tables, self.pulls.forget)
        table = self._table(parking)
        self.processors: Mapping[int, Processor] = table | self._resets.before(table)
        if self._is_slave:
            self.processors = {**self.processors, **refused_by_slaves(), **replication.passed_on()}

        # Who hears of what.
        tables.clients.emptied = tables.filters.unregister
        tables.topics.changed = self.gate.topic_changed
        tables.groups.changed = self.gate.group_changed

    def _table(self, parking: TimerParking) -> dict[int, Processor]:
        """Who serves which request."""
        context, tables = self.context, self.tables
        live, clock, store, stats = context.live, context.clock, context.store, context.stats
        stats.sources.append(self.sends.count)
        timers = TimerFigures(self.timers, clock) if live.config.timer_wheel else None
        if timers is not None:
            stats.sources.append(timers.sample)
        delivers_timers = live.config.timer_wheel and not self._is_slave
        counts = TopicCounts(self.timers, clock) if delivers_timers else None
        timer_counts = None if counts is None else counts.table
        self.metrics = BrokerMetrics(
            context,
            tables,
            registration=self.registration,
            held=self.pulls.held,
            pulled=self.pulls.pulled,
            halves=self.halves,
            timers=self.timers if delivers_timers else None,
            timer_counts=counts,
            replication=self.replication.status.info,
        )
        delay_offsets = self.schedule.snapshot
        info = RuntimeInfo(
            context,
            delay_offsets=delay_offsets,
            backlog=self._backlog,
            timers=timers,
            replication=self.replication.collect,
            archives=self.archives.collect,
        )
        transactions = TransactionProcessors(context, tables.topics, self.halves, placed=self.sends.placed)
        topics = TopicProcessors(
            tables.topics,
            live,
            settled=self.gate.topics_settled,
            delete_queues=self._delete_queues,
            deleted=lambda: store.deleted_topics,
        )
        groups = GroupProcessors(
            tables.groups, tables.offsets, live, saved=self.gate.groups_saved, deleted=self._group_deleted
        )
        return {
            **self.sends.table(),
            **SendBackProcessor(context, tables, delay_levels=self.schedule.levels).table(),
            **transactions.table(),
            **RecallProcessor(context, tables.topics, parking).table(),
            **self.pulls.table(),
            **self._pops.processors,
            **ReplyProcessor(context, tables).table(),
            **ClientProcessors(
                live, clock, context.monotonic, tables, self.gate.acknowledged, guard=context.access.guard
            ).table(),
            **LockProcessors(QueueLocks(), context.monotonic).table(),
            **ConsumerCallProcessors(context, tables).table(),
            **OffsetProcessors(store, tables, self._offset_room).table(),
            **QueueProcessors(store).table(),
            **topics.table(),
            **groups.table(),
            **ConsumptionProcessors(tables, context.address).table(),
            **SettingsProcessors(live, clock, self._settings_file.save, self._settings_changed).table(),
            **FigureProcessors(info, stats, delay_offsets, self._timer_checkpoint, timer_counts).table(),
            **self.replication.table(),
            **ProgressProcessors(context, tables, Progress(context, tables)).table(),
            **CleaningProcessors(store, tables.topics, self._delete_queues).table(),
            **LookupProcessors(store, tables.clients, tables.filters, context.access.guard).table(),
            **AccountProcessors(context).table(),
            **UserProcessors(context.access.users, follows=self._is_slave).table(),
        }

    def load(self) -> None:
        """Take over what an earlier broker left in the store. StoreError if some of it cannot be used.

        It may take a while, and be done in a thread; `rediscover` comes after it, on the event loop.
        """
        self.state.load()
        if self._member is not None and self._member.is_master and self._member.role is not None:
            self.tables.topics.begin_epoch(self._member.role.epoch)
        self.halves.load()
        if self._live.config.timer_wheel and not self._is_slave:
            self.timer_upkeep.load()
            self._pops.load()

    def rediscover(self) -> None:
        """Bring back what the files lack and the store shows, and have it saved."""
        if not self._is_slave:  # a slave takes over what its master has
            least = 1 if self._member is None else self._live.config.default_topic_queues
            rediscover(self._store, self.state, self.tables.topics, self.tables.groups, least_queues=least)
            if self._member is not None:
                # A RocketMQ 5.5.0 in the group that does not have this topic when it stops being master hangs for 90 s:
                # one thread wants to create it, and the other waits for that thread with the lock in hand.
                self.tables.topics.ensure(HALF_TOPIC, 1)

    # What goes on by itself

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        """What runs while the broker does, but for the registration; each with its name."""
        yield "measure lag", self.fast_failure.run()
        yield "save state", self.state.run()
        yield from self.replication.services()
        if self.metadata is not None:
            # The master delivers, revives and checks; what comes of it is in its log.
            yield "copy settings of the master", self.metadata.run()
        else:
            yield from self._delivery_services()
        yield "notify consumers", self.notices.run()
        yield "maintain store", self._maintain_store()
        yield "clean store", self._clean_store()
        yield "expire clients", self._expire_clients()
        yield "expire held pulls", self._expire_held_pulls()
        yield "sample statistics", self._sample_statistics()
        yield "stop slow consumers", self._stop_slow_consumers()

    def _delivery_services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        yield "deliver delayed messages", self.schedule.run()
        if self._live.config.timer_wheel:
            yield "deliver timers", self.timers.run()
            yield "save timers", self.timer_upkeep.run()
            yield from self._pops.services()
        yield "check transactions", self.check_back.run()

    def _masters(self) -> Masters:
        """Where a slave finds its master."""
        known = self.registration.master_ha_address or None
        address = self.registration.master_address or None
        given = self._live.settings[ReplicationConfig].master_address
        ha_address = given or known
        if ha_address == self._ha_address:
            ha_address = None
        return Masters(ha_address, address, is_given=bool(given) and given != known)

    def _master_for_clients(self) -> str | None:
        if self._member is not None:
            return None if self._member.role is None else self._member.role.master_address
        address = self.registration.master_address or None
        return None if address == self.context.address else address

    def _epoch(self) -> int:
        """The epoch of the role; 0 without roles."""
        return 0 if self._member is None or self._member.role is None else self._member.role.epoch

    def _timer_checkpoint(self) -> bytes | None:
        """How far timers are, as slaves copy it."""
        if self._is_slave or not self._live.config.timer_wheel:
            return None
        return encode_progress(self.timers.progress(), self._clock())

    async def _maintain_store(self) -> None:
        while True:
            await asyncio.sleep(_MAINTAIN)
            self._store.maintain()

    async def _clean_store(self) -> None:
        while True:
            await self.archives.look()
            self._store.clean()
            await asyncio.sleep(self._store.config.clean_interval / 1000)

    async def _expire_clients(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING)
            for connection in self.tables.clients.expire(self.context.monotonic()):
                connection.close()
            self.tables.filters.clean()

    async def _expire_held_pulls(self) -> None:
        while True:
            config = self._live.config
            await asyncio.sleep(_LOOK_AT_HELD_PULLS if config.long_polling else config.short_polling_ms / 1000)
            self.pulls.expire()

    async def _sample_statistics(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE)
            self.context.stats.sample(self._clock())
            self.replication.sample(self.context.monotonic())

    async def _stop_slow_consumers(self) -> None:
        protection = Protection(self.context, self.tables)
        while True:
            await asyncio.sleep(_PROTECT)
            protection.stop_slow_groups()

    def stop_waiting(self) -> None:
        """Answer all who wait for messages."""
        self.pulls.stop()
        self._pops.stop()

    def depose(self) -> None:
        """End this role: whatever was not promised is refused from now on, and nothing more is written."""
        self._is_over = True
        self._store.read_only = "this broker is changing its role"
        self._appends.flush()
        self.gate.give_up("this broker is no longer master")
        self.stop_waiting()

    async def finish(self, timeout: float) -> None:
        """Store what has arrived and answer all who wait: pulls at once, senders when their messages are on disk.

        Slaves get what they lack: this one may be stopped so that a slave takes over.
        """
        self.stop_waiting()
        self._appends.flush()
        await self.gate.finish(timeout)
        await self.replication.finish(timeout)

    async def close(self) -> None:
        """Keep all that is known for the next start. Everything has come to an end before this."""
        if self._is_closed:
            return
        self._is_closed = True
        self._appends.flush()
        await self.gate.close()
        self.replication.close()
        if self._is_over:
            # What this broker did last may never have happened: it is known once there is a new master.
            await self.state.close()
            return
        if self._live.config.timer_wheel and not self._is_slave:
            await self.timer_upkeep.close()
        flushed = asyncio.wrap_future(self._store.flushed())
        await asyncio.wait([flushed], timeout=_LAST_FLUSH)
        if flushed.done() and flushed.exception() is None and not self._is_slave:
            await self._pops.settle()
        await self.state.close()

    def _arrived(self, queue: ConsumeQueue) -> None:
        self.pulls.arrived(queue)
        self._pops.arrived(queue)

    def _copied(self, queue: ConsumeQueue) -> None:
        assert self.metadata is not None, "only a slave copies"
        self.metadata.dispatched(queue)

    def _came_from_master(self, queue: ConsumeQueue) -> None:
        self._copied(queue)
        self._arrived(queue)

    # What follows from a change

    def _delete_queues(self, topic: str) -> int:
        self._appends.flush()  # what arrived in this turn still belongs to the queues that go
        deleted = self._store.delete_topic(topic)
        self.sends.forget(topic)
        if self.fast is not None:
            self.fast.forget()
        self.pulls.forget(topic)
        self._pops.forget_topic(topic)
        self._resets.forget_topic(topic)
        if self._live.config.auto_delete_unused_stats:
            self.context.stats.forget_topic(topic)
        return deleted

    def _group_deleted(self, group: str) -> None:
        self._resets.forget_group(group)
        self._pops.forget_group(group)
        self.pulls.pulled.forget_group(group)
        if self._live.config.auto_delete_unused_stats:
            self.context.stats.forget_group(group)

    def _backlog(self, kind: str) -> tuple[int, int]:
        """Requests that wait. Only sends do, for the disk; everything else is answered in the turn that reads it."""
        return (self.gate.waiting if kind == "send" else 0, 0)

    def _offset_moved(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        """Leave a note for operators: a consumer asked for messages that are not there (any more)."""
        if self._is_slave:
            return  # a slave's log is its master's
        queue = MessageQueue(topic=topic, broker_name=self._live.config.broker_name, queue_id=queue_id)
        body = OffsetMovedEvent(consumer_group=group, message_queue=queue, offset_new=given, offset_request=asked)
        record = MessageRecord(
            OFFSET_MOVED_TOPIC,
            body.encode(),
            props.encode(props.render({props.TAGS: group, props.KEYS: group})),
            born_timestamp=self._clock(),
            born_host=self.context.store_host,
            store_host=self.context.store_host,
        )
        self._appends.put(self._store.queue(OFFSET_MOVED_TOPIC, 0), (record,), lambda results: None, wait=False)

    async def _settings_changed(self, keys: list[str]) -> None:
        self._store.reconfigure(store_config(self._live.settings))
        self.context.access.reconfigure(self._live.settings)
        self.tables.topics.apply_settings()
        if "brokerPermission" in keys:
            self.tables.topics.touch()
        if "namesrvAddr" in keys:
            self.registration.refresh_soon()
        await self.registration.settle()
