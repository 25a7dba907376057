"""Which requests are refused because they waited too long, by a clock that is turned."""

from __future__ import annotations

import math

import pytest
from tests.unit.settings_kit import change

from pyromq.broker.config import BrokerConfig, LiveConfig, load_settings
from pyromq.broker.fast_failure import TICK, FastFailure, limits
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watch(clock):
    def watch(*sets):
        failure = FastFailure(LiveConfig(load_settings(sets=sets)), lambda: 7, clock)
        failure.tick()
        return failure

    return watch


def late(failure, clock, milliseconds):
    """Whether requests are asked for, and which of them are refused, when the loop is so late."""
    clock.now += TICK + milliseconds / 1000
    codes = [code for code in limits(BrokerConfig()) if failure.refusal(Command.request(code)) is not None]
    return clock() > failure.late_after, codes


SENDS = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, 36]
PULLS = [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE]


@pytest.mark.parametrize(
    ("milliseconds", "refused"),
    [
        (-TICK * 1000, []),
        (199, []),
        (201, SENDS),
        (3001, [*SENDS, RequestCode.END_TRANSACTION]),
        (5001, [*SENDS, *PULLS, RequestCode.END_TRANSACTION]),
        (31_001, [*SENDS, *PULLS, RequestCode.HEART_BEAT, RequestCode.END_TRANSACTION]),
    ],
)
def test_each_kind_of_request_has_its_limit(watch, clock, milliseconds, refused):
    assert late(watch(), clock, milliseconds) == (bool(refused), refused)


def test_the_refusal_says_how_long_and_how_many(watch, clock):
    failure = watch()
    clock.now += TICK + 0.25
    request = Command.request(RequestCode.SEND_MESSAGE_V2)
    request.opaque = 9
    reply = failure.refusal(request)
    assert (reply.code, reply.opaque, reply.ext) == (2, 9, None)
    assert reply.remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, size of queue: 7"
    )


def test_other_requests_are_served_however_late(watch, clock):
    failure = watch()
    clock.now += 3600
    assert failure.refusal(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)) is None


def test_once_the_loop_is_on_time_again_nothing_is_refused(watch, clock):
    failure = watch()
    assert late(failure, clock, 500) == (True, SENDS)
    failure.tick()
    assert late(failure, clock, 0) == (False, [])


def test_limits_count_from_the_tick_after_they_changed(watch, clock):
    failure = watch("waitTimeMillsInSendQueue=20", "waitTimeMillsInPullQueue=50")
    assert late(failure, clock, 30) == (True, SENDS)
    change(failure._live, b"waitTimeMillsInSendQueue=1000", now=1)
    failure.tick()
    assert late(failure, clock, 60) == (True, PULLS)


def test_without_fast_failure_nobody_is_even_asked(watch, clock):
    failure = watch("brokerFastFailureEnable=false")
    assert failure.late_after == math.inf
    assert late(failure, clock, 10**6) == (False, [])


def test_refusals_are_counted_in_a_line_now_and_then(watch, clock, caplog):
    failure = watch()
    for _ in range(3):
        late(failure, clock, 500)
        failure.tick()
    assert caplog.text.count("event loop was late; refused 4 requests") == 1
    assert len(caplog.records) == 1
