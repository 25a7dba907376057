"""Token buckets: what passes, what does not, and for how long a peer has to wait."""

from __future__ import annotations

import pytest

from pyromq.remoting import RateLimits, ServerConfig
from pyromq.remoting import rate_limits as module


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def passed(limits: RateLimits, who: str, tries: int, size: int = 1) -> int:
    return sum(limits.excess(who, size) is None for _ in range(tries))


def test_without_limits_everything_passes(clock):
    limits = RateLimits(clock=clock)
    assert not limits.is_on
    assert passed(limits, "a", 10_000, size=1 << 20) == 10_000


def test_a_second_s_worth_passes_at_once_and_then_as_much_as_the_limit_says(clock):
    limits = RateLimits(requests=100, clock=clock)
    assert limits.is_on
    assert passed(limits, "a", 150) == 100
    clock.now += 0.25
    assert passed(limits, "a", 150) == 25
    clock.now += 3600
    assert passed(limits, "a", 150) == 100


def test_each_has_its_own_bucket(clock):
    limits = RateLimits(requests=10, clock=clock)
    assert passed(limits, "a", 20) == 10
    assert passed(limits, "b", 20) == 10


def test_the_refusal_names_the_limit_the_setting_and_who_it_was(clock):
    limits = RateLimits(requests=1, size=100, clock=clock)
    assert limits.excess("10.0.0.7", 50) is None
    refused = limits.excess("10.0.0.7", 50)
    assert refused is not None
    assert refused.why == "more than 1 requests a second from 10.0.0.7 (maxRequestsPerSecond)"
    clock.now += 1
    assert limits.excess("10.0.0.7", 1000) is None
    clock.now += 1
    refused = limits.excess("10.0.0.7", 1)
    assert refused is not None
    assert refused.why == "more than 100 bytes a second from 10.0.0.7 (maxBytesPerSecond)"


def test_a_request_larger_than_a_second_s_worth_passes_and_those_after_it_pay(clock):
    limits = RateLimits(size=1000, clock=clock)
    assert limits.excess("a", 4000) is None
    for _ in range(3):
        assert limits.excess("a", 0) is not None
        clock.now += 1
    clock.now += 0.1
    assert limits.excess("a", 0) is None


def test_nobody_owes_for_longer_than_a_few_seconds(clock):
    limits = RateLimits(size=1000, clock=clock)
    for _ in range(100):
        limits.excess("a", 1 << 30)
    clock.now += 10.1
    assert limits.excess("a", 1) is None


def test_whoever_exceeds_a_limit_waits_at_least_a_moment_and_at_most_a_second(clock):
    limits = RateLimits(requests=1000, clock=clock)
    passed(limits, "a", 1000)
    first = limits.excess("a", 1)
    assert first is not None
    assert first.wait == 0.05
    # A thousand connections do not all come back at the same time.
    waits = [excess.wait for _ in range(1000) if (excess := limits.excess("a", 1))]
    assert waits == sorted(waits)
    assert waits[-1] == 1.0
    assert waits[500] == pytest.approx(0.5, abs=0.01)


def test_those_who_were_silent_longest_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(module, "_REMEMBERED", 2)
    limits = RateLimits(requests=1, clock=clock)
    for who in "aba":
        limits.excess(who, 1)
    assert limits.excess("c", 1) is None
    assert limits.excess("a", 1) is not None
    assert limits.excess("b", 1) is None


def test_a_change_counts_at_once_and_what_is_the_same_changes_nothing(clock):
    limits = RateLimits(requests=1, clock=clock)
    assert limits.excess("a", 1) is None
    limits.change(ServerConfig(max_requests_per_second=1))
    assert limits.excess("a", 1) is not None
    limits.change(ServerConfig(max_requests_per_second=5))
    assert passed(limits, "a", 10) == 5
    limits.change(ServerConfig())
    assert not limits.is_on
