"""Settings of fail-over, under RocketMQ's own keys (docs/spec/controller.md 9). Times are milliseconds, as there."""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import option


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """How a broker finds its controllers, and when it trusts its role."""

    enabled: bool = option(
        "enableControllerMode", False, "Let controllers decide who is master of this broker's group (controllerAddr)."
    )
    controllers: str = option("controllerAddr", "", "Addresses of the controllers, host:port, separated by ;.")
    look_up: bool = option(
        "fetchControllerAddrByDnsLookup",
        False,
        "controllerAddr is one host:port; use every address that its host name has.",
    )
    priority: int = option(
        "brokerElectionPriority",
        2**31 - 1,
        "Among brokers that have as much of the log, the one with the lowest number becomes master.",
        min=0,
    )
    poll_interval: int = option(
        "syncBrokerMetadataPeriod", 5000, "How often the broker asks who is master of its group.", min=1
    )
    leader_interval: int = option(
        "syncControllerMetadataPeriod", 10_000, "How often the broker asks which controller leads.", min=1
    )
    check_interval: int = option(
        "checkSyncStateSetPeriod", 1000, "How often a master looks for slaves that have fallen behind.", min=1
    )
    heartbeat_timeout: int = option(
        "controllerHeartBeatTimeoutMills",
        3000,
        "Controllers take a broker that was silent for so long to be dead. A master that hears nothing from its "
        "controller stops taking messages a little earlier.",
        min=100,
    )
    heartbeat_interval: int = option(
        "brokerHeartbeatInterval", 500, "How often the broker tells its controllers that it is alive.", min=10
    )
    heartbeat_patience: int = option(
        "sendHeartbeatTimeoutMillis", 1000, "How long the broker waits for a controller to take a heartbeat.", min=1
    )
    epoch_file: str = option(
        "storePathEpochFile", "", "File with the epochs of the log. Default: epochFileCheckpoint in storePathRootDir."
    )
    identity_file: str = option(
        "storePathBrokerIdentity",
        "",
        "File with the id that the controllers gave this broker. Default: brokerIdentity in storePathRootDir.",
    )
    all_ack: bool = option(
        "allAckInSyncStateSet",
        True,
        "Acknowledge a message, and show it to consumers, once every broker of the in-sync set has it.",
    )
    min_in_sync: int = option(
        "minInSyncReplicas", 1, "Refuse messages while the in-sync set has fewer brokers than this.", min=1, hot=True
    )
    not_caught_up: int = option(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "A slave that has not caught up for so long leaves the in-sync set.",
        min=1,
        hot=True,
    )
    from_last_file: bool = option(
        "syncFromLastFile", False, "A slave with an empty store copies only the newest file of its master's log."
    )
    learner: bool = option("asyncLearner", False, "Copy, but never belong to the in-sync set nor become master.")
    lease: bool = option(
        "controllerLease",
        True,
        "A master that cannot reach its controller stops taking messages before another becomes master.",
    )
    wipe: bool = option(
        "controllerWipeOnDivergence",
        False,
        "A slave whose log has nothing in common with its master's deletes it and copies afresh, instead of stopping.",
    )
