"""Send a message back, to be delivered again later or to become a dead letter (docs/spec/client.md 3.10).

The broker that has the message makes the copy itself (36). If it refuses, we send one: an ordinary message to the
group's retry topic, with properties that say where it comes from and how often it failed. The broker that stores it
turns it into a dead letter if it failed too often.
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

# Properties that apply only to the original: the copy has its own place and history.
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
    """Sends the client's own messages."""

    async def send(self, topic: str, body: bytes, flag: int, properties: dict[str, str]) -> SendResult: ...


class SendBack:
    """Gives messages back for one group, by its wire name."""

    def __init__(self, client: Client, group: str, sender: Sender, max_retries: int) -> None:
        self._client = client
        self._group = group
        self._sender = sender
        self._max_retries = max_retries

    async def send(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Deliver `message` again; with `delay_level` 0 the broker chooses when, NEVER makes it a dead letter.

        False if neither way worked. Both take time: up to 5 s, then as long as a send.
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
            logger.warning("%s: %r not taken back: %s; sending a copy", self._group, message, exc)
        else:
            return True
        if delay_level == NEVER:
            return await self.send_dead(message)
        return await self._send_anew(message, delay_level, self._max_retries)

    async def send_dead(self, message: ReceivedMessage) -> bool:
        """Send a copy of `message` that the broker turns into a dead letter. False if that failed."""
        # 4.9 does so at the allowed number of failures, 5.x only above it.
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
    """The properties of a copy of `message`, which failed once more and may fail `allowed` times."""
    properties = dict(message.raw.properties)
    for name in _LEFT_BEHIND:
        properties.pop(name, None)
    properties.setdefault(props.RETRY_TOPIC, message.raw.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, message.raw.msg_id)
    properties[props.RECONSUME_TIME] = str(message.reconsume_times + 1)
    properties[props.MAX_RECONSUME_TIMES] = str(allowed)
    properties[props.DELAY] = str(delay_level or _FIRST_LEVEL + message.reconsume_times)
    return properties
