"""`pyromq pipelines init` makes a project that Spark's own runner runs, again and again."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.spark.messages import topics_in

from pyromq.cli.main import _run
from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


def run(project: Path, *words: str) -> str:
    done = subprocess.run([project / "run", *words], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stderr + done.stdout


@pytest.mark.scenario("spark 41")
def test_a_project_takes_what_is_new_with_every_run(tmp_path, capfd):
    project = tmp_path / "shop"
    with running_cluster() as cluster, topics_in(cluster) as topics:
        topic = topics.new(2)
        topics.send(topic, [b"%d" % n for n in range(20)], keys=lambda n: f"k{n}")
        words = ["--from", topic, "--to", "copies", "-n", cluster.namesrv]
        assert _run(["pipelines", "init", str(project), *words]) == 0
        assert str(project / "run") in capfd.readouterr().out.splitlines()
        assert _run(["pipelines", "init", str(project), *words]) == 2
        assert "is not empty" in capfd.readouterr().err

        def copied() -> int:
            return sum(each.max_offset for each in topics.admin.topics.stats("copies").values())

        run(project, "dry-run")
        assert "Run is COMPLETED" in run(project)
        assert copied() == 20
        topics.send(topic, [b"new %d" % n for n in range(3)])
        run(project)
        assert copied() == 23
        run(project)
        assert copied() == 23
