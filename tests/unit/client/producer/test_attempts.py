"""Whether to try again: the table of docs/spec/client.md 2.5."""

from __future__ import annotations

import pytest

from pyromq.client.producer.attempts import Attempts
from pyromq.client.producer.producer_settings import DEFAULT_RETRY_CODES, ProducerSettings
from pyromq.client.producer.send_result import SendResult, SendStatus
from pyromq.errors import (
    BrokerError,
    ConnectFailed,
    MessageIllegal,
    RequestTimeout,
    RouteNotFound,
    SendFailed,
    SendTimeout,
    broker_error,
)
from pyromq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue(broker_name="a", queue_id=0, topic="T")
REFUSED = ConnectFailed("a:1", "refused")


def attempts(only=False, timeout=3.0, **settings):
    return Attempts(ProducerSettings(**settings), "T", timeout, 100.0, only=only)


def result(status=SendStatus.SEND_OK, number=0):
    return SendResult(status, "id", "offset id", QUEUE, number)


def test_the_retriable_codes_are_those_of_rocketmq_5():
    assert {1, 2, 14, 16, 17, 204, 205, 1500} == DEFAULT_RETRY_CODES


def test_a_stored_message_is_done():
    course = attempts()
    course.begin(100.0)
    assert course.stored("a", result()) == result()


@pytest.mark.scenario("client 12")
@pytest.mark.parametrize("status", [each for each in SendStatus if each is not SendStatus.SEND_OK])
def test_a_message_that_was_not_confirmed_is_done_unless_another_broker_is_wished_for(status):
    course = attempts()
    course.begin(100.0)
    assert course.stored("a", result(status)) == result(status)
    eager = attempts(retry_not_stored=True, retries=2)
    for number in range(2):
        eager.begin(100.0)
        assert eager.stored("a", result(status, number)) is None
    eager.begin(100.0)
    assert eager.stored("a", result(status, 2)) == result(status, 2)


def test_an_unconfirmed_result_counts_more_than_a_later_failure():
    for failure in (REFUSED, MessageIllegal("no")):
        eager = attempts(retry_not_stored=True, retries=1)
        eager.begin(100.0)
        assert eager.stored("a", result(SendStatus.FLUSH_DISK_TIMEOUT)) is None
        eager.begin(100.0)
        assert eager.failed("b", failure, 100.1) == result(SendStatus.FLUSH_DISK_TIMEOUT)


@pytest.mark.scenario("client 11")
@pytest.mark.parametrize("code", sorted(DEFAULT_RETRY_CODES))
def test_a_retriable_code_asks_for_another_attempt(code):
    course = attempts()
    course.begin(100.0)
    assert course.failed("a", broker_error(code, "later"), 100.1) is None
    assert course.last_broker == "a"


@pytest.mark.scenario("client 11")
@pytest.mark.parametrize("code", [13, 24, 999])
def test_another_code_is_raised_at_once(code):
    course = attempts()
    course.begin(100.0)
    with pytest.raises(BrokerError) as caught:
        course.failed("a", broker_error(code, "no"), 100.1)
    assert caught.value.code == code


def test_the_users_codes_replace_the_usual_ones():
    course = attempts(retry_codes=frozenset({13}))
    course.begin(100.0)
    assert course.failed("a", broker_error(13, ""), 100.1) is None
    with pytest.raises(BrokerError):
        course.failed("a", broker_error(2, ""), 100.1)


def test_after_the_last_attempt_the_error_lists_all_of_them():
    course = attempts(retries=1)
    course.begin(100.0)
    assert course.failed("a", REFUSED, 100.1) is None
    course.begin(100.1)
    with pytest.raises(SendFailed, match=r"2 attempts: a: a:1: refused; b: busy \(code 2\)") as caught:
        course.failed("b", broker_error(2, "busy"), 100.2)
    assert caught.value.code == 2
    assert [broker for broker, _ in caught.value.attempts] == ["a", "b"]


@pytest.mark.scenario("client 10")
def test_without_a_cap_a_broker_that_hangs_takes_all_the_time():
    course = attempts()
    assert course.begin(100.0) == 3.0
    with pytest.raises(SendTimeout, match=r"within 3 s in 1 attempts: a: .*no answer") as caught:
        course.failed("a", RequestTimeout("a:1", 310, 3.0), 103.0)
    assert isinstance(caught.value, RequestTimeout)
    assert caught.value.code == 10002


def test_an_attempt_is_capped_while_another_one_remains():
    course = attempts(attempt_timeout=1.0, retries=1)
    assert course.begin(100.0) == 1.0
    course.failed("a", RequestTimeout("a:1", 310, 1.0), 101.0)
    assert course.begin(101.0) == 2.0


def test_a_queue_of_the_callers_choice_gets_one_attempt_and_its_error():
    course = attempts(only=True, attempt_timeout=1.0)
    assert course.begin(100.0) == 3.0
    with pytest.raises(ConnectFailed):
        course.failed("a", REFUSED, 100.1)


def test_a_send_without_time_tries_nothing():
    with pytest.raises(SendTimeout, match="nothing was tried"):
        attempts(timeout=0.0).begin(100.0)


# A group that may have another master soon


def after_failures(course, count, error=REFUSED, **more):
    for _ in range(count):
        course.begin(100.0)
        assert course.failed("a", error, 100.0, **more) is None


@pytest.mark.parametrize("error", [REFUSED, broker_error(14, "no longer master", "a"), RouteNotFound("no master")])
@pytest.mark.parametrize("only", [False, True])
def test_a_group_that_may_change_its_master_is_tried_until_the_time_is_up(error, only):
    course = attempts(only=only)
    after_failures(course, 20, error, may_change_master=True)
    assert course.has_failed_at("a")
    assert not course.has_failed_at("b")
    course.begin(102.9)
    with pytest.raises(type(error) if only else SendTimeout):
        course.failed("a", error, 102.999, may_change_master=True)


def test_other_errors_of_such_a_group_count_as_ever():
    course = attempts(retries=1)
    after_failures(course, 1, broker_error(2, "busy", "a"), may_change_master=True)
    course.begin(100.0)
    with pytest.raises(SendFailed):
        course.failed("a", broker_error(2, "busy", "a"), 100.0, may_change_master=True)


def test_pauses_grow_but_never_beyond_the_time_that_is_left():
    course = attempts()
    assert [round(course.pause(100.0), 2) for _ in range(6)] == [0.02, 0.04, 0.08, 0.16, 0.2, 0.2]
    assert course.pause(102.9) == pytest.approx(0.1)
    assert course.pause(104.0) == 0
