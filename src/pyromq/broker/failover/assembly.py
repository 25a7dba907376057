"""Puts replication in a group that fails over together for the broker's assembly, for one role."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..replication.config import ReplicationConfig
from ..replication.master import Master
from ..replication.slaves import Slaves
from ..replication.status import ReplicationStatus
from .config import FailoverConfig
from .following import Following
from .forwarding import Forwarding
from .in_sync import InSync, InSyncKeeper
from .leading import Leading
from .status import GroupStatus

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator

    from pyromq.auth import RequestGuard
    from pyromq.remoting import Processor, RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..config import LiveConfig
    from ..durability import Copies, Permit
    from ..registration import Registration
    from ..replication.protection import LineProtection
    from .member import Member


_ASK_AGAIN = 1.0  # seconds between two questions where the master takes slaves


class GroupReplication:
    """Replication in the role that `member` has now. `arrived` is told each queue of which consumers see more.

    A slave's `dispatched` is told each queue that got messages, whether or not consumers may see them.
    """

    def __init__(
        self,
        member: Member,
        live: LiveConfig,
        store: MessageStore,
        client: RemotingClient,
        registration: Registration,
        clock: Callable[[], int],
        *,
        arrived: Callable[[ConsumeQueue], None],
        dispatched: Callable[[ConsumeQueue], None],
        protection: LineProtection,
        guard: RequestGuard,
    ) -> None:
        def config() -> FailoverConfig:
            return live.settings[FailoverConfig]

        def replication() -> ReplicationConfig:
            return live.settings[ReplicationConfig]

        self._member = member
        self._asked_at = 0.0
        self._registration = registration
        self._keeper: InSyncKeeper | None = None
        self._leading: Leading | None = None
        self._following: Following | None = None
        self._forwarding = Forwarding(client, self._master, guard)
        self.copies: Copies | None = None
        self.permit: Permit | None = None
        role = member.role
        if role is not None and member.is_master:
            lease = member.membership.lease
            keeper = self._keeper = InSyncKeeper(
                store,
                member.epochs,
                InSync(member.broker_id, role.in_sync),
                alter=member.membership.alter_in_sync,
                has_lease=lease.is_valid,
                shown=arrived,
                config=config,
                replication=replication,
            )
            self.copies, self.permit = keeper, lease
            lease.renewed = keeper.advance
            member.in_sync_changed = keeper.take
            self._leading = Leading(store, member.epochs, keeper, replication, protection)
        elif role is not None:
            self._following = Following(
                store,
                member.epochs,
                self._master_for_slaves,
                own_id=member.broker_id,
                config=config,
                replication=replication,
                arrived=arrived,
                dispatched=dispatched,
                paused=member.paused,
                caught_up=member.caught_up,
                protection=protection,
            )
        master = Master(store.log, Slaves(), replication) if self._leading is None else self._leading.master
        self.status = ReplicationStatus(live, store, master, self._following, clock)
        self._group_status = GroupStatus(live, store, member, self._keeper)
        self.sample = self.status.sample

    def appended(self) -> None:
        """The log has grown."""
        if self._leading is not None:
            self._leading.master.appended()

    @property
    def slave_connected(self) -> Callable[[socket.socket], None] | None:
        """Who takes connections of slaves; None if nobody does."""
        return None if self._leading is None else self._leading.master.accepted

    # Of plain replication: here the controllers say who is gone.
    has_master_left = False

    def table(self) -> dict[int, Processor]:
        return {
            **self.status.table(),
            **self._group_status.table(),
            **self._member.membership.processors(),
        }

    def passed_on(self) -> dict[int, Processor]:
        """What a slave passes on to its master."""
        return {} if self._following is None else self._forwarding.table()

    def collect(self) -> dict[str, str]:
        return self.status.collect() | self._group_status.collect()

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        if self._following is not None:
            yield "follow the master", self._following.run()
        if self._leading is not None and self._keeper is not None:
            yield "look after slaves", self._leading.run()
            yield "keep the in-sync set", self._keeper.run()

    async def finish(self, timeout: float) -> None:
        """Let slaves have what they lack: one of them takes over when this broker stops."""
        if self._leading is not None:
            await self._leading.master.finish(timeout)

    def close(self) -> None:
        if self._leading is not None:
            self._leading.close()
        self._member.in_sync_changed = lambda in_sync: None
        self._member.membership.lease.renewed = None

    def _master(self) -> str | None:
        """The master's address for clients; None while there is none, or it is this broker."""
        role = self._member.role
        return None if role is None or self._member.is_master else role.master_address

    def _master_for_slaves(self) -> str | None:
        """Where the master takes slaves, which only name servers know, and they may still speak of another master."""
        if self._registration.master_address != self._master():
            now = time.monotonic()
            if now >= self._asked_at + _ASK_AGAIN:
                self._asked_at = now
                self._registration.ask_for_master()
            return None
        return self._registration.master_ha_address or None
