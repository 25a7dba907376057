"""Every request code that a broker serves, with the properties that depend on the code alone. One line per code.

`assembly.Parts` says who serves each; a test compares both. A code without a line here is not served.
"""

from __future__ import annotations

from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.rights import (
    Action,
    ResourceKind,
    cluster,
    every,
    from_body,
    group,
    if_given,
    reply,
    several,
    topic,
)
from pyromq.remoting import Admin, BodySize, Rule

from . import needs

TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
CONSUMES = topic(Action.SUB) + group(Action.SUB)
READS = topic(Action.SUB, Action.GET)

RULES: dict[int, Rule] = {
    # Messages in
    Code.SEND_MESSAGE: Rule(BodySize.MESSAGE, needs=topic(Action.PUB)),
    Code.SEND_MESSAGE_V2: Rule(BodySize.MESSAGE, needs=topic(Action.PUB, field="b")),
    Code.SEND_BATCH_MESSAGE: Rule(BodySize.MESSAGE, needs=topic(Action.PUB, field="b")),
    Code.SEND_REPLY_MESSAGE: Rule(BodySize.MESSAGE, needs=reply()),
    Code.SEND_REPLY_MESSAGE_V2: Rule(BodySize.MESSAGE, needs=reply(field="b")),
    Code.CONSUMER_SEND_MSG_BACK: Rule(needs=group(Action.SUB, field="group")),
    Code.END_TRANSACTION: Rule(needs=if_given(topic(Action.PUB), "topic")),
    Code.RECALL_MESSAGE: Rule(needs=topic(Action.PUB)),
    # Messages out
    Code.PULL_MESSAGE: Rule(on_vip_port=False, needs=CONSUMES),
    Code.LITE_PULL_MESSAGE: Rule(on_vip_port=False, needs=CONSUMES),
    Code.POP_MESSAGE: Rule(needs=CONSUMES),
    Code.PEEK_MESSAGE: Rule(needs=CONSUMES),
    Code.ACK_MESSAGE: Rule(needs=CONSUMES),
    Code.BATCH_ACK_MESSAGE: Rule(BodySize.LIST, needs=from_body(needs.acknowledged)),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Rule(needs=CONSUMES),
    Code.NOTIFICATION: Rule(needs=CONSUMES),
    Code.POLLING_INFO: Rule(needs=topic(Action.SUB, Action.GET) + group(Action.SUB, Action.GET)),
    Code.QUERY_MESSAGE: Rule(needs=topic(Action.SUB, Action.GET)),
    Code.VIEW_MESSAGE_BY_ID: Rule(needs=if_given(topic(Action.SUB, Action.GET), "topic")),
    # Clients, their queues and offsets
    Code.HEART_BEAT: Rule(BodySize.LIST, needs=from_body(needs.subscribed)),
    Code.UNREGISTER_CLIENT: Rule(needs=if_given(group(Action.SUB), "consumerGroup")),
    Code.CHECK_CLIENT_CONFIG: Rule(needs=from_body(needs.checked)),
    Code.GET_CONSUMER_LIST_BY_GROUP: Rule(needs=group(Action.SUB, Action.GET)),
    Code.LOCK_BATCH_MQ: Rule(BodySize.LIST, needs=from_body(needs.locked)),
    Code.UNLOCK_BATCH_MQ: Rule(BodySize.LIST, needs=from_body(needs.unlocked)),
    Code.QUERY_ASSIGNMENT: Rule(needs=from_body(needs.assigned)),
    Code.QUERY_CONSUMER_OFFSET: Rule(needs=topic(Action.SUB, Action.GET) + group(Action.SUB, Action.GET)),
    Code.UPDATE_CONSUMER_OFFSET: Rule(needs=topic(Action.SUB, Action.UPDATE) + group(Action.SUB, Action.UPDATE)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Rule(needs=READS),
    Code.GET_MAX_OFFSET: Rule(needs=READS),
    Code.GET_MIN_OFFSET: Rule(needs=READS),
    Code.GET_EARLIEST_MSG_STORETIME: Rule(needs=READS),
    # Administration, and what slaves copy
    Code.UPDATE_AND_CREATE_TOPIC: Rule(needs=topic(Action.CREATE), admin=Admin.ALWAYS),
    Code.GET_ALL_TOPIC_CONFIG: Rule(needs=every(TOPIC, Action.LIST, Action.GET)),
    Code.UPDATE_BROKER_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.GET_BROKER_CONFIG: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    Code.GET_BROKER_RUNTIME_INFO: Rule(needs=cluster(Action.GET)),
    Code.GET_ALL_CONSUMER_OFFSET: Rule(needs=every(GROUP, Action.LIST, Action.GET)),
    Code.GET_ALL_DELAY_OFFSET: Rule(needs=cluster(Action.GET)),
    Code.GET_TIMER_CHECK_POINT: Rule(needs=cluster(Action.GET)),
    Code.GET_TIMER_METRICS: Rule(needs=cluster(Action.GET)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Rule(needs=from_body(needs.created_group), admin=Admin.ALWAYS),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Rule(needs=every(GROUP, Action.LIST, Action.GET)),
    Code.GET_TOPIC_STATS_INFO: Rule(needs=topic(Action.GET)),
    Code.GET_CONSUMER_CONNECTION_LIST: Rule(needs=group(Action.GET)),
    Code.GET_PRODUCER_CONNECTION_LIST: Rule(needs=cluster(Action.GET)),
    Code.DELETE_SUBSCRIPTIONGROUP: Rule(needs=group(Action.DELETE, field="groupName"), admin=Admin.ALWAYS),
    Code.GET_CONSUME_STATS: Rule(
        needs=group(Action.GET)
        + if_given(topic(Action.GET), "topic")
        + several(TOPIC, Action.GET, field="topicList", apart_by=";")
    ),
    Code.DELETE_TOPIC_IN_BROKER: Rule(needs=topic(Action.DELETE), admin=Admin.ALWAYS),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Rule(
        needs=topic(Action.UPDATE) + group(Action.UPDATE, field="group"), admin=Admin.STRICT
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Rule(needs=topic(Action.GET) + group(Action.GET, field="group")),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Rule(needs=topic(Action.GET)),
    Code.QUERY_CONSUME_TIME_SPAN: Rule(needs=topic(Action.GET) + group(Action.GET, field="group")),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Rule(needs=every(TOPIC, Action.LIST, Action.GET)),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_CONSUMER_RUNNING_INFO: Rule(needs=group(Action.GET)),
    Code.QUERY_CORRECTION_OFFSET: Rule(
        needs=topic(Action.GET)
        + group(Action.GET, field="compareGroup")
        + several(GROUP, Action.GET, field="filterGroups", apart_by=",")
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: Rule(needs=group(Action.SUB), admin=Admin.STRICT),
    Code.CLONE_GROUP_OFFSET: Rule(
        needs=group(Action.UPDATE, field="srcGroup")
        + group(Action.UPDATE, field="destGroup")
        + if_given(topic(Action.UPDATE), "topic"),
        admin=Admin.STRICT,
    ),
    Code.VIEW_BROKER_STATS_DATA: Rule(needs=cluster(Action.GET)),
    Code.CLEAN_UNUSED_TOPIC: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_BROKER_CONSUME_STATS: Rule(needs=cluster(Action.GET)),
    Code.QUERY_CONSUME_QUEUE: Rule(needs=topic(Action.GET) + if_given(group(Action.GET), "consumerGroup")),
    Code.RESUME_CHECK_HALF_MESSAGE: Rule(
        needs=if_given(topic(Action.UPDATE), "topic", cluster(Action.UPDATE)), admin=Admin.STRICT
    ),
    Code.GET_ALL_PRODUCER_INFO: Rule(needs=cluster(Action.GET)),
    Code.DELETE_EXPIRED_COMMITLOG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.QUERY_TOPICS_BY_CONSUMER: Rule(needs=group(Action.GET, field="group")),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Rule(needs=topic(Action.GET) + group(Action.GET, field="group")),
    Code.GET_TOPIC_CONFIG: Rule(needs=topic(Action.GET)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Rule(needs=group(Action.GET, field="group")),
    Code.SET_MESSAGE_REQUEST_MODE: Rule(needs=from_body(needs.mode_set), admin=Admin.STRICT),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: Rule(needs=every(GROUP, Action.LIST, Action.GET)),
    # Accounts of RocketMQ 4.x
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.DELETE_ACL_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_BROKER_CLUSTER_ACL_INFO: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    # Users and policies
    Code.AUTH_CREATE_USER: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_UPDATE_USER: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_DELETE_USER: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_GET_USER: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    Code.AUTH_LIST_USER: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    Code.AUTH_CREATE_ACL: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_UPDATE_ACL: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_DELETE_ACL: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.AUTH_GET_ACL: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    Code.AUTH_LIST_ACL: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
    # Between a master and its slaves
    Code.EXCHANGE_BROKER_HA_INFO: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_BROKER_HA_STATUS: Rule(needs=cluster(Action.GET)),
    Code.GET_BROKER_EPOCH_CACHE: Rule(needs=cluster(Action.GET)),
    Code.NOTIFY_BROKER_ROLE_CHANGED: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
}
