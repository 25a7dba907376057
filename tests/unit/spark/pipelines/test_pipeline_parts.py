"""Parts of pipelines that need no Spark: alarms, progress, users' functions, the template of a project."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import yaml

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.functions import ERROR, OUT_SCHEMA, load, mapped
from pyromq.spark.pipelines.lag import LagRow, raised
from pyromq.spark.pipelines.progress import Progress, Watch, span
from pyromq.spark.pipelines.project import Project, init
from pyromq.spark.pipelines.settings import LagSettings, ReplaySettings, moment, parse

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def row(group: str, topic: str, queue: int, lag: int | None, oldest: float | None = None) -> LagRow:
    return LagRow(group, topic, "broker-a", queue, 0, lag, lag, oldest, NOW, None)


def test_an_alarm_counts_all_queues_of_a_group_in_a_topic():
    rules = parse(LagSettings, {"alarms": ["lag > 10", "billing: oldest > 5m", "other: lag > 0"]}).alarms
    rows = [row("billing", "orders", 0, 6, 100), row("billing", "orders", 1, 5, 301), row("mail", "orders", 0, 10, 999)]
    assert raised(rules, rows) == (
        "billing in orders: 11 behind (lag > 10)",
        "billing in orders: oldest unread message is 5 min old (billing: oldest > 5m)",
    )
    assert raised(rules, [row("billing", "orders", 0, None)]) == ()


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress("copy", 1, 0.5, 0), "copy: 1 row, 0.5 rows/s, lag 0"),
        (Progress("copy", 2000, 100.0, 8800), "copy: 2,000 rows, 100.0 rows/s, lag 8,800, 1 min left"),
        (Progress("copy", 0, 0.0, 5), "copy: 0 rows, 0.0 rows/s, lag 5"),
        (Progress("copy", 7, 3.0), "copy: 7 rows, 3.0 rows/s"),
    ],
)
def test_progress_is_a_line(progress, said):
    assert str(progress) == said


def test_spans_are_said_as_people_do():
    assert [span(each) for each in (0.4, 59, 60, 3600, 7260, 200_000)] == [
        "0 s", "59 s", "1 min", "1 h 0 min", "2 h 1 min", "2 days",
    ]  # fmt: skip


def test_a_watch_reports_until_it_is_left_and_survives_what_it_asks():
    seen: list[Progress] = []
    asked = 0

    def rows() -> int:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("away")
        return 500

    with Watch("w", 100, rows, seen.append, period=0.001):
        while not seen:
            pass
    assert (seen[0].rows, seen[0].lag) == (100, 0)


def test_times_may_be_given_in_several_ways():
    assert moment("2026-01-31T00:00:00Z") == moment("1769817600000") == NOW
    assert moment("2026-01-31T01:00:00+01:00") == NOW
    assert moment("-1h") < moment("now")
    for wrong in ("1769817600", "yesterday", "31.1.2026"):
        with pytest.raises(ValueError, match=r"milliseconds|a time such as"):
            moment(wrong)
    with pytest.raises(ConfigError, match="since must be before until"):
        parse(ReplaySettings, {"from": "a", "to": "b", "since": "2026-02-01", "until": "2026-01-01"})


# Functions


def called(function, *bodies: bytes) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pylist([{"body": body, "keys": "k", "tags": None, "topic": "t"} for body in bodies])
    return [row for out in mapped(function)(iter([batch])) for row in out.to_pylist(maps_as_pydicts="strict")]


def test_what_a_function_may_return():
    def every_kind(message):
        match message["body"]:
            case b"none":
                return None
            case b"bytes":
                return b"1"
            case b"text":
                return "2"
            case b"dict":
                return {"body": "3", "keys": ["a", "b"], "properties": {"n": 1}}
        return ["4", {"body": b"5", "tags": message["topic"]}]

    found = called(every_kind, b"none", b"bytes", b"text", b"dict", b"list")
    assert [row["body"] for row in found] == [b"1", b"2", b"3", b"4", b"5"]
    assert (found[2]["keys"], found[2]["properties"], found[4]["tags"]) == ("a b", {"n": "1"}, "t")
    assert all(row[ERROR] is None and list(row) == OUT_SCHEMA.names for row in found)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda message: json.loads(message["body"]), "JSONDecodeError: "),
        (lambda message: 7, "TypeError: a function returns dict"),
        (lambda message: {"body": "x", "boddy": 1}, "KeyError: 'boddy is not a column"),
        (lambda message: {"keys": "x"}, "TypeError: body must be bytes or text, not NoneType"),
        (lambda message: {"body": "x", "tags": 1}, "TypeError: tags must be text, not int"),
        (lambda message: ["good", 1 / 0], "ZeroDivisionError"),
    ],
)
def test_a_message_that_a_function_does_not_take_is_a_bad_row_as_a_whole(function, said):
    [bad] = called(function, b"no json")
    assert (bad["body"], bad["keys"]) == (b"no json", "k")
    assert bad[ERROR].startswith(said)


def test_functions_are_found_in_files_and_modules(tmp_path):
    (tmp_path / "shop.py").write_text("def f(message):\n    return None\nX = 1\n")
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    assert load("shop.py", "f", tmp_path)({}) is None
    assert load("json", "loads", tmp_path) is json.loads
    for place, name, said in (
        ("shop.py", "g", "has no function g"),
        ("shop.py", "X", "has no function X"),
        ("no.py", "f", "there is no file"),
        ("broken.py", "f", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("nowhere_at_all", "f", "No module named 'nowhere_at_all'"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(place, name, tmp_path)


# Projects


def test_a_project_is_made_in_a_new_folder_only(tmp_path):
    project = Project("pay-ments", "copies", "ns:9876", "/usr/bin/python3")
    made = init(tmp_path / "shop", project)
    texts = {str(path.relative_to(tmp_path / "shop")): path.read_text() for path in made}
    spec = yaml.safe_load(texts["spark-pipeline.yml"])
    assert (spec["name"], spec["storage"]) == ("shop", (tmp_path / "shop" / "pipeline-storage").as_uri())
    ast.parse(texts["transformations/pay_ments.py"])
    assert 'subscribe="pay-ments"' in texts["transformations/pay_ments.py"]
    assert (tmp_path / "shop" / "run").stat().st_mode & 0o111
    with pytest.raises(ConfigError, match="is not empty"):
        init(tmp_path / "shop", project)
    with pytest.raises(ConfigError, match="cannot name a pipeline"):
        init(tmp_path / "a shop", project)
