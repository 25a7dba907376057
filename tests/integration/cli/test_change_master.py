"""The steps of docs/how-to/replicate.md, taken with its own files and commands, with brokers as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.command_kit import line_with, run, started, stop, until
from tests.ports import free_port

from pyromq import Consumer, Producer, StartAt

PAGE = (Path(__file__).parents[3] / "docs/how-to/replicate.md").read_text()
CHANGE = PAGE.partition("## Change the master")[2].partition("\n## ")[0]
TOPIC, BEFORE, AFTER = "orders", 50, 20


def files():
    """The two files of the page."""
    master, slave = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)[:2]
    return master, slave


class Machine:
    """A machine of the page: its file, and a broker that is started as the page says."""

    def __init__(self, home, namesrv):
        home.mkdir()
        self.home = home
        self.file = home / "broker.conf"
        self._namesrv = namesrv
        self._ports = free_port()

    def write(self, text):
        # All machines are this one, so each has its own ports and folder.
        lines = [line for line in text.splitlines() if not line.startswith("namesrvAddr")]
        lines += [f"namesrvAddr={self._namesrv}", f"listenPort={self._ports}", "bindAddress=127.0.0.1"]
        lines += ["brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1", f"storePathRootDir={self.home / 'store'}"]
        self.file.write_text("\n".join([*lines, "mappedFileSizeCommitLog=1m\n"]))

    def change(self, **lines):
        """Set these lines of the file, and remove those that are None, as an operator does with an editor."""
        kept = [line for line in self.file.read_text().splitlines() if line.partition("=")[0] not in lines]
        kept += [f"{key}={value}" for key, value in lines.items() if value is not None]
        self.file.write_text("\n".join(kept) + "\n")

    @contextlib.contextmanager
    def broker(self):
        with started(self.home, "broker", "-c", "broker.conf") as process:
            line_with(process, "boot success")
            yield process

    def log(self):
        files = (self.home / "store" / "commitlog").iterdir()
        return {path.name: path.read_bytes().rstrip(b"\0") for path in files}


class Operator:
    """Types the commands of the page."""

    def __init__(self, home, namesrv):
        self._home = home
        self._namesrv = namesrv

    def types(self, command):
        """A command that the page has, with where the cluster is."""
        assert f"`{command}`" in CHANGE
        return self.sees(*command.split()[1:])

    def sees(self, *arguments):
        code, out, err = run(self._home, *arguments, "-n", self._namesrv)
        assert code == 0, err
        return out

    def rows(self):
        assert "`pyromq broker ha -b broker-a`" in CHANGE
        return json.loads(self.sees("broker", "ha", "-b", "broker-a", "-o", "json"))

    def sees_slave_at(self, behind):
        return [row["behind"] for row in self.rows() if row.get("follows")] == [behind]


async def send(namesrv, numbers):
    async with Producer("makers", namesrv=namesrv) as producer:
        for number in numbers:
            result = await producer.send(TOPIC, b"%d" % number)
            assert result.status.name == "SEND_OK"


async def consumed(namesrv):
    """The numbers of all messages, as a new group gets them."""
    found = set()
    async with (
        asyncio.timeout(TOO_LONG),
        Consumer("readers", {TOPIC: "*"}, namesrv=namesrv, start_at=StartAt.FIRST) as consumer,
    ):
        async for message in consumer:
            found.add(int(message.body))
            if len(found) == BEFORE + AFTER:
                return found
    return found


@pytest.mark.slow
def test_the_steps_of_the_page_change_the_master_without_loss(tmp_path):
    port = free_port()
    namesrv = f"127.0.0.1:{port}"
    one, other = Machine(tmp_path / "one", namesrv), Machine(tmp_path / "other", namesrv)
    operator = Operator(tmp_path, namesrv)
    for_master, for_slave = files()
    one.write(for_master)
    other.write(for_slave)
    assert "brokerRole=SYNC_MASTER" in for_master
    with started(tmp_path, "namesrv", "listenPort=" + str(port), "bindAddress=127.0.0.1") as name_server:
        line_with(name_server, "boot success")
        with one.broker() as master, other.broker() as slave:
            until(lambda: operator.sees_slave_at(0))
            operator.sees("topic", "create", TOPIC, "-c", "DefaultCluster")
            asyncio.run(send(namesrv, range(BEFORE)))
            operator.types("pyromq broker drain broker-a")  # 1
            until(lambda: operator.sees_slave_at(0))  # 2
            until(lambda: TOPIC in (other.home / "store/config/topics.json").read_text())
            assert stop(master, signal.SIGTERM)[0] == 0  # 3
            assert stop(slave, signal.SIGTERM)[0] == 0
        assert other.log() == one.log()
        assert "brokerPermission=4" in one.file.read_text()
        one.change(brokerRole="SLAVE", brokerId=1, brokerPermission=None)  # 4
        other.change(brokerRole="SYNC_MASTER", brokerId=0)
        with other.broker() as master, one.broker() as slave:  # 5
            until(lambda: operator.sees_slave_at(0))
            asyncio.run(send(namesrv, range(BEFORE, BEFORE + AFTER)))
            assert sorted(asyncio.run(consumed(namesrv))) == list(range(BEFORE + AFTER))
            until(lambda: operator.sees_slave_at(0))
            assert stop(master, signal.SIGTERM)[0] == 0
            assert stop(slave, signal.SIGTERM)[0] == 0
        assert other.log() == one.log()
        stop(name_server)
