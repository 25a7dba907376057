"""When a master may be sure of its role. The clock is turned by hand."""

from __future__ import annotations

import math
import time

import pytest

from pyromq.broker.failover.lease import Lease, since_boot


class Line:
    closed = False


class Seconds:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def lease(clock):
    return Lease(clock=clock)


def test_a_new_lease_is_not_valid_and_says_why(lease):
    assert not lease.is_valid()
    assert lease.left == 0
    assert lease.why == "no controller has confirmed this master yet"


def test_it_counts_from_when_the_heartbeat_was_sent(lease, clock):
    clock.now = 103.0  # the answer came three seconds after the question
    lease.renew(Line(), sent=100.0, timeout=10.0)
    assert lease.is_valid()
    assert lease.why is None
    assert lease.left == 5.0
    clock.now = 107.999
    assert lease.is_valid()
    clock.now = 108.0
    assert not lease.is_valid()
    assert lease.why == "no controller has confirmed this master for 8 s"
    assert lease.left == 0


def test_an_answer_that_came_too_late_gives_nothing(lease, clock):
    clock.now = 108.5
    lease.renew(Line(), sent=100.0, timeout=10.0)
    assert not lease.is_valid()


def test_it_ends_with_the_connection_and_does_not_come_back(lease):
    line = Line()
    lease.renew(line, sent=100.0, timeout=10.0)
    line.closed = True
    assert not lease.is_valid()
    assert lease.left == 0
    assert lease.why == "the connection to the leading controller ended"
    lease.renew(Line(), sent=100.0, timeout=10.0)
    assert lease.is_valid()


def test_it_ends_when_the_role_does(lease):
    lease.renew(Line(), sent=100.0, timeout=10.0)
    lease.void("broker 2 is master of epoch 7")
    assert not lease.is_valid()
    assert lease.why == "broker 2 is master of epoch 7"


def test_without_leases_it_is_always_valid(clock):
    lease = Lease(enabled=False, clock=clock)
    line = Line()
    lease.renew(line, sent=0.0, timeout=1.0)
    line.closed = True
    lease.void("anything")
    clock.now = 1e9
    assert lease.is_valid()
    assert lease.why is None
    assert lease.left == math.inf


def test_who_waits_for_it_is_told_once_it_is_valid_again(lease, clock):
    told = []
    lease.renewed = lambda: told.append(clock.now)
    lease.renew(Line(), sent=100.0, timeout=10.0)
    clock.now = 101.0
    lease.renew(Line(), sent=101.0, timeout=10.0)  # it was valid all the time
    assert told == [100.0]
    clock.now = 200.0
    lease.renew(Line(), sent=150.0, timeout=10.0)  # of no use
    lease.renew(Line(), sent=199.0, timeout=10.0)
    assert told == [100.0, 200.0]


def test_the_clock_also_counts_while_the_machine_sleeps():
    # Both run at the same speed; this one is ahead by all the time that the machine has slept.
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= since_boot() <= time.clock_gettime(time.CLOCK_BOOTTIME)
