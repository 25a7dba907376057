"""Settings of the broker, under RocketMQ's own keys (docs/spec/broker.md 1.2). Times are milliseconds, as there.

The store's keys are in `pyromq.store.config`, those of the network in `pyromq.remoting.config`, and those that are only
known and change nothing in `unused_config`.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import check_access
from pyromq.auth.config import AccessConfig
from pyromq.auth.users import UsersConfig
from pyromq.errors import ConfigError
from pyromq.metrics.config import MetricsConfig, check_metrics
from pyromq.protocol.bodies import DataVersion, MessageRequestMode
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.remoting import ClientConfig, ServerConfig, TlsConfig, split_address, split_addresses
from pyromq.remoting.addresses import local_address
from pyromq.remoting.log_levels import KEY as LOG_LEVEL
from pyromq.remoting.log_levels import LogConfig, apply_log_levels, with_levels_of
from pyromq.remoting.tls import with_tls_file
from pyromq.settings import Assignment, Settings, Update, computed, option
from pyromq.settings.live import changed_by_request, log_change
from pyromq.store.config import StoreConfig
from pyromq.store.tags import parse_delay_levels

from .failover.config import FailoverConfig
from .replication.config import ReplicationConfig
from .unused_config import JavaConfig, LaterConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger(__name__)


_TIMER_STEPS = (100, 200, 500, 1000)
_LESS_ON_SLAVES = 10  # percent of the memory


class BrokerRole(Enum):
    """What a broker is in its replica set."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


