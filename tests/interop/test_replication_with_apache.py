"""Masters and slaves of different makes: the log of one is the log of the other, byte by byte (docs/spec/ha.md 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Admin, Broker
from tests.interop.peers import NameServer
from tests.interop.process import wait_until
from tests.interop.pyromq_up import PyroMQ

from pyromq.protocol import fastjson

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

PAIR, TOPIC, GROUP = "pair", "T", "TOOLS_CONSUMER"
COPIED_WITHIN = 60.0
SYNCED_WITHIN = 100.0  # 5.x asks every minute
FILE = 1 << 20
VERSIONS = ("4.9.7", "5.5.0")


def log(folder: Path) -> dict[str, bytes]:
    """The files of a commit log without the zeros behind its end."""
    files = {path.name: path.read_bytes().rstrip(b"\0") for path in sorted((folder / "commitlog").iterdir())}
    return {name: data for name, data in files.items() if data}


def send(address: str, count: int, size: int = 1000) -> None:
    with wire.Connection(address) as connection:
        for number in range(count):
            wire.send(connection, TOPIC, number % 4, b"%d-" % number + b"x" * size, TAGS="a", KEYS=f"k{number}")


def create(address: str) -> None:
    with wire.Connection(address) as connection:
        wire.create_topic(connection, TOPIC, 4)


def copied(master: Path, slave: Path) -> bool:
    theirs = log(slave) if (slave / "commitlog").exists() else {}
    return bool(theirs) and theirs == log(master)


def saved(store: Path, name: str) -> Any:
    path = store / "config" / name
    return fastjson.loads(path.read_bytes()) if path.exists() else {}


def settings_copied(store: Path) -> bool:
    """Whether a slave's files have the topic, and how far the group is in it."""
    offsets = saved(store, "consumerOffset.json").get("offsetTable", {}).get(f"{TOPIC}@{GROUP}", {})
    return TOPIC in saved(store, "topics.json").get("topicConfigTable", {}) and 7 in offsets.values()


def commit(address: str) -> None:
    with wire.Connection(address) as connection:
        connection.ask(15, consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=7)


def settings(role: str, broker_id: int) -> dict[str, Any]:
    return {"brokerRole": role, "brokerId": broker_id, "brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": FILE}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.scenario("ha 1")
@pytest.mark.scenario("ha 14")
def test_a_slave_of_ours_follows_a_master_of_theirs(java_packages: None, tmp_path: Path, version: str) -> None:
    (tmp_path / "theirs").mkdir()
    with NameServer(f"apache-{version}", tmp_path / "namesrv") as namesrv:
        master = Broker(version, tmp_path / "theirs", namesrv.address, name=PAIR, **settings("ASYNC_MASTER", 0))
        with master.process:
            master.wait_until_booted()
            create(master.address)
            send(master.address, 20)
            own: dict[str, Any] = {"brokerClusterName": CLUSTER, "brokerName": PAIR, **settings("SLAVE", 1)}
            with PyroMQ(tmp_path / "ours", namesrv=namesrv.address, **own):
                ours, theirs = tmp_path / "ours" / "data", tmp_path / "theirs" / "store"
                wait_until(lambda: copied(theirs, ours), COPIED_WITHIN, "the slave has the log")
                send(master.address, 2000)  # into the next files
                wait_until(lambda: copied(theirs, ours), COPIED_WITHIN, "the slave has the rest")
                assert len(log(theirs)) > 1
                commit(master.address)
                wait_until(lambda: settings_copied(ours), COPIED_WITHIN, "the slave has the topic and the offset")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.scenario("ha 2")
