"""Request and reply over messages: a request names its sender, and the broker pushes the reply to that client.

request   CORRELATION_ID, REPLY_TO_CLIENT, TTL on an ordinary message; the broker adds CLUSTER
reply     to the topic <CLUSTER>_REPLY_TOPIC, code 325, with the same three and MSG_TYPE=reply
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from pyromq.errors import ReplyError, ReplyTimeout, RequestTimeout
from pyromq.protocol import properties as props
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.names import reply_topic

from ..consumer.received_message import ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyromq.errors import PyroMQError
    from pyromq.protocol.message import MessageExt

    from ..client import Client
    from .outgoing import Outgoing
    from .send_frames import Form
    from .send_result import SendResult
    from .sender import HiddenProducer, Sender, Target

    # Prepares the message with further properties; returns it, its destination, and the seconds left.
    Ready = Callable[[str], Awaitable[tuple[Outgoing, Target, Form | None, float]]]

_COPIED = (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL)


class Replies:
    """The requests of a client that wait for replies. The waiting callers keep the deadlines."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """A future for the answer. Call `forget` to stop waiting for it."""
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def resolve(self, message: MessageExt) -> bool:
        """Give the answer to the request that waits for it. False if none does, or no longer."""
        future = self._waiting.pop(message.properties.get(props.CORRELATION_ID, ""), None)
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    def fail_all(self, error: PyroMQError) -> None:
        """No answer can come any more."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # raised where a caller still waits; no one else needs to know


async def request(client: Client, sender: Sender, timeout: float, ready: Ready, *, known: bool) -> ReceivedMessage:
    """Send a request and wait for its reply. `known`: the topic's brokers know this client."""
    deadline = time.monotonic() + timeout
    correlation_id = str(uuid.uuid4())
    outgoing, target, only, left = await ready(
        f"\x02{props.CORRELATION_ID}\x01{correlation_id}"
        f"\x02{props.REPLY_TO_CLIENT}\x01{client.client_id}"
        f"\x02{props.TTL}\x01{int(1000 * timeout)}"
    )
    if not known:
        # The broker can push a reply only to a client it knows.
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await client.heartbeat()
        left = deadline - time.monotonic()
    reply = client.replies.expect(correlation_id)
    try:
        await sender.send(outgoing, target, only, left)
        async with asyncio.timeout(deadline - time.monotonic()):
            return ReceivedMessage(await reply)
    except TimeoutError as exc:
        if isinstance(exc, RequestTimeout):
            raise  # the send itself got no answer
        raise ReplyTimeout(f"the consumers of {target.topic}", outgoing.code, timeout) from None
    finally:
        client.replies.forget(correlation_id)


def reply_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a reply to a message with these `properties`. ReplyError if no one waits for a reply."""
    missing = [name for name in (props.CLUSTER, *_COPIED[:2]) if not properties.get(name)]
    if missing:
        raise ReplyError(f"no one waits for a reply to this message: it has no property {', '.join(missing)}")
    copied = {name: properties[name] for name in _COPIED if name in properties}
    return {props.MSG_TYPE: "reply", **copied, props.WAIT: "true"}


async def reply(
    producer: HiddenProducer, properties: Mapping[str, str], broker_name: str, body: bytes, timeout: float = 3.0
) -> SendResult:
    """Answer a request with these `properties` through the broker it came from, which knows the sender."""
    carried = reply_properties(properties)
    return await producer.send(
        reply_topic(properties[props.CLUSTER]),
        body,
        0,
        carried,
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
        broker=broker_name,
        timeout=timeout,
    )
