"""What is said about a Spark Connect server before it is used."""

from __future__ import annotations

import importlib.util
import socket

import pytest
from pyspark.errors import AnalysisException
from tests.ports import free_port

from pyromq.errors import ConfigError
from pyromq.spark.sessions.connect import check_reachable, lacking
from pyromq.spark.sessions.session import check_requirements

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed() -> int:
    """A port where nobody listens."""
    return free_port()


def test_a_server_that_listens_passes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"sc://127.0.0.1:{server.getsockname()[1]}/;token=secret;user_id=me")


def test_a_server_that_is_not_there_is_named_without_its_token(closed):
    with pytest.raises(ConfigError) as refused:
        check_reachable(f"sc://127.0.0.1:{closed}/;token=secret")
    said = str(refused.value)
    assert said.startswith(f"no Spark Connect server can be reached at 127.0.0.1:{closed}: ")
    assert "secret" not in said


@pytest.mark.parametrize("remote", ["sc://", "sc://127.0.0.1:no-number", "http://127.0.0.1:1", "127.0.0.1", ""])
def test_what_is_no_address_is_left_to_spark(remote):
    check_reachable(remote)


@pytest.mark.parametrize("name", PROXIES)
def test_behind_a_proxy_nobody_is_asked_directly(monkeypatch, closed, name):
    monkeypatch.setenv(name, "http://proxy:3128")
    check_reachable(f"sc://127.0.0.1:{closed}")


@pytest.mark.parametrize(
    ("message", "module"),
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed\nModuleNotFoundError: No module named 'pyromq'\n SQLSTATE: 38000",
            "pyromq",
        ),
        ("ModuleNotFoundError: No module named 'msgspec'", "msgspec"),
        ("(…SparkClassNotFoundException) [DATA_SOURCE_NOT_FOUND] Failed to find the data source: rocketmq.", "pyromq"),
    ],
)
def test_of_stacks_in_two_languages_the_missing_module_is_told(message, module):
    said = lacking(AnalysisException(message))
    assert said is not None
    assert said.startswith(f"the Python of the Spark Connect server has no module '{module}', ")


def test_other_failures_are_not_explained_away():
    assert lacking(AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found.")) is None


def test_connect_needs_packages_of_its_own(monkeypatch):
    check_requirements(java=False, connect=True)
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "grpc" else found(name))
    check_requirements(java=False)
    with pytest.raises(ConfigError, match=r"^grpc is not installed; pip install 'pyromq\[connect\]' installs it$"):
        check_requirements(java=False, connect=True)
