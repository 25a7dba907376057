"""What requests need whose resources stand in their bodies, or in a message that they name by its place in the log.

Rights are checked before anyone acts on a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.protocol import properties as props
from pyromq.protocol.bodies import (
    BatchAckMessageRequestBody,
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    UnlockBatchRequestBody,
)
from pyromq.protocol.names import BROKER_ONLY_TOPICS
from pyromq.protocol.rights import Action, Need, on_group, on_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.record import MessageRecord

_SUB = frozenset((Action.SUB,))
_CREATE = frozenset((Action.CREATE,))
_UPDATE = frozenset((Action.UPDATE,))


def subscribed(body: bytes) -> tuple[Need, ...]:
    """A heartbeat: the groups of its consumers and what they subscribe to. Producers need nothing until they send."""
    consumers = HeartbeatData.decode(body).consumer_data_set
    topics = (data.topic for consumer in consumers for data in consumer.subscription_data_set)
    return _consumed((consumer.group_name for consumer in consumers), topics)


def checked(body: bytes) -> tuple[Need, ...]:
    check = CheckClientRequestBody.decode(body)
    return _consumed([check.group], [check.subscription_data.topic])


def locked(body: bytes) -> tuple[Need, ...]:
    lock = LockBatchRequestBody.decode(body)
    return _consumed([lock.consumer_group], (queue.topic for queue in lock.mq_set))


def unlocked(body: bytes) -> tuple[Need, ...]:
    unlock = UnlockBatchRequestBody.decode(body)
    return _consumed([unlock.consumer_group], (queue.topic for queue in unlock.mq_set))


def acknowledged(body: bytes) -> tuple[Need, ...]:
    acks = BatchAckMessageRequestBody.decode(body).acks
    return _consumed((ack.consumer_group for ack in acks), (ack.topic for ack in acks))


def assigned(body: bytes) -> tuple[Need, ...]:
    query = QueryAssignmentRequestBody.decode(body)
    return _consumed([query.consumer_group], [query.topic])


def created_group(body: bytes) -> tuple[Need, ...]:
    return (on_group(SubscriptionGroupConfig.decode(body).group_name, _CREATE),)


def mode_set(body: bytes) -> tuple[Need, ...]:
    mode = SetMessageRequestModeRequestBody.decode(body)
    return on_group(mode.consumer_group, _UPDATE), on_topic(mode.topic, _UPDATE)


def _consumed(groups: Iterable[str], topics: Iterable[str]) -> tuple[Need, ...]:
    """Each group and topic once, in their order."""
    needs = [*(on_group(name, _SUB) for name in groups), *(on_topic(name, _SUB) for name in topics)]
    return tuple(dict.fromkeys(needs))


def topic_of(message: MessageRecord) -> str:
    """The topic of a stored message, also while the broker keeps it elsewhere. Elsewhere, only the broker writes."""
    kept_back = message.topic in BROKER_ONLY_TOPICS
    return (message.find_property(props.REAL_TOPIC) if kept_back else None) or message.topic
