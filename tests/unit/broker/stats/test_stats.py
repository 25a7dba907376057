"""Statistics: counters and their views, sums and rates since the start. Time is a number."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.stats.statistics import (
    BROKER_PUT_NUMS,
    GROUP_GET_LATENCY,
    GROUP_GET_NUMS,
    QUEUE_GET_NUMS,
    QUEUE_PUT_NUMS,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    Statistics,
)
from pyromq.broker.stats.throughput import Rate, Throughput
from pyromq.protocol.bodies import BrokerStatsItem

T0 = 1_700_000_000_000
SECOND = 1000
HOUR = 3600 * SECOND


def run(statistics, seconds, start=0, each_second=lambda second: None):
    """Let seconds pass, `start` of them have; each ends with a sample. Returns how many there were then."""
    for second in range(start + 1, start + seconds + 1):
        each_second(second)
        statistics.sample(T0 + second * SECOND)
    return start + seconds


@pytest.fixture
def statistics():
    return Statistics(T0)


# Counters


def test_a_counter_that_nobody_added_to_has_no_view(statistics):
    run(statistics, 20)
    assert statistics.view(TOPIC_PUT_NUMS, "T") is None
    assert statistics.tps(TOPIC_PUT_NUMS, "T") == 0.0


def test_a_counter_exists_at_once_and_is_zero_until_it_is_sampled(statistics):
    statistics.add(TOPIC_PUT_NUMS, "T", 5)
    view = statistics.view(TOPIC_PUT_NUMS, "T")
    assert view.stats_minute == view.stats_hour == view.stats_day == BrokerStatsItem()
    assert statistics.view(TOPIC_PUT_SIZE, "T") is None
    assert statistics.view(TOPIC_PUT_NUMS, "U") is None


def test_sixty_messages_in_ten_seconds_are_the_sum_of_the_minute(statistics):
    run(statistics, 10, each_second=lambda second: statistics.add(TOPIC_PUT_NUMS, "T", 6))
    assert statistics.view(TOPIC_PUT_NUMS, "T").stats_minute == BrokerStatsItem(sum=60, tps=6.0, avgpt=6.0)
    run(statistics, 20, start=10)
    minute = statistics.view(TOPIC_PUT_NUMS, "T").stats_minute
    assert (minute.sum, minute.tps) == (60, 2.0)


def test_a_minute_is_the_last_sixty_seconds(statistics):
    run(statistics, 200, each_second=lambda second: statistics.add(TOPIC_PUT_NUMS, "T", second))
    minute = statistics.view(TOPIC_PUT_NUMS, "T").stats_minute
    assert minute.sum == sum(range(141, 201))
    assert minute.tps == minute.sum / 60


def test_what_was_long_ago_is_out_of_the_minute_and_still_in_the_hour_and_the_day(statistics):
    statistics.add(TOPIC_PUT_NUMS, "T", 7)
    run(statistics, 3700)
    view = statistics.view(TOPIC_PUT_NUMS, "T")
    assert view.stats_minute == BrokerStatsItem()
    assert view.stats_hour.sum == 7
    assert view.stats_day.sum == 7
    run(statistics, 3600, start=3700)
    view = statistics.view(TOPIC_PUT_NUMS, "T")
    assert view.stats_hour.sum == 0
    assert view.stats_day.sum == 7


def test_a_day_is_the_last_twenty_four_hours(statistics):
    for hour in range(1, 50):
        statistics.add(TOPIC_PUT_NUMS, "T", hour)
        statistics.sample(T0 + hour * HOUR)
    day = statistics.view(TOPIC_PUT_NUMS, "T").stats_day
    assert day.sum == sum(range(26, 50))
    assert day.tps == pytest.approx(day.sum / 86400)


def test_a_counter_that_comes_later_was_zero_before(statistics):
    run(statistics, 100, each_second=lambda second: statistics.add(TOPIC_PUT_NUMS, "early", 1))
    statistics.add(TOPIC_PUT_NUMS, "late", 30)
    run(statistics, 10, start=100)
    minute = statistics.view(TOPIC_PUT_NUMS, "late").stats_minute
    assert (minute.sum, minute.tps) == (30, 3.0)


def test_the_average_is_by_calls(statistics):
    statistics.add(GROUP_GET_LATENCY, "0@T@g", 40)
    statistics.add(GROUP_GET_LATENCY, "0@T@g", 20)
    statistics.add(BROKER_PUT_NUMS, "DefaultCluster", 100, 0)
    run(statistics, 10)
    assert statistics.view(GROUP_GET_LATENCY, "0@T@g").stats_minute.avgpt == 30.0
    assert statistics.view(BROKER_PUT_NUMS, "DefaultCluster").stats_minute.avgpt == 0.0


def test_a_late_sample_tells_the_true_rate(statistics):
    statistics.add(TOPIC_PUT_NUMS, "T", 100)
    statistics.sample(T0 + 40 * SECOND)  # the loop was busy
    assert statistics.view(TOPIC_PUT_NUMS, "T").stats_minute.tps == 2.5
    # and the next one is on time again
    statistics.add(TOPIC_PUT_NUMS, "T", 100)
    statistics.sample(T0 + 49 * SECOND)
    assert statistics.view(TOPIC_PUT_NUMS, "T").stats_minute.sum == 100
    statistics.sample(T0 + 50 * SECOND)
    assert statistics.view(TOPIC_PUT_NUMS, "T").stats_minute.sum == 200


def test_a_clock_that_is_set_back_does_no_harm(statistics):
    run(statistics, 30, each_second=lambda second: statistics.add(TOPIC_PUT_NUMS, "T", 1))
    back = T0 - HOUR
    for second in range(1, 100):
        statistics.add(TOPIC_PUT_NUMS, "T", 2)
        statistics.sample(back + second * SECOND)
        assert statistics.tps(TOPIC_PUT_NUMS, "T") >= 0
    assert statistics.tps(TOPIC_PUT_NUMS, "T") == pytest.approx(2.0, rel=0.05)
    assert statistics.throughput.rates(Rate.PUT) == "0.0 0.0 0.0"


def test_what_is_counted_elsewhere_is_added_before_anything_is_told(statistics):
    elsewhere = [5]

    def count():
        if elsewhere:
            statistics.add(TOPIC_PUT_NUMS, "T", elsewhere.pop())

    statistics.sources.append(count)
    assert statistics.view(TOPIC_PUT_NUMS, "T") is not None
    elsewhere.append(6)
    run(statistics, 10)
    assert statistics.view(TOPIC_PUT_NUMS, "T").stats_minute.sum == 11


def test_a_topic_that_is_gone_takes_its_counters_with_it(statistics):
    of_topic = [
        (TOPIC_PUT_NUMS, "T"),
        (QUEUE_PUT_NUMS, "T@0"),
        (GROUP_GET_NUMS, "T@g"),
        (QUEUE_GET_NUMS, "T@0@g"),
        (GROUP_GET_LATENCY, "0@T@g"),
        (GROUP_GET_LATENCY, "T@g"),
        (SNDBCK_PUT_NUMS, "T@g"),
    ]
    others = [(TOPIC_PUT_NUMS, "TT"), (GROUP_GET_NUMS, "U@T"), (GROUP_GET_LATENCY, "0@U@T"), (BROKER_PUT_NUMS, "T")]
    for item, key in of_topic + others:
        statistics.add(item, key)
    statistics.forget_topic("T")
    assert [known for known in of_topic if statistics.view(*known) is not None] == []
    assert [known for known in others if statistics.view(*known) is None] == []


def test_a_queue_is_not_mistaken_for_the_topic_of_that_name(statistics):
    statistics.add(QUEUE_PUT_NUMS, "T@0")
    statistics.add(GROUP_GET_LATENCY, "0@T@g")
    statistics.forget_topic("0")
    statistics.forget_group("0")
    assert statistics.view(QUEUE_PUT_NUMS, "T@0") is not None
    assert statistics.view(GROUP_GET_LATENCY, "0@T@g") is not None


def test_a_group_that_is_gone_takes_its_counters_with_it(statistics):
    of_group = [
        (GROUP_GET_NUMS, "T@g"),
        (QUEUE_GET_NUMS, "T@0@g"),
        (GROUP_GET_LATENCY, "0@T@g"),
        (SNDBCK_PUT_NUMS, "U@g"),
    ]
    others = [(TOPIC_PUT_NUMS, "g"), (GROUP_GET_NUMS, "g@h"), (GROUP_GET_NUMS, "T@gg")]
    for item, key in of_group + others:
        statistics.add(item, key)
    statistics.forget_group("g")
    assert [known for known in of_group if statistics.view(*known) is not None] == []
    assert [known for known in others if statistics.view(*known) is None] == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=300))
def test_the_minute_is_what_was_added_between_its_samples(steps):
    statistics = Statistics(T0)
    totals = [(T0, 0)]
    now, total, next_sample = T0, 0, T0 + 10 * SECOND
    for count, seconds in steps:
        statistics.add(TOPIC_PUT_NUMS, "T", count)
        total += count
        now += seconds * SECOND
        statistics.sample(now)
        if now >= next_sample:
            totals.append((now, total))
            next_sample += 10 * SECOND
    view = statistics.view(TOPIC_PUT_NUMS, "T")
    (_, first), (_, last) = totals[-7:][0], totals[-1]
    assert (0 if view is None else view.stats_minute.sum) == last - first


# Sums since the start


@pytest.fixture
def throughput():
    return Throughput(T0)


def test_rates_are_zero_until_something_was_sampled(throughput):
    throughput.stored(100, 1, 0.0)
    assert throughput.rates(Rate.PUT) == "0.0 0.0 0.0"


def test_rates_are_over_ten_seconds_a_minute_and_ten_minutes(throughput):
    for second in range(1, 1201):
        throughput.stored(2 if second > 1190 else 1, 100, 0.1)
        throughput.sample(T0 + second * SECOND)
    assert throughput.rates(Rate.PUT) == "2.0 1.17 1.02"


def test_a_young_broker_tells_the_rate_of_its_life(throughput):
    for second in range(1, 21):
        throughput.pulled(3 if second > 10 else 0)
        throughput.sample(T0 + second * SECOND)
    assert throughput.rates(Rate.TRANSFERRED) == "3.0 1.5 1.5"
    assert throughput.rates(Rate.FOUND) == "1.0 0.5 0.5"
    assert throughput.rates(Rate.MISSED) == "0.0 0.5 0.5"
    assert throughput.rates(Rate.FOUND, Rate.MISSED) == "1.0 1.0 1.0"


def test_sums_begin_anew_for_the_day_at_midnight():
    midnight = int(time.mktime((2026, 11, 15, 0, 0, 0, 0, 0, -1))) * SECOND
    throughput = Throughput(midnight - 5 * SECOND)
    throughput.stored(10, 1, 0.0)
    throughput.pulled(4)
    throughput.sample(midnight - SECOND)
    assert (throughput.put_total_this_morning, throughput.get_total_this_morning) == (0, 0)
    throughput.sample(midnight)
    throughput.stored(5, 1, 0.0)
    throughput.sample(midnight + SECOND)
    assert (throughput.put_total_this_morning, throughput.put_total_yesterday_morning) == (10, 0)
    assert (throughput.get_total_this_morning, throughput.get_total_yesterday_morning) == (4, 0)
    throughput.sample(midnight + 25 * HOUR)
    assert (throughput.put_total_this_morning, throughput.put_total_yesterday_morning) == (15, 10)
    assert (throughput.get_total_this_morning, throughput.get_total_yesterday_morning) == (4, 4)


def test_a_clock_that_is_set_back_a_day_begins_no_new_day(throughput):
    throughput.stored(10, 1, 0.0)
    throughput.sample(T0 - 30 * HOUR)
    assert throughput.put_total_this_morning == 0


def test_times_of_storing_are_those_of_this_minute_and_the_one_before(throughput):
    throughput.stored(98, 1, 0.05)
    throughput.stored(1, 1, 15.0)
    throughput.stored(1, 1, 12_000.0)
    assert "[10~50ms]:1 " in throughput.put_times()
    throughput.sample(T0 + 59 * SECOND)
    assert 15.0 <= throughput.put_time(0.99) <= 16.0
    throughput.sample(T0 + 60 * SECOND)
    assert throughput.put_times() == (
        "[<=0ms]:98 [0~10ms]:0 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 "
        "[3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1"
    )
    assert 15.0 <= throughput.put_time(0.99) <= 16.0
    assert throughput.put_time(0.5) < 0.1
    assert throughput.put_time(1.0) == 10_000.0
    assert throughput.slowest_put == 12_000.0
    throughput.sample(T0 + 120 * SECOND)
    assert throughput.put_time(0.99) == 0.0


@given(st.lists(st.floats(0, 20_000), min_size=1), st.floats(0, 1))
def test_every_message_is_in_one_of_the_times(durations, share):
    throughput = Throughput(T0)
    for duration in durations:
        throughput.stored(1, 1, duration)
    throughput.sample(T0 + 60 * SECOND)
    assert sum(int(part.rsplit(":", 1)[1]) for part in throughput.put_times().split(" ")) == len(durations)
    within = sum(duration <= throughput.put_time(share) + 1000 for duration in durations if duration < 10_000)
    assert within >= share * len(durations) - sum(duration >= 10_000 for duration in durations) - 1


def test_what_was_refused_counts_on_its_own(throughput):
    throughput.refused(3)
    assert (throughput.put_failures, throughput.puts) == (3, 0)
