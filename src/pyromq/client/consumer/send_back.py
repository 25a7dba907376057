"""Sending a message back: to be delivered again later, or to become a dead letter (docs/spec/client.md 3.10).

The broker that has the message makes the copy itself (36). If it will not, we send one: an ordinary message to the
group's retry topic, with properties that say where it comes from and how often it failed. The broker that takes it
makes a dead letter of it when it failed more often than allowed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import PyroMQError
from pyromq.protocol import properties as props
from pyromq.protocol.headers import ConsumerSendMessageBack
from pyromq.protocol.names import retry_topic

if TYPE_CHECKING:
    from ..client import Client
    from ..producer.send_result import SendResult
    from .received_message import ReceivedMessage

logger = logging.getLogger(__name__)

NEVER = -1  # as a delay level: to the dead letters at once
CONCURRENT_RETRIES = 16
UNLIMITED = 2**31 - 1

# The first retry waits for the third delay, each further one for the next.
_FIRST_LEVEL = 3

# What was true only where the message was read: the copy has a place and a history of its own.
_LEFT_BEHIND = (
    props.TRAN_MSG,
    props.MIN_OFFSET,
    props.MAX_OFFSET,
    props.CONSUME_START_TIME,
    props.REAL_TOPIC,
    props.REAL_QID,
    props.TIMER_DELAY_MS,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELIVER_MS,
)


class Sender(Protocol):
    """Sends a message that this client makes for itself."""

    async def send(self, topic: str, body: bytes, flag: int, properties: dict[str, str]) -> SendResult: ...


class SendBack:
    """Gives messages back for one group, whose name is that on the wire."""

    def __init__(self, client: Client, group: str, sender: Sender, max_retries: int) -> None:
        self._client = client
        self._group = group
        self._sender = sender
        self._max_retries = max_retries

    async def send(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have `message` delivered again; `delay_level` 0 lets the broker choose when, NEVER makes it a dead letter.

        False if neither way worked. Both need time: up to 5 s, then what a send takes.
        """
        raw = message.raw
        header = ConsumerSendMessageBack(
            offset=raw.record.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=raw.msg_id,
            origin_topic=raw.topic,
            max_reconsume_times=self._max_retries,
        )
        address = self._client.routes.master(raw.broker_name) or message.store_host
        try:
            await self._client.calls.send_back(address, header)
        except PyroMQError as exc:
            logger.warning("%s: %r not taken back: %s; sending it anew", self._group, message, exc)
        else:
            return True
        if delay_level == NEVER:
            return await self.send_dead(message)
        return await self._send_anew(message, delay_level, self._max_retries)

    async def send_dead(self, message: ReceivedMessage) -> bool:
        """Send a copy of `message` that the broker takes for a dead letter. False if that did not work."""
        # 4.9 makes one of what failed as often as allowed, 5.x only of what failed more often.
        allowed = min(message.reconsume_times, self._max_retries)
        return await self._send_anew(message, 0, allowed)

    async def _send_anew(self, message: ReceivedMessage, delay_level: int, allowed: int) -> bool:
        properties = copied_properties(message, delay_level, allowed)
        try:
            await self._sender.send(retry_topic(self._group), message.body, message.flag, properties)
        except PyroMQError as exc:
            logger.warning("%s: %r not sent to the retry topic: %s", self._group, message, exc)
            return False
        return True


def copied_properties(message: ReceivedMessage, delay_level: int, allowed: int) -> dict[str, str]:
    """Those of a copy of `message`, which has failed once more, and may fail as often as `allowed`."""
    properties = dict(message.raw.properties)
    for name in _LEFT_BEHIND:
        properties.pop(name, None)
    properties.setdefault(props.RETRY_TOPIC, message.raw.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, message.raw.msg_id)
    properties[props.RECONSUME_TIME] = str(message.reconsume_times + 1)
    properties[props.MAX_RECONSUME_TIMES] = str(allowed)
    properties[props.DELAY] = str(delay_level or _FIRST_LEVEL + message.reconsume_times)
    return properties
