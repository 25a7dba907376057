"""Commands as processes: where their metrics are, and what they say if the port is taken."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request

import pytest
from tests.integration.broker.command_kit import line_with, run, started, stop, until
from tests.integration.metrics.monitor_kit import Scrape
from tests.ports import free_port

pytestmark = pytest.mark.slow

WHERE = re.compile(r"Metrics and health: (http://127\.0\.0\.1:(\d+))/metrics, /livez, /readyz\.")


def read(url: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


@pytest.fixture
def taken():
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def where(process) -> str:
    found = WHERE.fullmatch(line_with(process, "Metrics and health"))
    assert found
    return found[1]


def test_up_shows_its_servers_on_one_port_and_each_further_broker_on_the_next(tmp_path):
    first = free_port()
    ports = ("--namesrv-port", "0", "--broker-port", str(free_port(2)), f"metricsPromExporterPort={first}")
    with started(tmp_path, "up", *ports, "--brokers", "2") as process:
        line_with(process, "is ready")
        url = where(process)
        assert url == f"http://127.0.0.1:{first}"
        assert read(url, "/readyz")[0] == 200
        found = Scrape(read(url, "/metrics")[1])
        assert found.one("rocketmq_broker_permission", node_id="broker-a") == 6
        assert found.one("pyromq_namesrv_brokers") == 2
        second = Scrape(read(f"http://127.0.0.1:{first + 1}", "/metrics")[1])
        assert second.one("rocketmq_broker_permission", node_id="broker-b") == 6
        assert second.of("pyromq_namesrv_brokers") == []
        assert stop(process)[0] == 0


def test_up_goes_on_without_metrics_if_the_port_is_taken(tmp_path, taken):
    ports = ("--namesrv-port", "0", "--broker-port", "0", f"metricsPromExporterPort={taken}")
    with started(tmp_path, "up", *ports) as process:
        line_with(process, "is ready")
        _, _, err = stop(process)
        assert f"no metrics and no health checks: port {taken} is taken" in err


def test_a_broker_whose_port_was_set_and_is_taken_does_not_start(tmp_path, taken):
    code, _, err = run(
        tmp_path, "broker", "listenPort=0", "bindAddress=127.0.0.1", f"metricsPromExporterPort={taken}",
        f"storePathRootDir={tmp_path}/store",
    )  # fmt: skip
    assert code == 255
    assert re.search(rf"pyromq broker: port {taken} is taken .*cannot listen on 127\.0\.0\.1:{taken}\n", err)


@pytest.mark.parametrize("command", ["broker", "namesrv", "controller"])
def test_every_server_shows_itself(tmp_path, command):
    settings = {
        "broker": ["listenPort=0", f"storePathRootDir={tmp_path}/store"],
        "namesrv": ["listenPort=0", f"kvConfigPath={tmp_path}/kv.json"],
        "controller": [f"controllerDLegerPeers=n0-127.0.0.1:{free_port()}", f"controllerStorePath={tmp_path}/journal"],
    }
    own = [*settings[command], "bindAddress=127.0.0.1", "metricsPromExporterPort=0"]
    with started(tmp_path, command, *own) as process:
        url = where(process)
        for path in ("/livez", "/startupz", "/readyz"):
            assert until(lambda path=path: read(url, path)[0] == 200), path
        names = Scrape(read(url, "/metrics")[1]).names
        assert {"process_resident_memory_bytes", "pyromq_build_info", "pyromq_connections"} <= names
        assert stop(process)[0] == 0


def test_a_disabled_port_is_not_mentioned(tmp_path):
    settings = ["listenPort=0", "bindAddress=127.0.0.1", f"kvConfigPath={tmp_path}/kv.json", "metricsExporterType=0"]
    with started(tmp_path, "namesrv", *settings) as process:
        line_with(process, "boot success")
        code, out, _ = stop(process)
        assert code == 0
        assert "Metrics" not in out
