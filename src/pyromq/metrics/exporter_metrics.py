"""The metrics of `pyromq exporter`: the names and labels of rocketmq-exporter (docs/spec/admin.md 3.2).

All are gauges, as there, so that existing Grafana boards and rules go on working.
"""

from __future__ import annotations

from .model import Metric, gauge

_BROKER = ("cluster", "brokerIP", "broker")
BROKER_TPS = gauge("rocketmq_broker_tps", "Messages per second that a broker stores, over ten seconds.", *_BROKER)
BROKER_QPS = gauge("rocketmq_broker_qps", "Messages per second that consumers get, over ten seconds.", *_BROKER)
COMMITLOG_DIFF = gauge(
    "rocketmq_broker_commitlog_diff", "Bytes by which a broker's commit log is behind its master's.", *_BROKER
)

_TOPIC = ("cluster", "broker", "topic")
PRODUCER_TPS = gauge("rocketmq_producer_tps", "Messages per second to a topic, over a minute.", *_TOPIC)
PRODUCER_SIZE = gauge("rocketmq_producer_message_size", "Bytes per second to a topic, over a minute.", *_TOPIC)
PRODUCER_OFFSET = gauge("rocketmq_producer_offset", "Sum of the ends of all queues of a topic.", *_TOPIC)
RETRY_OFFSET = gauge("rocketmq_topic_retry_offset", "Sum of the ends of all queues of a retry topic.", *_TOPIC)

_GROUP = ("cluster", "broker", "group")
DLQ_OFFSET = gauge("rocketmq_topic_dlq_offset", "Dead letters that a group has ever had on a broker.", *_GROUP)
PRODUCER_COUNT = gauge("rocketmq_producer_count", "Producers of a group that are connected to a broker.", *_GROUP)

_READ = ("cluster", "broker", "topic", "group")
CONSUMER_TPS = gauge("rocketmq_consumer_tps", "Messages per second that a group gets, over a minute.", *_READ)
CONSUMER_SIZE = gauge("rocketmq_consumer_message_size", "Bytes per second that a group gets, over a minute.", *_READ)
CONSUMER_OFFSET = gauge("rocketmq_consumer_offset", "Sum of a group's offsets in all queues of a topic.", *_READ)
GROUP_TPS = gauge("rocketmq_group_consume_tps", "The same as rocketmq_consumer_tps.", *_READ)
GROUP_OFFSET = gauge("rocketmq_group_consume_total_offset", "The same as rocketmq_consumer_offset.", *_READ)
SEND_BACK = gauge("rocketmq_send_back_nums", "Messages that a group sent back in the last minute, to retry.", *_READ)
GROUP_LATENCY = gauge(
    "rocketmq_group_get_latency_by_storetime",
    "Milliseconds since the last message that a group consumed was stored; 0 if it has consumed all.",
    *_READ,
)
ACCUMULATION = gauge("rocketmq_message_accumulation", "Messages of a topic that a group has not consumed yet.", *_READ)

_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
GROUP_DIFF = gauge(
    "rocketmq_group_diff", "Messages that a group has not consumed yet. msgModel is 0 if it broadcasts, else 1.", *_DIFF
)
RETRY_DIFF = gauge("rocketmq_group_retrydiff", "Retries that a group has not consumed yet.", *_DIFF)
DLQ_DIFF = gauge("rocketmq_group_dlqdiff", "Dead letters of a group.", *_DIFF)
GROUP_COUNT = gauge("rocketmq_group_count", "Always 1; the labels name a consumer.", "caddr", "localaddr", "group")

_CLIENT = ("clientAddr", "clientId", "group", "topic")
CLIENT_FAILED = gauge(
    "rocketmq_client_consume_fail_msg_count", "Messages that a consumer failed to handle in the last hour.", *_CLIENT
)
CLIENT_FAILED_TPS = gauge(
    "rocketmq_client_consume_fail_msg_tps", "Messages per second that a consumer fails to handle.", *_CLIENT
)
CLIENT_OK_TPS = gauge("rocketmq_client_consume_ok_msg_tps", "Messages per second that a consumer handles.", *_CLIENT)
CLIENT_RT = gauge("rocketmq_client_consume_rt", "Milliseconds that a consumer takes for a message.", *_CLIENT)
CLIENT_PULL_RT = gauge("rocketmq_client_consumer_pull_rt", "Milliseconds that a consumer's pulls take.", *_CLIENT)
CLIENT_PULL_TPS = gauge("rocketmq_client_consumer_pull_tps", "Pulls per second of a consumer.", *_CLIENT)

