"""Waits for messages without polling: pulls that brokers hold until something arrives.

One held pull per queue, renewed every quarter of a minute, reports a message at once and costs almost nothing. Pulls
stay open while Spark does something else. Beyond some number of queues they would be a load of their own; then,
and wherever a broker does not hold them, the driver polls the offsets as it does anyway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.headers import PullMessage
from pyromq.protocol.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.protocol.message_queue import MessageQueue

    from ..blocking_client import Link

logger = logging.getLogger(__name__)

_HELD_FOR = 15.0
_ANSWERED_WITHIN = 30.0
_MOST = 64
_NOT_AGAIN_FOR = 10.0  # seconds, after a broker refused or did not hold


class Arrivals:
    """Tells when queues get messages. Its loop need run only during `wait`."""

    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group
        self._held: dict[MessageQueue, tuple[int, asyncio.Task[bool]]] = {}
        self._not_before: dict[MessageQueue, float] = {}

    async def wait(self, ends: Mapping[MessageQueue, int], seconds: float) -> bool:
        """Whether a message arrived after one of these ends within that time. False proves nothing."""
        if len(ends) <= _MOST:
            for queue, end in ends.items():
                self._hold(queue, end)
        held = {task: queue for queue, (end, task) in self._held.items() if ends.get(queue) == end}
        if not held:
            await asyncio.sleep(seconds)
            return False
        done, _ = await asyncio.wait(held, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        came = False
        for task in done:
            del self._held[held[task]]
            came |= task.result()
        return came

    def _hold(self, queue: MessageQueue, end: int) -> None:
        known = self._held.get(queue)
        if known is not None and known[0] == end:
            return
        if known is not None:
            if not known[1].done():
                # The broker still holds it, and will answer soon: there is something after its offset.
                known[1].cancel()
            del self._held[queue]
        if time.monotonic() >= self._not_before.get(queue, 0.0):
            self._held[queue] = end, asyncio.create_task(self._pull(queue, end), name=f"hold {queue}")

    async def _pull(self, queue: MessageQueue, end: int) -> bool:
        address = self._link.replica(queue.broker_name, only_this=True)
        began = time.monotonic()
        if address is not None:
            wire = self._link.on_wire(queue)
            header = PullMessage(
                consumer_group=self._group,
                topic=wire.topic,
                queue_id=wire.queue_id,
                queue_offset=end,
                max_msg_nums=1,
                sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
                commit_offset=0,
                suspend_timeout_millis=int(_HELD_FOR * 1000),
                sub_version=0,
                subscription="*",
                expression_type="TAG",
            )
            try:
                reply = await self._link.client.calls.pull(address, header, _ANSWERED_WITHIN)
            except PyroMQError as exc:
                logger.info("cannot hold a pull for %s: %s", queue, exc)
            else:
                if reply.code == ResponseCode.SUCCESS:
                    return True
        if time.monotonic() - began < _HELD_FOR / 2:
            self._not_before[queue] = time.monotonic() + _NOT_AGAIN_FOR
        return False
