"""Connected clients, and consumers' reports (38, 46, 203, 204, 307, 309, 328, 345)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from ..message_queue import MessageQueue  # noqa: TC001 - msgspec resolves annotations at run time
from .base import I32, I64, Body, written
from .heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConsumerIdList(Body, frozen=True):
    """38: the client ids of a group, one per connection."""

    consumer_id_list: list[str] = written([])


class CheckClientRequestBody(Body, frozen=True, kw_only=True):
    """46: check a client's subscription. `namespace` is 5.x."""

    client_id: str
    group: str
    namespace: str | None = None
    subscription_data: SubscriptionData


class Connection(Body, frozen=True, kw_only=True):
    """One client of a group; `client_addr` is `ip:port`, `version` an ordinal of MQVersion."""

    client_addr: str = written("")
    client_id: str
    language: str = written("JAVA")
    version: I32 = written(0)


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """203"""

    connection_set: list[Connection] = written([])
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = written({})


class ProducerConnection(Body, frozen=True):
    """204"""

    connection_set: list[Connection] = written([])


class ProducerInfo(Body, frozen=True, kw_only=True):
    """One producer. `remote_ip` is `/ip:port`, with the slash that Java prints."""

    client_id: str
    language: str = written("JAVA")
    last_update_timestamp: I64 = written(0)
    remote_ip: str = written("", name="remoteIP")
    version: I32 = written(0)


class ProducerTableInfo(Body, frozen=True):
    """328: all producers, by group."""

    data: dict[str, list[ProducerInfo]] = written({})


class QuerySubscriptionResponseBody(Body, frozen=True, kw_only=True):
    """345 (5.x): a group's subscription to a topic; empty if it is offline."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    """A push consumer's state of one queue. Java spells `dropped` with one p, Go with two."""

    cached_msg_count: I32 = written(0)
    cached_msg_max_offset: I64 = written(0)
    cached_msg_min_offset: I64 = written(0)
    cached_msg_size_in_mib: I32 = written(0, name="cachedMsgSizeInMiB")
    commit_offset: I64 = written(0)
    dropped: bool = written(False, name="droped")
    last_consume_timestamp: I64 = written(0)
    last_lock_timestamp: I64 = written(0)
    last_pull_timestamp: I64 = written(0)
    locked: bool = written(False)
    transaction_msg_count: I32 = written(0)
    transaction_msg_max_offset: I64 = written(0)
    transaction_msg_min_offset: I64 = written(0)
    try_unlock_times: I64 = written(0)

    @staticmethod
    def normalised(members: Mapping[Any, object]) -> Mapping[Any, object]:
        return _with_java_spelling(members)


class PopProcessQueueInfo(Body, frozen=True, kw_only=True):
    """The same for a 5.x consumer in POP mode."""

    dropped: bool = written(False, name="droped")
    last_pop_timestamp: I64 = written(0)
    wait_ack_count: I32 = written(0)

    @staticmethod
    def normalised(members: Mapping[Any, object]) -> Mapping[Any, object]:
        return _with_java_spelling(members)


def _with_java_spelling(members: Mapping[Any, object]) -> Mapping[Any, object]:
    return {"droped": members["dropped"], **members} if "dropped" in members else members


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """Rates and times of one topic; the failed messages are those of the last hour."""

    consume_failed_msgs: I64 = written(0)
    consume_failed_tps: float = written(0.0, name="consumeFailedTPS")
    consume_ok_tps: float = written(0.0, name="consumeOKTPS")
    consume_rt: float = written(0.0, name="consumeRT")
    pull_rt: float = written(0.0, name="pullRT")
    pull_tps: float = written(0.0, name="pullTPS")


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """307. A broker relays the bytes unchanged; only the two ends decode them."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = msgspec.field(default_factory=dict)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = written({})
    properties: dict[str, str] = written({})
    status_table: dict[str, ConsumeStatus] = written({})
    subscription_set: list[SubscriptionData] = written([])
    user_consumer_info: dict[str, str] = msgspec.field(default_factory=dict)


class CMResult(Enum):
    """The outcome of a message consumed on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """309, relayed like 307."""

    auto_commit: bool = written(True)
    consume_result: CMResult | None = None
    order: bool = written(False)
    remark: str | None = None
    spent_time_mills: I64 = written(0)
