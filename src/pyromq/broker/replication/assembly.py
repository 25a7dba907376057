"""Puts replication without controllers together for the broker's assembly: a master with slaves, or a slave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ServerError
from pyromq.protocol.codes import RequestCode

from ..config import BrokerRole
from .config import ReplicationConfig
from .follower import Follower
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


_OF_CONTROLLERS = (RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)


class PlainReplication:
    """Replication by the roles of the settings (docs/spec/ha.md). `arrived` is told each queue that got messages.

    `masters` gives a slave the addresses of its master: for replication, and for requests.
    """

    permit: Permit | None = None

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        client: RemotingClient,
        masters: Callable[[], tuple[str | None, str | None]],
        arrived: Callable[[ConsumeQueue], None],
    ) -> None:
        def config() -> ReplicationConfig:
            return live.settings[ReplicationConfig]

        slaves = Slaves()
        self.master = Master(store.log, slaves, config)
        self.follower = Follower(store, client, masters, config, arrived) if live.config.is_slave else None
        is_sync_master = live.config.broker_role is BrokerRole.SYNC_MASTER
        self.copies = SlaveCopies(slaves, config) if is_sync_master else None
        self.status = ReplicationStatus(live, store, self.master, self.follower)
        if self.follower is not None:
            store.read_only = "this broker is a slave; its master takes messages"
        self.appended = self.master.appended
        self.sample = self.status.sample
        self.collect = self.status.collect

    @property
    def slave_connected(self) -> Callable[[socket.socket], None] | None:
        """Who takes connections of slaves; None if nobody does."""
        return None if self.follower is not None else self.master.accepted

    def table(self) -> dict[int, Processor]:
        return {**self.status.table(), **dict.fromkeys(_OF_CONTROLLERS, _refuse)}

    def passed_on(self) -> dict[int, Processor]:
        """What a slave passes on to its master: nothing, here."""
        return {}

    def services(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        if self.follower is not None:
            yield "follow the master", self.follower.run()
        else:
            yield "look after slaves", self.master.run()

    async def finish(self, timeout: float) -> None:
        """Let slaves have what they lack: this broker may be stopped so that one of them takes over."""
        await self.master.finish(timeout)

    def close(self) -> None:
        self.master.close()


def _refuse(connection: Connection, request: Command) -> Command:
    raise ServerError("this request only for controllerMode ")  # the blank is RocketMQ's
