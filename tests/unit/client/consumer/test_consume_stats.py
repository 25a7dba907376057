from __future__ import annotations

import pytest

from pyromq.client.consumer.consume_stats import SAMPLE_EVERY, ConsumeStats, TopicStats


def test_rates_are_those_of_the_last_minute():
    stats = TopicStats(0.0)
    stats.consumed(600, 0, 1.0)
    now = 0.0
    for _ in range(12):
        now += SAMPLE_EVERY
        stats.sample(now)
        stats.consumed(10, 5, 0.2)
        stats.pulled(32, 0.1)
    status = stats.status(now)
    # Sampled before what happened in the last ten seconds, so seven rounds lie in the minute.
    assert status.consume_ok_tps == pytest.approx(70 / 60)
    assert status.consume_failed_tps == pytest.approx(35 / 60)
    assert status.pull_tps == pytest.approx(7 * 32 / 60)
    assert status.consume_rt == pytest.approx(200)
    assert status.pull_rt == pytest.approx(100)


def test_failures_are_counted_for_an_hour():
    stats = TopicStats(0.0)
    stats.consumed(0, 3, 0.0)
    now = 0.0
    for _ in range(350):
        now += SAMPLE_EVERY
        stats.sample(now)
    assert stats.status(now).consume_failed_msgs == 3
    for _ in range(60):
        now += SAMPLE_EVERY
        stats.sample(now)
    assert stats.status(now).consume_failed_msgs == 0


def test_a_topic_that_nothing_happened_to_is_all_zero():
    status = TopicStats(0.0).status(0.0)
    assert (status.consume_ok_tps, status.consume_rt, status.pull_rt, status.pull_tps) == (0, 0, 0, 0)


def test_every_topic_that_is_asked_for_is_told_of():
    stats = ConsumeStats()
    stats.topic("a", 0.0).consumed(1, 0, 0.0)
    assert stats.status(["a", "b"], 1.0)["a"].consume_ok_tps == 1
    assert stats.status(["a", "b"], 1.0)["b"].consume_ok_tps == 0
