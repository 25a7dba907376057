"""What operators see of a group that fails over: the epochs of a broker (1007), and its part of the runtime info."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol.bodies import EpochEntry, EpochEntryCache
from pyromq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore

    from ..config import LiveConfig
    from .in_sync import InSyncKeeper
    from .member import Member


UNLIMITED = 2**63 - 1


class GroupStatus:
    """Of one role. `keeper` is there if this broker is master."""

    def __init__(self, live: LiveConfig, store: MessageStore, member: Member, keeper: InSyncKeeper | None) -> None:
        self._live = live
        self._store = store
        self._member = member
        self._keeper = keeper

    def table(self) -> dict[int, Processor]:
        return {RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs}

    def epochs(self, connection: Connection, request: Command) -> Command:
        config = self._live.config
        entries = self._member.epochs.entries
        # Each ends where the next one starts, the last one nowhere. A slave may have none yet.
        ends = [*(entry.start for entry in entries[1:]), UNLIMITED][: len(entries)]
        body = EpochEntryCache(
            broker_id=config.broker_id,
            broker_name=config.broker_name,
            cluster_name=config.cluster_name,
            epoch_list=[
                EpochEntry(epoch=entry.epoch, start_offset=entry.start, end_offset=end)
                for entry, end in zip(entries, ends, strict=True)
            ],
            max_offset=int(self._store.log.end),
        )
        return request.reply(body=body.encode())

    def in_sync(self) -> frozenset[int]:
        """The members of the in-sync set, as this broker knows it."""
        if self._keeper is not None:
            return self._keeper.in_sync.taken.members
        return frozenset() if self._member.role is None else self._member.role.in_sync.members

    def collect(self) -> dict[str, str]:
        """Keys of the runtime info, all of them ours."""
        member, role = self._member, self._member.role
        table = {
            "controllerLeader": member.membership.controllers.leader or "unknown",
            "controllerBrokerId": str(member.broker_id),
            "confirmOffset": str(self._store.confirmed),
            "masterEpoch": "-1" if role is None else str(role.epoch),
            "syncStateSet": ",".join(map(str, sorted(self.in_sync()))),
        }
        problem = member.membership.problem
        if member.is_master and problem is None:
            problem = member.membership.lease.why
        if problem is not None:
            table["failoverProblem"] = problem
        return table
