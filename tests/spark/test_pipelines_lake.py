"""Pipelines around the lake: archive, audit, replay from it, `pyromq sql`, and files of several, on a real Spark."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.spark.messages import Topics, bodies, topics_in

import pyromq.spark as mq
from pyromq.cli.main import _run
from pyromq.spark.pipelines.pipelines_file import LakePlace
from pyromq.spark.pipelines.runner import make
from pyromq.spark.pipelines.settings import KINDS, parse
from pyromq.spark.pipelines.surroundings import Surroundings
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def where(spark, topics, tmp_path) -> Surroundings:
    mq.enable(spark, namesrv=topics.cluster.namesrv)
    lake = LakePlace(str(tmp_path / "lake"))
    return Surroundings(spark, {"namesrv": topics.cluster.namesrv}, lake, tmp_path / "state", tmp_path)


def pipeline(kind: str, where: Surroundings, **settings: Any) -> Any:
    given = {key.rstrip("_"): value if isinstance(value, list) else str(value) for key, value in settings.items()}
    return make(kind, parse(KINDS[kind], given), where)


def findings(outcome: Any) -> list[tuple[Any, ...]]:
    rows = [row for row in outcome.table if row.check == "queue"]
    return [(row.queue, row.messages, row.missing, row.doubled, row.lost, row.differing, row.damaged) for row in rows]


def test_what_is_archived_is_audited_and_replayed(where, topics, tmp_path):
    topic, to = topics.new(2), topics.new(2)
    topics.send(topic, [b"%d" % n for n in range(30)], keys=lambda n: f"k{n}", tags=lambda n: "AB"[n % 2])
    said: list[str] = []
    where.say = where.report = lambda what: said.append(str(what))
    audit = pipeline("audit", where, topics=topic, maxLag=5)
    assert audit.run().problems[0].endswith("15 missing, 15 not archived yet (no table yet)")

    archive = pipeline("archive", where, topics=topic)
    assert archive.plan().rows == 30
    assert (done := archive.run()).rows == 30
    assert (done.problems, done.failures) == ((), ())
    assert any(line.startswith(f"archive-{topic}: {topic}: 30 rows, ") and "lag 0" in line for line in said)
    topics.send(topic, [b"live %d" % n for n in range(5)])
    well = audit.run()
    assert findings(well) == [(0, 15, 0, 0, 0, 0, 0), (1, 15, 0, 0, 0, 0, 0)]
    assert (well.problems, sum(row.lag for row in well.table)) == ((), 5)
    assert well.summary.endswith("30 messages checked, all is well")

    assert pipeline("replay", where, from_=topic, to=to, source="lake", tags="A").run().rows == 15
    assert bodies(mq.read(where.spark, to, topics.cluster.namesrv)) == sorted(str(n) for n in range(0, 30, 2))
    every = pipeline("replay", where, name="every", from_=topic, to=to, source="all")
    assert every.plan().rows == 35
    archive.run()
    topics.send(topic, [b"later"])
    assert every.run().rows == 35  # as it was planned: what the lake and the topic got since then is not part of it
    assert mq.read(where.spark, to, topics.cluster.namesrv).count() == 50


def test_an_audit_finds_what_is_missing_doubled_damaged_or_another(where, topics, tmp_path):
    """Files of the table are tampered with, behind the back of its log."""
    topic = topics.new(1)
    topics.send(topic, [b"%d" % n for n in range(20)])
    pipeline("archive", where, topics=topic).run()
    [file] = (tmp_path / "lake").rglob("*.parquet")
    kept = tmp_path / "kept.parquet"
    file.rename(kept)
    one = f"SELECT * FROM '{kept}'"
    duckdb.sql(
        f"COPY ({one} WHERE queueOffset NOT IN (3, 4, 9) UNION ALL {one} WHERE queueOffset = 7 "
        f"ORDER BY queueOffset) TO '{file}' (FORMAT parquet)"
    )
    done = pipeline("audit", where, topics=topic, failOnIds="true", table=str(tmp_path / "found")).run()
    assert findings(done) == [(0, 18, 3, 1, 0, 0, 0)]
    assert "missing 3 to 4, 9" in done.problems[0]
    assert done.problems[1].startswith(f"{topic}: 1 doubled (")
    assert where.spark.read.parquet(str(tmp_path / "found")).where("missing = 3").count() == 1

    file.unlink()
    changed = "* REPLACE (CASE queueOffset WHEN 5 THEN 'x'::BLOB ELSE body END AS body, "
    changed += "CASE queueOffset WHEN 6 THEN 'other' ELSE msgId END AS msgId)"
    duckdb.sql(f"COPY (SELECT {changed} FROM '{kept}' WHERE queueOffset < 19) TO '{file}' (FORMAT parquet)")
    done = pipeline("audit", where, topics=topic).run()
    assert findings(done) == [(0, 19, 1, 0, 0, 1, 1)]
    assert "missing 19" in done.problems[0]


FILE = """
name: shop
cluster: {{namesrv: "{namesrv}"}}
lake: {{root: lake}}
pipelines:
  - archive: {{topics: [{topic}]}}
  - transform: {{from: {topic}, to: {to}, sql: "select body, keys from `{topic}` where tags = 'A'"}}
  - audit: {{topics: [{topic}], inTopic: {topic}, outTopic: {to}, where: "tags = 'A'"}}
  - lag: {{alarms: ["lag > 1000000"]}}
