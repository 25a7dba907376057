"""The pytest plugin: what other people's tests get, and that nobody pays for it who does not use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyromq.sync import Consumer
from pyromq.testing import NotThereInTime, TestBroker, running_cluster

PROJECT = Path(__file__).parents[3] / "examples" / "project"
PLUGIN = "pyromq.testing.plugin"


@pytest.fixture
def broker():
    with running_cluster() as cluster:
        running = TestBroker(cluster)
        yield running
        running.close()


@pytest.mark.slow
def test_the_example_project_passes_its_tests(tmp_path):
    project = shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__", ".pytest_*"))
    # Without plugins of ours that the project does not ask for.
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(
        run, cwd=project, capture_output=True, text=True, timeout=120, check=False, env=_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def _environment():
    """Without what an outer pytest left for inner ones."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NAMESRV"))}


def test_it_is_found_by_pytest_and_costs_nothing_to_import():
    program = (
        "import importlib.metadata as m, sys\n"
        "[found] = [each for each in m.entry_points(group='pytest11') if each.name == 'pyromq']\n"
        "found.load()\n"
        "print(found.value, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    value, *loaded = done.stdout.split()
    assert value == PLUGIN
    assert not {"pyromq.broker", "pyromq.client", "asyncio", "numpy"} & {*loaded}


def test_a_broker_is_up_in_a_third_of_a_second():
    # The first of a process imports what it needs; the second shows what each test pays. Of the processor's time, since
    # the machine may be busy with something else.
    with running_cluster():
        pass
    times = []
    for _ in range(3):
        began = time.process_time()
        with running_cluster() as cluster:
            times.append(time.process_time() - began)
            assert cluster.namesrv
    assert min(times) < 0.3


def test_waiting_ends_when_the_message_is_there_and_says_what_was_there_otherwise(broker):
    assert broker.messages("nowhere") == []
    broker.create_topic("orders", queues=2)
    broker.send("orders", b"first", tags="a", keys=["k"], properties={"region": "eu"})
    broker.send("orders", b"second", tags="b")
    [found] = broker.wait_for("orders", where=lambda message: message.tags == "a")
    assert (found.body, found.keys, found.properties["region"]) == (b"first", ["k"], "eu")
    assert {message.body for message in broker.messages("orders")} == {b"first", b"second"}
    with pytest.raises(NotThereInTime, match=r"2 of 3 messages in topic orders within 0\.05 s.*b'second'"):
        broker.wait_for("orders", 3, timeout=0.05)


def test_one_can_wait_until_a_group_has_read_everything(broker):
    broker.create_topic("orders", queues=1)
    broker.send("orders", b"1")
    with pytest.raises(NotThereInTime, match="group readers has read nothing after"):
        broker.wait_until_consumed("readers", timeout=0.05)
    read = []
    consumer = Consumer("readers", namesrv=broker.namesrv)
    consumer.subscribe("orders", "*", lambda message: read.append(message.body))
    with consumer:
        broker.wait_until_consumed("readers", "orders")
        assert read == [b"1"]
    broker.send("orders", b"2")
    with pytest.raises(NotThereInTime, match="group readers is still 1 messages behind"):
        broker.wait_until_consumed("readers", timeout=0.05)
