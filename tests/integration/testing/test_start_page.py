"""docs/start.md: its commands, run one after the other by a shell, print what the page says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.testing.walk import Step, agrees, steps
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "start.md"
PATIENCE = 240


class Shell:
    """Runs commands in a folder of its own. The page's ports are others here: somebody may use those."""

    def __init__(self, folder):
        self._folder = folder
        self._ports = {"9876": str(free_port()), "10911": str(free_port())}
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYROMQ_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NAMESRV_ADDR": f"127.0.0.1:{self._ports['9876']}",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "NO_COLOR": "1",
        }

    def started(self, command):
        """A server: it is ready with the last line of what it prints at first."""
        ports = f" --namesrv-port {self._ports['9876']} --broker-port {self._ports['10911']}"
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}{ports}"],
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        return process, self._as_on_the_page("".join(said))

    def run(self, command):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return self._as_on_the_page(done.stdout)

    def _as_on_the_page(self, text):
        """With the page's ports. Columns are as wide as what is in them, so blanks are not compared one by one."""
        for documented, real in self._ports.items():
            text = text.replace(f":{real}", f":{documented}")
        return text


def squeezed(text):
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.spark
def test_a_newcomer_gets_from_a_broker_to_a_message_and_a_spark_query(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "project"))
    shell = Shell(tmp_path)
    up, *others = steps(PAGE)
    assert up.command == "pyromq up"
    server, said = shell.started(up.command)
    try:
        assert agrees(up.output, said)
        for step in others:
            said = shell.run(step.command)
            assert agrees(squeezed(step.output), squeezed(said)), f"{step.command} said\n{said}"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.communicate()


def test_the_comparison_can_tell_the_difference():
    assert agrees("a … c\n…\nlast", "a b c\n\nx\ny\nlast  \n")
    assert not agrees("a … c", "a b d")
    assert not agrees("only this", "only this\nand that")


def test_commands_are_found_with_what_they_print(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("x\n```console\n$ one\n1\n$ two\n```\n```sh\n$ three\n```\n```console\n$ four\n4\n4\n```\n")
    assert steps(page) == [Step("one", "1\n"), Step("two", ""), Step("four", "4\n4\n")]
