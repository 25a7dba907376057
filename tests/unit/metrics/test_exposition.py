"""The page that Prometheus reads, read back by Prometheus' own parser for Python."""

from __future__ import annotations

import asyncio
import math

from prometheus_client.parser import text_string_to_metric_families

from pyromq.metrics.exposition import Page, in_turns, number, render_labels
from pyromq.metrics.model import Distribution, Sample, counter, gauge, histogram

DISK = gauge("a_disk_used", "How full it is.", "disk", unit="bytes")
SENDS = counter("a_sends_total", "Messages\nthat \\ came.", "topic")
TOOK = histogram("a_took", "How long it took.", "code", buckets=(1.0, 5.0), unit="milliseconds")


def families(page: Page):
    return {family.name: family for family in text_string_to_metric_families(page.text())}


def test_a_page_says_what_was_added():
    page = Page()
    page.add(Sample(SENDS, ("orders",), 3), render_labels({"cluster": "c"}))
    page.add(Sample(DISK, ("/",), 0.5))
    found = families(page)
    (sends,) = found["a_sends"].samples
    assert (sends.name, sends.labels, sends.value) == ("a_sends_total", {"cluster": "c", "topic": "orders"}, 3)
    assert found["a_sends"].documentation == "Messages\nthat \\ came."
    assert found["a_sends"].type == "counter"
    assert found["a_disk_used_bytes"].samples[0].value == 0.5


def test_labels_may_contain_anything():
    page = Page()
    nasty = 'a"b\\c\nd{e}=,é\U0001f409'
    page.add(Sample(SENDS, (nasty,), 1))
    assert families(page)["a_sends"].samples[0].labels == {"topic": nasty}


def test_a_histogram_adds_its_buckets_up():
    page = Page()
    took = Distribution(TOOK.buckets)
    for value in (0.5, 1.0, 3.0, 100.0):
        took.add(value)
    page.add(Sample(TOOK, ("send",), took))
    samples = families(page)["a_took_milliseconds"].samples
    assert {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")} == {"1": 2, "5": 3, "+Inf": 4}
    assert {s.name: s.value for s in samples if "le" not in s.labels} == {
        "a_took_milliseconds_sum": 104.5,
        "a_took_milliseconds_count": 4,
    }


def test_without_units_names_are_bare():
    page = Page(with_units=False)
    page.add(Sample(DISK, ("/",), 1))
    assert [*families(page)] == ["a_disk_used"]


def test_samples_of_one_metric_stand_together_whoever_gave_them():
    page = Page()
    for topic in ("a", "b"):
        page.add(Sample(SENDS, (topic,), 1))
        page.add(Sample(DISK, (topic,), 1))
    assert page.text().count("# TYPE a_sends_total") == 1
    assert len(families(page)["a_sends"].samples) == 2


def test_counters_beyond_the_limit_are_added_up_and_gauges_left_out():
    page = Page(limit=2)
    for number_ in range(5):
        page.add(Sample(SENDS, (f"t{number_}",), 10 + number_))
        page.add(Sample(DISK, (f"d{number_}",), 1))
        took = Distribution(TOOK.buckets)
        took.add(2.0)
        page.add(Sample(TOOK, (f"c{number_}",), took))
    found = families(page)
    sends = {tuple(s.labels.items()): s.value for s in found["a_sends"].samples}
    assert sends == {
        (("topic", "t0"),): 10,
        (("topic", "t1"),): 11,
        (("otel_metric_overflow", "true"),): 12 + 13 + 14,
    }
    assert len(found["a_disk_used_bytes"].samples) == 2
    rest = [s for s in found["a_took_milliseconds"].samples if "otel_metric_overflow" in s.labels]
    assert {s.name: s.value for s in rest if "le" not in s.labels}["a_took_milliseconds_count"] == 3


def test_numbers_are_written_as_prometheus_reads_them():
    assert [*map(number, (1, 2.0, 0.25, math.inf, -math.inf, math.nan, True))] == [
        "1", "2", "0.25", "+Inf", "-Inf", "NaN", "1"
    ]  # fmt: skip


async def test_others_have_their_turns_while_a_large_page_is_made(monkeypatch):
    monkeypatch.setattr("pyromq.metrics.exposition._TURN", 0.0)
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    page = Page()
    await in_turns((Sample(SENDS, (str(n),), n) if n % 2 else None for n in range(1600)), page.add)
    task.cancel()
    assert turns >= 100
    assert len(families(page)["a_sends"].samples) == 800