@pytest.mark.scenario("ha 14")
def test_a_slave_of_theirs_follows_a_master_of_ours(java_packages: None, tmp_path: Path, version: str) -> None:
    (tmp_path / "theirs").mkdir()
    with NameServer("ours", tmp_path / "namesrv") as namesrv:
        own: dict[str, Any] = {"brokerClusterName": CLUSTER, "brokerName": PAIR, **settings("SYNC_MASTER", 0)}
        with PyroMQ(tmp_path / "ours", namesrv=namesrv.address, **own) as master:
            create(master.address)
            slave = Broker(version, tmp_path / "theirs", namesrv.address, name=PAIR, **settings("SLAVE", 1))
            with slave.process:
                slave.wait_until_booted()
                ours, theirs = tmp_path / "ours" / "data", tmp_path / "theirs" / "store"
                with wire.Connection(master.address) as connection:
                    ext: dict[str, object] = {
                        "a": "p",
                        "b": TOPIC,
                        "c": "TBW102",
                        "d": 4,
                        "e": 0,
                        "f": 0,
                        "g": 1,
                        "h": 0,
                    }

                    def is_acknowledged() -> bool:
                        return connection.ask(310, b"hello", **ext).code == 0

                    wait_until(is_acknowledged, COPIED_WITHIN, "a message waits for the slave, and the slave has it")
                send(master.address, 2000)
                wait_until(lambda: copied(ours, theirs), COPIED_WITHIN, "the slave has the log")
                assert len(log(ours)) > 1
                commit(master.address)
                wait_until(lambda: settings_copied(theirs), SYNCED_WITHIN, "the slave has the topic and the offset")


@pytest.mark.scenario("ha 14")
def test_a_slave_of_theirs_copies_how_timers_are(java_packages: None, tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    home.mkdir()
    own: dict[str, Any] = {"brokerClusterName": CLUSTER, "brokerName": PAIR, **settings("ASYNC_MASTER", 0)}
    with (
        NameServer("ours", tmp_path / "namesrv") as namesrv,
        PyroMQ(tmp_path / "ours", namesrv=namesrv.address, **own) as master,
    ):
        create(master.address)
        with wire.Connection(master.address) as connection:
            for number in range(3):
                wire.send(connection, TOPIC, 0, b"later", TIMER_DELAY_SEC="3600", UNIQ_KEY=f"key-{number}")
        slave = Broker("5.5.0", home, namesrv.address, name=PAIR, timerWheelEnable="true", **settings("SLAVE", 1))
        with slave.process:
            slave.wait_until_booted()

            def copied_counts() -> bool:
                # It counts the timers in its log, too; only the version shows whose counts these are.
                ours, theirs = wire.ask(master.address, 61).json, saved(home / "store", "timermetrics")
                assert ours["timingCount"][TOPIC]["count"] == 3
                return bool(theirs.get("dataVersion", {}).get("timestamp") == ours["dataVersion"]["timestamp"])

            wait_until(copied_counts, SYNCED_WITHIN, "the slave has the counts of its master")
            logs = "".join(path.read_text(errors="replace") for path in (home / "logs").rglob("*.log"))
            assert "slave topic config from master" in logs
            failed = [line for line in logs.splitlines() if "Exception, 127.0.0.1" in line]
            assert failed == []


def test_mqadmin_sees_a_pair_of_ours(java_packages: None, tmp_path: Path) -> None:
    names = {"brokerClusterName": CLUSTER, "brokerName": PAIR}
    with (
        NameServer("ours", tmp_path / "namesrv") as namesrv,
        PyroMQ(tmp_path / "master", namesrv=namesrv.address, **names, **settings("ASYNC_MASTER", 0)) as master,
        PyroMQ(tmp_path / "slave", namesrv=namesrv.address, **names, **settings("SLAVE", 1)) as slave,
    ):
        create(master.address)
        send(master.address, 20)
        folders = tmp_path / "master" / "data", tmp_path / "slave" / "data"
        wait_until(lambda: copied(*folders), COPIED_WITHIN, "the slave has the log")
        size = str(len(next(iter(log(folders[0]).values()))))
        admin = Admin("5.5.0", tmp_path / "admin", namesrv.address)
        of_master, of_slave = admin.run(f"haStatus -c {CLUSTER}", f"haStatus -b {slave.address}")
        assert f"#MasterAddr\t{master.address}" in of_master
        assert f"#MasterCommitLogMaxOffset\t{size}\n#SlaveNum\t1\n#InSyncSlaveNum\t1" in of_master
        _, acknowledged, behind, _, status, sent = of_master.splitlines()[-1].split()
        assert (acknowledged, behind, status, sent) == (size, "0", "OK", size)
        assert f"#MasterAddr\t127.0.0.1:{master.port + 1}" in of_slave
        assert f"#CommitLogMaxOffset\t{size}" in of_slave
        assert "#LastReadTime\t20" in of_slave
