"""Queue locks of ordered consumers (41, 42)."""

from __future__ import annotations

from ..message_queue import MessageQueue  # noqa: TC001 - msgspec resolves annotations at run time
from .base import Body, written


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    """41: the queues a client wants to lock. `only_this_broker` is 5.x."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = written([])
    only_this_broker: bool = False


class UnlockBatchRequestBody(Body, frozen=True, kw_only=True):
    """42: the queues a client unlocks."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = written([])
    only_this_broker: bool = False


class LockBatchResponseBody(Body, frozen=True):
    """The queues the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = written([], name="lockOKMQSet")
