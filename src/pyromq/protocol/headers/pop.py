"""POP (5.x): messages are taken for a while from whatever queue has some, and acknowledged one by one."""

from __future__ import annotations

from ..header import I32, I64, Header


class PopMessage(Header):
    """200050. `queue_id` -1 is any; `init_mode` 0 starts a new group at the first message, 1 at the last."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64 = 0
    born_time: I64 = 0
    init_mode: I32 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageReply(Header):
    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Header):
    """200051. `extra_info` is the handle (pop_handle.py); topic and queue are those that were popped from."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


class ChangeInvisibleTime(Header):
    """200053: as an ack of the handle, and the message comes back `invisible_time` from now.

    With `suspend` (5.5) that does not count as another try.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64
    suspend: bool = False


class ChangeInvisibleTimeReply(Header):
    """What the next handle of the message is made of."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class Notification(Header):
    """200054: answer as soon as there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64 = 0
    born_time: I64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationReply(Header):
    has_msg: bool
    polling_full: bool = False


class PollingInfo(Header):
    """200055: how many pops wait. The answer says it as pollingNum."""

    consumer_group: str
    topic: str
    queue_id: I32


class PeekMessage(Header):
    """200052: look at what would be popped, without taking it."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
