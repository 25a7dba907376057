"""A group that fails over as users start it, `pyromq up --replicas 1 --failover`: processes with default settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading

from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import line_with, run, started, until
from tests.ports import free_port

GROUP = "broker-a"
MASTER = re.compile(rf"{GROUP}: master \S+ \(process (\d+)\)")
NEW_MASTER = re.compile(rf"{GROUP}: \S+ \(process (\d+)\) is master now, epoch (\d+)")
# How the master is replaced, and for how many seconds sends may fail then. When the connection to a master closes, the
# next is elected at once; a silent one is given up after some seconds. The rest is for a busy machine.
SWITCHES = {"planned": 0.0, "killed": 5.0, "frozen": 15.0}


class UpGroup:
    """One master and one slave. Whoever is killed is started again."""

    def __init__(self, home, process, namesrv, master):
        self.home = home
        self.namesrv = namesrv
        self.process = process
        self.masters = [master]  # their processes, one after the other
        self._lines = threading.Thread(target=self._read, daemon=True)
        self._lines.start()

    def _read(self):
        for line in self.process.stdout:
            if found := NEW_MASTER.search(line):
                self.masters.append(int(found[1]))

    def command(self, *words):
        code, out, err = run(self.home, *words, environ={"NAMESRV_ADDR": self.namesrv}, timeout=2 * TOO_LONG)
        assert code == 0, err
        return out

    def switch(self, how):
        """Replace the master, by plan or by accident; returns once another is."""
        count, master = len(self.masters), self.masters[-1]
        if how == "planned":
            self.command("controller", "elect", GROUP, "--yes")
        else:
            os.kill(master, {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}[how])
        try:
            until(lambda: len(self.masters) > count, 2 * TOO_LONG)
        finally:
            if how == "frozen":
                os.kill(master, signal.SIGCONT)

    def whole(self):
        """Wait until both are in sync."""

        def both():
            rows = json.loads(self.command("broker", "ha", "-o", "json"))
            return sum(row.get("inSync") is True for row in rows) == 2

        until(both, 2 * TOO_LONG)

    def close(self):
        """Stop it as users do; the logs of both are the same then."""
        self.whole()
        self.process.send_signal(signal.SIGINT)
        self._lines.join()
        assert self.process.wait(TOO_LONG) == 0
        one, other = (self.log(name) for name in (GROUP, f"{GROUP}-2"))
        assert one == other != b""

    def log(self, name):
        files = sorted((self.home / ".pyromq" / name / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


@contextlib.contextmanager
def up_group(home, *settings, longest=6 * TOO_LONG):
    options = ("--failover", "--replicas", "1", "--namesrv-port", "0", "--broker-port", str(free_port(2)))
    with started(home, "up", *options, *settings, longest=longest) as process:
        namesrv = line_with(process, "is ready").partition("name server ")[2].partition(",")[0]
        master = MASTER.match(line_with(process, f"{GROUP}: master"))
        assert master is not None
        group = UpGroup(home, process, namesrv, int(master[1]))
        yield group
        group.close()
