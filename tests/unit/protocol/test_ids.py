from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.ids import (
    UniqKeys,
    decode_host,
    decode_offset_message_id,
    decode_uniq_key,
    encode_host,
    encode_ip,
    encode_offset_message_id,
    month_start,
)

IP = bytes([192, 168, 1, 10])


def ms(year: int, month: int, day: int, *time: int, zone: tzinfo = UTC) -> int:
    hour, minute, second = (*time, 0, 0, 0)[:3]
    return int(datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp() * 1000)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize(
    ("ip", "port", "raw"),
    [
        ("10.0.0.1", 10911, "0a00000100002a9f"),
        ("255.255.255.255", 65535, "ffffffff0000ffff"),
        ("2001:db8::2", 10911, "20010db800000000000000000000000200002a9f"),
    ],
)
def test_a_host_goes_into_bytes_and_back(ip, port, raw):
    assert encode_host(ip, port).hex() == raw
    assert decode_host(bytes.fromhex(raw)) == (ip, port)


def test_a_mapped_address_counts_as_ipv4():
    assert encode_host("::ffff:10.0.0.1", 1) == encode_host("10.0.0.1", 1)


def test_the_zone_of_a_link_local_address_is_left_out():
    assert encode_ip("fe80::1%eth0") == encode_ip("fe80::1")


@pytest.mark.parametrize(("ip", "port"), [("localhost", 1), ("", 1), ("10.0.0.1", -1), ("10.0.0.1", 65536)])
def test_what_is_no_host_is_refused(ip, port):
    with pytest.raises(LocalProtocolError):
        encode_host(ip, port)


@pytest.mark.parametrize("length", [0, 7, 9, 19, 21])
def test_bytes_of_another_length_are_no_host(length):
    with pytest.raises(RemoteProtocolError):
        decode_host(bytes(length))


def test_an_offset_message_id_may_come_in_small_letters():
    host = encode_host("10.0.0.1", 10911)
    text = encode_offset_message_id(host, 426)
    assert text == "0A00000100002A9F00000000000001AA"
    assert decode_offset_message_id(text.lower()) == (host, 426)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A00000100002A9F00000000000001A",
        "0A00000100002A9F00000000000001AAFF",
        "0A00000100002A9F00000000000001ZZ",
        "0A 00 00 01 00 00 2A 9F 00 00 01",
        "0A00000100002A9F8000000000000000",
        "0A00000100002A9F00000000000001ÄÖ",
        " " * 24 + "0A00000100002A9F00000000000001AA",
    ],
)
def test_what_is_no_offset_message_id_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_offset_message_id(text)


def test_a_uniq_key_is_read_back():
    clock = Clock(ms(2024, 2, 15, 10, 30))
    key = UniqKeys(IP, 70000, 0xFFFFFFFF, clock=clock, zone=UTC).next()
    assert len(key) == 32
    assert decode_uniq_key(key) == (IP, 70000 - 65536, 0xFFFFFFFF, clock.now - ms(2024, 2, 1), 0)


def test_a_uniq_key_of_an_ipv6_host_has_56_digits():
    ip = encode_ip("2001:db8::1")
    key = UniqKeys(ip, 1, 2, clock=Clock(ms(2024, 2, 1)), zone=UTC).next()
    assert len(key) == 56
    assert decode_uniq_key(key) == (ip, 1, 2, 0, 0)


def test_the_counter_of_uniq_keys_wraps_around():
    keys = UniqKeys(IP, 1, 2, clock=Clock(ms(2024, 2, 1)), zone=UTC)
    made = [keys.next() for _ in range(65538)]
    assert len(set(made)) == 65536
    assert made[65536:] == made[:2]
    assert [key[28:] for key in made[65534:]] == ["FFFE", "FFFF", "0000", "0001"]


def test_the_last_days_of_a_month_do_not_fit_into_a_signed_field():
    clock = Clock(ms(2024, 1, 31, 23, 59, 59))
    keys = UniqKeys(IP, 1, 2, clock=clock, zone=UTC)
    key = decode_uniq_key(keys.next())
    assert key.ms_of_month == 31 * 86_400_000 - 1000 > 2**31
    assert key.sent_at(clock.now, UTC) == clock.now


def test_a_new_month_starts_from_zero():
    clock = Clock(ms(2023, 12, 31, 23, 59, 59))
    keys = UniqKeys(IP, 1, 2, clock=clock, zone=UTC)
    assert decode_uniq_key(keys.next()).ms_of_month == 31 * 86_400_000 - 1000
    clock.now += 1000
    assert decode_uniq_key(keys.next()).ms_of_month == 0
    clock.now += 5
    assert decode_uniq_key(keys.next()).ms_of_month == 5


def test_a_clock_set_back_a_little_over_the_start_of_a_month_stays_at_zero():
    clock = Clock(ms(2024, 3, 1))
    keys = UniqKeys(IP, 1, 2, clock=clock, zone=UTC)
    keys.next()
    clock.now -= 999_999
    assert decode_uniq_key(keys.next()).ms_of_month == 0


def test_a_clock_set_back_by_days_gets_its_own_month():
    clock = Clock(ms(2024, 3, 1))
    keys = UniqKeys(IP, 1, 2, clock=clock, zone=UTC)
    keys.next()
    clock.now = ms(2024, 2, 10)
    assert decode_uniq_key(keys.next()).ms_of_month == 9 * 86_400_000


def test_the_month_begins_at_local_midnight():
    shanghai = timezone(timedelta(hours=8))
    now = ms(2024, 2, 29, 20)  # already March there
    assert month_start(now, shanghai) == ms(2024, 3, 1, zone=shanghai)
    assert decode_uniq_key(UniqKeys(IP, 1, 2, clock=Clock(now), zone=shanghai).next()).ms_of_month == 4 * 3_600_000


def test_a_change_to_summer_time_within_the_month_is_counted():
    berlin = ZoneInfo("Europe/Berlin")
    now = ms(2024, 3, 31, 12, zone=berlin)
    assert now - month_start(now, berlin) == (30 * 24 + 11) * 3_600_000


@pytest.fixture
def new_york(monkeypatch):
    """This machine, moved to New York."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield ZoneInfo("America/New_York")
    time.tzset()


def test_the_zone_of_the_machine_is_used_when_none_is_given(new_york):
    for now in (ms(2024, 3, 1, 4, 59), ms(2024, 3, 1, 5), ms(2024, 3, 31), ms(2024, 11, 30)):
        assert month_start(now, None) == month_start(now, new_york)
    assert month_start(ms(2024, 3, 1, 4, 59), None) == ms(2024, 2, 1, 5)


def test_a_time_that_would_lie_ahead_belongs_to_last_month():
    sent = ms(2024, 1, 31, 23)
    key = decode_uniq_key(UniqKeys(IP, 1, 2, clock=Clock(sent), zone=UTC).next())
    assert key.sent_at(sent + 3_600_000, UTC) == sent
    assert key.sent_at(sent + 1, UTC) == sent


def test_an_address_of_another_length_makes_no_keys():
    with pytest.raises(LocalProtocolError):
        UniqKeys(b"123", 1, 2, clock=Clock(0), zone=UTC)


@pytest.mark.parametrize("text", ["", "C0A8010A04D218B4AAC247B76000000", "not hexadecimal at all, 32 chars!!"])
def test_what_is_no_uniq_key_is_refused(text):
    with pytest.raises(RemoteProtocolError):
        decode_uniq_key(text)
