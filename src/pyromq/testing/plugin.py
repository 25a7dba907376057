"""The pytest plugin: fixtures with a real broker. It comes with PyroMQ; there is nothing to import or configure.

    pyromq_broker          an empty one for each test, up in a fraction of a second, deleted with its files afterwards
    pyromq_session_broker  one for the whole run: give each test its own topics

    [tool.pytest.ini_options]
    pyromq_settings = ["enablePropertyFilter=true"]    # keys of broker.conf, for both

Importing this must cost nothing: pytest does it in every project where PyroMQ is installed. The fixtures import what
they need on first use.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .waiting import TestBroker

_SETTINGS = "pyromq_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_SETTINGS, "Settings for the brokers of PyroMQ's fixtures, key=value.", type="linelist", default=[])


@pytest.fixture
def pyromq_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A name server and an empty broker for this test alone, on free ports."""
    with _running(request.config) as broker:
        yield broker


@pytest.fixture(scope="session")
def pyromq_session_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A name server and a broker for the whole run. Tests share its topics and groups, so use different names."""
    with _running(request.config) as broker:
        yield broker


@contextlib.contextmanager
def _running(config: pytest.Config) -> Iterator[TestBroker]:
    from .cluster import running_cluster
    from .waiting import TestBroker

    with running_cluster(None, *config.getini(_SETTINGS)) as cluster:
        broker = TestBroker(cluster)
        try:
            yield broker
        finally:
            broker.close()
