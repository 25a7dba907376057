"""The pytest plugin: fixtures with a real broker. Installed with PyroMQ, nothing has to be imported or configured.

    pyromq_broker          an empty one for each test, up in a fraction of a second, gone with its files afterwards
    pyromq_session_broker  one for the whole run: give each test topics of its own

    [tool.pytest.ini_options]
    pyromq_settings = ["enablePropertyFilter=true"]    # keys of broker.conf, for both

Importing this must cost nothing: pytest does it in every project where PyroMQ is installed. What the fixtures need is
imported by the first that is used.
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
    """A name server and a broker of its own for this test, empty, on free ports."""
    with _running(request.config) as broker:
        yield broker


@pytest.fixture(scope="session")
def pyromq_session_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A name server and a broker for the whole run. Tests share its topics and groups, so their names must differ."""
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
