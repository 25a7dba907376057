"""Requests that look at what could be popped without taking it: peek (200052), notification (200054), polling info."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import InvalidParameter, StoreError
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    Notification,
    NotificationReply,
    PeekMessage,
    PollingInfo,
    PopMessageReply,
)
from pyromq.store import GetStatus

from .held_pops import HeldPop, Wanted

if TYPE_CHECKING:
    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from ..context import Context
    from .context import PopContext
    from .pop import PopProcessor

_MOST_MESSAGES = 32
_NOT_WORTH_WAITING = 0.05


class LookProcessors:
    """Serves these requests. `notifications` are those that wait, kept apart from waiting pops."""

    def __init__(self, context: Context, pop: PopContext, pops: PopProcessor) -> None:
        self._access = pop.access
        self._reader = pop.reader
        self._pops = pops
        self._held = pop.held
        self._notifications = pop.notifications
        self._clock = context.clock

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def peek(self, connection: Connection, request: Command) -> Command:
        header = request.header(PeekMessage)
        self._access.check_broker()
        self._access.check(connection, header.consumer_group, header.topic, header.queue_id)
        if not 0 < header.max_msg_nums <= _MOST_MESSAGES:
            raise InvalidParameter(f"maxMsgNums is {header.max_msg_nums}; 1 to {_MOST_MESSAGES} can be peeked at")
        found, rest = self._reader.peek(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums)
        reply = PopMessageReply(0, 0, 0, rest)
        if not found:
            return request.reply(ResponseCode.PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE.value, header=reply)
        return request.reply(remark=GetStatus.FOUND.value, header=reply, body=found)

    def polling_info(self, connection: Connection, request: Command) -> Command:
        header = request.header(PollingInfo)
        self._access.check_broker()
        self._access.check(connection, header.consumer_group, header.topic, header.queue_id)
        wanted = Wanted(header.topic, header.consumer_group, header.queue_id)
        reply = request.reply()
        reply.ext = {"pollingNum": str(self._held.count(wanted))}
        return reply

    def notify(self, connection: Connection, request: Command) -> Command | None:
        header = request.header(Notification)
        self._access.check_broker()
        self._access.check(connection, header.consumer_group, header.topic, header.queue_id)
        if self._has_messages(header):
            return request.reply(header=NotificationReply(has_msg=True))
        now = self._clock()
        wait = min(header.poll_time, (header.born_time or now) + header.poll_time - now) / 1000
        nothing = NotificationReply(has_msg=False)
        if wait <= _NOT_WORTH_WAITING:
            return request.reply(header=nothing)
        wanted = Wanted(header.topic, header.consumer_group, header.queue_id)
        if self._pops.is_full(self._notifications, wanted):
            return request.reply(header=NotificationReply(has_msg=False, polling_full=True))

        def serve() -> bool:
            try:
                if not self._has_messages(header):
                    return False
            except StoreError as exc:
                connection.reply(request, request.reply(ResponseCode.SYSTEM_ERROR, str(exc)))
            else:
                connection.reply(request, request.reply(header=NotificationReply(has_msg=True)))
            return True

        def give_up() -> None:
            connection.reply(request, request.reply(header=nothing))

        self._notifications.hold(HeldPop(connection, wanted, serve, give_up), wait)
        return None

    def _has_messages(self, header: Notification) -> bool:
        return self._reader.has_messages(
            header.consumer_group,
            header.topic,
            header.queue_id,
            self._clock(),
            order=header.order,
            attempt=header.attempt_id,
        )
