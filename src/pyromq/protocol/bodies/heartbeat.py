"""Heartbeats: what clients report every 30 seconds (34)."""

from __future__ import annotations

from enum import Enum

import msgspec

from .base import I32, I64, Body, written


class ConsumeType(Enum):
    """In the order of Java's ordinals, which C++ sends; so are the other enums of these modules."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"  # pull
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"  # push
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(Enum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"  # 5.5


class ConsumeFromWhere(Enum):
    """Where a group that never committed starts. Ordinals 1 to 3 are old names that Java treats like 0."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, frozen=True, kw_only=True):
    """What a group wants of one topic. The broker filters by `code_set`, the hashes of the tags."""

    class_filter_mode: bool = written(False)
    code_set: frozenset[I32] = written(frozenset())
    expression_type: str = written("TAG")
    sub_string: str = written("")
    sub_version: I64 = written(0)
    tags_set: frozenset[str] = written(frozenset())
    topic: str


class ConsumerData(Body, frozen=True, kw_only=True):
    """One consumer group. A name that this version does not know decodes to None, as in Java."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = written([])
    unit_mode: bool = written(False)


class ProducerData(Body, frozen=True):
    group_name: str


class HeartbeatData(Body, frozen=True, kw_only=True):
    """34. The fingerprint and `without_sub` belong to 5.x clients and matter only to a broker that asked for them."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = written([])
    heartbeat_fingerprint: I32 = 0
    producer_data_set: list[ProducerData] = written([])
    without_sub: bool = False
