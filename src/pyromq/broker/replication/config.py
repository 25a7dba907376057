"""Settings of replication, under RocketMQ's own keys (docs/spec/ha.md 3). Times are milliseconds, as there."""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import option

_MAX_GAP = 256 << 20
_ONLY_ACTING = (
    "Slaves never act as master here, and a SYNC_MASTER waits for as many copies as inSyncReplicas says, not for fewer."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How a master sends its log, how a slave follows, and what a synchronous send waits for."""

    in_sync_replicas: int = option(
        "inSyncReplicas",
        2,
        "How many brokers must have a message before a SYNC_MASTER answers its producer, the master among them.",
        min=1,
        hot=True,
    )
    slave_timeout: int = option(
        "slaveTimeout", 3000, "How long a SYNC_MASTER waits for slaves before it answers with 12.", min=1, hot=True
    )
    fall_behind_max: int = option(
        "haSlaveFallbehindMax",
        _MAX_GAP,
        "Bytes that the best slave may be behind. Beyond that a SYNC_MASTER does not wait, and answers with 11.",
        min=1,
        size=True,
        hot=True,
    )
    max_gap: int = option(
        "haMaxGapNotInSync",
        _MAX_GAP,
        "RocketMQ 5's name for haSlaveFallbehindMax. It wins if both are set.",
        min=1,
        size=True,
        hot=True,
    )
    master_address: str = option(
        "haMasterAddress", "", "Where a slave finds its master's haListenPort, if not by the name servers."
    )
    transfer_batch: int = option(
        "haTransferBatchSize", 32_768, "Bytes of the log that a master sends in one frame.", min=1, max=(4 << 20) - 12
    )
    flow_control: bool = option(
        "haFlowControlEnable", False, "Limit how fast a slave is sent the log, to maxHaTransferByteInSecond.", hot=True
    )
    max_transfer: int = option(
        "maxHaTransferByteInSecond",
        100 << 20,
        "Bytes per second to each slave, with haFlowControlEnable. A slave that catches up leaves the rest of the line "
        "to clients.",
        min=1,
        size=True,
        hot=True,
    )
    heartbeat_interval: int = option(
        "haSendHeartbeatInterval", 5000, "After so much silence, masters and slaves send a heartbeat.", min=1, hot=True
    )
    silence: int = option(
        "haHousekeepingInterval", 20_000, "A peer that was silent for so long is dropped.", min=1, hot=True
    )
    sync_interval: int = option(
        "slaveSyncInterval",
        10_000,
        "How often a slave copies topics, groups, offsets and the like from its master.",
        min=1,
        hot=True,
    )
    slave_read: bool = option(
        "slaveReadEnable", False, "Send consumers that read far behind the end of the log to a slave.", hot=True
    )
    offset_check_in_slave: bool = option(
        "offsetCheckInSlave",
        False,
        "A slave corrects offsets beyond its own end, although it may merely lag.",
        hot=True,
    )
    max_connections: int = option(
        "haMaxConnections",
        256,
        "Most open connections to the port of replication. A group has a few slaves.",
        min=1,
        hot=True,
        limit="the oldest connection that has not said where its log ends is closed; if all have, the new one",
    )
    ha_tls: bool = option(
        "haTlsEnable",
        False,
        "Replicate by TLS, with the certificates of `tls.server.*` as master and `tls.client.*` as slave. Switch it on "
        "at the slaves first: a master with a certificate takes both. RocketMQ's brokers cannot do it.",
    )
    ha_secret: str = option(
        "haSecret",
        "",
        "Masters and slaves prove to each other that they know this secret before anything is replicated. Set the same "
        "on all brokers of a group; leave it empty if some of them are RocketMQ's.",
        secret=True,
    )
    dledger: bool = option(
        "enableDLegerCommitLog", False, "Refused: this broker has no Raft log. Use enableControllerMode instead."
    )
    total_replicas: int = option("totalReplicas", 1, _ONLY_ACTING, no_effect=True)
    auto_in_sync_replicas: bool = option(
        "enableAutoInSyncReplicas",
        False,
        _ONLY_ACTING,
        no_effect=True,
    )

    @property
    def max_fall_behind(self) -> int:
        return self.fall_behind_max if self.max_gap == _MAX_GAP else self.max_gap
