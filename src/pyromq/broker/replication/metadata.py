"""A slave's copy of what its master keeps beside the log: topics, groups, offsets (docs/spec/ha.md 5).

The master is asked over the normal protocol. Topics, groups and request modes become what the master has, consumer
offsets are merged: what was committed here while the master was away stays until the master says otherwise.

How far the master has delivered delayed messages is another matter. If it dies, what it delivered last may never have
come here; a slave that became master and believed it to be delivered would lose it. So such progress is taken only once
the log here holds, on disk, all that the master's log held when it was told.

All of it is copied once in a while. But a message of a topic that is unknown here shows that something is new: then
topics and groups are copied at once, or a slave that becomes master now would have to guess what the topic was like.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from pyromq.auth.users.requests import accounts_of, list_of
from pyromq.errors import BrokerError, PyroMQError, RemoteProtocolError, broker_error
from pyromq.protocol.bodies import (
    AclInfo,
    Body,
    ConsumerOffsetTable,
    KVTable,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    UserInfo,
)
from pyromq.protocol.bodies.offsets import DelayOffsetTable
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command

from ..staying import log_stays
from ..timers.checkpoint import decode_progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.auth.users.directory import UserDirectory
    from pyromq.remoting import RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..context import Tables
    from ..kept_files import BrokerState
    from ..pop.assignment import RequestModes
    from ..timers.schedule import ScheduleService
    from ..timers.upkeep import TimerUpkeep

logger = logging.getLogger(__name__)

BodyT = TypeVar("BodyT", bound=Body)

_UNKNOWN = 0.5  # seconds between two looks whether the master is known by now
_ASK = 3.0
_LOOK, _LOOKS = 0.02, 150  # whether the log has arrived
_AGAIN = 0.2  # seconds between two copies for young topics
_STEP = 1000  # groups whose offsets are merged in one turn


class MetadataCopy:
    """Copies while it `run`s. `master` gives the master's address for clients, `interval` the milliseconds in between.

    `has_left` says whether the master said that it stops. `timers` and `users` are None where this broker has none.
    What the master refuses, or does not know, is left out. Masters of groups that fail over write their `epoch` into
    their topics' version; who has an earlier one there is not the master yet, or another broker at the same address.
    """

    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        master: Callable[[], str | None],
        interval: Callable[[], int],
        *,
        has_left: Callable[[], bool],
        epoch: Callable[[], int],
        state: BrokerState,
        tables: Tables,
        modes: RequestModes,
        schedule: ScheduleService,
        timers: TimerUpkeep | None,
        users: UserDirectory | None,
    ) -> None:
        self._store = store
        self._client = client
        self._master = master
        self._interval = interval
        self._has_left = has_left
        self._epoch = epoch
        self._state = state
        self._tables = tables
        self._modes = modes
        self._schedule = schedule
        self._timers = timers
        self._users = users
        self._failing: dict[str, int] = {}  # what failed last time, and how often in a row
        # An answer that was overtaken would bring back what the master had before.
        self._turn = asyncio.Lock()
        self._is_wanted = asyncio.Event()
        # Topics that were looked for since the last regular copy. The master does not have them all: light queues have
        # messages under names of their own.
        self._sought: set[str] = set()

    async def run(self) -> None:
        """Copy from whichever master there is, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._copy_young(), name="copy young topics")
            while True:
                address = self._master()
                if address is None:
                    await asyncio.sleep(_UNKNOWN)
                    continue
                self._sought.clear()
                await self.copy(address)
                await asyncio.sleep(self._interval() / 1000)

    def dispatched(self, queue: ConsumeQueue) -> None:
        """A message came to this queue. If its topic is unknown, the master is asked for it at once."""
        topic = queue.topic
        if topic not in self._tables.topics and topic not in self._sought:
            self._sought.add(topic)
            self._is_wanted.set()

    async def _copy_young(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            address = self._master()
            if address is not None:
                await self._copy_tables(address)
                self._state.save_soon()
            await asyncio.sleep(_AGAIN)

    async def copy(self, address: str) -> None:
        """Copy everything once, and have it saved. What fails is logged once, and does not keep the rest from it."""
        if not await self._copy_tables(address):
            return
        await self._try("consumer offsets", address, self._copy_offsets)
        await self._try("request modes", address, self._copy_modes)
        if self._users is not None:
            await self._try("users", address, self._copy_users)
        self._state.save_soon()
        await self._try("progress of delayed messages", address, self._copy_progress)
        self._state.save_soon()

    async def _copy_tables(self, address: str) -> bool:
        """Copy topics and groups. False if that is not the master, as far as anybody knows."""
        async with self._turn:
            if not await self._try("settings", address, self._connect):
                return False
            if not await self._try("topics", address, self._copy_topics) and self._epoch():
                return False
            await self._try("groups", address, self._copy_groups)
            return True

    async def _try(self, what: str, address: str, copy: Callable[[str], Awaitable[object]]) -> bool:
        try:
            await copy(address)
        except BrokerError as exc:
            logger.debug("%s not copied from master %s: %s", what, address, exc)
        except (OSError, PyroMQError) as exc:
            failures = self._failing[what] = self._failing.get(what, 0) + 1
            # Where controllers choose masters, one that is gone, or not ready yet, is nothing to worry about at first.
            is_expected = self._has_left() or (failures == 1 and self._epoch())
            if failures == 1 or (failures == 2 and self._epoch()):
                level = logging.INFO if is_expected else logging.WARNING
                logger.log(level, "%s not copied from master %s: %s; trying again", what, address, exc)
            return False
        self._failing.pop(what, None)
        return True

    async def _connect(self, address: str) -> None:
        await self._client.connection(address, _ASK)

    async def _copy_topics(self, address: str) -> None:
        topics = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper)
        epoch = self._epoch()
        if topics.data_version.state_version < epoch:
            raise RemoteProtocolError(f"it is not master of epoch {epoch}")
        if self._tables.topics.take_over(topics):
            logger.info("topics copied from master %s: %d", address, len(topics.topic_config_table))
        # Whether or not the table is known: the log may have been too far behind before.
        self._store.delete_topics_before(topics.deleted_topics)

    async def _copy_groups(self, address: str) -> None:
        groups = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper)
        if self._tables.groups.take_over(groups):
            logger.info("groups copied from master %s: %d", address, len(groups.subscription_group_table))

    async def _copy_offsets(self, address: str) -> None:
        offsets = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable)
        names = list(offsets.offset_table)
        for start in range(0, len(names), _STEP):
            part = {name: offsets.offset_table[name] for name in names[start : start + _STEP]}
            self._tables.offsets.merge(ConsumerOffsetTable(data_version=offsets.data_version, offset_table=part))
            await asyncio.sleep(0)

    async def _copy_modes(self, address: str) -> None:
        modes = await self._ask(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, MessageRequestModeTable)
        if self._modes.take_over(modes):
            logger.info("request modes copied from master %s", address)

    async def _copy_users(self, address: str) -> None:
        assert self._users is not None
        users = await self._asked(address, RequestCode.AUTH_LIST_USER)
        acls = await self._asked(address, RequestCode.AUTH_LIST_ACL)
        if not users:
            return  # it took our signature, so there is somebody: this is no list to rely on
        accounts = await asyncio.to_thread(lambda: accounts_of(list_of(UserInfo, users), list_of(AclInfo, acls)))
        if await self._users.take_over(accounts):
            logger.info("users and policies copied from master %s: %d users", address, len(accounts.users))

    async def _copy_progress(self, address: str) -> None:
        # What the master delivers from now on comes behind this place.
        place = int(self._store.log.end)
        delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable)
        timers = None if self._timers is None else await self._ask_timers(address)
        if not await self._have_log_of(address):
            return
        self._schedule.take_over(delays, place)
        if self._timers is not None and timers is not None:
            await self._timers.take_over(decode_progress(timers, place))

    async def _ask_timers(self, address: str) -> bytes | None:
        """The master's checkpoint, None if it has none: 4.9 does not know this request."""
        try:
            return await self._asked(address, RequestCode.GET_TIMER_CHECK_POINT)
        except BrokerError:
            return None

    async def _have_log_of(self, address: str) -> bool:
        """Wait until this log has, on disk, all that the master's has now. False if that takes too long."""
        runtime = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)
        text = runtime.table.get("commitLogMaxOffset", "")
        if not text.isdecimal():
            raise RemoteProtocolError(f"the master does not tell where its log ends, but {text!r}")
        end = int(text)
        for _ in range(_LOOKS):
            if self._store.confirmed >= end:
                await log_stays(self._store, end)
                return True
            await asyncio.sleep(_LOOK)
        return False

    async def _ask(self, address: str, code: int, body_type: type[BodyT]) -> BodyT:
        data = await self._asked(address, code)
        # A hundred thousand offsets take a while to read, during which others are served.
        return await asyncio.to_thread(body_type.decode, data)

    async def _asked(self, address: str, code: int) -> bytes:
        reply = await self._client.invoke(address, Command.request(code), _ASK)
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark)
        return bytes(reply.body_bytes)
