"""Settings of the controller, under RocketMQ's own keys (docs/spec/controller.md 9). Times are milliseconds, as there.

A file of RocketMQ's controller works unchanged as long as it names one controller. An embedded controller has the name
server's file; each of them passes over the other's keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.auth.assembly import check_access
from pyromq.auth.config import AccessConfig
from pyromq.auth.users import UsersConfig
from pyromq.errors import ConfigError
from pyromq.metrics.config import ControllerMetricsConfig, check_metrics
from pyromq.remoting import ServerConfig, TlsConfig, join_address, split_addresses
from pyromq.remoting.addresses import local_address
from pyromq.remoting.live_settings import LiveSettings as ServerSettings
from pyromq.remoting.log_levels import LogConfig
from pyromq.remoting.tls import with_tls_file
from pyromq.settings import Assignment, Settings, computed, option, options_of, read_file

from .decisions import Peer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PORT = 9878


class Store(Enum):
    """Where decisions are kept."""

    JOURNAL = "journal"
    ETCD = "etcd"


def _home(*names: str) -> str:
    # Not Path.home(): it fails for a user without a home, who may never need this place.
    return str(Path(os.path.expanduser("~"), *names))  # noqa: PTH111


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings that the controller reads."""

    group: str = option("controllerDLegerGroup", "group1", "Name of the controllers' group, shown to tools.")
    peers: str = option(
        "controllerDLegerPeers",
        "",
        "The controllers as n0-host:port;n1-host:port, at addresses that all brokers reach. Empty means this machine, "
        f"port {PORT}. Set it in containers, and wherever the guess of this machine's address is wrong.",
    )
    self_id: str = option(
        "controllerDLegerSelfId", "", "Which of the peers this is; needed if there are several. Empty means n0."
    )
    store: Store = option(
        "controllerStore",
        Store.JOURNAL,
        "Where decisions are kept: journal, a file of this machine, or etcd, which several controllers need.",
    )
    etcd_endpoints: str = option(
        "controllerEtcdEndpoints",
        "",
        "The members of the etcd cluster (3.4 or newer) as host:port;host:port. Name all of them: if one does not "
        "answer, the next is asked.",
    )
    etcd_prefix: str = option(
        "controllerEtcdPrefix",
        "",
        "Where the keys in etcd begin. Empty means /pyromq/<controllerDLegerGroup>/. Must be the same for all "
        "controllers of a group, and another one for each group.",
    )
    etcd_lease: int = option(
        "controllerEtcdLease",
        2000,
        "For how long a leader is leader without renewing, rounded up to seconds. Another controller leads after that "
        "time if the leader dies, and until then masters refuse messages. Raise it if etcd is slow, for example spread "
        "over continents.",
        min=2000,
        max=600_000,
    )
    etcd_user: str = option("controllerEtcdUser", "", "User in etcd, if it asks for one.")
    etcd_password: str = option("controllerEtcdPassword", "", "Password of controllerEtcdUser.", secret=True)
    etcd_tls: bool = option("controllerEtcdTls", False, "Set to true to connect to etcd with TLS.")
    etcd_ca_path: str = option(
        "controllerEtcdCaPath",
        "",
        "Certificate of the authority that signed those of etcd. Empty means the authorities of this machine.",
    )
    etcd_cert_path: str = option("controllerEtcdCertPath", "", "Certificate to show to etcd, if it asks for one.")
    etcd_key_path: str = option("controllerEtcdKeyPath", "", "Private key of controllerEtcdCertPath.")
    store_path: str = option(
        "controllerStorePath",
        computed(str, lambda: _home("DLedgerController")),
        "Folder of the journal. Put it on a disk that outlives the machine: brokers obey no controller that forgot.",
    )
    config_store_path: str = option(
        "configStorePath",
        computed(str, lambda: _home("controller", "controller.properties")),
        "File that receives run-time changes of settings; the file given with -c, if any. Inside a name server: "
        "controller.properties in controllerStorePath, which is read again at the next start.",
    )
    config_black_list: str = option(
        "configBlackList",
        "configBlackList;configStorePath",
        "Keys, separated by semicolons, that cannot be changed at run time.",
    )
    scan_not_active_broker_interval: int = option(
        "scanNotActiveBrokerInterval",
        5000,
        "Longest pause between checks for silent brokers. Who is silent for too long is found at once.",
        min=10,
        hot=True,
    )
    scan_inactive_master_interval: int = option(
        "scanInactiveMasterInterval",
        5000,
        "Pause between checks for groups whose master is gone, in case an election failed or was missed.",
        min=10,
        hot=True,
    )
    elect_master_max_retry_count: int = option(
        "electMasterMaxRetryCount",
        3,
        "How often an election is tried at once if its result cannot be saved; later checks try again.",
        min=1,
        hot=True,
    )
    enable_elect_unclean_master: bool = option(
        "enableElectUncleanMaster",
        False,
        "Set to true to elect a broker that may lack acknowledged messages if none that has them is alive.",
        hot=True,
    )
    notify_broker_role_changed: bool = option(
        "notifyBrokerRoleChanged",
        True,
        "Tell brokers of a new master at once. Without it they find out within seconds.",
        hot=True,
    )

    @property
    def etcd_keys(self) -> str:
        """Where the keys in etcd begin."""
        prefix = self.etcd_prefix or f"/pyromq/{self.group}/"
        return prefix if prefix.endswith("/") else f"{prefix}/"

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that UPDATE_CONTROLLER_CONFIG may not change; three of them always."""
        listed = {key.strip() for key in self.config_black_list.split(";")} - {""}
        return frozenset(listed | {"configBlackList", "configStorePath", "rocketmqHome"})


_NO_THREADS = "There are no thread pools; one event loop serves all requests."
_NO_BUFFERS = "Netty is not used here."
_NO_RAFT = "Decisions are kept as controllerStore says."


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaConfig:
    """Keys for RocketMQ's threads, buffers and consensus, without effect here; listed with their defaults."""

    rocketmq_home: str = option(
        "rocketmqHome",
        computed(str, lambda: os.environ.get("ROCKETMQ_HOME", "")),
        "Nothing reads it; it is kept for tools that ask for it.",
        no_effect=True,
    )
    kind: str = option("controllerType", "DLedger", _NO_RAFT, no_effect=True)
    mapped_file_size: int = option("mappedFileSize", 1073741824, _NO_RAFT, no_effect=True)
    process_reads: bool = option(
        "isProcessReadEvent", False, "What a controller answers is always decided.", no_effect=True
    )
    jraft_group: str = option("jRaftGroupId", "jRaft-Controller", _NO_RAFT, no_effect=True)
    jraft_server: str = option("jRaftServerId", "localhost:9880", _NO_RAFT, no_effect=True)
    jraft_peers: str = option("jRaftInitConf", "localhost:9880,localhost:9881,localhost:9882", _NO_RAFT, no_effect=True)
    jraft_addresses: str = option(
        "jRaftControllerRPCAddr", "localhost:9770,localhost:9771,localhost:9772", _NO_RAFT, no_effect=True
    )
    jraft_election_timeout: int = option("jRaftElectionTimeoutMs", 1000, _NO_RAFT, no_effect=True)
    jraft_snapshots: int = option("jRaftSnapshotIntervalSecs", 3600, _NO_RAFT, no_effect=True)
    threads: int = option("controllerThreadPoolNums", 16, _NO_THREADS, no_effect=True)
    queue: int = option("controllerRequestThreadPoolQueueCapacity", 50000, _NO_THREADS, no_effect=True)
    worker_threads: int = option("serverWorkerThreads", 8, _NO_THREADS, no_effect=True)
    callback_threads: int = option("serverCallbackExecutorThreads", 0, _NO_THREADS, no_effect=True)
    selector_threads: int = option("serverSelectorThreads", 3, _NO_THREADS, no_effect=True)
    pooled_buffers: bool = option("serverPooledByteBufAllocatorEnable", True, _NO_BUFFERS, no_effect=True)
    epoll: bool = option("useEpollNativeSelector", False, _NO_BUFFERS, no_effect=True)