def _home_file() -> str:
    # Not Path.home(): that fails for a user without a home, who may still never need this file.
    return str(Path(os.path.expanduser("~"), "store", "config", "broker.properties"))  # noqa: PTH111


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What the broker itself looks at. A `hot` setting counts from the moment it is changed."""

    # Who it is.
    namesrv_addr: str = option(
        "namesrvAddr",
        "",
        "Name servers as host:port;host:port. Without them, clients need the broker's address.",
        hot=True,
    )
    cluster_name: str = option(
        "brokerClusterName", "DefaultCluster", "Name of the cluster; there is also a topic of that name."
    )
    broker_name: str = option(
        "brokerName",
        computed(str, _host_name),
        "Name of the replica set; there is also a topic of that name. Each master needs its own.",
    )
    broker_id: int = option(
        "brokerId", 0, "0 for a master, above that for its slaves. Controllers give ids themselves.", min=-1
    )
    broker_role: BrokerRole = option(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "ASYNC_MASTER answers without waiting for slaves, SYNC_MASTER once a slave has the message; a SLAVE follows.",
    )
    broker_ip1: str = option(
        "brokerIP1",
        computed(str, local_address),
        "Address that clients connect to. Set it in containers, and wherever the broker's own guess is wrong.",
    )
    broker_ip2: str = option("brokerIP2", computed(str, local_address), "Address that slaves connect to.")
    ha_listen_port: int = option(
        "haListenPort", 0, "Port for replication; 0 means the one above listenPort.", min=0, max=65535
    )
    region_id: str = option("regionId", "DefaultRegion", "Region reported to producers, for traces.", hot=True)

    # What it permits.
    broker_permission: int = option(
        "brokerPermission",
        6,
        "4 is read, 2 write, 6 both. Set 4 to drain a broker before you take it down.",
        min=0,
        max=7,
        hot=True,
    )
    auto_create_topic: bool = option(
        "autoCreateTopicEnable",
        True,
        "Create topics on first use. Set to false in production, so that only operators create them.",
        hot=True,
    )
    max_auto_created_topics: int = option(
        "maxAutoCreatedTopics",
        50_000,
        "Topics from which a send creates no more; operators still can. Raise it if you really use that many.",
        min=0,
        hot=True,
        limit="code 17",
    )
    max_topics: int = option(
        "maxTopics",
        100_000,
        "Most topics. Those that the broker makes for groups, for retries and dead letters, count and are never "
        "refused. A broker registers all topics in one frame of 16 MiB.",
        min=1,
        hot=True,
        limit="code 1 for an operator, 17 for a send",
    )
    max_queues: int = option(
        "maxQueues",
        1_000_000,
        "Most queues over all topics. Each is an object in memory and a folder on disk.",
        min=1,
        hot=True,
        limit="code 1 for an operator, 17 for a send",
    )
    max_queues_per_topic: int = option(
        "maxQueuesPerTopic",
        16_384,
        "Most queues of one topic, or of the retry topic of a group. Many requests go through all queues of a topic.",
        min=1,
        max=1_000_000,
        hot=True,
        limit="code 1",
    )
    max_auto_created_groups: int = option(
        "maxAutoCreatedGroups",
        50_000,
        "Groups from which a consumer creates no more; operators still can. Raise it if you really use that many.",
        min=0,
        hot=True,
        limit="code 26 for pulls; the log says why",
    )
    max_groups: int = option(
        "maxGroups",
        100_000,
        "Most subscription groups. Each also has a retry topic.",
        min=1,
        hot=True,
        limit="code 1",
    )
    max_groups_per_client: int = option(
        "maxGroupsPerClient",
        10_000,
        "Most groups, of producers and consumers, on one connection. A very long name counts as several.",
        min=1,
        hot=True,
        limit="code 1 for the heartbeat",
    )
    max_subscriptions_per_client: int = option(
        "maxSubscriptionsPerClient",
        20_000,
        "Most subscriptions of all groups on one connection. A long filter counts once per KiB.",
        min=1,
        hot=True,
        limit="code 1 for the heartbeat",
    )
    max_consumer_offsets: int = option(
        "maxConsumerOffsets",
        2_000_000,
        "Offsets to keep, one per group and queue. At the limit, clients commit only where they have before. "
        "Raise it if you have more groups times queues.",
        min=0,
        hot=True,
        limit="code 1",
    )
    default_topic_queues: int = option(
        "defaultTopicQueueNums", 8, "Queues of TBW102: the most that an automatically created topic gets.", min=1
    )
    cluster_topic: bool = option("clusterTopicEnable", True, "Set to false to close the topic named after the cluster.")
    broker_topic: bool = option("brokerTopicEnable", True, "Set to false to close the topic named after the broker.")
    auto_create_group: bool = option(
        "autoCreateSubscriptionGroup",
        True,
        "Create groups on first use. Set to false to serve only groups that operators create.",
        hot=True,
    )
    reject_transaction: bool = option(
        "rejectTransactionMessage", False, "Set to true to refuse half messages.", hot=True
    )
    start_accept_send: int = option(
        "startAcceptSendRequestTimeStamp", 0, "Refuse sends before this time (epoch ms).", min=0, hot=True
    )
    config_black_list: str = option(
        "configBlackList",
        "configBlackList;brokerConfigPath",
        "Keys, separated by semicolons, that cannot be changed at run time.",
    )
    config_path: str = option(
        "brokerConfigPath",
        computed(str, _home_file),
        "File that receives run-time changes of settings; the file given with -c, if any.",
    )

    # Traces.
    trace_topic_enable: bool = option("traceTopicEnable", False, "Set to true to create the topic for message traces.")
    trace_topic_name: str = option("msgTraceTopicName", TRACE_TOPIC, "Topic for message traces.")
    trace_on: bool = option("traceOn", True, "Set to false to tell producers not to trace.", hot=True)

    # Pulling.
    long_polling: bool = option(
        "longPollingEnable",
        True,
        "Hold a pull that finds nothing until a message arrives. If false, hold it only for shortPollingTimeMills.",
        hot=True,
    )
    lite_pull: bool = option("litePullMessageEnable", True, "Set to false to refuse lite pull consumers.", hot=True)
    short_polling_ms: int = option(
        "shortPollingTimeMills", 1000, "How long to hold a pull when longPollingEnable is false.", min=1, hot=True
    )
    enable_property_filter: bool = option("enablePropertyFilter", False, "Allow SQL92 subscriptions.", hot=True)
    filter_support_retry: bool = option("filterSupportRetry", False, "Filter retried messages too.", hot=True)
    calc_filter_bitmap: bool = option(
        "enableCalcFilterBitMap",
        False,
        "Evaluate SQL92 filters when a message is stored. Needs enableConsumeQueueExt.",
        hot=True,
    )
    filter_consumers: int = option(
        "expectConsumerNumUseFilter",
        32,
        "Groups per topic that filter by SQL92 and for which bitmaps are sized.",
        min=1,
        max=100_000,
    )
    filter_error_rate: int = option(
        "maxErrorRateOfBloomFilter",
        20,
        "Accepted error rate of these bitmaps in percent. After a change, existing bitmaps are ignored.",
        min=1,
        max=99,
    )
    filter_data_clean: int = option(
        "filterDataCleanTimeSpan",
        86_400_000,
        "How long to keep the filters of groups without members.",
        min=0,
        hot=True,
    )
    notify_ids_changed: bool = option(
        "notifyConsumerIdsChangedEnable",
        True,
        "Tell a group at once when members join or leave. If false, members notice within 20 s.",
        hot=True,
    )
    disable_slow_consumers: bool = option(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "Stop serving groups that lag more than consumerFallbehindThreshold.",
        hot=True,
    )
    consumer_fall_behind: int = option(
        "consumerFallbehindThreshold",
        16 * 1024**3,
        "Lag in bytes at which disableConsumeIfConsumerReadSlowly stops a group.",
        min=1,
        size=True,
        hot=True,
    )
    offset_flush_interval: int = option(
        "flushConsumerOffsetInterval", 5000, "Pause between saves of consumer offsets.", min=10, hot=True
    )
    server_side_reset: bool = option(
        "useServerSideResetOffset",
        False,
        "Reset offsets in the broker, as 5.x does, even for offline groups. If false, consumers do it.",
        hot=True,
    )
    delay_offset_flush_interval: int = option(
        "flushDelayOffsetInterval",
        1000,
        "Pause between saves of the progress of delayed messages.",
        min=10,
        hot=True,
    )
    store_reply_message: bool = option(
        "storeReplyMessageEnable", True, "Set to false to pass replies on without storing them.", hot=True
    )

    # Timer messages.
    timer_wheel: bool = option(
        "timerWheelEnable",
        True,
        "Set to false to refuse messages with their own delivery time. Delay levels still work.",
    )
    timer_precision: int = option(
        "timerPrecisionMs",
        1000,
        "Timers fire at multiples of this: 100, 200, 500 or 1000; other values are rounded down to one of these.",
        min=1,
    )
    timer_max_delay: int = option(
        "timerMaxDelaySec", 259_200, "Longest delay of a message, in seconds.", min=0, hot=True
    )
    timer_roll_window: int = option(
        "timerRollWindowSlot",
        172_800,
        "Store a timer again if it waits longer than this many steps of the precision, and before fileReservedTime "
        "deletes its first copy.",
        min=2,
    )
    timer_congest: int = option(
        "timerCongestNumEachSlot",
        2**31 - 1,
        "Most timers for one step of the precision. Above it the broker refuses some, above twice as many all.",
        min=1,
    )
    timer_flush_interval: int = option(
        "timerFlushIntervalMs", 1000, "Pause between saves of the progress of timers.", min=10
    )
    timer_log_file_size: int = option(
        "mappedFileSizeTimerLog",
        100 * 1024**2,
        "Bytes per file of the timer log, written at shutdown so that RocketMQ can read it.",
        min=1024,
        size=True,
    )
    recall: bool = option("recallMessageEnable", False, "Let producers recall messages that are not yet due.", hot=True)
    recall_with_topic: bool = option(
        "appendTopicForTimerDeleteKey",
        False,
        "Set to true if RocketMQ 5.3 should take over this store with recalls in it; 5.5 does not need it.",
        hot=True,
    )
    recall_when_not_writable: bool = option(
        "allowRecallWhenBrokerNotWriteable", True, "Allow recalls even while brokerPermission forbids sends.", hot=True
    )

    # POP.
    revive_queues: int = option(
        "reviveQueueNum", 8, "Queues of the topic that keeps track of popped messages. More do no harm.", min=1, max=256
    )
    revive_interval: int = option(
        "reviveInterval",
        1000,
        "Pause between checks for popped messages that were not acknowledged.",
        min=10,
        hot=True,
    )
    pop_buffer: int = option(
        "popCkMaxBufferSize",
        200_000,
        "Pops held in memory while the broker decides what to redeliver; the rest wait on disk.",
        min=1,
    )
    max_held_pulls_per_connection: int = option(
        "maxHeldPullsPerConnection",
        20_000,
        "Pulls of one connection that may wait for messages. Raise it for clients that consume from more queues of "
        "this broker. A pull with a very long filter counts as several.",
        min=1,
        hot=True,
        limit="code 2",
    )
    max_held_pulls: int = option(
        "maxHeldPulls",
        500_000,
        "Pulls of all connections that may wait for messages. Each takes about 1.5 KiB of memory.",
        min=1,
        hot=True,
        limit="code 2",
    )
    max_held_pulls_per_queue: int = option(
        "maxHeldPullsPerQueue",
        10_000,
        "Pulls that may wait for the same queue. Raise it for more groups or broadcast members.",
        min=1,
        hot=True,
        limit="code 2",
    )
    pop_polling: int = option(
        "popPollingSize",
        1024,
        "Most pops of one group waiting for the same queue.",
        min=0,
        hot=True,
        limit="code 209: the pop does not wait",
    )
    pop_polling_total: int = option(
        "maxPopPollingSize",
        100_000,
        "Most waiting pops in total.",
        min=0,
        hot=True,
        limit="code 209: the pop does not wait",
    )
    pop_from_retry: int = option(
        "popFromRetryProbability",
        20,
        "Percentage of pops that look for retried messages first.",
        min=0,
        max=100,
        hot=True,
    )
    retry_topic_v2: bool = option(
        "enableRetryTopicV2",
        False,
        "Name POP retry topics %RETRY%group+topic instead of %RETRY%group_topic.",
        hot=True,
    )
    retry_topic_v1_too: bool = option(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "With enableRetryTopicV2, also pop what is left in the old retry topics.",
        hot=True,
    )
    pop_dead_letters: bool = option(
        "popDeadLetterEnable",
        True,
        "Turn a popped message that is never acknowledged into a dead letter after its group's retryMaxTimes; "
        "RocketMQ retries it forever.",
        hot=True,
    )
    server_load_balancer: bool = option(
        "serverLoadBalancerEnable", True, "Set to false to assign all queues to every member.", hot=True
    )
    default_request_mode: MessageRequestMode = option(
        "defaultMessageRequestMode",
        MessageRequestMode.PULL,
        "Default mode of groups whose queues the broker assigns; mqadmin setConsumeMode overrides it.",
        hot=True,
    )
    default_pop_share: int = option(
        "defaultPopShareQueueNum",
        -1,
        "In POP mode, how many other members share a member's queues; -1 is all.",
        hot=True,
    )

    # Transactions.
    transaction_timeout: int = option(
        "transactionTimeOut", 6000, "Age at which the broker asks the producer about a half message.", min=0, hot=True
    )
    transaction_check_max: int = option(
        "transactionCheckMax", 15, "How often the broker asks before it gives the message up.", min=0, hot=True
    )
    transaction_check_interval: int = option(
        "transactionCheckInterval", 60_000, "Pause between rounds of transaction checks.", min=10, hot=True
    )

    # Registration.
    register_period: int = option(
        "registerNameServerPeriod",
        30_000,
        "Pause between registrations; values outside 10000 to 60000 are clamped.",
        hot=True,
    )
    register_timeout: int = option(
        "registerBrokerTimeoutMills", 6000, "Time limit of one registration round.", min=1, hot=True
    )
    force_register: bool = option(
        "forceRegister",
        True,
        "Register everything each time. Set to false to register only changes, if you have very many topics.",
        hot=True,
    )
    compressed_register: bool = option("compressedRegister", False, "Compress registrations.", hot=True)
    fetch_namesrv_addr: bool = option(
        "fetchNamesrvAddrByAddressServer", False, "Look up name servers over HTTP; used only without namesrvAddr."
    )
    address_server_domain: str = option(
        "rmqAddressServerDomain",
        "jmenv.tbsite.net",
        "Host (and port, if not 8080) for the HTTP lookup of name servers.",
    )
    address_server_subgroup: str = option(
        "rmqAddressServerSubGroup", "nsaddr", "Last part of the path for the HTTP lookup of name servers."
    )

    # Overload.
    fast_failure: bool = option(
        "brokerFastFailureEnable",
        True,
        "Refuse requests that waited too long. Set to false to serve them however late.",
        hot=True,
    )
    wait_in_send_queue: int = option(
        "waitTimeMillsInSendQueue",
        200,
        "Refuse a send that waited longer, with code 2. Raise it if your producers would rather wait.",
        min=0,
        hot=True,
    )
    wait_in_pull_queue: int = option(
        "waitTimeMillsInPullQueue", 5000, "Refuse a pull or pop that waited longer.", min=0, hot=True
    )
    wait_in_heartbeat_queue: int = option(
        "waitTimeMillsInHeartbeatQueue", 31_000, "Refuse a heartbeat that waited longer.", min=0, hot=True
    )
    wait_in_transaction_queue: int = option(
        "waitTimeMillsInTransactionQueue", 3000, "Refuse the end of a transaction that waited longer.", min=0, hot=True
    )
    send_queue_capacity: int = option(
        "sendThreadPoolQueueCapacity", 10_000, "Most waiting sends.", min=1, hot=True, limit="code 2"
    )
    end_transaction_queue_capacity: int = option(
        "endTransactionPoolQueueCapacity",
        100_000,
        "Most waiting ends of transactions.",
        min=1,
        hot=True,
        limit="code 2",
    )

    # Statistics.
    enable_detail_stat: bool = option(
        "enableDetailStat", True, "Set to false to keep statistics per topic only.", hot=True
    )
    auto_delete_unused_stats: bool = option(
        "autoDeleteUnusedStats", False, "Forget the statistics of deleted topics and groups.", hot=True
    )

    # Stopping.
    drain_seconds: int = option(
        "drainSeconds",
        10,
        "How long a stopping broker keeps serving clients that have not noticed; 0 stops at once.",
        min=0,
        hot=True,
    )

    @property
    def timer_step(self) -> int:
        """Milliseconds between two moments at which timers fall due, as RocketMQ takes `timerPrecisionMs`."""
        return max((step for step in _TIMER_STEPS if step <= self.timer_precision), default=_TIMER_STEPS[0])

    @property
    def is_slave(self) -> bool:
        return self.broker_role is BrokerRole.SLAVE

    @property
    def register_interval(self) -> float:
        """Seconds between two registrations, within RocketMQ's bounds."""
        return max(10_000, min(self.register_period, 60_000)) / 1000

    @property
    def name_servers(self) -> list[str]:
        """The addresses of `namesrvAddr`. ValueError says which one is none."""
        return split_addresses(self.namesrv_addr)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that UPDATE_BROKER_CONFIG may not touch; three of them always."""
        listed = {key.strip() for key in self.config_black_list.split(";")} - {""}
        return frozenset(listed | {"configBlackList", "brokerConfigPath", "rocketmqHome"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServerConfig(ServerConfig):
    """A server's settings with the broker's own port."""

    listen_port: int = option(
        "listenPort",
        10911,
        "Port for clients; 0 picks a free one. The port two below serves everything except pulls.",
        min=0,
        max=65534,
    )


CONFIGS = (
    BrokerConfig,
    StoreConfig,
    BrokerServerConfig,
    ClientConfig,
    TlsConfig,
    LogConfig,
    AccessConfig,
    UsersConfig,
    ReplicationConfig,
    FailoverConfig,
    MetricsConfig,
    LaterConfig,
    JavaConfig,
)

_IMPORTANT = (
    "namesrvAddr brokerClusterName brokerName brokerId brokerIP1 brokerRole flushDiskType autoCreateTopicEnable "
    "autoCreateSubscriptionGroup traceTopicEnable msgTraceTopicName aclEnable rejectTransactionMessage "
    "transactionTimeOut transactionCheckMax transactionCheckInterval fetchNamesrvAddrByAddressServer storePathRootDir "
    "storePathCommitLog deleteWhen fileReservedTime cleanFileForciblyEnable maxTransferBytesOnMessageInMemory "
    "maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk "
    "accessMessageInMemoryMaxRatio messageIndexEnable haMasterAddress flushIntervalCommitLog commitIntervalCommitLog "
    "flushCommitLogTimed messageIndexSafe transientStorePoolEnable"
)


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    arguments: Iterable[str] = (),
    namesrv_addr: str | None = None,
) -> Settings:
    """The settings of a broker; `namesrv_addr` (-n) wins over all others. ConfigError names the malformed one.

    With a file, that file also receives the changes made at run time. Of the environment NAMESRV_ADDR counts less than
    the file, as in RocketMQ; the variables PYROMQ_… count more. A master has the id 0, whatever was written.
    """
    environ = environ or {}
    settings = Settings.load(*CONFIGS, file=file, environ=environ, sets=sets, arguments=arguments)
    changes = []
    if "NAMESRV_ADDR" in environ and settings.origin("namesrvAddr") == "default":
        changes.append(Assignment("namesrvAddr", environ["NAMESRV_ADDR"], "environment NAMESRV_ADDR"))
    if namesrv_addr is not None:
        changes.append(Assignment("namesrvAddr", namesrv_addr, "-n"))
    chosen = settings.origin("brokerConfigPath")
    if file is not None and (chosen == "default" or chosen.startswith(f"{file}:")):
        changes.append(Assignment("brokerConfigPath", str(file), "-c"))
    config = settings[BrokerConfig]
    if not config.is_slave and config.broker_id and not settings[FailoverConfig].enabled:
        changes.append(Assignment("brokerId", "0", f"brokerRole {config.broker_role.value}"))
    return with_tls_file(settings.updated(changes).settings)


def check_settings(settings: Settings) -> None:
    """ConfigError for what no broker of this version can be: values that are well formed and lead nowhere.

    A start is refused with it, and so is a change at run time.
    """
    config = settings[BrokerConfig]
    try:
        split_addresses(config.namesrv_addr)
    except ValueError as exc:
        raise ConfigError(f"namesrvAddr: {exc}", settings.origin("namesrvAddr")) from exc
    ha_config, failover = settings[ReplicationConfig], settings[FailoverConfig]
    if ha_config.dledger:
        raise ConfigError(
            "enableDLegerCommitLog is not available: enableControllerMode with controllerAddr fails over as well",
            settings.origin("enableDLegerCommitLog"),
        )
    if failover.enabled:
        _check_failover(settings, failover)
    elif config.is_slave and config.broker_id <= 0:
        raise ConfigError("brokerRole SLAVE needs a brokerId above 0", settings.origin("brokerRole"))
    if ha_config.master_address:
        try:
            split_address(ha_config.master_address)
        except ValueError as exc:
            raise ConfigError(f"haMasterAddress: {exc}", settings.origin("haMasterAddress")) from exc
    check_access(settings)
    check_metrics(settings, MetricsConfig)
    store_config = settings[StoreConfig]
    for key, given, place in store_config.misplaced():
        raise ConfigError(
            f"{key} cannot be {given}: it is always {place}, in storePathRootDir; correct or remove the line",
            settings.origin(key),
        )
    try:
        parse_delay_levels(store_config.delay_levels)
    except ConfigError as exc:
        raise ConfigError(exc.reason, settings.origin("messageDelayLevel")) from exc


def _check_failover(settings: Settings, failover: FailoverConfig) -> None:
    try:
        addresses = split_addresses(failover.controllers)
    except ValueError as exc:
        raise ConfigError(f"controllerAddr: {exc}", settings.origin("controllerAddr")) from exc
    if not addresses:
        raise ConfigError("enableControllerMode needs controllerAddr", settings.origin("enableControllerMode"))
    config = settings[BrokerConfig]
    for key, name in (("brokerClusterName", config.cluster_name), ("brokerName", config.broker_name)):
        if "#" in name:
            raise ConfigError(f"{key} must not contain # when controllers give out ids", settings.origin(key))


def store_config(settings: Settings) -> StoreConfig:
    """How the broker keeps its store. A slave takes less for recent, so that it sends readers back when they are."""
    config = settings[StoreConfig]
    if not settings[BrokerConfig].is_slave:
        return config
    return replace(config, memory_ratio=max(0, config.memory_ratio - _LESS_ON_SLAVES))


def cautions(settings: Settings) -> list[str]:
    """What is no reason to stop, and may not be what was meant: a sentence each, said at the start."""
    config = settings[BrokerConfig]
    found = []
    if config.broker_role is BrokerRole.SYNC_MASTER and settings[ReplicationConfig].in_sync_replicas < 2:
        found.append("inSyncReplicas 1: this SYNC_MASTER waits for no slave")
    if config.namesrv_addr and config.fetch_namesrv_addr:
        found.append("fetchNamesrvAddrByAddressServer has no effect while namesrvAddr is set")
    if config.calc_filter_bitmap and not settings[StoreConfig].consume_queue_ext:
        found.append("enableCalcFilterBitMap has no effect without enableConsumeQueueExt, which gives bitmaps a place")
    return found


def important(settings: Settings) -> list[tuple[str, str]]:
    """The few keys, with their values, that say what kind of broker this is: what `-m` prints."""
    keys = set(_IMPORTANT.split())
    return [(key, value) for key, value in settings.items(reveal=False) if key in keys]


class LiveConfig:
    """The settings of a running broker, which can be exchanged. Read `config` anew each time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config = settings[BrokerConfig]
        # What controllers have made of this broker; None if they have no say.
        self._role: tuple[BrokerRole, int] | None = None
        self.version = DataVersion()
        # Fixed at the start, so that nobody can empty the list first and change the rest then.
        self._black_list = self.config.black_list

    @classmethod
    def of(cls, *configs: object) -> LiveConfig:
        """Settings made in code; those of a kind that is not given are the defaults."""
        given = {type(config) for config in configs}
        return cls(Settings.of(*configs, *(kind() for kind in CONFIGS if kind not in given)))

    def take_role(self, role: BrokerRole, broker_id: int) -> None:
        """Be a master or a slave from now on, whatever the settings say."""
        self._role = role, broker_id
        self._set(self.settings)

    def _set(self, settings: Settings) -> None:
        if self._role is not None:
            role, broker_id = self._role
            config = replace(settings[BrokerConfig], broker_role=role, broker_id=broker_id)
            settings = settings.with_config(config)
        self.settings = settings
        self.config = settings[BrokerConfig]

    def reload_log_levels(self) -> None:
        """Take over the levels that the file of the settings names now. ConfigError if it is malformed."""
        before = self.settings[LogConfig]
        self.settings = with_levels_of(Path(self.config.config_path), self.settings)
        apply_log_levels(self.settings[LogConfig], before)

    def planned(self, text: bytes, peer: str) -> Update | None:
        """What a properties text (UPDATE_BROKER_CONFIG) would change. BrokerError if it may not; None for nothing."""
        if b"=" not in text:
            return None
        return changed_by_request(
            self.settings,
            text,
            peer,
            black_list=self._black_list,
            check=check_settings,
            file=self.config.config_path,
        )

    def apply(self, update: Update, peer: str, now: int) -> None:
        """Let a planned change, the first since it was planned, take effect. `now` is epoch milliseconds."""
        if any(key.startswith(LOG_LEVEL) for key in update.changed):
            apply_log_levels(update.settings[LogConfig], self.settings[LogConfig])
        self._set(update.settings)
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=now)
        log_change(update, peer)
