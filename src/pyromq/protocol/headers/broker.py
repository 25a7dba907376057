"""Headers of what brokers serve, and of what brokers ask clients (docs/spec/remoting.md 4)."""

from __future__ import annotations

from msgspec import field

from ..header import I32, I64, Header


class SendMessage(Header):
    """10 and 324 (reply message), with long names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 = 0
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    batch: bool = False
    broker_name: str | None = field(default=None, name="bname")


class SendMessageV2(Header):
    """310, 320 (batch) and 325 (reply message): the same fields, with one letter each."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: I32 = field(name="d")
    queue_id: I32 = field(name="e")
    sys_flag: I32 = field(name="f")
    born_timestamp: I64 = field(name="g")
    flag: I32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: I32 = field(default=0, name="j")
    unit_mode: bool = field(default=False, name="k")
    max_reconsume_times: I32 | None = field(default=None, name="l")
    batch: bool = field(default=False, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendMessageReply(Header):
    """`msg_id` is the offset id, for a batch all of them joined by commas."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    region: str | None = field(default=None, name="MSG_REGION")
    trace_on: bool | None = field(default=None, name="TRACE_ON")
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class PullMessage(Header):
    """11, and 361 from the lite pull consumer. The last four come from 5.x."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None


class PullMessageReply(Header):
    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None


class QueryMessage(Header):
    """12"""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool = field(default=False, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageReply(Header):
    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class QueryConsumerOffset(Header):
    """14"""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Header):
    """15"""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


class SearchOffset(Header):
    """29"""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None


class GetMaxOffset(Header):
    """30"""

    topic: str
    queue_id: I32
    committed: bool | None = None


class GetMinOffset(Header):
    """31"""

    topic: str
    queue_id: I32


class OffsetReply(Header):
    """To 14, 29, 30 and 31."""

    offset: I64


class GetEarliestStoreTime(Header):
    """32"""

    topic: str
    queue_id: I32


class GetEarliestStoreTimeReply(Header):
    timestamp: I64


class ViewMessage(Header):
    """33, by its position in the commit log."""

    offset: I64
    topic: str | None = None


class HeartbeatReply(Header):
    """To 34, for 5.x clients."""

    support_heartbeat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClient(Header):
    """35"""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerSendMessageBack(Header):
    """36"""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class EndTransaction(Header):
    """37"""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None


class GetConsumerListByGroup(Header):
    """38"""

    consumer_group: str


class CheckTransactionState(Header):
    """39, from the broker to a producer"""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


class NotifyConsumerIdsChanged(Header):
    """40, from the broker to consumers"""

    consumer_group: str


class PushReplyMessage(Header):
    """326, from the broker to the producer that asked"""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 = 0
    unit_mode: bool = False


class ResetOffset(Header):
    """220, from the broker to consumers, and 222 from an admin tool. The last two come from 5.5.0."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 | None = None
    offset: I64 | None = None


class GetConsumerStatus(Header):
    """221, from the broker to a consumer, and 223 from an admin tool."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfo(Header):
    """307"""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Header):
    """309"""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class RecallMessage(Header):
    """370, from 5.x on: a delayed message that was not delivered yet shall not be."""

    producer_group: str
    topic: str
    recall_handle: str


class RecallMessageReply(Header):
    """The id of the message that was recalled."""

    msg_id: str


class CreateTopic(Header):
    """17"""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    order: bool
    topic_sys_flag: I32 = 0
    attributes: str | None = None
    force: bool | None = None
