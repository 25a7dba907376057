"""Settings of the name server, under RocketMQ's own keys (docs/spec/namesrv.md 1.4).

It accepts every key of RocketMQ's name server, so that a `namesrv.properties` of 4.9 or 5.x works unchanged. Thread
pools and Netty's internals have no counterpart here: their keys are in `JavaConfig` and have no effect.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import check_access, wants_accounts
from pyromq.auth.config import AccessConfig
from pyromq.auth.near import Network, networks
from pyromq.auth.users import UsersConfig
from pyromq.errors import ConfigError
from pyromq.metrics.config import NamesrvMetricsConfig, check_metrics
from pyromq.remoting import ServerConfig, TlsConfig, split_addresses
from pyromq.remoting.log_levels import LogConfig
from pyromq.remoting.tls import with_tls_file
from pyromq.settings import Assignment, MiB, Settings, computed, option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _home_file(name: str) -> str:
    # Not Path.home(): it fails for a user without a home, who may never need this file.
    return str(Path(os.path.expanduser("~"), "namesrv", name))  # noqa: PTH111


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """The settings that the name server reads."""

    kv_config_path: str = option(
        "kvConfigPath",
        computed(str, lambda: _home_file("kvConfig.json")),
        "File for the KV config (order topics and admins' keys). Put it on a disk that outlives the machine.",
    )
    config_store_path: str = option(
        "configStorePath",
        computed(str, lambda: _home_file("namesrv.properties")),
        "File that receives run-time changes of settings; the file given with -c, if any.",
    )
    product_env_name: str = option("productEnvName", "center", "Cluster-test mode: name of the production environment.")
    product_namesrv_addr: str = option(
        "productNamesrvAddr",
        "",
        "Cluster-test mode: production name servers as host:port;host:port. If empty, they are looked up over HTTP.",
        hot=True,
    )
    namesrv_domain: str = option(
        "rocketmq.namesrv.domain",
        "jmenv.tbsite.net",
        "Cluster-test mode: host (and port, if not 8080) for that lookup.",
    )
    namesrv_subgroup: str = option(
        "rocketmq.namesrv.domain.subgroup", "nsaddr", "Cluster-test mode: last part of the path for that lookup."
    )
    cluster_test: bool = option(
        "clusterTest",
        False,
        "Set to true on the name server of a test environment that borrows routes from production.",
    )
    order_message_enable: bool = option(
        "orderMessageEnable",
        False,
        "Set to true if clients order messages across brokers by orderTopicConf.",
        hot=True,
    )
    config_black_list: str = option(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath",
        "Keys, separated by semicolons, that cannot be changed at run time.",
    )
    admin_allow_cidr: str = option(
        "adminAllowCidr",
        "",
        "Without aclEnable, settings are changed from this machine only; these networks may too, apart by commas: "
        "10.0.0.0/8,192.168.7.0/24.",
    )
    known_brokers_only: bool = option(
        "knownBrokersOnly",
        False,
        "Set to true to register only brokers that sign as an administrator (innerClientAuthenticationCredentials). "
        "Otherwise anybody can pose as a broker. Needs access control; brokers of RocketMQ 4.x do not sign.",
    )
    return_order_topic_config_to_broker: bool = option(
        "returnOrderTopicConfigToBroker",
        True,
        "Send order topics to brokers that register. Set to false to withhold them.",
        hot=True,
    )
    scan_not_active_broker_interval: int = option(
        "scanNotActiveBrokerInterval",
        5000,
        "Milliseconds between checks for silent brokers. Lower it if you use short heartbeat timeouts.",
        min=10,
        hot=True,
    )
    support_acting_master: bool = option(
        "supportActingMaster",
        False,
        "Set to true if slaves act for a missing master: routes then show the smallest id as the master.",
        hot=True,
    )
    enable_all_topic_list: bool = option(
        "enableAllTopicList", True, "Set to false to refuse to list all topics.", hot=True
    )
    enable_topic_list: bool = option(
        "enableTopicList", True, "Set to false to refuse to list a cluster's topics and unit topics.", hot=True
    )
    notify_min_broker_id_changed: bool = option(
        "notifyMinBrokerIdChanged",
        False,
        "Set to true if slaves act for a missing master and should hear at once when it leaves or comes back.",
        hot=True,
    )
    need_wait_for_service: bool = option(
        "needWaitForService",
        False,
        "Set to true to give brokers time to register after a start, before the first route is answered.",
        hot=True,
    )
    max_brokers: int = option(
        "maxBrokers",
        10_000,
        "Most brokers, slaves included, that can be registered at the same time.",
        min=1,
        hot=True,
        limit="code 1 for one more; those that are registered stay",
    )
    max_kv_config: int = option(
        "maxKvConfigSize",
        8 * MiB,
        "Most bytes of the KV config with all its keys. The file is written anew at each change.",
        min=1,
        size=True,
        hot=True,
        limit="code 1",
    )
    wait_seconds_for_service: int = option(
        "waitSecondsForService", 45, "How long needWaitForService waits.", min=0, hot=True
    )
    delete_topic_with_broker_registration: bool = option(
        "deleteTopicWithBrokerRegistration",
        False,
        "Set to true if brokers always register all their topics: topics they leave out are then removed.",
        hot=True,
    )

    enable_controller: bool = option(
        "enableControllerInNamesrv",
        False,
        "Set to true to run a controller in the same process, at a port of its own. It reads the same file.",
    )

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """Those of `adminAllowCidr`. ValueError says which one is none."""
        return networks(self.admin_allow_cidr)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that UPDATE_NAMESRV_CONFIG may not change; four of them always."""
        listed = {key.strip() for key in self.config_black_list.split(";")} - {""}
        return frozenset(listed | {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


_NO_THREADS = "There are no thread pools; one event loop serves all requests."
_NO_BUFFERS = "Netty is not used here."
_STOPS_AT_ONCE = "A name server stops at once."


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaConfig:
    """Keys for RocketMQ's threads and buffers, without effect here; listed with their defaults."""

    rocketmq_home: str = option(
        "rocketmqHome",
        computed(str, lambda: os.environ.get("ROCKETMQ_HOME", "")),
        "Nothing reads it; it is kept for tools that ask for it.",
        no_effect=True,
    )
    client_request_threads: int = option("clientRequestThreadPoolNums", 8, _NO_THREADS, no_effect=True)
    client_request_queue: int = option("clientRequestThreadPoolQueueCapacity", 50000, _NO_THREADS, no_effect=True)
    default_threads: int = option("defaultThreadPoolNums", 16, _NO_THREADS, no_effect=True)
    default_queue: int = option("defaultThreadPoolQueueCapacity", 10000, _NO_THREADS, no_effect=True)
    unregister_queue: int = option("unRegisterBrokerQueueCapacity", 3000, "Brokers unregister at once.", no_effect=True)
    worker_threads: int = option("serverWorkerThreads", 8, _NO_THREADS, no_effect=True)
    callback_threads: int = option("serverCallbackExecutorThreads", 0, _NO_THREADS, no_effect=True)
    selector_threads: int = option("serverSelectorThreads", 3, _NO_THREADS, no_effect=True)
    pooled_buffers: bool = option("serverPooledByteBufAllocatorEnable", True, _NO_BUFFERS, no_effect=True)
    epoll: bool = option("useEpollNativeSelector", False, _NO_BUFFERS, no_effect=True)
    worker_group: bool = option("serverNettyWorkerGroupEnable", True, _NO_BUFFERS, no_effect=True)
    shutdown_gracefully: bool = option("enableShutdownGracefully", False, _STOPS_AT_ONCE, no_effect=True)
    shutdown_wait: int = option("shutdownWaitTimeSeconds", 30, _STOPS_AT_ONCE, no_effect=True)


CONFIGS = (
    NamesrvConfig,
    ServerConfig,
    TlsConfig,
    LogConfig,
    AccessConfig,
    UsersConfig,
    NamesrvMetricsConfig,
    JavaConfig,
)


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    arguments: Iterable[str] = (),
) -> Settings:
    """Load the settings of a name server. If there is a file, it also receives run-time changes."""
    settings = Settings.load(*CONFIGS, file=file, environ=environ, sets=sets, arguments=arguments)
    chosen = settings.origin("configStorePath")
    if file is not None and (chosen == "default" or chosen.startswith(f"{file}:")):
        settings = settings.updated([Assignment("configStorePath", str(file), "-c")]).settings
    return with_tls_file(settings)


def check_settings(settings: Settings) -> None:
    """Raise ConfigError for settings no name server can have, at a start and for a run-time change."""
    try:
        split_addresses(settings[NamesrvConfig].product_namesrv_addr)
    except ValueError as exc:
        raise ConfigError(f"productNamesrvAddr: {exc}", settings.origin("productNamesrvAddr")) from exc
    try:
        networks(settings[NamesrvConfig].admin_allow_cidr)
    except ValueError as exc:
        raise ConfigError(f"adminAllowCidr: {exc}", settings.origin("adminAllowCidr")) from exc
    check_access(settings)
    check_metrics(settings, NamesrvMetricsConfig)
    if settings[NamesrvConfig].known_brokers_only and not wants_accounts(settings):
        raise ConfigError(
            "knownBrokersOnly needs access control: aclEnable or authenticationEnabled",
            settings.origin("knownBrokersOnly"),
        )