UP = gauge("pyromq_exporter_broker_up", "Whether a broker answered the last time: 1 if so, 0 if not.", *_BROKER)
REQUESTS = gauge("pyromq_exporter_requests", "Requests that the last round of questions took.")
DURATION = gauge("pyromq_exporter_round_seconds", "How long the last round of questions took.")


def _runtime(name: str, text: str) -> Metric:
    labels = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
    return gauge(f"rocketmq_brokeruntime_{name}", text, *labels)


# By the key of a broker's runtime info.
RUNTIME = {
    "msgPutTotalTodayNow": _runtime("msg_put_total_today_now", "Messages stored since the start."),
    "msgGetTotalTodayNow": _runtime("msg_gettotal_today_now", "Messages consumed since the start."),
    "msgPutTotalTodayMorning": _runtime("msg_puttotal_todaymorning", "Messages stored until last midnight."),
    "msgGetTotalTodayMorning": _runtime("msg_gettotal_todaymorning", "Messages consumed until last midnight."),
    "msgPutTotalYesterdayMorning": _runtime("msg_puttotal_yesterdaymorning", "Messages stored until midnight before."),
    "msgGetTotalYesterdayMorning": _runtime(
        "msg_gettotal_yesterdaymorning", "Messages consumed until midnight before."
    ),
    "dispatchBehindBytes": _runtime("dispatch_behind_bytes", "Bytes of the log that queues do not show yet."),
    "dispatchMaxBuffer": _runtime("dispatch_maxbuffer", "Largest message that waited to be shown by its queue."),
    "putMessageSizeTotal": _runtime("put_message_size_total", "Bytes stored since the start."),
    "putMessageAverageSize": _runtime("put_message_average_size", "Average bytes of a message."),
    "putMessageEntireTimeMax": _runtime("putmessage_entire_time_max", "Milliseconds that the slowest store took."),
    "putMessageTimesTotal": _runtime("putmessage_times_total", "Messages that were stored."),
    "getMessageEntireTimeMax": _runtime("getmessage_entire_time_max", "Milliseconds that the slowest read took."),
    "startAcceptSendRequestTimeStamp": _runtime(
        "start_accept_sendrequest_time", "When the broker begins to take messages, in milliseconds since 1970."
    ),
    "earliestMessageTimeStamp": _runtime(
        "earliest_message_timestamp", "When the oldest message was stored, in milliseconds since 1970."
    ),
    "remainTransientStoreBufferNumbs": _runtime("remain_transientstore_buffer_numbs", "Buffers that are free."),
    "pageCacheLockTimeMills": _runtime(
        "pagecache_lock_time_mills", "Milliseconds for which a write has held its lock."
    ),
    "commitLogMinOffset": _runtime("commitlog_minoffset", "Where the commit log begins, in bytes."),
    "commitLogMaxOffset": _runtime("commitlog_maxoffset", "Where the commit log ends, in bytes."),
    "commitLogDiskRatio": _runtime("commitlog_disk_ratio", "How full the disk of the commit log is, from 0 to 1."),
    "consumeQueueDiskRatio": _runtime("consumequeue_disk_ratio", "How full the disk of the queues is, from 0 to 1."),
    "sendThreadPoolQueueSize": _runtime("send_threadpool_queue_size", "Sends that wait."),
    "pullThreadPoolQueueSize": _runtime("pull_threadpoolqueue_size", "Pulls that wait for a thread."),
    "queryThreadPoolQueueSize": _runtime("query_threadpoolqueue_size", "Queries that wait."),
    "sendThreadPoolQueueCapacity": _runtime("send_threadpoolqueue_capacity", "Sends that may wait."),
    "pullThreadPoolQueueCapacity": _runtime("pull_threadpoolqueue_capacity", "Pulls that may wait for a thread."),
    "queryThreadPoolQueueCapacity": _runtime("query_threadpool_queue_capacity", "Queries that may wait."),
    "sendThreadPoolQueueHeadWaitTimeMills": _runtime(
        "send_threadpoolqueue_headwait_timemills", "Milliseconds for which the first send has waited."
    ),
    "pullThreadPoolQueueHeadWaitTimeMills": _runtime(
        "pull_threadpoolqueue_headwait_timemills", "Milliseconds for which the first pull has waited for a thread."
    ),
    "queryThreadPoolQueueHeadWaitTimeMills": _runtime(
        "query_threadpoolqueue_headwait_timemills", "Milliseconds for which the first query has waited."
    ),
    "putLatency99": _runtime("put_latency_99", "Milliseconds within which 99 % of the messages were stored."),
    "putLatency999": _runtime("put_latency_999", "Milliseconds within which 99.9 % of the messages were stored."),
}
TO_FLUSH = _runtime("remain_howmanydata_toflush", "Bytes that are written and not yet known to be on disk.")
DISK_FREE = _runtime("commitlogdir_capacity_free", "Bytes that are free on the disk of the commit log.")
DISK_TOTAL = _runtime("commitlogdir_capacity_total", "Bytes of the disk of the commit log.")

