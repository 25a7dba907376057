"""`mqbroker`, `mqnamesrv` and `mqcontroller`: the servers under RocketMQ's names, with its flags, as processes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.integration.broker.command_kit import environment, line_with, stop

SCRIPTS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]

pytestmark = pytest.mark.slow


def command(name):
    """What an installed script does, with or without an installation."""
    module, _, function = SCRIPTS[name].partition(":")
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


@pytest.fixture
def run(tmp_path):
    def run(name, *arguments, **environ):
        done = subprocess.run(
            [*command(name), *arguments],
            env=environment(tmp_path) | environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("name", ["mqbroker", "mqnamesrv"])
def test_help_and_wrong_options_show_the_usage_under_that_name(run, name):
    code, out, _ = run(name, "-h")
    assert code == 0
    assert f"Usage: {name} " in out
    assert all(flag in out for flag in ("-c", "-n", "-p", "-h", "--configFile", "--namesrvAddr", "--printConfigItem"))
    code, out, err = run(name, "-x")
    assert (code, out) == (1, "")
    assert f"Usage: {name} " in err


def test_a_broker_prints_all_settings_or_the_important_ones(run, tmp_path):
    (tmp_path / "broker.conf").write_text("brokerName=from-file\n")
    code, out, _ = run("mqbroker", "-c", "broker.conf", "-n", "10.0.0.1:9876", "-p")
    shown = dict(line.split("=", 1) for line in out.splitlines())
    assert (code, shown["brokerName"], shown["namesrvAddr"]) == (0, "from-file", "10.0.0.1:9876")
    assert "listenPort" in shown
    code, out, _ = run("mqbroker", "-c", "broker.conf", "-m", "autoCreateTopicEnable=false")
    shown = dict(line.split("=", 1) for line in out.splitlines())
    assert (code, shown["brokerName"], shown["autoCreateTopicEnable"]) == (0, "from-file", "false")
    assert "listenPort" not in shown


def test_a_name_server_prints_its_settings_and_takes_an_address_that_it_does_not_need(run):
    code, out, _ = run("mqnamesrv", "-p", "-n", "10.0.0.1:9876")
    assert code == 0
    assert "listenPort=9876\n" in out
    assert "kvConfigPath=" in out


@pytest.mark.parametrize("name", ["mqbroker", "mqcontroller", "mqnamesrv"])
def test_all_serve_until_a_signal_and_need_no_home_of_rocketmq(tmp_path, name):
    arguments = ["listenPort=0", "bindAddress=127.0.0.1", "controllerDLegerPeers=n0-127.0.0.1:0"]
    if name == "mqbroker":
        arguments += [f"storePathRootDir={tmp_path / 'store'}", "mappedFileSizeCommitLog=1m", "drainSeconds=0"]
    with subprocess.Popen(
        [*command(name), *arguments],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert "boot success. serializeType=JSON" in line_with(process, "boot success")
            assert line_with(process, "Listening").endswith("open to this machine only; nothing is authenticated.")
            code, _, err = stop(process)
        finally:
            if process.poll() is None:
                process.kill()
    assert code == 0
    assert ("ROCKETMQ_HOME is not set" in err) is (name == "mqnamesrv")
