"""An archive whose driver, executors and tasks are killed at random has every message once: two workers, real kills.

`--rounds 100 --seed 7` kills a hundred times, by that chance.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.lake_kit import are_dense, offsets, query
from tests.spark.messages import Topics, topics_in, until
from tests.spark.standalone import HASTY, Standalone, environment

from pyromq.testing.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

DRIVER = Path(__file__).with_name("lake_driver.py")
EXECUTOR, TASKS = b"CoarseGrainedExecutorBackend", b"pyspark.daemon"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    given = request.config.getoption("--seed")
    return int(time.time()) if given is None else int(given)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))


@pytest.fixture
def topics() -> Iterator[Topics]:
    with running_cluster() as cluster, topics_in(cluster) as made:
        yield made


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Standalone]:
    python = environment(tmp_path / "python")
    with Standalone(tmp_path, [python, python]) as cluster:
        yield cluster


class Program:
    """The archive as a program, started again whenever it was killed."""

    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        self._order = {**order, "folder": str(folder)}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def steps(self) -> list[tuple[str, int, int, str | None]]:
        """What it has noted, in all its lives."""
        path = self._folder / "progress"
        lines = path.read_text().splitlines() if path.exists() else []
        # A line may be half written when its writer is killed.
        return [tuple(json.loads(line)) for line in lines if line.endswith(("null]", '"]'))]

    def start(self) -> None:
        before = len(self.steps)
        with (self._folder / "log").open("ab") as log:
            # A session of its own, so that all of it can be killed: Python, and the JVM.
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(self._order)],
                env=os.environ | {"PYSPARK_PYTHON": "python3"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: len(self.steps) > before or not self.runs, 180)
        assert self.runs, (self._folder / "log").read_text()[-3000:]

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        (self._folder / "stop").touch()
        assert self._process is not None
        assert self._process.wait(120) == 0


def below(root: int, word: bytes) -> list[int]:
    """The processes below this one that have a word in their command."""
    children: dict[int, list[int]] = {}
    commands: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(entry.name)
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
            commands[pid] = (entry / "cmdline").read_bytes()
    found, waiting = [], [root]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            waiting.append(pid)
            if word in commands.get(pid, b""):
                found.append(pid)
    return found


def kill_one(word: bytes, chance: random.Random, seconds: float = 30.0) -> bool:
    """Kill one of the processes below this test that have `word` in their command, as soon as there is one."""
    deadline = time.monotonic() + seconds
    while not (found := below(os.getpid(), word)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(sorted(found)), signal.SIGKILL)
    return True


@contextlib.contextmanager
def producing(topics: Topics, names: list[str], pause: float) -> Iterator[Callable[[], int]]:
    """Messages all the time, numbered per topic. Tells how many each topic has got."""
    ends = threading.Event()
    sent = 0

    def work() -> None:
        nonlocal sent
        while not ends.wait(pause):
            for name in names:
                topics.send(name, [b"%d" % number for number in range(sent, sent + 50)])
            sent += 50

    thread = threading.Thread(target=work)
    thread.start()

    def end() -> int:
        ends.set()
        thread.join()
        return sent

    try:
        yield end
    finally:
        end()


@pytest.mark.scenario("spark 32")
def test_an_archive_that_is_killed_again_and_again_has_every_message_once(workers, topics, tmp_path, rounds, seed):
    print(f"seed {seed}, {rounds} rounds")
    chance = random.Random(seed)
    names = [topics.new(queues) for queues in (1, 4, 8)]
    lake = tmp_path / "lake"
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": HASTY,
        "spark.driver.extraJavaOptions": f"{HASTY} -Dderby.system.home={tmp_path}",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "8",
    }
    order = {
        "namesrv": topics.cluster.namesrv,
        "root": str(lake),
        "topics": names,
        "master": workers.master,
        "conf": conf,
        # More tasks than there is work for: more to be killed.
        "options": {"minPartitions": 4},
    }
    program = Program(order, tmp_path)
    kills: Counter[str] = Counter()
    try:
        with producing(topics, names, 0.1) as end:
            program.start()
            while kills.total() < rounds:
                if chance.random() < 0.7:  # in the middle of some step, and not of the first one of all
                    before = len(program.steps)
                    until(lambda before=before: len(program.steps) > before or not program.runs, 120)  # type: ignore[misc]
                time.sleep(chance.choice((0.2, 1.0, 3.0)) * chance.random())
                what = chance.choice(("driver", "executor", "task", "task"))
                if what == "driver" or not program.runs:
                    program.kill()
                    program.start()
                elif not kill_one(EXECUTOR if what == "executor" else TASKS, chance):
                    continue
                kills[what] += 1
            count = end()
        if not program.runs:
            program.start()
        until(lambda: sum(sum(map(len, offsets(table(lake, name)).values())) for name in names) >= 3 * count, 240)
        program.stop()
    finally:
        program.kill()
    print(dict(kills), f"{count} messages per topic")
    for name in names:
        found = offsets(table(lake, name))
        assert are_dense(found), (seed, name)
        ends = {queue.queue_id: each.max_offset for queue, each in topics.admin.topics.stats(name).items()}
        assert {number: len(each) for (_, number), each in found.items()} == ends
        bodies = query(table(lake, name), "SELECT body FROM rows")
        assert sorted(int(body) for (body,) in bodies) == list(range(count)), (seed, name)
        check_leftovers(table(lake, name))


def table(lake: Path, topic: str) -> Path:
    return lake / topic.replace("-", "_")


def check_leftovers(folder: Path) -> None:
    """What the dead left are files that the table does not name, and they go."""
    from deltalake import DeltaTable

    named = {Path(uri.removeprefix("file://")).resolve() for uri in DeltaTable(folder).file_uris()}
    there = {path.resolve() for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert named <= there
    before = query(folder, "SELECT count(*), sum(queueOffset) FROM rows")
    DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    there = {path.resolve() for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert there == named
    assert query(folder, "SELECT count(*), sum(queueOffset) FROM rows") == before
