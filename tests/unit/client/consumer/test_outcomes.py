from __future__ import annotations

import pytest

from pyromq.client.consumer.outcomes import (
    ACK,
    DEAD_LETTER,
    RETRY,
    Ack,
    AckUpTo,
    Commit,
    DeadLetter,
    Retry,
    Rollback,
    Suspend,
    outcome_of,
    per_message,
)


@pytest.mark.parametrize("ordered", [False, True])
def test_returning_nothing_is_success(ordered):
    assert outcome_of(None, ordered=ordered) is ACK


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("answer", "meant"),
    [(Ack, ACK), (Ack(), ACK), (Retry, RETRY), (Retry(4), Retry(4)), (DeadLetter, DEAD_LETTER)],
)
def test_a_class_stands_for_its_value(answer, meant, ordered):
    assert outcome_of(answer, ordered=ordered) == meant


@pytest.mark.parametrize("answer", [Suspend, Suspend(2.0), Commit, Rollback])
def test_some_answers_are_for_ordered_consumers_only(answer):
    assert outcome_of(answer, ordered=True) == (answer() if isinstance(answer, type) else answer)
    with pytest.raises(TypeError, match="Retry"):
        outcome_of(answer, ordered=False)


def test_an_ordered_consumer_takes_a_batch_as_a_whole():
    assert outcome_of(AckUpTo(1), ordered=False) == AckUpTo(1)
    with pytest.raises(TypeError):
        outcome_of(AckUpTo(1), ordered=True)


@pytest.mark.parametrize("answer", ["CONSUME_SUCCESS", True, False, 0, AckUpTo, Exception, object()])
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises(TypeError, match="a handler returns None, Ack"):
        outcome_of(answer, ordered=False)


def test_a_delay_level_is_not_negative():
    with pytest.raises(ValueError, match="DeadLetter"):
        Retry(-1)


def test_a_part_of_a_batch_is_done():
    assert per_message(AckUpTo(1), [None] * 4) == [ACK, ACK, RETRY, RETRY]
    assert per_message(AckUpTo(-1), [None] * 2) == [RETRY, RETRY]
    assert per_message(AckUpTo(9), [None] * 2) == [ACK, ACK]


def test_what_was_said_of_one_message_counts_more_than_what_was_said_of_all():
    assert per_message(RETRY, [None, ACK, DEAD_LETTER]) == [RETRY, ACK, DEAD_LETTER]
