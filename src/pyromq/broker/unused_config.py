"""Keys of RocketMQ's broker that change nothing here, so that a `broker.conf` can be taken over as it is.

`JavaConfig` holds what means something to threads, buffers and Netty. `LaterConfig` holds what belongs to capabilities
that this broker does not have yet: replication and metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import option


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaConfig:
    """Thread pools, locks and buffers of the Java broker, with their defaults."""

    rocketmq_home: str = option("rocketmqHome", "", "No effect: nothing is looked for there.")
    send_threads: int = option("sendMessageThreadPoolNums", 1, "No effect: there are no thread pools.")
    pull_threads: int = option("pullMessageThreadPoolNums", 16, "No effect.")
    query_threads: int = option("queryMessageThreadPoolNums", 8, "No effect.")
    reply_threads: int = option("processReplyMessageThreadPoolNums", 16, "No effect.")
    admin_threads: int = option("adminBrokerThreadPoolNums", 16, "No effect.")
    client_threads: int = option("clientManageThreadPoolNums", 32, "No effect.")
    consumer_threads: int = option("consumerManageThreadPoolNums", 32, "No effect.")
    heartbeat_threads: int = option("heartbeatThreadPoolNums", 8, "No effect.")
    end_transaction_threads: int = option("endTransactionThreadPoolNums", 24, "No effect.")
    client_manager_queue: int = option("clientManagerThreadPoolQueueCapacity", 1_000_000, "No effect.")
    consumer_manager_queue: int = option("consumerManagerThreadPoolQueueCapacity", 1_000_000, "No effect.")
    worker_threads: int = option("serverWorkerThreads", 8, "No effect.")
    callback_threads: int = option("serverCallbackExecutorThreads", 0, "No effect.")
    selector_threads: int = option("serverSelectorThreads", 3, "No effect.")
    pooled_buffers: bool = option("serverPooledByteBufAllocatorEnable", True, "No effect.")
    epoll: bool = option("useEpollNativeSelector", False, "No effect.")
    lock: bool = option("useReentrantLockWhenPutMessage", False, "No effect: there is one thread and no lock.")
    page_cache_busy: int = option("osPageCacheBusyTimeOutMills", 1000, "No effect: no lock is held while appending.")
    heap_transfer: bool = option("transferMsgByHeap", True, "No effect: answers are slices of the mapped log.")
    transient_pool_size: int = option("transientStorePoolSize", 5, "No effect: the page cache is the pool.")
    fast_fail_pool: bool = option("fastFailIfNoBufferInStorePool", False, "No effect.")
    commit_interval: int = option("commitIntervalCommitLog", 200, "No effect: there is no pool to commit from.")
    commit_least_pages: int = option("commitCommitLogLeastPages", 4, "No effect.")
    commit_thorough_interval: int = option("commitCommitLogThoroughInterval", 200, "No effect.")
    flush_timed: bool = option("flushCommitLogTimed", True, "No effect: flushes are timed and group what waits.")
    flush_least_pages_warm: int = option("flushLeastPagesWhenWarmMapedFile", 4096, "No effect.")
    destroy_interval: int = option("destroyMapedFileIntervalForcibly", 120_000, "No effect: files go at once.")
    redelete_interval: int = option("redeleteHangedFileInterval", 120_000, "No effect.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterConfig:
    """Settings of what this broker cannot do yet. They are kept and listed, and do nothing."""

    ha_master_address: str = option("haMasterAddress", "", "No effect yet: replication.")
    ha_heartbeat: int = option("haSendHeartbeatInterval", 5000, "No effect yet: replication.")
    ha_housekeeping: int = option("haHousekeepingInterval", 20_000, "No effect yet: replication.")
    ha_batch: int = option("haTransferBatchSize", 32_768, "No effect yet: replication.")
    ha_fall_behind: int = option("haSlaveFallbehindMax", 268_435_456, "No effect yet: replication.")
    slave_timeout: int = option("slaveTimeout", 3000, "No effect yet: replication.")
    offset_check_in_slave: bool = option("offsetCheckInSlave", False, "No effect yet: replication.")
    check_transactions: bool = option("checkTransactionMessageEnable", False, "No effect: they are always checked.")
    metrics_exporter: str = option("metricsExporterType", "DISABLE", "No effect yet: metrics.")
    metrics_host: str = option("metricsPromExporterHost", "", "No effect yet: metrics.")
    metrics_port: int = option("metricsPromExporterPort", 5557, "No effect yet: metrics.")
    filter_server_nums: int = option("filterServerNums", 0, "No effect: filter servers are of the past.")
