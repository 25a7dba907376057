"""The metrics of every process, and those of name servers and controllers."""

from __future__ import annotations

from .health import LAG_BOUNDS
from .model import counter, gauge, histogram

# The process. These names are common to all Prometheus clients for Python.
PROCESS_CPU = counter("process_cpu_seconds_total", "Processor time that this process has used, in seconds.")
PROCESS_START = gauge("process_start_time_seconds", "When this process began, in seconds since 1970.")
PROCESS_RSS = gauge("process_resident_memory_bytes", "Memory that this process occupies.")
PROCESS_VIRTUAL = gauge(
    "process_virtual_memory_bytes", "Address space of this process, with all files that it has mapped."
)
PROCESS_FDS = gauge("process_open_fds", "Files and sockets that this process has open.")
PROCESS_MAX_FDS = gauge("process_max_fds", "Files and sockets that this process may have open.")
GC_COLLECTIONS = counter(
    "python_gc_collections_total", "How often Python has collected garbage of this generation.", "generation"
)
GC_COLLECTED = counter(
    "python_gc_objects_collected_total", "Objects that Python's garbage collection has freed.", "generation"
)
GC_UNCOLLECTABLE = counter(
    "python_gc_objects_uncollectable_total", "Objects that Python's garbage collection could not free.", "generation"
)
LOOP_LAG = histogram(
    "pyromq_event_loop_lag",
    "How late the event loop was, measured ten times a second.",
    buckets=LAG_BOUNDS,
    unit="seconds",
)
BUILD_INFO = gauge(
    "pyromq_build_info",
    "Always 1; the labels say which PyroMQ runs here, and whether its hot path is compiled.",
    "version",
    "python",
    "hot_path",
)
PROCESS = (
    PROCESS_CPU,
    PROCESS_START,
    PROCESS_RSS,
    PROCESS_VIRTUAL,
    PROCESS_FDS,
    PROCESS_MAX_FDS,
    GC_COLLECTIONS,
    GC_COLLECTED,
    GC_UNCOLLECTABLE,
    LOOP_LAG,
    BUILD_INFO,
)

# Requests.
RPC_BOUNDS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
RPC_LATENCY = histogram(
    "rocketmq_rpc_latency",
    "Time from the arrival of a request to its answer; that of a pull includes the wait for messages.",
    "request_code",
    "response_code",
    "is_long_polling",
    "result",
    "protocol_type",
    buckets=RPC_BOUNDS,
    unit="milliseconds",
)
CONNECTIONS = gauge("pyromq_connections", "Connections that are open on the port for clients.")

# Name servers.
NAMESRV_BROKERS = gauge("pyromq_namesrv_brokers", "Brokers that are registered, slaves included.", "cluster")
NAMESRV_MASTERS = gauge("pyromq_namesrv_masters", "Masters that are registered.", "cluster")
NAMESRV_TOPICS = gauge("pyromq_namesrv_topics", "Topics that this name server has routes for.")
NAMESRV_CLUSTERS = gauge("pyromq_namesrv_clusters", "Clusters with at least one broker.")
NAMESRV_KV_KEYS = gauge("pyromq_namesrv_kv_config_keys", "Keys in the KV config.")
NAMESRV = (
    NAMESRV_BROKERS,
    NAMESRV_MASTERS,
    NAMESRV_TOPICS,
    NAMESRV_CLUSTERS,
    NAMESRV_KV_KEYS,
    CONNECTIONS,
    RPC_LATENCY,
)

# Controllers.
CONTROLLER_GROUPS = gauge("pyromq_controller_groups", "Broker groups that this controller knows.")
CONTROLLER_MASTERLESS = gauge("pyromq_controller_groups_without_master", "Broker groups that have no master now.")
CONTROLLER_EPOCH = gauge("pyromq_controller_master_epoch", "How often a broker group has got a master.", "broker_set")
CONTROLLER_IN_SYNC = gauge(
    "pyromq_controller_in_sync_replicas",
    "Brokers of a group that have every acknowledged message.",
    "broker_set",
)
CONTROLLER = (
    CONTROLLER_GROUPS,
    CONTROLLER_MASTERLESS,
    CONTROLLER_EPOCH,
    CONTROLLER_IN_SYNC,
    CONNECTIONS,
    RPC_LATENCY,
)
