"""The metrics of a broker: names, labels and buckets of RocketMQ 5.x (docs/spec/admin.md 3.1), and a few of ours."""

from __future__ import annotations

from .model import counter, gauge, histogram
from .server_metrics import CONNECTIONS, RPC_LATENCY

_SECOND = 1000.0
_MINUTE = 60.0
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR

SIZE_BOUNDS = (1024, 4096, 512 * 1024, 1024**2, 2 * 1024**2, 4 * 1024**2)

# Messages in and out.
_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system")
MESSAGES_IN = counter("rocketmq_messages_in_total", "Messages that were stored.", *_IN)
THROUGHPUT_IN = counter("rocketmq_throughput_in_total", "Bytes of messages that were stored.", *_IN)
MESSAGE_SIZE = histogram(
    "rocketmq_message_size", "Sizes of stored messages in bytes.", "topic", "message_type", buckets=SIZE_BOUNDS
)
MESSAGES_OUT = counter("rocketmq_messages_out_total", "Messages that consumers have got; retries do not count.", *_OUT)
THROUGHPUT_OUT = counter(
    "rocketmq_throughput_out_total", "Bytes of messages that consumers have got; retries do not count.", *_OUT
)
DEAD_LETTERS = counter(
    "rocketmq_send_to_dlq_messages_total",
    "Messages that a group failed to consume often enough to become dead letters.",
    "consumer_group",
    "topic",
    "is_system",
)

# Groups.
_LAG = ("consumer_group", "topic", "is_retry", "is_system")
LAG = gauge("rocketmq_consumer_lag_messages", "Messages that a group has not acknowledged yet.", *_LAG)
LAG_LATENCY = gauge(
    "rocketmq_consumer_lag_latency",
    "Age of the oldest message that a group has not acknowledged; 0 if there is none.",
    *_LAG,
    unit="milliseconds",
)
INFLIGHT = gauge(
    "rocketmq_consumer_inflight_messages", "Messages that a group has got and not acknowledged yet.", *_LAG
)
READY = gauge("rocketmq_consumer_ready_messages", "Messages that wait for a group to fetch them.", *_LAG)
QUEUEING_LATENCY = gauge(
    "rocketmq_consumer_queueing_latency",
    "Age of the oldest message that a group has not fetched yet; 0 if there is none.",
    *_LAG,
    unit="milliseconds",
)
GROUPS = (LAG, LAG_LATENCY, INFLIGHT, READY, QUEUEING_LATENCY)

# Clients.
PRODUCERS = gauge(
    "rocketmq_producer_connections", "Producers that are connected.", "language", "version", "protocol_type"
)
CONSUMERS = gauge(
    "rocketmq_consumer_connections",
    "Consumers that are connected.",
    "consumer_group",
    "language",
    "version",
    "consume_mode",
    "protocol_type",
    "is_system",
)

# The broker.
WATERMARK = gauge("rocketmq_processor_watermark", "Requests of this kind that wait to be answered.", "processor")
PERMISSION = gauge("rocketmq_broker_permission", "What this broker permits: 4 is read, 2 is write, 6 is both.")
TOPIC_NUMBER = gauge("rocketmq_topic_number", "Topics on this broker.")
GROUP_NUMBER = gauge("rocketmq_consumer_group_number", "Consumer groups on this broker.")

# The store.
_STORAGE = ("storage_type", "storage_medium")
STORAGE_SIZE = gauge("rocketmq_storage_size", "Bytes that this broker keeps on disk.", *_STORAGE, unit="bytes")
FLUSH_BEHIND = gauge(
    "rocketmq_storage_flush_behind", "Bytes that are written and not yet known to be on disk.", *_STORAGE, unit="bytes"
)
DISPATCH_BEHIND = gauge(
    "rocketmq_storage_dispatch_behind",
    "Bytes of the commit log that queues do not show yet; 0 where queues are written with the log.",
    *_STORAGE,
    unit="bytes",
)
RESERVE_TIME = gauge(
    "rocketmq_storage_message_reserve_time", "Age of the oldest message.", *_STORAGE, unit="milliseconds"
)

# Transactions.
HALF_MESSAGES = gauge("rocketmq_half_messages", "Half messages that wait for a commit or a rollback.", "topic")
COMMITS = counter("rocketmq_commit_messages_total", "Half messages that were committed.", "topic")
ROLLBACKS = counter("rocketmq_rollback_messages_total", "Half messages that were rolled back.", "topic")
FINISH_LATENCY = histogram(
    "rocketmq_finish_message_latency",
    "Time from a half message to its commit.",
    "topic",
    buckets=tuple(_SECOND * seconds for seconds in (5.0, _MINUTE, 10 * _MINUTE, _HOUR, 12 * _HOUR, _DAY)),
    unit="milliseconds",
)