CONFIGS = (
    ControllerConfig,
    ServerConfig,
    TlsConfig,
    LogConfig,
    AccessConfig,
    UsersConfig,
    ControllerMetricsConfig,
    JavaConfig,
)


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    arguments: Iterable[str] = (),
    embedded: bool = False,
) -> Settings:
    """Load the settings of a controller. Its file also receives run-time changes.

    That of an embedded one is the name server's, which writes it. So its changes are kept beside its journal, and read
    from there at the next start: they come after the file, and before whatever else the server is started with.
    """
    settings = Settings.load(*CONFIGS, file=file, environ=environ, sets=sets, arguments=arguments)
    is_free = _is_free(settings, "configStorePath", file)
    if is_free and embedded:
        path = Path(settings[ControllerConfig].store_path) / "controller.properties"
        settings = settings.updated([Assignment("configStorePath", str(path), "embedded")]).settings
    elif is_free and file is not None:
        settings = settings.updated([Assignment("configStorePath", str(file), "-c")]).settings
    if embedded:
        settings = _with_changes(settings, file)
    return with_tls_file(settings)


def _with_changes(settings: Settings, file: Path | None) -> Settings:
    """The settings with what was changed while an earlier run served."""
    path = Path(settings[ControllerConfig].config_store_path)
    if path == file or not path.exists():
        return settings
    hot = {each.key for config in CONFIGS for each in options_of(config) if each.hot}
    changes = [each for each in read_file(path) if each.key in hot and _is_free(settings, each.key, file)]
    return settings.updated(changes).settings


