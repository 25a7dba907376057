"""When timer messages are due, and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.timers.parking import TimerParking, asked_time, is_timer, recall_handle, step_of
from pyromq.errors import MessageIllegal, ServerError
from pyromq.protocol import properties as props
from pyromq.protocol.recall_handle import decode_handle
from pyromq.protocol.record import MessageRecord

NOW = 1_700_000_000_123
RECORD = MessageRecord("orders", b"body", queue_id=3)


def parking(congestion=lambda out: 0, **config) -> TimerParking:
    return TimerParking(LiveConfig.of(BrokerConfig(broker_name="broker-a", **config)), congestion)


def test_the_first_of_the_three_properties_counts():
    everything = {"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "70", "TIMER_DELIVER_MS": "9"}
    assert asked_time(everything, 1000) == 6000
    del everything["TIMER_DELAY_SEC"]
    assert asked_time(everything, 1000) == 1070
    del everything["TIMER_DELAY_MS"]
    assert asked_time(everything, 1000) == 9


def test_a_message_that_had_its_turn_does_not_ask_again():
    assert is_timer({"TIMER_DELAY_MS": "5000"})
    assert not is_timer({"TIMER_DELAY_MS": "5000", "TIMER_OUT_MS": "1700000000000"})
    assert not is_timer({"DELAY": "1"})


@given(st.integers(1, 2**50), st.sampled_from([100, 200, 500, 1000]))
def test_a_step_ends_at_the_asked_time_or_less_than_a_step_later(deliver, precision):
    step = step_of(deliver, precision)
    assert step % precision == 0
    assert deliver <= step + precision < deliver + precision


def test_a_timer_is_parked_with_the_place_where_it_goes():
    parked = parking().parked(RECORD, {"TIMER_DELAY_SEC": "5", "TAGS": "A"}, NOW)
    assert (parked.topic, parked.queue_id, parked.body) == ("rmq_sys_wheel_timer", 0, b"body")
    assert props.parse(props.decode(parked.properties)) == {
        "TIMER_DELAY_SEC": "5",
        "TAGS": "A",
        "TIMER_OUT_MS": "1700000005000",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize("properties", [{"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_SEC": "-5"}])
def test_what_is_due_is_not_parked(properties):
    assert parking().parked(RECORD, properties, NOW) is RECORD


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELIVER_MS": "1e12"},
        {"TIMER_DELAY_MS": "9223372036854775808"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELIVER_MS": "99999999999999"},
        {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "orders+k"},
    ],
)
def test_what_is_no_time_or_too_far_away_is_refused(properties):
    with pytest.raises(MessageIllegal, match="should not be bigger than the max delay 259200000ms"):
        parking().parked(RECORD, properties, NOW)


def test_the_longest_delay_is_a_setting():
    with pytest.raises(MessageIllegal):
        parking(timer_max_delay=10).parked(RECORD, {"TIMER_DELAY_MS": "10001"}, NOW)
    assert parking(timer_max_delay=10).parked(RECORD, {"TIMER_DELAY_MS": "10000"}, NOW) is not RECORD


def test_timers_can_be_switched_off():
    with pytest.raises(ServerError, match="timerWheelEnable is false"):
        parking(timer_wheel=False).parked(RECORD, {"TIMER_DELAY_MS": "5000"}, NOW)
    assert parking(timer_wheel=False).parked(RECORD, {}, NOW) is RECORD


def test_beyond_the_limit_of_a_step_some_are_refused_and_beyond_its_double_all():
    def refused(there: int) -> int:
        judge, remarks = parking(lambda out: there, timer_congest=100), []
        for _ in range(200):
            try:
                judge.parked(RECORD, {"TIMER_DELAY_MS": "5000"}, NOW)
            except ServerError as exc:
                remarks.append(exc.remark)
        assert all(remark.startswith("timer message is under flow control, max num limit is 200") for remark in remarks)
        return len(remarks)

    assert refused(100) == 0
    assert 0 < refused(150) < 200
    assert refused(200) == 200


def test_the_handle_of_a_timer_leads_back_to_its_step():
    properties = {"TIMER_DELAY_MS": "5000", "UNIQ_KEY": "AC11"}
    parked = parking().parked(RECORD, properties, NOW)
    handle = decode_handle(recall_handle(parked, "broker-a") or "")
    assert handle == ("orders", "broker-a", 1_700_000_005_001, "AC11")
    assert step_of(handle.deliver_ms, 1000) == 1_700_000_005_000


def test_there_is_no_handle_for_what_could_not_be_recalled():
    judge = parking()
    nameless = judge.parked(RECORD, {"TIMER_DELAY_MS": "5000"}, NOW)
    retry = judge.parked(MessageRecord("%RETRY%g", b""), {"TIMER_DELAY_MS": "5000", "UNIQ_KEY": "AC11"}, NOW)
    assert [recall_handle(each, "broker-a") for each in (nameless, retry, RECORD)] == [None] * 3


@pytest.mark.parametrize(("said", "meant"), [(1000, 1000), (999, 500), (250, 200), (100, 100), (7, 100), (5000, 1000)])
def test_the_precision_is_one_of_four(said, meant):
    assert BrokerConfig(broker_name="b", timer_precision=said).timer_step == meant
