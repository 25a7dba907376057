"""The rehearsal of docs/how-to/failover.md, with its own commands; and its files for several machines."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import children, line_with, run, started, stop, until
from tests.ports import free_port

from pyromq.broker.config import check_settings, load_settings
from pyromq.broker.failover.config import FailoverConfig

PAGE = (Path(__file__).parents[3] / "docs/how-to/failover.md").read_text()
REHEARSAL = PAGE.partition("## Rehearse it")[2].partition("\n## ")[0]
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", REHEARSAL, re.DOTALL) for line in block.splitlines()]
PROCESS = re.compile(r"\(process (\d+)\)")


@pytest.mark.slow
def test_the_rehearsal_goes_as_the_page_says(tmp_path):
    first, *rest = COMMANDS
    assert first == "pyromq up --replicas 2 --failover"
    # Beside other tests, with ports of its own.
    ports = ("--namesrv-port", "0", "--broker-port", str(free_port(3)))
    with started(tmp_path, *first.split()[1:], *ports) as process:
        namesrv = line_with(process, "is ready").partition("name server ")[2].partition(",")[0]
        master = line_with(process, "broker-a: master")
        assert master.endswith("2 slaves in sync")
        killed, outputs = None, {}
        for line in rest:
            if line.startswith("export "):
                assert line == "export NAMESRV_ADDR=127.0.0.1:9876"
            elif line.startswith("kill -9 "):
                killed = int(PROCESS.findall(line_with(process, "is master now"))[0])
                os.kill(killed, signal.SIGKILL)
                # Later it may be again: on a busy machine a master may lose its lease.
                until(lambda: "broker 2 is master" not in typed(tmp_path, namesrv, "pyromq controller status"))
            else:
                if killed is not None and line == "pyromq controller status":
                    until(lambda: in_sync(tmp_path, namesrv) == 3)
                outputs[line] = typed(tmp_path, namesrv, line)
        assert len(outputs) == 7
        assert "in sync: 1, 2, 3" in outputs["pyromq controller status"]
        for word in ("first", "second", "third"):
            assert word in outputs["pyromq message list orders"]
        assert killed not in children(process)
        code, _, err = stop(process)
        assert code == 0, err


def typed(home, namesrv, line):
    code, out, err = run(home, *shlex.split(line)[1:], environ={"NAMESRV_ADDR": namesrv}, timeout=2 * TOO_LONG)
    assert code == 0 or line == "pyromq doctor", err
    return out


def in_sync(home, namesrv):
    out = typed(home, namesrv, "pyromq broker ha -o json")
    return sum(row.get("inSync") is True for row in json.loads(out))


def test_the_files_of_the_page_are_complete(tmp_path):
    of_name_server, of_broker = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
    assert "enableControllerInNamesrv=true" in of_name_server
    file = tmp_path / "broker.conf"
    file.write_text(of_broker)
    settings = load_settings(file)
    check_settings(settings)
    assert settings[FailoverConfig].enabled
    assert f"controllerDLegerPeers=n0-{settings[FailoverConfig].controllers}" in of_name_server
    assert settings.notices() == []