# Rates: three numbers in one text, over ten seconds, a minute and ten minutes.
WINDOWS = ("10", "60", "600")
_WINDOW_TEXTS = ("ten seconds", "a minute", "ten minutes")


def _rates(name: str, text: str) -> tuple[Metric, ...]:
    return tuple(
        _runtime(f"{name}{seconds}", f"{text} per second, over {window}.")
        for seconds, window in zip(WINDOWS, _WINDOW_TEXTS, strict=True)
    )


RATES = {
    "putTps": _rates("put_tps", "Messages stored"),
    "getFoundTps": _rates("getfound_tps", "Reads that found messages,"),
    "getMissTps": _rates("getmiss_tps", "Reads that found nothing,"),
    "getTotalTps": _rates("gettotal_tps", "Reads"),
    "getTransferedTps": _rates("gettransfered_tps", "Messages consumed"),
}

# How long storing took, by RocketMQ's own ranges.
PUT_TIMES = {
    "<=0ms": _runtime("pmdt_0ms", "Messages that took less than a millisecond to store, in the last minute or two."),
    **{
        key: _runtime(f"pmdt_{name}", f"Messages that took {text} to store, in the last minute or two.")
        for key, name, text in (
            ("0~10ms", "0to10ms", "up to 10 ms"),
            ("10~50ms", "10to50ms", "10 to 50 ms"),
            ("50~100ms", "50to100ms", "50 to 100 ms"),
            ("100~200ms", "100to200ms", "100 to 200 ms"),
            ("200~500ms", "200to500ms", "200 to 500 ms"),
            ("500ms~1s", "500to1s", "500 ms to 1 s"),
            ("1~2s", "1to2s", "1 to 2 s"),
            ("2~3s", "2to3s", "2 to 3 s"),
            ("3~4s", "3to4s", "3 to 4 s"),
            ("4~5s", "4to5s", "4 to 5 s"),
            ("5~10s", "5to10s", "5 to 10 s"),
            ("10s~", "10stomore", "more than 10 s"),
        )
    },
}

EXPORTER = (
    BROKER_TPS,
    BROKER_QPS,
    COMMITLOG_DIFF,
    PRODUCER_TPS,
    PRODUCER_SIZE,
    PRODUCER_OFFSET,
    RETRY_OFFSET,
    DLQ_OFFSET,
    PRODUCER_COUNT,
    CONSUMER_TPS,
    CONSUMER_SIZE,
    CONSUMER_OFFSET,
    GROUP_TPS,
    GROUP_OFFSET,
    SEND_BACK,
    GROUP_LATENCY,
    ACCUMULATION,
    GROUP_DIFF,
    RETRY_DIFF,
    DLQ_DIFF,
    GROUP_COUNT,
    CLIENT_FAILED,
    CLIENT_FAILED_TPS,
    CLIENT_OK_TPS,
    CLIENT_RT,
    CLIENT_PULL_RT,
    CLIENT_PULL_TPS,
    *RUNTIME.values(),
    TO_FLUSH,
    DISK_FREE,
    DISK_TOTAL,
    *(metric for rates in RATES.values() for metric in rates),
    *PUT_TIMES.values(),
    UP,
    REQUESTS,
    DURATION,
)
