"""A message as handlers and loops receive it, and how they settle it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from pyromq.errors import RemoteProtocolError, StateError
from pyromq.protocol import properties as props
from pyromq.remoting.addresses import format_address

from .outcomes import ACK, DEAD_LETTER, Outcome, Retry

if TYPE_CHECKING:
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..producer.send_result import SendResult

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Origin(Protocol):
    """The part of the consumer that delivered a message."""

    def settled(self, message: ReceivedMessage) -> None:
        """The user settled `message`. May be called from any thread."""

    async def reply(self, message: ReceivedMessage, body: bytes, timeout: float) -> SendResult:
        """Send `body` as the answer to `message`."""


class Context:
    """What the messages of one handler call share.

    `auto_commit` is for ordered consumers: if you set it to False, only `Commit` finishes what was delivered, and
    `Rollback` starts it over.
    """

    __slots__ = ("auto_commit", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.auto_commit = True


class ReceivedMessage:
    """A delivered message. Its properties, times and hosts are decoded on first use.

    `topic` is the one it was sent to, even if this is a retry; `queue` and `offset` say where it was read just now.
    `reconsume_times` counts earlier deliveries that failed.

    `ack()`, `retry()` and `dead_letter()` settle this message. In a handler they override its answer for the batch and
    take effect when it ends; in an `async for` loop they take effect at once. The first call counts. Any thread may
    call them.
    """

    __slots__ = ("_context", "_origin", "_queue", "mark", "raw", "reconsume_times", "started", "topic")

    def __init__(
        self,
        message: MessageExt,
        topic: str | None = None,
        queue: MessageQueue | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.raw = message  # as it was pulled
        self.topic = message.real_topic if topic is None else topic
        self.reconsume_times = message.record.reconsume_times
        self._queue = queue
        self._origin = origin
        self.mark: Outcome | None = None  # what the user said about it
        self.started = 0.0  # when a handler got it, on the monotonic clock
        self._context: Context | None = None

    def __repr__(self) -> str:
        at = self.queue
        return f"<ReceivedMessage {self.id} of {self.topic} at {at.broker_name}/{at.queue_id}:{self.offset}>"

    # What was sent

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises CorruptRecord if it cannot be decompressed."""
        return self.raw.body

    @property
    def tags(self) -> str | None:
        return self.raw.tags

    @property
    def keys(self) -> list[str]:
        return self.raw.keys

    @property
    def properties(self) -> dict[str, str]:
        """The user's properties and those added by clients and brokers."""
        properties = self.raw.properties
        if self.started and props.CONSUME_START_TIME not in properties:
            started = time.time() - (time.monotonic() - self.started)
            properties[props.CONSUME_START_TIME] = str(int(started * 1000))
        return properties

    @property
    def flag(self) -> int:
        return self.raw.record.flag

    # What became of it on the way

    @property
    def id(self) -> str:
        """The id its sender knows; the same for every delivery."""
        return self.raw.msg_id

    @property
    def offset_id(self) -> str:
        """Where this copy lies: the broker's address and the position in its commit log."""
        return self.raw.offset_msg_id

    @property
    def queue(self) -> MessageQueue:
        return self.raw.queue if self._queue is None else self._queue

    @property
    def offset(self) -> int:
        """Its number in the queue."""
        return self.raw.record.queue_offset

    @property
    def commit_offset(self) -> int:
        """Its position in the broker's commit log, in bytes."""
        return self.raw.record.physical_offset

    @property
    def born_at(self) -> datetime:
        """When it was sent, by its sender's clock."""
        return _time(self.raw.record.born_timestamp)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock."""
        return _time(self.raw.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """`ip:port` of its sender, as the broker saw it."""
        return format_address(self.raw.record.born_address)

    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
        return format_address(self.raw.record.store_address)

    @property
    def transaction_id(self) -> str | None:
        return self.raw.transaction_id

    @property
    def ctx(self) -> Context:
        """What this message shares with the others of the same handler call."""
        if self._context is None:
            self._context = Context(self.queue)
        return self._context

    @ctx.setter
    def ctx(self, context: Context) -> None:
        self._context = context

    # What becomes of it now

    def ack(self) -> None:
        """Mark it as done."""
        self._say(ACK)

    def retry(self, delay_level: int = 0) -> None:
        """Deliver it again later: when the broker decides, or after the delay of `delay_level`."""
        self._say(Retry(delay_level))

    def dead_letter(self) -> None:
        """Move it to the group's dead letters."""
        self._say(DEAD_LETTER)

    async def reply(self, body: bytes, *, timeout: float = 3.0) -> SendResult:
        """Answer a message sent with `request()`. Raises ReplyError if no one waits for an answer."""
        if self._origin is None:
            raise StateError("only a message delivered by a consumer can be replied to")
        return await self._origin.reply(self, body, timeout)

    def _say(self, outcome: Outcome) -> None:
        if self._origin is None:
            raise StateError(
                "only a message delivered by a Consumer can be settled; with a PullConsumer, commit its offset"
            )
        if self.mark is None:
            self.mark = outcome
            self._origin.settled(self)


def _time(milliseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as exc:
        raise RemoteProtocolError(f"a message with an impossible time: {milliseconds} ms") from exc