# Timers and delays.
TIMING_MESSAGES = gauge("rocketmq_timing_messages", "Messages that wait for their time of delivery.", "topic")
TIMER_ENQUEUE_LAG = gauge("rocketmq_timer_enqueue_lag", "Messages that the timer has not read yet.")
TIMER_ENQUEUE_LATENCY = gauge(
    "rocketmq_timer_enqueue_latency",
    "Age of the oldest message that the timer has not read; 0 if there is none.",
    unit="milliseconds",
)
TIMER_DEQUEUE_LAG = gauge("rocketmq_timer_dequeue_lag", "Messages that are due and not yet delivered.")
TIMER_DEQUEUE_LATENCY = gauge(
    "rocketmq_timer_dequeue_latency", "How late the delivery of messages is.", unit="milliseconds"
)
TIMER_ENQUEUED = counter("rocketmq_timer_enqueue_total", "Messages that were sent with a time of delivery.", "topic")
TIMER_DEQUEUED = counter("rocketmq_timer_dequeue_total", "Messages that the timer has delivered.", "topic")
TIMER_SNAPSHOT = gauge(
    "rocketmq_timer_message_snapshot",
    "Messages that are due within so many seconds, without those of the bound before.",
    "timer_bound_s",
)
DELAY_LATENCY = histogram(
    "rocketmq_delay_message_latency",
    "Time for which messages were delayed when they were delivered.",
    "topic",
    buckets=(_MINUTE, 10 * _MINUTE, _HOUR, 12 * _HOUR, _DAY, 3 * _DAY),
    unit="seconds",
)

# Ours.
STORE_WRITABLE = gauge("pyromq_store_writable", "Whether messages can be stored now: 1 if so, 0 if not.")
STORE_DISK_RATIO = gauge("pyromq_store_disk_used_ratio", "How full the disk of the commit log is, from 0 to 1.")
STORE_LOG_START = gauge("pyromq_store_log_start_offset", "Where the commit log begins, in bytes.")
STORE_LOG_END = gauge("pyromq_store_log_end_offset", "Where the commit log ends, in bytes.")
STORE_QUEUES = gauge("pyromq_store_queues", "Consume queues that are open.")
STORE_PUTS = counter("pyromq_store_messages_total", "Messages that were written to the commit log.")
STORE_PUT_FAILURES = counter("pyromq_store_refused_messages_total", "Messages that the store refused.")
STORE_PULLS = counter("pyromq_store_pulls_total", "Reads for consumers, by whether they found messages.", "found")
HELD_PULLS = gauge("pyromq_held_pulls", "Pulls that wait for messages.")
REPLICAS = gauge("pyromq_replication_slaves", "Slaves that are connected to this master.")
REPLICATION_BEHIND = gauge(
    "pyromq_replication_behind_bytes", "Bytes of the commit log that a slave has not taken yet.", "replica"
)
REGISTERED = gauge("pyromq_registered_name_servers", "Name servers that know this broker.")
RECOVERY = gauge("pyromq_recovery_progress_ratio", "How much of the store was recovered at the start, from 0 to 1.")

BROKER = (
    MESSAGES_IN,
    THROUGHPUT_IN,
    MESSAGES_OUT,
    THROUGHPUT_OUT,
    MESSAGE_SIZE,
    *GROUPS,
    DEAD_LETTERS,
    PRODUCERS,
    CONSUMERS,
    RPC_LATENCY,
    WATERMARK,
    PERMISSION,
    TOPIC_NUMBER,
    GROUP_NUMBER,
    STORAGE_SIZE,
    FLUSH_BEHIND,
    DISPATCH_BEHIND,
    RESERVE_TIME,
    HALF_MESSAGES,
    COMMITS,
    ROLLBACKS,
    FINISH_LATENCY,
    TIMING_MESSAGES,
    TIMER_ENQUEUE_LAG,
    TIMER_ENQUEUE_LATENCY,
    TIMER_DEQUEUE_LAG,
    TIMER_DEQUEUE_LATENCY,
    TIMER_ENQUEUED,
    TIMER_DEQUEUED,
    TIMER_SNAPSHOT,
    DELAY_LATENCY,
    STORE_WRITABLE,
    STORE_DISK_RATIO,
    STORE_LOG_START,
    STORE_LOG_END,
    STORE_QUEUES,
    STORE_PUTS,
    STORE_PUT_FAILURES,
    STORE_PULLS,
    HELD_PULLS,
    REPLICAS,
    REPLICATION_BEHIND,
    REGISTERED,
    RECOVERY,
    CONNECTIONS,
)
