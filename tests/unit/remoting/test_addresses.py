"""Addresses in text."""

from __future__ import annotations

import pytest

from pyromq.remoting import format_address, join_address, split_address, split_addresses, vip_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        (" broker-a:10911 ", "broker-a", 10911),
        ("[::1]:1", "::1", 1),
        ("[2001:db8::7]:65535", "2001:db8::7", 65535),
        ("::1:9876", "::1", 9876),
    ],
)
def test_host_and_port(text: str, host: str, port: int):
    assert split_address(text) == (host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "broker-a", "::1", "2001:db8::7"])
def test_what_is_joined_can_be_split(host: str):
    assert split_address(join_address(host, 10911)) == (host, 10911)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":9876",
        "[]:9876",
        "host:0",
        "host:65536",
        "host:9876543210",
        "host:-1",
        "host:+1",
        "host:1_0",
        "host: 1",
        "host:٣",
        "host:²",
        "host:1.0",
        "host:port",
    ],
)
def test_what_is_no_address(text: str):
    with pytest.raises(ValueError, match="is not an address of the form host:port"):
        split_address(text)


def test_a_list_has_semicolons_or_commas_and_no_repeats():
    assert split_addresses(" a:1; b:2,a:1 ;;c:3; ") == ["a:1", "b:2", "c:3"]
    assert split_addresses("") == []
    with pytest.raises(ValueError, match="'b' is not an address"):
        split_addresses("a:1;b")


def test_the_vip_port_is_two_below():
    assert vip_address("127.0.0.1:10911") == "127.0.0.1:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"
    assert vip_address("host:3") == "host:1"


@pytest.mark.parametrize("port", [1, 2])
def test_a_port_may_leave_no_room_for_a_vip_port(port: int):
    with pytest.raises(ValueError, match="leaves no room"):
        vip_address(f"host:{port}")


def test_addresses_of_sockets():
    assert format_address(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert format_address(("::1", 80, 0, 0)) == "[::1]:80"
    assert format_address("/run/some.sock") == "/run/some.sock"
    assert format_address("") == format_address(None) == "?"
