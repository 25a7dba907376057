"""Parking of timer messages: when they are due, and how they are stored until then (docs/spec/broker.md 4.2).

    TIMER_DELAY_SEC | TIMER_DELAY_MS | TIMER_DELIVER_MS     set by the producer; the first one present counts
    TIMER_OUT_MS                                            the step of the precision in which it falls due, by us
    REAL_TOPIC, REAL_QID                                    where it goes then

It is delivered when the step that begins at TIMER_OUT_MS is over: never early, and late by less than a step and a poll.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pyromq.errors import MessageIllegal, ServerError
from pyromq.protocol import properties as props
from pyromq.protocol.header import parse_int
from pyromq.protocol.names import RETRY_PREFIX, TIMER_TOPIC
from pyromq.protocol.recall_handle import RecallHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyromq.protocol.record import MessageRecord

    from ..config import BrokerConfig, LiveConfig

ASKED = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)

NOT_ENABLED = "accurate timer message is not enabled, timerWheelEnable is false"
_ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay {limit}ms; "
    "or if set del msg, the delay time should be bigger than the current time"
)
_CONGESTED = (
    "timer message is under flow control, max num limit is {twice} or the current value is greater than {limit} "
    "and less than {twice}, trigger random flow control"
)


def is_timer(properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a delivery time. One that was delivered already does not count."""
    return props.TIMER_OUT_MS not in properties and any(name in properties for name in ASKED)


def asked_time(properties: Mapping[str, str], now: int) -> int:
    """The delivery time that a timer message asks for (epoch ms). ValueError if it is not a number."""
    seconds, millis, instant = (properties.get(name) for name in ASKED)
    if seconds is not None:
        return now + 1000 * parse_int(64, seconds)
    if millis is not None:
        return now + parse_int(64, millis)
    return parse_int(64, instant or "")


def step_of(deliver: int, precision: int) -> int:
    """The step (its first millisecond) whose end is the first one at or after `deliver`."""
    return (deliver - 1) // precision * precision


class TimerParking:
    """Decides about timer messages. `congestion` tells how many already fall due in a step."""

    def __init__(self, live: LiveConfig, congestion: Callable[[int], int] = lambda out: 0) -> None:
        self._live = live
        self._congestion = congestion

    def parked(self, record: MessageRecord, properties: Mapping[str, str], now: int) -> MessageRecord:
        """`record`, whose properties are `properties`, as stored: parked, or unchanged if it is no timer or is due.

        BrokerError for a time that is malformed or too far away, and if too many fall due together.
        """
        if not is_timer(properties):
            return record
        config = self._live.config
        deliver = self._checked(properties, config, now)
        if deliver <= now:
            return record
        out = step_of(deliver, config.timer_step)
        self._refuse_congestion(out, config.timer_congest)
        kept = {
            **properties,
            props.TIMER_OUT_MS: str(out),
            props.REAL_TOPIC: record.topic,
            props.REAL_QID: str(record.queue_id),
        }
        return replace(record, topic=TIMER_TOPIC, queue_id=0, properties=props.encode(props.render(kept)))

    def _checked(self, properties: Mapping[str, str], config: BrokerConfig, now: int) -> int:
        if not config.timer_wheel:
            raise ServerError(NOT_ENABLED)
        limit = 1000 * config.timer_max_delay
        try:
            deliver = asked_time(properties, now)
        except ValueError:
            raise MessageIllegal(_ILLEGAL.format(limit=limit)) from None
        if deliver - now > limit or (deliver <= now and props.TIMER_DEL_UNIQKEY in properties):
            raise MessageIllegal(_ILLEGAL.format(limit=limit))
        return deliver

    def _refuse_congestion(self, out: int, limit: int) -> None:
        over = self._congestion(out) - limit
        if over > 0 and random.random() * limit < over:
            raise ServerError(_CONGESTED.format(limit=limit, twice=2 * limit))


def recall_handle(parked: MessageRecord, broker_name: str) -> str | None:
    """The handle of a parked message; None if it is not a timer or has no unique key."""
    if parked.topic != TIMER_TOPIC:
        return None
    topic = parked.find_property(props.REAL_TOPIC)
    message_id = parked.find_property(props.UNIQ_KEY)
    out = parked.find_property(props.TIMER_OUT_MS)
    if not topic or not message_id or not out or topic.startswith(RETRY_PREFIX):
        return None
    # RocketMQ adds 1 so that rounding the handle's time, as for any timer, leads back to `out`.
    return RecallHandle(topic, broker_name, int(out) + 1, message_id).encode()


def recall_key(topic: str, message_id: str) -> str:
    """How a recall names its message in 5.3; 5.5 leaves out the topic unless configured otherwise."""
    return f"{topic}+{message_id}"


def recalled_key(topic: str, said: str) -> str:
    """The key of the recalled message, from either form; `topic` is the recall's own real topic."""
    return said if said.startswith(f"{topic}+") else recall_key(topic, said)
