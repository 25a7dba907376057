"""Puts replication without controllers together for the broker's assembly: a master with slaves, or a slave."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyromq.errors import ServerError
from pyromq.protocol.codes import RequestCode

from ..config import BrokerRole
from .config import ReplicationConfig
from .follower import Follower
from .introductions import Identity, Introductions
from .master import Master
from .slaves import SlaveCopies, Slaves
from .status import ReplicationStatus

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Iterator

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor, RemotingClient
    from pyromq.store import MessageStore
    from pyromq.store.queues.consume_queue import ConsumeQueue

    from ..config import LiveConfig
    from ..durability import Permit
    from .follower import Masters
    from .protection import LineProtection


_OF_CONTROLLERS = (RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)


class PlainReplication:
    """Replication by the roles of the settings (docs/spec/ha.md). `arrived` is told each queue that got messages.

    `address` is what clients are told, `ha_address` what slaves are. `masters` says where the master of a slave is,
    `seek` has the name servers asked for it again.
    """

    permit: Permit | None = None

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        client: RemotingClient,
        clock: Callable[[], int],
        *,
        address: str,
        ha_address: str,
        masters: Callable[[], Masters],
        seek: Callable[[], None],
        arrived: Callable[[ConsumeQueue], None],
        protection: LineProtection,
    ) -> None:
        def config() -> ReplicationConfig:
            return live.settings[ReplicationConfig]

        slaves = Slaves()
        is_sync_master = live.config.broker_role is BrokerRole.SYNC_MASTER
        self.master = Master(store.log, slaves, config, protection=protection, is_awaited=is_sync_master)
        broker = live.config
        me = Identity(
            broker.cluster_name,
            broker.broker_name,
            broker.broker_id,
            store.config.commit_log_file_size,
            address,
            uuid.uuid4().hex,
        )
        self.follower = (
            Follower(store, client, me, config, masters=masters, seek=seek, arrived=arrived, protection=protection)
            if broker.is_slave
            else None
        )
        self._introductions = Introductions(me, ha_address, client, self.master, self.follower, protection=protection)
        self.copies = SlaveCopies(slaves, config) if is_sync_master else None
        self.status = ReplicationStatus(live, store, self.master, self.follower, clock)
        if self.follower is not None:
            store.read_only = "this broker is a slave; its master takes messages"
        self.appended = self.master.appended
        self.sample = self.status.sample
        self.collect = self.status.collect

    @property
    def slave_connected(self) -> Callable[[socket.socket], None] | None:
        """Who takes connections of slaves; None if nobody does."""
        return None if self.follower is not None else self.master.accepted

    @property
    def has_master_left(self) -> bool:
        """Whether the master of this slave said that it stops."""
        return self.follower is not None and self.follower.has_master_left

    def table(self) -> dict[int, Processor]:
        return {
            **self.status.table(),
            **self._introductions.table(),
            **dict.fromkeys(_OF_CONTROLLERS, _refuse),
        }

    def passed_on(self) -> dict[int, Processor]:
        """What a slave passes on to its master: nothing, here."""
        return {}

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        if self.follower is not None:
            yield "follow the master", self.follower.run()
        else:
            yield "look after slaves", self.master.run()

    async def finish(self, timeout: float) -> None:
        """Let slaves have what they lack, and say goodbye: one of them may take over."""
        await self.master.finish(timeout)
        await self._introductions.goodbye()

    def close(self) -> None:
        self.master.close()


def _refuse(connection: Connection, request: Command) -> Command:
    raise ServerError("this request only for controllerMode ")  # the blank is RocketMQ's
