"""How a broker replicates (907). What PyroMQ adds is left out where it is not known; RocketMQ's tools skip it."""

from __future__ import annotations

from .base import I32, I64, Body, written


class HAConnectionInfo(Body, frozen=True, kw_only=True):
    """A slave, as its master sees it. Ours: its id, if it told that, and since when it is connected.

    `since_timestamp` is a time of the broker's clock, which may be wrong; `since_millis` is how long ago that was.
    """

    addr: str = written("")
    diff: I64 = written(0)
    in_sync: bool = written(False)
    since_millis: I64 = 0
    since_timestamp: I64 = 0
    slave_ack_offset: I64 = written(0)
    slave_id: I64 | None = None
    transfer_from_where: I64 = written(0)
    transferred_byte_in_second: I64 = written(0)


class HAClientInfo(Body, frozen=True, kw_only=True):
    """A slave, as it sees itself. Ours: whether and since when it follows, and what keeps it from doing so."""

    is_activated: bool = False
    last_read_timestamp: I64 = written(0)
    last_write_timestamp: I64 = written(0)
    master_addr: str | None = None
    master_flush_offset: I64 = written(0)
    max_offset: I64 = written(0)
    problem: str | None = None
    since_millis: I64 | None = None
    since_timestamp: I64 = 0
    transferred_byte_in_second: I64 = written(0)


class HARefusal(Body, frozen=True, kw_only=True):
    """A slave that its master sent away, or that stays away by itself, and how long ago."""

    addr: str = written("")
    by_itself: bool = False
    millis_ago: I64 = written(0)
    reason: str = written("")


class HARuntimeInfo(Body, frozen=True, kw_only=True):
    """907. Ours: the role, when the newest message was stored (epoch ms), and which slaves were sent away."""

    broker_role: str | None = None
    ha_client_runtime_info: HAClientInfo = written(HAClientInfo())
    ha_connection_info: list[HAConnectionInfo] = written([])
    in_sync_slave_nums: I32 = written(0)
    last_store_timestamp: I64 = 0
    master: bool = written(False)
    master_commit_log_max_offset: I64 = written(0)
    refusals: list[HARefusal] = written([])
