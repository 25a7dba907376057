"""What pages say: numbers, times, languages, bodies; and the files of others that they use."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import Any

import pytest
from scripts import translations, vendor

from pyromq.admin.messages.traces import TraceEvent
from pyromq.dashboard.lake import NOT_INSTALLED, NOT_SET, ArchivedTopic, lake_state
from pyromq.dashboard.pages.brokers import spark
from pyromq.dashboard.pages.timeline import timeline
from pyromq.dashboard.web import languages
from pyromq.dashboard.web.asked import local_path
from pyromq.dashboard.web.bodies import coloured, shown
from pyromq.dashboard.web.formats import arrow, moment, number, rate, short_number, size, span
from pyromq.errors import PyroMQError


def test_nothing_is_untranslated_or_left_over():
    assert translations.problems() == []


def test_a_language_is_chosen_by_cookie_then_by_browser():
    assert languages.preferred("zh", "en") == "zh"
    assert languages.preferred(None, "fr-FR, zh-CN;q=0.9, en;q=0.8") == "zh"
    assert languages.preferred("xx", "de;q=nonsense, fr") == "en"
    assert languages.read_po('msgid "a"\nmsgstr ""\n"one "\n"two"\n\nmsgid "b"\nmsgstr ""\n') == {"a": "one two"}


def test_what_is_not_known_is_a_dash_and_never_a_zero():
    for show in (number, short_number, rate, size, span, moment):
        assert "–" in show(None)
    assert (number(1234567), short_number(12345), rate(0.5), size(1536), span(75)) == (
        "1,234,567",
        "12.3k",
        "0.50",
        "1.5 KiB",
        "75 s",
    )
    assert [span(seconds) for seconds in (0, 0.4, 12, 91, 7200, 200_000)] == [
        "0 s",
        "0.4 s",
        "12 s",
        "1.5 min",
        "2 h",
        "2.3 d",
    ]
    assert "↗" in arrow(3.0)
    assert "↘" in arrow(-3.0)
    assert "→" in arrow(None)
    assert 'datetime="2026-01-31T12:00:00.000Z"' in moment(datetime(2026, 1, 31, 12, tzinfo=UTC))


def test_json_is_coloured_and_escaped():
    made = coloured('{\n  "<a>": ["</span>", 1.5, true, null]\n}')
    assert '<span class="key">&#34;&lt;a&gt;&#34;</span>' in made
    assert '<span class="str">&#34;&lt;/span&gt;&#34;</span>' in made
    assert '<span class="lit">true</span>' in made


def test_a_body_has_the_views_that_fit_it():
    assert list(shown(b'{"a": 1}').views) == ["json", "text", "hex"]
    assert list(shown("grüße".encode()).views) == ["text", "hex"]
    assert list(shown(b"\x00\xff").views) == ["hex"]
    assert shown(b"x" * 100_000).cut
    assert shown(b"\x00" * 20_000).cut
    assert not shown(b"").cut


@pytest.mark.parametrize("path", ["//evil", "/\\evil", "http://evil", "", "evil", "/a\nb", "/a\\b"])
def test_only_paths_of_ours_are_gone_back_to(path):
    assert local_path(path, "/home") == "/home"


def event(what, at, cost, status="success", **more):
    return TraceEvent(datetime.fromtimestamp(at, UTC), what, "g", status, cost, None, "c", **more)


def test_a_time_line_is_as_long_as_its_events():
    picture: Any = timeline(
        [event("publish", 1, 10), event("consume", 2, 500, "failed"), event("consume", 3, None, None)]
    )
    assert [bar.mark for bar in picture.bars] == ["pub", "no", "open"]
    assert picture.bars[0].x < picture.bars[1].x < picture.bars[2].x
    assert picture.bars[1].width > picture.bars[0].width
    assert timeline([]) is None


def test_a_spark_breaks_where_nothing_is_known():
    assert spark([0.0, 10.0]) == "M0.0 19.0 L100.0 1.0"
    assert spark([1.0, None, 1.0]) == "M0.0 1.0 M100.0 1.0"
    assert spark([]) == spark([None]) == spark([5.0]) == ""


def test_the_lake_says_why_it_is_empty():
    assert lake_state(None, None).reason == NOT_SET
    assert lake_state("/lake", None).reason == NOT_INSTALLED
    facts: dict[str, Any] = {"messages": 5, "behind": 0, "headroom": 3600.0, "lost": 0, "gaps": 0, "last_commit": None}
    row = ArchivedTopic(topic="orders", table="orders", format="delta", **facts)
    assert lake_state("/lake", lambda place: [row]).topics == (row,)

    def broken(place: str) -> list[ArchivedTopic]:
        raise LakeFailure("the bucket does not answer")

    assert lake_state("/lake", broken).reason == "the bucket does not answer"


class LakeFailure(PyroMQError):
    pass


def test_the_files_of_others_are_those_of_the_manifest(tmp_path):
    assert vendor.problems() == []
    copy = tmp_path / "vendor"
    shutil.copytree(vendor.FOLDER, copy)
    (copy / "htmx.min.js").write_text("changed")
    (copy / "planted.js").write_text("")
    (copy / "uplot.min.css").unlink()
    assert vendor.problems(copy) == [
        "htmx.min.js is not the file of htmx.org 2.0.11",
        "uplot.min.css is missing",
        "planted.js is not in the manifest",
    ]