def _is_free(settings: Settings, key: str, file: Path | None) -> bool:
    """Whether nobody has set it but, at most, the file."""
    origin = settings.origin(key)
    return origin == "default" or (file is not None and origin.startswith(f"{file}:"))


def check_settings(settings: Settings) -> None:
    """Raise ConfigError for settings no controller can have, at a start and for a run-time change."""
    check_access(settings)
    check_metrics(settings, ControllerMetricsConfig)
    config = settings[ControllerConfig]
    me, peers = controllers(settings)
    if len(peers) > 1 and config.store is not Store.ETCD:
        raise ConfigError(
            f"controllerDLegerPeers names {len(peers)} controllers; more than one needs controllerStore=etcd",
            settings.origin("controllerDLegerPeers"),
        )
    assert me in peers
    try:
        endpoints = split_addresses(config.etcd_endpoints)
    except ValueError as exc:
        raise ConfigError(f"controllerEtcdEndpoints: {exc}", settings.origin("controllerEtcdEndpoints")) from exc
    if config.store is Store.ETCD and not endpoints:
        raise ConfigError("controllerStore=etcd needs controllerEtcdEndpoints", settings.origin("controllerStore"))
    _check_etcd_files(config, settings)


def _check_etcd_files(config: ControllerConfig, settings: Settings) -> None:
    """A file that nothing reads was meant to secure something."""
    if bool(config.etcd_cert_path) != bool(config.etcd_key_path):
        raise ConfigError(
            "controllerEtcdCertPath and controllerEtcdKeyPath need each other",
            settings.origin("controllerEtcdCertPath" if config.etcd_cert_path else "controllerEtcdKeyPath"),
        )
    for key, path in (("controllerEtcdCaPath", config.etcd_ca_path), ("controllerEtcdCertPath", config.etcd_cert_path)):
        if path and not config.etcd_tls:
            raise ConfigError(f"{key} needs controllerEtcdTls=true", settings.origin(key))


def controllers(settings: Settings) -> tuple[Peer, list[Peer]]:
    """This controller and all of them, itself included. ConfigError if the settings make no sense."""
    config = settings[ControllerConfig]
    named = [text.strip() for text in config.peers.split(";") if text.strip()]
    if not named:
        host = settings[ServerConfig].bind_address
        if host in ("0.0.0.0", "::", ""):
            host = local_address()
        me = Peer(config.self_id or "n0", join_address(host, PORT))
        return me, [me]
    peers = [_peer(text, settings.origin("controllerDLegerPeers")) for text in named]
    if len({peer.id for peer in peers}) < len(peers):
        raise ConfigError("controllerDLegerPeers has an id twice", settings.origin("controllerDLegerPeers"))
    wanted = config.self_id or (peers[0].id if len(peers) == 1 else "n0")
    for peer in peers:
        if peer.id == wanted:
            return peer, peers
    raise ConfigError(
        f"controllerDLegerSelfId {wanted} is none of controllerDLegerPeers {config.peers}",
        settings.origin("controllerDLegerSelfId"),
    )


def _peer(text: str, source: str) -> Peer:
    """A peer from `n0-host:port`. Port 0 lets the system choose, for tests."""
    name, _, address = text.partition("-")
    host, colon, port = address.rpartition(":")
    if not (name and host and colon and port.isascii() and port.isdecimal() and int(port[:6]) < 65536):
        raise ConfigError(f"controllerDLegerPeers: {text!r} is not of the form n0-host:port", source)
    return Peer(name, address)


class LiveSettings(ServerSettings[ControllerConfig]):
    """Settings that can change at run time. Read `config` afresh each time."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, ControllerConfig, check_settings)
