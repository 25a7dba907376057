"""How a pull consumer reads one queue: pull after pull into the poll buffer, as long as there is room."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, ConnectionLost, FlowControl, PyroMQError, RouteNotFound
from pyromq.protocol import sysflag
from pyromq.protocol.headers import PullMessage

from ..routes import MASTER_ID
from .pull_result import STAND_IN_SUSPEND, PullStatus, decode_pull

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyromq.protocol.bodies.heartbeat import SubscriptionData
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from ..tasks import Supervised
    from .poll_buffer import PollBuffer
    from .process_queue import ProcessQueue
    from .pull_result import PullResult

logger = logging.getLogger(__name__)

RECHECK = 0.05
AFTER_FLOW_CONTROL = 0.02
AFTER_ERROR = 1.0
NO_MASTER = 0.1  # its group may have another master in a moment
AFTER_NO_START = 3.0
# A broker holds a pull that finds nothing. If it answers at once without progress, do not ask in a tight loop.
NOTHING_GAINED = 0.02

# Refusals because the broker's view of the group's subscription is missing or wrong (24 to 28): send it again.
_UNKNOWN_SUBSCRIPTION = range(24, 29)

_MIB = 1024 * 1024


async def pull_once(
    client: Client,
    group: str,
    queue: MessageQueue,
    subscription: SubscriptionData,
    offset: int,
    count: int,
    *,
    suspend: float,
    timeout: float,
    broker_id: int = 0,
) -> PullResult:
    """One pull, with the request every broker knows (11). With `suspend` the broker waits that long for a message.

    Raises a BrokerError, ConnectFailed, RequestTimeout, RouteNotFound, CorruptRecord, …
    """
    address, is_slave = await client.routes.replica_or_refresh(queue, broker_id)
    if is_slave and broker_id == MASTER_ID:
        suspend = min(suspend, STAND_IN_SUSPEND)
    header = PullMessage(
        group,
        queue.topic,
        queue.queue_id,
        offset,
        count,
        (sysflag.PULL_SUSPEND if suspend else 0) | sysflag.PULL_SUBSCRIPTION | sysflag.PULL_LITE,
        0,
        int(suspend * 1000),
        subscription.sub_version,
        subscription.sub_string,
        subscription.expression_type,
    )
    return decode_pull(await client.calls.pull(address, header, timeout), queue, subscription)


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How much to pull, how long a pull may take, and how much may wait to be polled."""

    pull_batch: int = 32
    suspend: float = 20.0
    suspend_timeout: float = 30.0
    max_cached: int = 1000
    max_cached_mib: int = 100
    max_span: int = 2000


class PollReader:
    """One queue of a pull consumer. `run` is its task; the consumer calls the rest between the task's awaits.

    `position` is the offset of the next message to hand out, None until known.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        queue: MessageQueue,
        process_queue: ProcessQueue,
        buffer: PollBuffer[PollReader, MessageExt],
        settings: ReadSettings,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        start: Callable[[MessageQueue], Awaitable[int | None]],
        passed: Callable[[PollReader], None],
        offset: int | None = None,
    ) -> None:
        self._client = client
        self._group = group
        self.queue = queue
        self.process_queue = process_queue
        self._buffer = buffer
        self._settings = settings
        self._subscription = subscription
        self._start = start
        self._passed = passed
        self._next = offset
        self.position = offset
        self.task: Supervised | None = None
        self._broker_id = 0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._room = asyncio.Event()
        self._room.set()

    # What the consumer does to it

    @property
    def paused(self) -> bool:
        return not self._resumed.is_set()

    def pause(self) -> None:
        """Stop pulling. A pull in flight may still bring something."""
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    def seek(self, offset: int) -> None:
        """Continue at `offset`. Pulled messages are dropped; its task must be restarted."""
        self._buffer.discard(self)
        self.process_queue.clear()
        self._next = self.position = offset
        self._room.set()

    def hand_out(self, messages: Sequence[MessageExt]) -> None:
        """These were polled."""
        left = self.process_queue.remove(messages)
        # If nothing is left, we are also past the unwanted messages that the last pull skipped.
        self.position = left if self.process_queue.count else self._next
        if not self._room.is_set() and not self._is_full():
            self._room.set()

    # Its task

    async def run(self) -> None:
        """Read until the queue is dropped."""
        while not self.process_queue.dropped:
            await self._resumed.wait()
            if self._is_full():
                # Polling makes room and says so.
                self._room.clear()
                await self._room.wait()
            elif self._buffer.is_full:
                await asyncio.sleep(RECHECK)
            elif self._next is None:
                await self._find_start()
            elif (subscription := self._subscription(self.queue.topic)) is None:
                await asyncio.sleep(AFTER_ERROR)  # unsubscribed; about to be dropped
            else:
                await self._pull(self._next, subscription)

    def _is_full(self) -> bool:
        held, limits = self.process_queue, self._settings
        return (
            held.count > limits.max_cached or held.size // _MIB > limits.max_cached_mib or held.span > limits.max_span
        )

    async def _find_start(self) -> None:
        offset = await self._start(self.queue)
        if offset is None:
            await asyncio.sleep(AFTER_NO_START)
        else:
            self._next = self.position = offset

    async def _pull(self, offset: int, subscription: SubscriptionData) -> None:
        settings = self._settings
        began = self.process_queue.last_pull = time.monotonic()
        try:
            result = await pull_once(
                self._client,
                self._group,
                self.queue,
                subscription,
                offset,
                settings.pull_batch,
                suspend=settings.suspend,
                timeout=settings.suspend_timeout,
                broker_id=self._broker_id,
            )
        except FlowControl:
            await asyncio.sleep(AFTER_FLOW_CONTROL)
        except PyroMQError as exc:
            if self._client.routes.has_another(self.queue, exc):
                logger.warning("%s: pull of %s failed: %s; asking another broker", self._group, self.queue, exc)
                return
            pause = AFTER_ERROR
            routes = self._client.routes
            if isinstance(exc, (ConnectionLost, RouteNotFound)) and routes.may_change_master(self.queue.broker_name):
                await routes.look_again(self.queue.topic, AFTER_ERROR)
                pause = NO_MASTER
            logger.warning("%s: pull of %s failed: %s; retrying in %g s", self._group, self.queue, exc, pause)
            if isinstance(exc, BrokerError) and exc.code in _UNKNOWN_SUBSCRIPTION:
                await self._client.heartbeat([exc.address])
            await asyncio.sleep(pause)
        else:
            if self.process_queue.dropped:
                return
            self._take_in(offset, result)
            if result.next_offset == offset and time.monotonic() - began < NOTHING_GAINED:
                await asyncio.sleep(NOTHING_GAINED)

    def _take_in(self, offset: int, result: PullResult) -> None:
        self._broker_id = result.suggested_broker_id
        self._next = result.next_offset
        if result.messages:
            self.process_queue.put(result.messages, result.max_offset)
            self._buffer.put(self, result.messages)
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: offset %d is outside %s (%d to %d); continuing at %d",
                self._group,
                offset,
                self.queue,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
        if not self.process_queue.count and self.position != self._next:
            # None of it is for us, and nothing before it is left: move past it.
            self.position = self._next
            self._passed(self)
