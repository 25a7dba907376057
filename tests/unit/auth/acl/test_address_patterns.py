"""Patterns of addresses in whitelists."""

from __future__ import annotations

import ipaddress
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.auth.acl.addresses import Addresses, host_of, parse, split_patterns

V4 = st.ip_addresses(v=4).map(str)
V6 = st.ip_addresses(v=6).map(str)
NUMBER = st.integers(0, 255)


@pytest.mark.parametrize(
    ("pattern", "taken", "others"),
    [
        ("192.168.0.7", "192.168.0.7", "192.168.0.70 192.168.0.8 1192.168.0.7 ::ffff:192.168.0.8"),
        ("192.168.0.7", "::ffff:192.168.0.7", "::192.168.0.7"),
        ("*", "10.0.0.1 2001:db8::1 ::1 anything", ""),
        ("*.*.*.*", "10.0.0.1 2001:db8::1", ""),
        ("192.168.0.*", "192.168.0.0 192.168.0.255", "192.168.1.0 192.16.80.1"),
        ("192.168.*.7", "192.168.3.7", "192.168.3.8"),
        ("192.168.1-20.*", "192.168.1.1 192.168.20.255", "192.168.0.1 192.168.21.1 192.168.2 2001:db8::1"),
        ("192.168.0.1-3", "192.168.0.1 192.168.0.3", "192.168.0.4 192.168.0.13"),
        ("192.168.0.{3,7}", "192.168.0.3 192.168.0.7", "192.168.0.5 192.168.0.37"),
        ("192.168.0.{1-3, 9}", "192.168.0.2 192.168.0.9", "192.168.0.4"),
        ("10.0.0.1,10.0.1.*, 10.0.2.{1,2}", "10.0.0.1 10.0.1.9 10.0.2.2", "10.0.0.2 10.0.2.3"),
        ("2001:db8::1", "2001:db8::1 2001:0DB8:0:0:0:0:0:1 2001:db8::1%eth0", "2001:db8::2"),
        ("2001:db8::1-20:*", "2001:db8::1:5 2001:db8::20:ffff", "2001:db8::21:5 2001:db8::5 10.0.0.1"),
        ("2001:db8:1::*", "2001:db8:1::ffff", "2001:db8:1:0:0:0:1:1"),
        ("fe80::{1,a}", "fe80::a fe80::1", "fe80::b"),
        ("", "", "10.0.0.1 ::1 *"),
    ],
)
def test_a_pattern_takes_what_it_says_and_nothing_else(pattern, taken, others):
    addresses = Addresses([pattern])
    assert [host for host in taken.split() if not addresses.take(host)] == []
    assert [host for host in others.split() if addresses.take(host)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "192.168.0",
        "192.168.*",
        "1.2.3.4.5",
        "256.0.0.1",
        "1.2.3.-4",
        "1.2.3.4-",
        "1.2.3.9-4",
        "1.2.3.300-400",
        "1.2.3.{}",
        "1.2.3.{1,}",
        "1.2.3.{1",
        "1.2.3.x",
        "1.2.3.0x1",
        "1.2.3.１",
        "1::2::3",
        "2001:db8:1",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7::8:9",
        "::g",
        "::fffff",
        "localhost",
        "::1%eth0",
        "10.0.0.0/8",
    ],
)
def test_what_is_no_pattern_is_refused_by_name(pattern):
    with pytest.raises(ValueError, match="is not an address or a pattern of addresses"):
        Addresses([pattern])


@given(V4 | V6)
def test_every_address_is_a_pattern_that_takes_itself_in_any_spelling(address):
    addresses = Addresses([address])
    assert addresses.take(address)
    assert addresses.take(ipaddress.ip_address(address).exploded.upper())


@given(
    st.lists(st.tuples(NUMBER, NUMBER).map(sorted), min_size=4, max_size=4), st.lists(NUMBER, min_size=4, max_size=4)
)
def test_ranges_compare_number_by_number(ranges, numbers):
    addresses = Addresses([".".join(f"{low}-{high}" for low, high in ranges)])
    inside = all(low <= number <= high for (low, high), number in zip(ranges, numbers, strict=True))
    assert addresses.take(".".join(map(str, numbers))) == inside


@given(st.text(alphabet="0123456789abf.:*-{},/% g", max_size=40))
def test_any_text_is_a_pattern_or_refused(text):
    try:
        addresses = Addresses([text])
    except ValueError:
        return
    assert isinstance(addresses.take("10.0.0.1"), bool)
    for part in split_patterns(text):
        if part not in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
            assert len(parse(part).places) in (4, 8)


@given(st.text(max_size=40))
def test_any_text_may_be_the_name_of_a_host(text):
    assert Addresses(["10.0.0.*"]).take(text) in (False, True)


def test_a_long_list_takes_no_longer_than_its_length():
    began = time.thread_time()
    assert len(split_patterns("{" * 200_000 + "," * 200_000)) == 1
    assert len(split_patterns("1," * 100_000 + "{")) == 100_001
    assert time.thread_time() - began < 1


def test_a_list_remembers_no_more_than_some_hosts():
    addresses = Addresses(["10.*.*.*"])
    for number in range(10_000):
        assert addresses.take(f"10.0.{number // 256}.{number % 256}")
    assert len(addresses._known) <= 4096


@pytest.mark.parametrize(
    ("peer", "host"), [("10.0.0.1:9876", "10.0.0.1"), ("[::1]:9876", "::1"), ("?", "?"), ("", ""), (":1", ":1")]
)
def test_the_host_of_a_peer(peer, host):
    assert host_of(peer) == host
