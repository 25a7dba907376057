"""How a push consumer reads one queue: pull after pull, as long as there is room for the next (3.7)."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.errors import BrokerError, ConnectionLost, FlowControl, PyroMQError, RouteNotFound
from pyromq.protocol import sysflag
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessage

from ..routes import MASTER_ID
from .offset_store import ReadFrom
from .pull_result import STAND_IN_SUSPEND, PullStatus, decode_pull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyromq.protocol.bodies import SubscriptionData
    from pyromq.protocol.message import MessageExt
    from pyromq.protocol.message_queue import MessageQueue

    from ..client import Client
    from .consume_stats import TopicStats
    from .offset_store import OffsetStore
    from .process_queue import ProcessQueue
    from .pull_result import PullResult

logger = logging.getLogger(__name__)

SUSPEND_TIMEOUT = 15.0
PULL_TIMEOUT = 30.0

# Seconds to wait before the next try, and why.
NO_ROOM = 0.05
NOT_NOW = 1.0  # paused, not locked, nothing subscribed, or the broker could not be asked
NO_MASTER = 0.1  # its group may have another master in a moment
REFUSED_FOR_NOW = 0.02

_MIB = 1024 * 1024
# The broker does not know our subscription, for example after a restart: send a heartbeat.
_TELL_FIRST = frozenset(
    (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    )
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one queue a consumer may hold before it stops pulling."""

    messages: int = 1000
    mib: int = 100
    span: int = 2000

    def exceeded(self, held: ProcessQueue, *, ordered: bool) -> bool:
        """The span of an ordered queue does not count: it has no gaps for its first message to fall behind."""
        if held.count > self.messages or held.size // _MIB > self.mib:
            return True
        return not ordered and held.span > self.span


class Puller:
    """What the pull loops of a consumer share. Names are those on the wire."""

    def __init__(
        self,
        client: Client,
        group: str,
        offsets: OffsetStore,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        stats: Callable[[str], TopicStats],
        submit: Callable[[MessageQueue, Sequence[MessageExt]], None],
        illegal: Callable[[MessageQueue, ProcessQueue, int], None],
        limits: Limits,
        batch: int,
        ordered: bool,
        locking: bool,
        broadcast: bool,
    ) -> None:
        self.client = client
        self.group = group
        self.offsets = offsets
        self.subscription = subscription
        self.stats = stats
        self.submit = submit
        self.illegal = illegal
        self.limits = limits
        self.batch = batch
        self.ordered = ordered
        self.locking = locking
        self.broadcast = broadcast
        self.running = asyncio.Event()  # cleared while the consumer is paused
        self.running.set()


