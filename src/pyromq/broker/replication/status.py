"""What operators see of replication: the answer to 907, and its part of the runtime info. Looks only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from pyromq.protocol.bodies import HAClientInfo, HAConnectionInfo, HARefusal, HARuntimeInfo
from pyromq.protocol.codes import RequestCode

from .config import ReplicationConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor
    from pyromq.store import MessageStore

    from ..config import LiveConfig
    from .master import Master
    from .slave_link import SlaveLink


class Follows(Protocol):
    """The slave's side, of whichever protocol."""

    following: str | None
    since: float
    problem: str | None
    master_end: int
    read_at: float
    wrote_at: float


class ReplicationStatus:
    """Of a master its slaves, of a slave (which has a `follower`) its master."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        master: Master,
        follower: Follows | None,
        clock: Callable[[], int],
    ) -> None:
        self._live = live
        self._clock = clock
        self._store = store
        self._master = master
        self._follower = follower
        # Where each line was at the last look, None being our own log, and the bytes per second since the one before.
        self._positions: dict[SlaveLink | None, int] = {}
        self._speeds: dict[SlaveLink | None, int] = {}
        self._looked_at = 0

    def table(self) -> dict[int, Processor]:
        return {RequestCode.GET_BROKER_HA_STATUS: self.ha_status}

    def ha_status(self, connection: Connection, request: Command) -> Command:
        return request.reply(body=self.info().encode())

    def sample(self, now: int) -> None:
        """Measure how fast bytes go, to be called every second. `now` is in milliseconds."""
        positions: dict[SlaveLink | None, int] = {link: link.position or 0 for link in self._master.links}
        if self._follower is not None:
            positions[None] = int(self._store.log.end)
        seconds = max(now - self._looked_at, 1) / 1000
        self._speeds = {
            line: int((position - self._positions[line]) / seconds)
            for line, position in positions.items()
            if line in self._positions
        }
        self._positions, self._looked_at = positions, now

    def info(self) -> HARuntimeInfo:
        end, newest = int(self._store.log.end), self._store.newest_timestamp
        role = self._live.config.broker_role.value
        if self._follower is not None:
            client = self._client(self._follower, end)
            return HARuntimeInfo(broker_role=role, ha_client_runtime_info=client, last_store_timestamp=newest)
        furthest = self._live.settings[ReplicationConfig].max_fall_behind
        connections = [self._connection(link, end, furthest) for link in self._master.links]
        connections.sort(key=lambda each: -each.since_millis)
        return HARuntimeInfo(
            broker_role=role,
            ha_connection_info=connections,
            in_sync_slave_nums=sum(each.in_sync for each in connections),
            last_store_timestamp=newest,
            master=True,
            master_commit_log_max_offset=end,
            refusals=[
                HARefusal(addr=each.peer, by_itself=each.is_own_choice, millis_ago=_millis(each.at), reason=each.reason)
                for each in self._master.refusals
            ],
        )

    def _connection(self, link: SlaveLink, end: int, furthest: int) -> HAConnectionInfo:
        acknowledged = link.acknowledged or 0
        return HAConnectionInfo(
            addr=link.peer,
            diff=end - acknowledged,
            in_sync=link.acknowledged is not None and end - acknowledged < furthest,
            since_millis=_millis(link.since),
            since_timestamp=self._timestamp(link.since),
            slave_id=None if link.slave is None else link.slave.broker_id,
            slave_ack_offset=acknowledged,
            transfer_from_where=link.position or 0,
            transferred_byte_in_second=self._speeds.get(link, 0),
        )

    def _client(self, follower: Follows, end: int) -> HAClientInfo:
        is_following = follower.following is not None
        return HAClientInfo(
            is_activated=is_following,
            last_read_timestamp=self._timestamp(follower.read_at),
            last_write_timestamp=self._timestamp(follower.wrote_at),
            master_addr=follower.following or "",
            master_flush_offset=follower.master_end,
            max_offset=end,
            problem=follower.problem,
            since_millis=_millis(follower.since) if is_following else None,
            since_timestamp=self._timestamp(follower.since) if is_following else 0,
            transferred_byte_in_second=self._speeds.get(None, 0),
        )

    def _timestamp(self, at: float) -> int:
        """When `at` was, by the clock as it is set now; 0 if it never was."""
        return self._clock() - _millis(at) if at else 0

    def collect(self) -> dict[str, str]:
        """Keys of the runtime info, all of them ours: RocketMQ's has none."""
        info = self.info()
        table = {"brokerRole": str(info.broker_role)}
        if not info.master:
            client = info.ha_client_runtime_info
            table["haMaster"] = client.master_addr or "none"
            if client.problem is not None:
                table["haProblem"] = client.problem
            return table
        slaves = info.ha_connection_info
        table["haSlaves"] = ", ".join(f"{each.addr} {each.diff} bytes behind" for each in slaves) or "none"
        if info.refusals:
            table["haRefusals"] = "; ".join(
                f"{each.addr} {each.millis_ago // 1000} s ago: {each.reason}" for each in info.refusals
            )
        return table


def _millis(at: float) -> int:
    """How long ago a time of the monotonic clock was."""
    return int((time.monotonic() - at) * 1000)
