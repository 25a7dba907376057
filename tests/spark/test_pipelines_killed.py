"""A run of pipelines that is killed or stopped with Ctrl-C: the next one goes on, and nothing comes twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.spark.messages import topics_in, until

from pyromq.testing.cluster import running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
LOCAL = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
PROGRAM = "import sys; from pyromq.cli.main import main; main(sys.argv[1:])"


class Run:
    """`pyromq spark run`, in a process of its own; what it says is kept."""

    def __init__(self, namesrv: str, file: Path, *more: str) -> None:
        command = [sys.executable, "-c", PROGRAM, "spark", "run", "-n", namesrv, *LOCAL, *more, str(file)]
        # In a group of its own: a signal to it reaches no one else.
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += self.process.stderr

    def works(self) -> bool:
        assert self.process.poll() is None, self.said
        return any(re.match("transform-orders-large-orders: .* rows/s", line) for line in self.said)

    def ends(self) -> int:
        code = self.process.wait(300)
        self._reading.join(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def order(number: int) -> bytes:
    return b'{"id": "o%d", "customer": "c", "product": "tea", "amount": 5, "price": 2.5}' % number


def test_the_example_survives_kills_and_stops_with_control_c(tmp_path):
    for name in ("shop_lake.yaml", "large_orders.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text().replace("every: 1m", "every: 1s"))
    file = tmp_path / "shop_lake.yaml"
    chance = random.Random(7)
    sent = 0
    with running_cluster() as cluster, topics_in(cluster) as topics:
        for topic in ("orders", "payments"):
            topics.admin.topics.create(topic, write_queues=4, read_queues=4)

        def send(count: int) -> None:
            nonlocal sent
            topics.send("orders", [order(sent + n) for n in range(count)], keys=lambda n: f"o{sent + n}")
            sent += count

        def large() -> int:
            return sum(each.max_offset for each in topics.admin.topics.stats("large-orders").values())

        send(200)
        for _ in range(3):
            run = Run(cluster.namesrv, file)
            before = sent
            # Not before it works, and then at any moment.
            until(run.works, 150)
            for _ in range(chance.randrange(1, 15)):
                send(10)
            assert sent > before
            os.kill(run.process.pid, signal.SIGKILL)
            run.ends()

        run = Run(cluster.namesrv, file)
        send(50)
        until(lambda: run.works() and large() >= sent, 150)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.ends() == 0, run.said
        text = "".join(run.said)
        assert "stopping on SIGINT" in text
        assert "transform-orders-large-orders: stopped" in text
        assert "Traceback" not in text

        topics.send("orders", [b"no order"], keys="odd")
        once = Run(cluster.namesrv, file, "--once")
        assert once.ends() == 0, once.said
        audited = [line for line in once.said if line.startswith("audit-orders")]
        assert audited[-1].endswith(f"{sent + 1:,} messages checked, all is well\n")
        assert large() == sent
        bad = topics.admin.topics.stats("large-orders__dlq")
        assert sum(each.max_offset for each in bad.values()) == 1
        keys = Run(cluster.namesrv, write(tmp_path), "--once")
        assert keys.ends() == 6
        assert any("orders -> large-orders: 1 missing (odd)" in line for line in keys.said), keys.said


def write(folder: Path) -> Path:
    """A file that compares input and output."""
    path = folder / "compare.yaml"
    path.write_text("pipelines: [{audit: {inTopic: orders, outTopic: large-orders}}]")
    return path
