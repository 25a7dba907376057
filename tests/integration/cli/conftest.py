"""A cluster for all tests of a module, and commands for it."""

from __future__ import annotations

import itertools
import os

import pytest
from tests.integration.cli.cli_kit import Commands

from pyromq.testing import running_cluster

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as running:
        yield running


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Nobody's contexts and variables reach into the tests."""
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY", "PYROMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in [each for each in os.environ if each.startswith("PYROMQ_TLS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def pyromq(capsys, cluster):
    return Commands(capsys, cluster.namesrv)


@pytest.fixture
def topic(pyromq):
    """A topic of four queues that no other test knows."""
    name = f"orders-{next(_NUMBERS)}"
    assert pyromq("topic", "create", name, "-q", "4").code == 0
    return name
