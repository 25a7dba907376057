"""Strings as Java reads them when they shall be numbers."""

from __future__ import annotations

import math

import pytest

from pyromq.filter.java_numbers import NotANumber, compare_doubles, parse_double, parse_int, parse_long


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("+7", 7), ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1), ("0" * 30_000 + "5", 5), ("\uff15", 5)],
)
def test_an_integer(text, value):
    assert parse_int(text) == parse_long(text) == value


@pytest.mark.parametrize(
    "text", ["", "+", "-", " 5", "5 ", "5\n", "1_0", "5.0", "0x5", "5L", "\U0001d7d3", "9" * 30_000, str(2**63)]
)
def test_no_integer(text):
    for parse in (parse_int, parse_long):
        with pytest.raises(NotANumber):
            parse(text)


def test_an_int_has_32_bits_and_a_long_64():
    assert parse_long(str(2**31)) == 2**31
    assert parse_long(str(-(2**63))) == -(2**63)
    for text in (str(2**31), str(-(2**31) - 1)):
        with pytest.raises(NotANumber):
            parse_int(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" 5.\n", 5.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.5e3F", 1500.0),
        ("-5d", -5.0),
        ("\x005\x1f", 5.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
        ("1e-400", 0.0),
        ("0x1p3", 8.0),
        ("0x.8P1d", 1.0),
        ("-0x1.8p-2", -0.375),
        ("0x1p99999999999", math.inf),
        ("-0x1p-99999999999", 0.0),
        ("0x0p99999999999", 0.0),
        ("0x1p1024", math.inf),
        ("1" * 30_000 + "e-29999", 10 / 9),
    ],
)
def test_a_double(text, value):
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN"])
def test_nan_is_written_in_one_way(text):
    assert math.isnan(parse_double(text))


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "e5", "1e", "inf", "nan", "infinity", "1_0", "NaNd", "0x1", "0xp1", "0x.p1", "\u00a05", "\u0665"],
)  # fmt: skip
def test_no_double(text):
    with pytest.raises(NotANumber):
        parse_double(text)


def test_doubles_have_an_order_with_nan_last_and_two_zeros():
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for left, one in enumerate(ordered):
        for right, other in enumerate(ordered):
            found = compare_doubles(one, other)
            assert (found > 0) - (found < 0) == (left > right) - (left < right)
