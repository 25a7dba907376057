"""`pyromq lake`: tables looked at and taken care of."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.unit.spark.lake.lake_rows import NOON, add, messages, queue

from pyromq.cli.nouns import lake as noun
from pyromq.spark.lake import tables
from pyromq.spark.lake.parquet_parts import write_parts
from pyromq.spark.lake.storage import Storage
from pyromq.spark.lake.table import Gap, LakeCommit, Move

if TYPE_CHECKING:
    from pyromq.spark.lake.table import LakeTable

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    return Storage.of(str(tmp_path / "lake"))


@pytest.fixture
def orders(lake: Storage) -> LakeTable:
    """Three small files of a day that is over, in two queues, and one of another day."""
    table = tables.open_or_create(lake, "orders", "orders", "main")
    for at in range(0, 6, 2):
        add(table, lake, "orders", queue(), at, at + 2)
    add(table, lake, "orders", queue(1), 0, 3, stored=NOON + timedelta(days=1))
    return table


@pytest.fixture
def run(capsys, lake):
    def call(*arguments: object) -> tuple[int, str, str]:
        words = [str(argument) for argument in arguments]
        code = noun.main([words[0], "--lake", lake.root, *words[1:]])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_list_and_show(run, orders) -> None:
    code, out, _ = run("list", "-o", "json")
    assert code == 0
    (row,) = json.loads(out)
    expected = {"table": "orders", "topic": "orders", "format": "delta", "version": 4, "queues": 2, "messages": 9}
    assert row.items() >= expected.items()
    assert row["bytes"] == sum(file.size for file in orders.files(orders.snapshot()))
    code, out, _ = run("show", "orders")
    facts, _, positions = out.partition("\n\n")
    assert code == 0
    assert "location" in facts
    assert [line.split() for line in positions.splitlines()[1:]] == [["broker-a", "0", "6"], ["broker-a", "1", "3"]]
    document = json.loads(run("show", "orders", "--version", 1, "-o", "json")[1])
    assert (document["version"], document["messages"], document["queues"][0]["nextOffset"]) == (1, 2, 2)
    days = json.loads(run("show", "orders", "--days", "-o", "json")[1])["days"]
    assert [(day["day"], day["files"], day["tooMany"]) for day in days] == [
        ("2026-01-31", 3, True),
        ("2026-02-01", 1, False),
    ]


def test_history_and_times(run, orders) -> None:
    found = json.loads(run("history", "orders", "--limit", 2, "-o", "json")[1])
    assert [(each["version"], each["operation"], each["messages"]) for each in found] == [
        (4, "archive", 3),
        (3, "archive", 2),
    ]
    document = json.loads(run("show", "orders", "--at", found[1]["time"], "-o", "json")[1])
    assert document["version"] in (3, 4)  # the time is shown to the millisecond
    code, _, err = run("show", "orders", "--at", "2020-01-01T00:00:00Z")
    assert (code, "has no version that was there at 2020-01-01" in err) == (3, True)
    assert run("show", "orders", "--at", "now", "--version", 1)[0] == 2


def test_compact(run, orders) -> None:
    code, _, err = run("compact", "--dry-run")
    assert (code, "would merge 3 files of orders into 1" in err) == (0, True)
    assert len(orders.files(orders.snapshot())) == 4
    assert json.loads(run("compact", "--since", "2026-02-01", "-o", "json")[1])[0]["filesBefore"] == 0
    (row,) = json.loads(run("compact", "orders", "-o", "json")[1])
    assert (row["filesBefore"], row["filesAfter"], row["messages"], row["days"]) == (3, 1, 6, 1)
    assert len(orders.files(orders.snapshot())) == 2
    assert run("compact", "--since", "yesterday")[0] == 2


def test_vacuum(run, orders, lake) -> None:
    lost = write_parts(lake, "orders", "lost", [messages()])[0].path
    os.utime(lake.path(f"orders/{lost}"), (1, 1))
    code, out, err = run("vacuum", "--dry-run", "-o", "json")
    assert (code, json.loads(out)) == (0, [{"table": "orders", "file": lost}])
    assert "would delete 1 files of orders" in err
    assert Path(lake.path(f"orders/{lost}")).exists()
    assert run("vacuum")[0] == 0
    assert not Path(lake.path(f"orders/{lost}")).exists()
    code, _, err = run("vacuum", "--older-than", "1h")
    assert (code, "vacuum keeps 7 days" in err) == (2, True)
    assert run("vacuum", "--older-than", "soon")[0] == 2


def test_gaps(run, orders) -> None:
    assert run("gaps")[0] == 0
    orders.commit(LakeCommit([], [Move(queue(1), 3, 10)], [Gap(queue(1), 3, 10, NOON)]))
    code, out, _ = run("gaps", "orders", "-o", "json")
    assert code == 1
    (gap,) = json.loads(out)
    assert (gap["broker"], gap["queue"], gap["first"], gap["last"], gap["messages"]) == ("broker-a", 1, 3, 9, 7)


def test_export(run, orders, tmp_path) -> None:
    target = tmp_path / "out"
    until = NOON + timedelta(seconds=1)
    code, out, _ = run("export", "orders", target, "--until", until.isoformat(), "-o", "json")
    assert code == 0
    assert json.loads(out)["messages"] == 3  # the first of each file
    found = pq.read_table(target)
    assert sorted(found["queueOffset"].to_pylist()) == [0, 2, 4]
    assert {str(day) for day in found["dt"].to_pylist()} == {"2026-01-31"}
    code, _, err = run("export", "orders", target)
    assert (code, "is not empty" in err) == (2, True)
    assert json.loads(run("export", "orders", tmp_path / "all", "-o", "json")[1])["messages"] == 9
    assert pq.read_table(tmp_path / "all").num_rows == 9


def test_what_is_not_there(run, orders, capsys, lake, monkeypatch) -> None:
    code, _, err = run("show", "order")
    assert (code, "did you mean orders?" in err) == (3, True)
    assert run("history", "orders", "--format", "avro")[0] == 2
    assert noun.main(["list"]) == 2
    assert "name its folder with --lake" in capsys.readouterr().err
    monkeypatch.setenv("PYROMQ_LAKE", lake.root)
    assert noun.main(["list", "-o", "name"]) == 0
    assert capsys.readouterr().out == "orders\n"
    broken = Path(lake.path("orders/_delta_log")) / f"{5:020d}.json"
    broken.write_text("{ nonsense")
    code, _, err = run("list")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "is damaged" in err
    assert datetime.now(UTC) > NOON