"""
LOCAL = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]


@pytest.mark.long
@pytest.mark.scenario("spark 41")
def test_a_file_of_pipelines_and_sql_on_what_it_made(topics, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    topic, to = topics.new(2), topics.new(2)
    topics.send(topic, [b"%d" % n for n in range(10)], keys=lambda n: f"k{n}", tags=lambda n: "AB"[n % 2])
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "shop.yaml"
    file.write_text(FILE.format(namesrv=topics.cluster.namesrv, topic=topic, to=to))

    assert _run(["spark", "run", *LOCAL, "--dry-run", str(file)]) == 0
    plan = capfd.readouterr().out.splitlines()
    assert plan[0].startswith(f"archive-{topic}: 1 topic into {tmp_path}/conf/lake (delta), every 5 min")
    assert f"  bad rows go to {to}__dlq" in plan
    assert not (tmp_path / "conf" / "lake").exists()

    assert _run(["spark", "run", *LOCAL, "--once", "-o", "json", str(file)]) == 0
    said = capfd.readouterr()
    assert "12 messages checked, all is well" not in said.err
    assert f"audit-{topic}: 15 messages checked, all is well" in said.err
    assert f"transform-{topic}-{to}: 10 messages of {topic} read" in said.err
    assert (tmp_path / "conf" / "shop.state" / f"transform-{topic}-{to}" / "checkpoint").is_dir()

    topics.send(topic, [b"new"], tags="A", keys="late")
    assert _run(["spark", "audit", *LOCAL, "-n", topics.cluster.namesrv, "--in-topic", topic, "--out-topic", to,
                 "--where", "tags = 'A'", "-o", "csv"]) == 6  # fmt: skip
    said = capfd.readouterr()
    assert next(csv.DictReader(said.out.splitlines()))["missing"] == "1"
    assert f"found: {topic} -> {to}: 1 missing (late)" in said.err

    lake = ["--lake", str(tmp_path / "conf" / "lake"), "-n", topics.cluster.namesrv, *LOCAL]
    parts = " union all ".join(
        f"select '{which}' as part, count(*) as n, max(cast(body as string)) as m from `{topic}{which}`"
        for which in ("", "_lake", "_all")
    )
    assert _run(["sql", f"{parts} order by part", "-o", "json", *lake]) == 0
    assert json.loads(capfd.readouterr().out) == [
        {"part": "", "n": 11, "m": "new"},
        {"part": "_all", "n": 11, "m": "new"},
        {"part": "_lake", "n": 10, "m": "9"},
    ]
    out = tmp_path / "out.parquet"
    every = f"select keys, body, properties, storeTimestamp from `{topic}_all`"
    assert _run(["sql", every, "-o", "parquet", "-f", str(out), *lake]) == 0
    assert capfd.readouterr().err.endswith(f"11 rows in {out}\n")
    assert duckdb.connect().execute(f"SELECT count(*), max(body) FROM '{out}'").fetchone() == (11, b"new")
    assert _run(["sql", f"{every} order by keys", "--rows", "2", *lake]) == 0
    head, first, _, last = capfd.readouterr().out.splitlines()
    assert (head.split(), first.split()[:2]) == (["keys", "body", "properties", "storeTimestamp"], ["k0", "0"])
    assert last == "… the first 2 rows; --rows 0 shows all"
    for query, code, said in (
        (f"select nothing from `{topic}`", 1, "UNRESOLVED_COLUMN"),
        ("select * from nowhere", 1, "there is no topic, view or table nowhere; `pyromq topic list` lists the topics"),
        ("select", 1, "PARSE_SYNTAX_ERROR"),
    ):
        assert _run(["sql", query, *lake]) == code
        err = capfd.readouterr().err
        assert said in err
        assert "Traceback" not in err
