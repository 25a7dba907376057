"""Fast failure: refuses requests that waited too long, so that clients hear of it before they time out.

Nothing queues between a socket and a processor. What waits, waits in sockets, while the event loop is busy with
something else; so the wait is measured by how late the loop is. A tick says when the next one is due, and what is read
after that has waited since then, or less. docs/spec/broker.md 13.1.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from pyromq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyromq.protocol.command import Command

    from .config import BrokerConfig, LiveConfig

logger = logging.getLogger(__name__)

# Seconds between two ticks, which is also how much too short a wait may be measured.
TICK = 0.02
# A broker that has just started may be busy with requests that waited for it.
_GRACE = 1.0
_LOG_AGAIN = 10.0


def limits(config: BrokerConfig) -> dict[int, int]:
    """The longest wait in milliseconds, by request code; other requests may wait for ever."""
    if not config.fast_failure:
        return {}
    send, pull = config.wait_in_send_queue, config.wait_in_pull_queue
    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
        RequestCode.CONSUMER_SEND_MSG_BACK: send,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.POP_MESSAGE: pull,
        RequestCode.HEART_BEAT: config.wait_in_heartbeat_queue,
        RequestCode.END_TRANSACTION: config.wait_in_transaction_queue,
    }


class FastFailure:
    """Decides, by `clock` in seconds; the connections ask it once per read and refuse what it says.

    `waiting` is how many requests wait for the disk, which the refusal names as the size of the queue.
    """

    def __init__(
        self, live: LiveConfig, waiting: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live = live
        self._waiting = waiting
        self._clock = clock
        self._due = math.inf
        self._config: BrokerConfig | None = None
        self._limits: dict[int, int] = {}
        self._refused = 0
        self._logged_at = -math.inf
        # By `clock`: nothing read before this time has to be refused.
        self.late_after = math.inf

    async def run(self) -> None:
        """Tick until cancelled."""
        await asyncio.sleep(_GRACE)
        try:
            while True:
                self.tick()
                await asyncio.sleep(TICK)
                # In a turn of uvloop timers come before sockets: what waited while it was late is read only now.
                await asyncio.sleep(0)
        finally:
            self.late_after = math.inf

    def tick(self) -> None:
        """Note that the loop is on time now and should be back after `TICK`."""
        now = self._clock()
        if self._refused and now - self._logged_at > _LOG_AGAIN:
            logger.warning("event loop was late; refused %d requests that had waited too long", self._refused)
            self._logged_at, self._refused = now, 0
        config = self._live.config
        if config is not self._config:
            self._config, self._limits = config, limits(config)
        self._due = now + TICK
        self.late_after = self._due + min(self._limits.values(), default=math.inf) / 1000

    def refusal(self, request: Command) -> Command | None:
        """The answer to a request that waited too long; None if it should be served."""
        limit = self._limits.get(request.code)
        waited = (self._clock() - self._due) * 1000
        if limit is None or waited <= limit:
            return None
        self._refused += 1
        return request.reply(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {waited:.0f}ms, size of queue: {self._waiting()}",
        )
