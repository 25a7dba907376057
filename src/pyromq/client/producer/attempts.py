"""The attempts of one send: what was tried, how it ended, and whether to try again (docs/spec/client.md 2.5).

    stored (0)                                done
    stored, not confirmed (10, 11, 12)        done; or, with retry_not_stored, another broker
    a retriable code, no answer               another broker, while attempts and time are left
    no master, but others in its group        as long as there is time, with pauses: one of them may take over
    another code                              raised at once

Only decides; the sender acts. Times are seconds of one clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    RouteNotFound,
    SendFailed,
    SendTimeout,
    ServiceNotAvailable,
    TooManyRequests,
)

from .send_result import SendResult, SendStatus

if TYPE_CHECKING:
    from pyromq.errors import PyroMQError

    from .producer_settings import ProducerSettings

# Failures after which another attempt is made.
FAILURES = (BrokerError, ConnectionLost, RequestTimeout, TooManyRequests, RouteNotFound)

# With these a group may be about to change its master: the old one is gone, going, or not the master any more.
_WITHOUT_MASTER = (ConnectionLost, ServiceNotAvailable, RouteNotFound)

# Seconds between attempts at a group without a master; twice as long each time.
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.2

# With less time than this there is no point in asking.
_TOO_LITTLE = 0.005


class Attempts:
    """One send. `only` is for a queue chosen by the caller: one attempt, and its error is raised unchanged.

    Attempts at a group that may have a new master soon are not counted.
    """

    __slots__ = (
        "_confirmed_later",
        "_deadline",
        "_left",
        "_pause",
        "_settings",
        "_timeout",
        "_topic",
        "address",
        "last_broker",
        "only",
        "tried",
    )

    def __init__(self, settings: ProducerSettings, topic: str, timeout: float, began: float, *, only: bool) -> None:
        self._settings = settings
        self._topic = topic
        self._timeout = timeout
        self._deadline = began + timeout
        self.only = only
        self._left = 1 if only else 1 + settings.retries
        self._pause = _FIRST_PAUSE
        self._confirmed_later: SendResult | None = None
        self.last_broker: str | None = None
        self.address: str | None = None  # of the last attempt
        self.tried: list[tuple[str, PyroMQError]] = []

    def begin(self, now: float) -> float:
        """How many seconds the next attempt may take. SendTimeout if none are left."""
        self._left -= 1
        seconds = self._deadline - now
        if seconds < _TOO_LITTLE:
            raise SendTimeout(self._topic, self.tried, self._timeout)
        cap = self._settings.attempt_timeout
        # The last attempt may use all the remaining time.
        return seconds if cap is None or self._left <= 0 else min(seconds, cap)

    def stored(self, broker: str, result: SendResult) -> SendResult | None:
        """An attempt stored the message. Returns the result of the send, or None to try again."""
        self.last_broker = broker
        if result.status is SendStatus.SEND_OK:
            return result
        if self._settings.retry_not_stored and self._left > 0:
            self._confirmed_later = result
            return None
        return result

    def left(self, now: float) -> float:
        """How many seconds are left."""
        return max(self._deadline - now, 0.0)

    def pause(self, now: float) -> float:
        """How many seconds to wait before another attempt at the same group."""
        seconds = min(self._pause, self.left(now))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return seconds

    def has_failed_at(self, broker: str) -> bool:
        """Whether it was tried in vain, and its group has had no time to change."""
        return any(name == broker and isinstance(error, _WITHOUT_MASTER) for name, error in self.tried)

    def failed(
        self, broker: str, error: PyroMQError, now: float, *, may_change_master: bool = False
    ) -> SendResult | None:
        """An attempt failed. Returns None to try again; otherwise an earlier result if there is one, or raises."""
        self.last_broker = broker
        self.tried.append((broker, error))
        if isinstance(error, BrokerError) and error.code not in self._settings.retry_codes:
            if self._confirmed_later is None:
                raise error
            return self._confirmed_later
        too_late = self._deadline - now < _TOO_LITTLE
        waits = may_change_master and isinstance(error, _WITHOUT_MASTER)
        if (self._left > 0 or waits) and not too_late:
            return None
        if self._confirmed_later is not None:
            return self._confirmed_later
        if self.only:
            raise error
        if too_late:
            raise SendTimeout(self._topic, self.tried, self._timeout) from error
        raise SendFailed(self._topic, self.tried) from error
