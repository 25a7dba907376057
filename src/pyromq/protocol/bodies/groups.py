"""Subscription groups: how a consumer group may consume (200, 201), and which groups do (300)."""

from __future__ import annotations

from enum import Enum

import msgspec

from .base import I32, I64, Body, written
from .register import DataVersion


class GroupRetryPolicyType(Enum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class CustomizedRetryPolicy(Body, frozen=True):
    """The delay before each retry, in milliseconds."""

    next: list[I64] = written([])


class ExponentialRetryPolicy(Body, frozen=True, kw_only=True):
    """Delays that grow by `multiplier`, in milliseconds."""

    initial: I64 = written(5_000)
    max: I64 = written(7_200_000)
    multiplier: I64 = written(2)


class GroupRetryPolicy(Body, frozen=True, kw_only=True):
    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = written(GroupRetryPolicyType.CUSTOMIZED)


class SubscriptionGroupConfig(Body, frozen=True, kw_only=True):
    """200, 352, and an entry of subscriptionGroup.json. What 5.x added is written only when it is set."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    broker_id: I64 = written(0)
    consume_broadcast_enable: bool = written(True)
    consume_enable: bool = written(True)
    consume_from_min_enable: bool = written(True)
    consume_message_orderly: bool = False
    consume_timeout_minute: I32 = 15
    group_name: str
    group_retry_policy: GroupRetryPolicy | None = None
    group_sys_flag: I32 = 0
    notify_consumer_ids_changed_enable: bool = written(True)
    retry_max_times: I32 = written(16)
    retry_queue_nums: I32 = written(1)
    which_broker_when_consume_slowly: I64 = written(1)


class SubscriptionGroupWrapper(Body, frozen=True, kw_only=True):
    """201. `forbidden_table` (5.x): group, topic, bits of what is forbidden."""

    data_version: DataVersion = written(DataVersion())
    forbidden_table: dict[str, dict[str, I32]] = msgspec.field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = written({})


class GroupList(Body, frozen=True):
    """300: the groups that consume a topic."""

    group_list: list[str] = written([])
