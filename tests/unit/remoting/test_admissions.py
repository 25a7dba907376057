"""Connections are counted in all and by address, and every refusal has its line in the log, once."""

from __future__ import annotations

import pytest

from pyromq.remoting import Admissions, ServerConfig, origin_of


@pytest.mark.limit("maxConnections")
def test_connections_in_all_are_bounded_and_what_left_makes_room(caplog):
    admissions = Admissions(ServerConfig(max_connections=2))
    assert [admissions.admits(host) for host in "abc"] == [True, True, False]
    assert not admissions.admits("a")
    assert [record.message for record in caplog.records] == ["2 connections are open; refusing more (maxConnections)"]
    admissions.left("a")
    assert admissions.admits("c")
    assert not admissions.admits("d")
    assert len(caplog.records) == 2


@pytest.mark.limit("maxConnectionsPerAddress")
def test_one_address_leaves_room_for_others(caplog):
    admissions = Admissions(ServerConfig(max_connections_per_address=2))
    assert [admissions.admits("a") for _ in range(4)] == [True, True, False, False]
    assert admissions.admits("b")
    assert [record.message for record in caplog.records] == [
        "2 connections from a are open; refusing more (maxConnectionsPerAddress)"
    ]
    admissions.left("a")
    admissions.left("a")
    assert admissions.admits("a")
    assert admissions.total == 2


@pytest.mark.limit("maxBadConnectionsPerSecond")
def test_who_sends_garbage_again_and_again_waits_for_the_next_second(caplog):
    now = 100.0
    admissions = Admissions(ServerConfig(max_bad_connections_per_second=3), lambda: now)
    for _ in range(3):
        assert admissions.admits("a")
        admissions.left("a", misbehaved=True)
    assert not admissions.admits("a")
    assert not admissions.admits("a")
    assert admissions.admits("b")
    assert [record.message for record in caplog.records] == [
        "more than 3 connections a second from a sent garbage; refusing more (maxBadConnectionsPerSecond)"
    ]
    now += 1
    assert admissions.admits("a")
    admissions.left("a", misbehaved=True)
    now += 1
    # Few in each second are nobody's business.
    for _ in range(2):
        assert admissions.admits("a")
        admissions.left("a", misbehaved=True)
    assert admissions.admits("a")


def test_without_a_limit_garbage_may_come_as_often_as_it_likes():
    admissions = Admissions(ServerConfig(max_bad_connections_per_second=0))
    for _ in range(1000):
        assert admissions.admits("a")
        admissions.left("a", misbehaved=True)


def test_without_a_limit_one_address_may_have_them_all():
    admissions = Admissions(ServerConfig(max_connections=3, max_connections_per_address=0))
    assert [admissions.admits("a") for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("peer", "origin"),
    [
        ("10.0.0.7:5123", "10.0.0.7"),
        ("[::1]:5123", "::/64"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:80", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:80", "fe80::/64"),
        ("[::ffff:10.0.0.7]:80", "10.0.0.7"),
        ("?", "?"),
        ("strange:", "strange"),
    ],
)
def test_an_origin_is_a_host_or_the_network_that_a_host_has_for_itself(peer, origin):
    assert origin_of(peer) == origin
