"""This broker as a member of a group that fails over: its id, its role, its epochs. It outlives every role."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.store.metadata.epochs import EPOCH_FILE, EpochTable

from ..config import BrokerRole
from .config import FailoverConfig
from .doubt import BOOT_FILE, Doubt, Traces
from .identity import IdentityFiles
from .leading import begin_epoch
from .membership import Membership
from .role import InSyncSet, Role, Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.remoting import RemotingClient
    from pyromq.store import MessageStore

    from ..config import LiveConfig
    from .following import Paused

logger = logging.getLogger(__name__)

_FENCED = "this broker has no role yet: its controllers have to give it one"
_SLAVE = "this broker is a slave; its master takes messages"


class Member:
    """What a role begins with, and when the next one must begin.

    A role is lived by parts of its own (`begin_role`, `prepare`, then serving until it is over). A slave goes on when
    its master is elected again; any other change ends a role.
    """

    def __init__(self, live: LiveConfig, store: MessageStore, client: RemotingClient, *, address: str) -> None:
        config = live.settings[FailoverConfig]
        self._live = live
        self._store = store
        self.address = address
        self.epochs = EpochTable(Path(config.epoch_file) if config.epoch_file else store.root / EPOCH_FILE, store.disk)
        identity = IdentityFiles(
            Path(config.identity_file) if config.identity_file else store.root / "brokerIdentity",
            live.config.cluster_name,
            live.config.broker_name,
            store.disk,
        )
        self.membership = Membership(
            client, live, identity, self.standing, address=address, is_intact=not store.crashed
        )
        self._identity = identity
        self._doubt = Doubt(store.root / BOOT_FILE, store.disk, store.config.flush)
        self._is_certain = asyncio.Event()
        self.membership.doubt_path = self._doubt.path
        self.membership.role_changed = self._role_changed
        self.membership.in_sync_changed = self._in_sync_changed
        # The role that is lived now, and the newest one.
        self.role: Role | None = None
        self._newest: Role | None = None
        self._over = asyncio.Event()
        # Keeps requests from the store while something is done to it in a thread; set by the broker.
        self.paused: Paused
        # Told of a newer in-sync set while this broker is master.
        self.in_sync_changed: Callable[[InSyncSet], None] = lambda in_sync: None

    @property
    def broker_id(self) -> int:
        """The id that the controllers gave this broker; -1 until they did."""
        broker_id = self.membership.broker_id
        return -1 if broker_id is None else broker_id

    @property
    def has_role(self) -> bool:
        return self.role is not None

    @property
    def is_master(self) -> bool:
        return self.role is not None and self.role.master_id == self.broker_id

    def standing(self) -> Standing:
        log_end = int(self._store.log.end)
        return Standing(self.epochs.last_epoch, log_end, min(self._store.confirmed, log_end))

    def load(self) -> None:
        """Read the epochs; readers see what the last run had confirmed. StoreError if a file cannot be used."""
        store = self._store
        is_emptied = not int(store.log.end) and self._identity.path.exists()
        self._doubt.load(Traces(store.crashed, store.lacks_confirmed, is_emptied))
        self.membership.is_doubtful = self._doubt.exists
        self.epochs.load()
        # What a crash or a power failure took is no part of any epoch.
        self.epochs.cut(int(self._store.log.end) + 1)
        self._store.limit_readers()

    async def run(self) -> None:
        """Have a role, and renew it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.membership.run(), name="keep in touch")
            tasks.create_task(self._keep_certain(), name="end the doubt")

    def caught_up(self) -> None:
        """This slave has all that its master had when it came to it."""
        if self.membership.is_doubtful:
            logger.info("this broker has caught up with its master and lacks nothing any more")
            self.membership.end_doubt()
        self._is_certain.set()

    async def _keep_certain(self) -> None:
        await self._is_certain.wait()
        try:
            await asyncio.to_thread(self._doubt.end)
        except OSError as exc:
            logger.error("%s cannot be written: %s; this broker will be in doubt when it starts again", BOOT_FILE, exc)

    async def hand_over(self) -> bool:
        """Let another broker be master, before this one stops. Returns whether that is so."""
        return await self.membership.hand_over() and self._over.is_set()

    # Roles

    def begin_role(self) -> asyncio.Event:
        """Take over the newest role. The event is set when it is over."""
        self._over = asyncio.Event()
        role = self.role = self._newest
        if role is None:
            self._live.take_role(BrokerRole.SLAVE, self.broker_id)
        elif self.is_master:
            logger.info("master of %s, epoch %d", self._live.config.broker_name, role.epoch)
            self._live.take_role(BrokerRole.SYNC_MASTER, 0)
        else:
            logger.info("slave of %s, epoch %d", role.master_address, role.epoch)
            self._live.take_role(BrokerRole.SLAVE, self.broker_id)
        return self._over

    def prepare(self) -> None:
        """Make the store ready for the role; nobody uses it meanwhile. OSError if the disk fails."""
        store, role = self._store, self.role
        if role is None or not self.is_master:
            store.read_only = _FENCED if role is None else _SLAVE
            return
        begin_epoch(store, self.epochs, role.epoch)
        self._doubt.end()
        if role.in_sync.members == {self.broker_id}:
            store.confirm(None)
        store.read_only = None

    def _role_changed(self, role: Role) -> None:
        before = self._newest
        self._newest = role
        if self.role is not None and not self.is_master and before is not None and role.master_id == before.master_id:
            self.role = role  # a slave whose master was elected again, or has moved
        elif role != self.role:
            self._over.set()

    def _in_sync_changed(self, in_sync: InSyncSet) -> None:
        self.in_sync_changed(in_sync)
