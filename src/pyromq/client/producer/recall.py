"""Recall a delayed message, so that the broker does not deliver it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.errors import InvalidMessage, RemoteProtocolError, broker_error
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import RecallMessage, RecallMessageReply
from pyromq.protocol.names import is_dlq_topic, is_retry_topic
from pyromq.protocol.recall_handle import decode_handle

from ..names import check_topic

if TYPE_CHECKING:
    from pyromq.protocol.recall_handle import RecallHandle

    from ..client import Client
    from ..trace import TraceHook
    from .sender import Sender


async def recall(client: Client, sender: Sender, topic: str, text: str, trace: TraceHook | None) -> str:
    """Recall the message of `topic` with the handle `text`. Returns its id, or raises why it cannot be recalled."""
    check_topic(topic)
    if is_retry_topic(topic) or is_dlq_topic(topic):
        raise InvalidMessage(f"{topic}: messages of retry and dead-letter topics cannot be recalled")
    handle = checked_handle(text)
    deadline = time.monotonic() + sender.settings.timeout
    target = sender.known_target(topic) or await sender.target(topic, sender.settings.timeout)
    routes = client.routes
    address = routes.master(handle.broker_name) or await routes.master_or_refresh(target.forms[0].queue)
    command = Command.request(RequestCode.RECALL_MESSAGE, RecallMessage(sender.group, target.topic, text))
    reply = await client.calls.ask(address, command, deadline - time.monotonic())
    recalled = reply.code == ResponseCode.SUCCESS
    if trace is not None:
        trace.recall(topic, handle.message_id, recalled)
    if not recalled:
        raise broker_error(reply.code, reply.remark, address)
    return reply.header(RecallMessageReply).msg_id


def checked_handle(text: str) -> RecallHandle:
    """Parse a handle. It may come from anywhere: InvalidMessage if it is malformed."""
    try:
        return decode_handle(text)
    except RemoteProtocolError as exc:
        raise InvalidMessage(str(exc)) from None