class PullLoop:
    """Pulls one queue from `offset` on, until it is dropped."""

    def __init__(self, puller: Puller, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        self._puller = puller
        self._queue = queue
        self._held = process_queue
        self._offset = offset
        self._broker_id = 0  # where the last answer said to pull next
        self._failing = False

    async def run(self) -> None:
        held = self._held
        while not held.dropped:
            held.last_pull = time.monotonic()
            wait = self._wait()
            if wait:
                await self._sleep(wait)
                continue
            try:
                wait = await self._pull()
            except PyroMQError as exc:
                wait = await self._failed(exc)
            else:
                self._succeeded()
            if wait:
                await asyncio.sleep(wait)

    def _wait(self) -> float:
        """Seconds until it may make sense to pull; 0: now."""
        puller, held = self._puller, self._held
        if not puller.running.is_set():
            return NOT_NOW
        if puller.limits.exceeded(held, ordered=puller.ordered):
            return NO_ROOM
        if puller.locking and not held.locked:
            return NOT_NOW
        return 0.0 if puller.subscription(self._queue.topic) is not None else NOT_NOW

    async def _sleep(self, seconds: float) -> None:
        running = self._puller.running
        if running.is_set():
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await running.wait()
        except TimeoutError:
            pass

    async def _pull(self) -> float:
        """Pull once and handle the result; returns the seconds until the next pull."""
        puller, queue, held = self._puller, self._queue, self._held
        subscription = puller.subscription(queue.topic)
        assert subscription is not None
        address, is_slave = await self._address()
        started = time.monotonic()
        header = await self._header(subscription, is_slave)
        reply = await puller.client.calls.pull(address, header, PULL_TIMEOUT)
        if held.dropped:
            return 0.0
        result = decode_pull(reply, queue, subscription)
        self._broker_id = result.suggested_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: offset %d is not in %s; continuing at %d", puller.group, self._offset, queue, result.next_offset
            )
            held.dropped = True
            puller.illegal(queue, held, result.next_offset)
            return 0.0
        # An answer without progress would make us ask in a tight loop.
        stuck = result.status is not PullStatus.NO_NEW_MSG and result.next_offset <= self._offset
        self._offset = result.next_offset
        if result.messages:
            puller.stats(queue.topic).pulled(len(result.messages), time.monotonic() - started)
            held.put(result.messages, result.max_offset)
            puller.submit(queue, result.messages)
        elif not held.count:
            puller.offsets.update(queue, result.next_offset, True)
        if stuck:
            return 0.0 if is_slave and self._is_sent_back(address) else NOT_NOW
        return self._pause_after(result, time.monotonic() - started)

    def _pause_after(self, result: PullResult, seconds: float) -> float:
        """Do not keep asking a broker that does not hold pulls."""
        if result.status is PullStatus.NO_NEW_MSG and seconds < REFUSED_FOR_NOW:
            return REFUSED_FOR_NOW
        return 0.0

    async def _address(self) -> tuple[str, bool]:
        """The address to pull from, and whether it is a slave, which cannot commit offsets."""
        routes, queue = self._puller.client.routes, self._queue
        if self._puller.locking:
            # The master keeps the locks. While it is away nobody can tell who may read.
            return routes.master(queue.broker_name) or await routes.master_or_refresh(queue), False
        return await routes.replica_or_refresh(queue, self._broker_id)

    def _is_sent_back(self, slave: str) -> bool:
        """Whether a slave that could not help says that its master can."""
        found = self._puller.client.routes.replica(self._queue.broker_name, self._broker_id, False)
        return found is not None and found[0] != slave

    async def _header(self, subscription: SubscriptionData, is_slave: bool) -> PullMessage:
        puller, queue = self._puller, self._queue
        flags, commit = sysflag.PULL_SUSPEND, 0
        if not puller.broadcast:
            known = await puller.offsets.read(queue, ReadFrom.MEMORY)
            if known is not None and known > 0 and not is_slave:
                flags, commit = flags | sysflag.PULL_COMMIT_OFFSET, known
        is_stand_in = is_slave and self._broker_id == MASTER_ID
        return PullMessage(
            consumer_group=puller.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=self._offset,
            max_msg_nums=puller.batch,
            sys_flag=flags,
            commit_offset=commit,
            suspend_timeout_millis=int((STAND_IN_SUSPEND if is_stand_in else SUSPEND_TIMEOUT) * 1000),
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
        )

    async def _failed(self, error: PyroMQError) -> float:
        """React to `error`; returns the seconds until the next try."""
        if isinstance(error, FlowControl):
            return REFUSED_FOR_NOW
        if not self._failing:  # one line when it starts, and one when it ends
            logger.warning("%s: cannot pull %s: %s; trying every %g s", self._puller.group, self._queue, error, NOT_NOW)
            self._failing = True
        routes = self._puller.client.routes
        if not self._puller.locking and routes.has_another(self._queue, error):
            return 0.0
        if isinstance(error, (ConnectionLost, RouteNotFound)) and routes.may_change_master(self._queue.broker_name):
            await routes.look_again(self._queue.topic, NOT_NOW)
            return NO_MASTER
        if isinstance(error, BrokerError) and error.code in _TELL_FIRST:
            await self._puller.client.heartbeat([error.server])
        return NOT_NOW

    def _succeeded(self) -> None:
        if self._failing:
            logger.info("%s: %s can be pulled again", self._puller.group, self._queue)
            self._failing = False
