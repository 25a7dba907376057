"""RocketMQ's settings that have no effect here, accepted so that a `broker.conf` works unchanged.

`JavaConfig` has settings of threads, buffers and Netty. `LaterConfig` has those of features
that this broker does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyromq.settings import option

_NO_THREADS = "There are no thread pools; one event loop serves all requests."
_NO_QUEUES = "These requests are answered as soon as they are read; maxRunningRequests limits those that wait."
_NO_BUFFERS = "Netty is not used."
_NO_POOL = "The page cache is the pool."


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaConfig:
    """Thread pools, locks and buffers of the Java broker, with their defaults."""

    rocketmq_home: str = option("rocketmqHome", "", "PyroMQ reads nothing from there.", no_effect=True)

    send_threads: int = option("sendMessageThreadPoolNums", 1, _NO_THREADS, no_effect=True)
    pull_threads: int = option("pullMessageThreadPoolNums", 16, _NO_THREADS, no_effect=True)
    query_threads: int = option("queryMessageThreadPoolNums", 8, _NO_THREADS, no_effect=True)
    reply_threads: int = option("processReplyMessageThreadPoolNums", 16, _NO_THREADS, no_effect=True)
    admin_threads: int = option("adminBrokerThreadPoolNums", 16, _NO_THREADS, no_effect=True)
    client_threads: int = option("clientManageThreadPoolNums", 32, _NO_THREADS, no_effect=True)
    consumer_threads: int = option("consumerManageThreadPoolNums", 32, _NO_THREADS, no_effect=True)
    heartbeat_threads: int = option("heartbeatThreadPoolNums", 8, _NO_THREADS, no_effect=True)
    end_transaction_threads: int = option("endTransactionThreadPoolNums", 24, _NO_THREADS, no_effect=True)
    worker_threads: int = option("serverWorkerThreads", 8, _NO_THREADS, no_effect=True)
    callback_threads: int = option("serverCallbackExecutorThreads", 0, _NO_THREADS, no_effect=True)
    selector_threads: int = option("serverSelectorThreads", 3, _NO_THREADS, no_effect=True)

    pull_queue: int = option("pullThreadPoolQueueCapacity", 100_000, _NO_QUEUES, no_effect=True)
    query_queue: int = option("queryThreadPoolQueueCapacity", 20_000, _NO_QUEUES, no_effect=True)
    heartbeat_queue: int = option("heartbeatThreadPoolQueueCapacity", 50_000, _NO_QUEUES, no_effect=True)
    reply_queue: int = option("replyThreadPoolQueueCapacity", 10_000, _NO_QUEUES, no_effect=True)
    client_manager_queue: int = option("clientManagerThreadPoolQueueCapacity", 1_000_000, _NO_QUEUES, no_effect=True)
    consumer_manager_queue: int = option(
        "consumerManagerThreadPoolQueueCapacity", 1_000_000, _NO_QUEUES, no_effect=True
    )

    pooled_buffers: bool = option("serverPooledByteBufAllocatorEnable", True, _NO_BUFFERS, no_effect=True)
    epoll: bool = option("useEpollNativeSelector", False, _NO_BUFFERS, no_effect=True)
    heap_transfer: bool = option("transferMsgByHeap", True, "Answers are slices of the mapped log.", no_effect=True)

    put_lock: bool = option("useReentrantLockWhenPutMessage", False, "One thread needs no lock.", no_effect=True)
    page_cache_busy: int = option(
        "osPageCacheBusyTimeOutMills", 1000, "No lock is held while a message is stored.", no_effect=True
    )
    transient_pool: bool = option("transientStorePoolEnable", False, _NO_POOL, no_effect=True)
    transient_pool_size: int = option("transientStorePoolSize", 5, _NO_POOL, no_effect=True)
    fast_fail_pool: bool = option("fastFailIfNoBufferInStorePool", False, _NO_POOL, no_effect=True)
    commit_interval: int = option("commitIntervalCommitLog", 200, _NO_POOL, no_effect=True)
    commit_least_pages: int = option("commitCommitLogLeastPages", 4, _NO_POOL, no_effect=True)
    commit_thorough_interval: int = option("commitCommitLogThoroughInterval", 200, _NO_POOL, no_effect=True)
    flush_timed: bool = option(
        "flushCommitLogTimed",
        True,
        "Flushes are always timed, and one flush serves all waiting senders.",
        no_effect=True,
    )
    warm_files: bool = option(
        "warmMapedFileEnable", False, "Files are written, not mapped for writing.", no_effect=True
    )
    warm_least_pages: int = option(
        "flushLeastPagesWhenWarmMapedFile", 4096, "Files are written, not mapped for writing.", no_effect=True
    )
    destroy_interval: int = option(
        "destroyMapedFileIntervalForcibly",
        120_000,
        "Files are deleted at once, even while they are being read.",
        no_effect=True,
    )
    redelete_interval: int = option(
        "redeleteHangedFileInterval",
        120_000,
        "Files are deleted at once, even while they are being read.",
        no_effect=True,
    )
    bitmap_length: int = option(
        "bitMapLengthConsumeQueueExt",
        64,
        "The length follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter, as in RocketMQ.",
        no_effect=True,
    )
    duplication: bool = option(
        "duplicationEnable", False, "A restart continues after the last stored message.", no_effect=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterConfig:
    """Settings of features that this broker does not have yet. They are kept and listed, but do nothing."""

    check_transactions: bool = option(
        "checkTransactionMessageEnable", False, "Transactions are always checked.", no_effect=True
    )
    filter_server_nums: int = option("filterServerNums", 0, "Brokers filter messages themselves.", no_effect=True)
