"""Finds what a task has already stored, by reading its queue backwards.

A task cannot know whether it is the first attempt, so each looks. All it sent lies after what its query sent to the
same partition in an older batch, so it stops there. If there is none, a time limits the search, counted back from
the newest message, or from the oldest of its own found so far: a query that was down for a day still finds them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import NoPermission, PyroMQError, RemoteProtocolError, RouteNotFound, ServiceNotAvailable
from pyromq.protocol import properties as props
from pyromq.protocol.batch import unwrap
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessage, PullMessageReply
from pyromq.protocol.record import decode_records
from pyromq.protocol.sysflag import PULL_SUBSCRIPTION

from ..source.offsets import place
from .identity import SPARK_TXN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.message_queue import MessageQueue
    from pyromq.protocol.record import MessageRecord

    from ..blocking_client import Link
    from .identity import Identity

logger = logging.getLogger(__name__)

_GROUP = "spark-rocketmq-sink"
_FIRST_STEP, _LONGEST_STEP = 32, 1024
_TXN, _KEY = SPARK_TXN.encode(), props.UNIQ_KEY.encode()
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_PAUSES = (0.005, 0.02, 0.05, 0.1, 0.2)  # before another look whether slaves have what is stored


class Findings:
    """Collects the ids of a batch's messages from records, newest first. Decides; `read_back` asks."""

    def __init__(self, identity: Identity, lookback: float) -> None:
        self.keys: set[str] = set()
        self._identity = identity
        self._lookback_ms = int(lookback * 1000)
        self._oldest_wanted: int | None = None

    def take(self, newest_first: Iterable[MessageRecord]) -> bool:
        """Take records; True when nothing of the batch can lie before them."""
        for record in newest_first:
            stored_at = record.store_timestamp
            if self._oldest_wanted is None:
                self._oldest_wanted = stored_at - self._lookback_ms
            elif stored_at < self._oldest_wanted:
                return True
            txn = props.find(record.properties, _TXN)
            batch = None if txn is None else self._identity.batch_of(props.decode(txn))
            if batch is None:
                continue
            if batch < self._identity.batch:
                return True
            self._oldest_wanted = min(self._oldest_wanted, stored_at - self._lookback_ms)
            key = props.find(record.properties, _KEY)
            if batch == self._identity.batch and key is not None:
                self.keys.add(props.decode(key))
        return False


async def read_back(
    link: Link, queue: MessageQueue, identity: Identity, lookback: float, patience: float = 10.0
) -> set[str]:
    """The ids of the messages of this batch and partition that `queue` already holds.

    Raises the broker's error, or why it cannot be reached, after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _read_back(link, queue, Findings(identity, lookback))
        except PyroMQError as exc:
            if not exc.retriable or isinstance(exc, NoPermission) or time.monotonic() + pause > deadline:
                raise
            logger.warning("%s: cannot read back: %s; trying again in %g s", place(queue), exc, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _read_back(link: Link, queue: MessageQueue, findings: Findings) -> set[str]:
    wire = link.on_wire(queue)
    address = link.replica(queue.broker_name, only_this=True)
    if address is None:
        await link.client.routes.refresh(wire.topic)
        address = link.replica(queue.broker_name, only_this=True)
    if address is None:
        error = RouteNotFound(f"no master is known for broker {queue.broker_name}, which has {place(queue)}")
        error.retriable = True
        raise error
    # Only the master has everything that was acknowledged.
    end = await _shown(link, address, queue, wire)
    step = _FIRST_STEP
    while end > 0:
        start = max(0, end - step)
        records, is_first = await _between(link, address, wire, start, end)
        if findings.take(reversed(records)) or is_first:
            break
        end = start
        step = min(2 * step, _LONGEST_STEP)
    return findings.keys


async def _shown(link: Link, address: str, queue: MessageQueue, wire: MessageQueue) -> int:
    """The end of a queue, once everything that is stored now can be read.

    A group that fails over hides messages until its slaves have them, and they may be ours. A master that is being
    replaced, or has lost its controllers, shows them later or never: then ServiceNotAvailable.
    """
    calls = link.client.calls
    stored = await calls.max_offset(address, wire, hidden=True)
    end = await calls.max_offset(address, wire)
    for pause in _PAUSES:
        if end >= stored:
            return end
        await asyncio.sleep(pause)
        end = await calls.max_offset(address, wire)
    if end < stored:
        await link.client.routes.refresh(wire.topic)
        raise ServiceNotAvailable(f"{place(queue)} has {stored - end} messages that nobody may read yet", address)
    return end


async def _between(
    link: Link, address: str, wire: MessageQueue, start: int, end: int
) -> tuple[list[MessageRecord], bool]:
    """The messages from `start` to `end`, and whether the queue has none before them."""
    group = link.namespace.wrap(_GROUP)
    found: list[MessageRecord] = []
    at = start
    is_first = start == 0
    while at < end:
        header = PullMessage(group, wire.topic, wire.queue_id, at, end - at, PULL_SUBSCRIPTION, 0, 0, 0, "*", "TAG")
        reply = await link.client.calls.pull(address, header)
        answer = reply.header(PullMessageReply)
        if reply.code == ResponseCode.SUCCESS:
            if answer.next_begin_offset <= at:
                raise RemoteProtocolError(f"{place(wire)}: a pull at {at} leads back to {answer.next_begin_offset}")
            for record in decode_records(reply.body_bytes, check_crc=False):
                found += (each for each in unwrap(record) if at <= each.queue_offset < end)
            at = answer.next_begin_offset
        elif at < answer.min_offset:
            # Expired while we looked, or long ago.
            at = answer.min_offset
            is_first = True
        elif answer.next_begin_offset > at:
            at = answer.next_begin_offset
        else:
            break
    return found, is_first
