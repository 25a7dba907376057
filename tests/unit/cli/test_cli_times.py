"""Times as people type them."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.cli.times import parse_time, show_time, show_time_for_programs
from pyromq.errors import ConfigError

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("-15m", NOW - timedelta(minutes=15)),
        ("-1h30m", NOW - timedelta(minutes=90)),
        ("-500ms", NOW - timedelta(milliseconds=500)),
        ("-2w", NOW - timedelta(days=14)),
        ("1768867200000", datetime(2026, 1, 20, tzinfo=UTC)),
        ("2026-01-31T12:00:00+01:00", NOW),
        ("2026-01-31T11:00:00Z", NOW),
        ("2026-01-31#12:00:00:250", datetime(2026, 1, 31, 12, 0, 0, 250_000).astimezone()),
        ("2026-01-31", datetime(2026, 1, 31).astimezone()),
    ],
)
def test_every_form_is_understood(text, meant):
    assert parse_time(text, NOW) == meant
    assert parse_time(text, NOW).tzinfo is not None


@pytest.mark.parametrize("text", ["", "soon", "-15", "15m", "2026-13-01", "-999999999w", "9" * 15])
def test_what_is_no_time_is_answered_with_the_forms(text):
    with pytest.raises(ConfigError, match=r"is not a time; use now, ms since 1970"):
        parse_time(text, NOW)


@given(st.text())
def test_any_text_is_a_time_or_an_error_of_ours(text):
    with contextlib.suppress(ConfigError):
        assert parse_time(text, NOW).tzinfo is not None


def test_printed_times_have_an_offset_and_are_read_again():
    when = datetime(2026, 1, 31, 11, 0, 0, 123_000, tzinfo=UTC)
    for shown in (show_time(when), show_time_for_programs(when)):
        assert shown[-6] in "+-"
        assert parse_time(shown, NOW) == when
