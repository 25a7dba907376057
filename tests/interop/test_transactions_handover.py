"""Transactions that Apache's broker began are ended by ours, on its files, and the other way round."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import STOP_SECONDS, Broker, environment
from tests.interop.drivers import Driver
from tests.interop.peers import OURS, NameServer
from tests.interop.process import Process, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

TOPIC, GROUP = "payments", "payers"
READY_SECONDS = 15.0
# Java clients say every 30 s who they are.
SOON = 60.0
SETTINGS: dict[str, Any] = {
    "transactionCheckInterval": 1000,
    # 5.5.0 keeps ends in memory for 3 s, and asks about what it has not written (docs/spec/broker.md 5.2).
    "transactionTimeOut": 5000,
    "transactionCheckMax": 1000,
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20,
}


class House:
    """One data directory in which brokers of either make live, one after the other."""

    def __init__(self, home: Path, namesrv: str) -> None:
        self._home = home
        self.namesrv = namesrv
        self._port = free_port()
        self._broker: Process | None = None

    def apache(self) -> None:
        broker = Broker("5.5.0", self._home, self.namesrv, name="shared", port=self._port, **SETTINGS)
        self._broker = broker.process
        broker.wait_until_booted()

    def ours(self) -> None:
        command = [sys.executable, "-m", "pyromq.cli.main", "broker", "-c", str(self._home / "broker.conf")]
        log = self._home / "pyromq.out"
        self._broker = Process("pyromq", [*command, "drainSeconds=1"], log=log, env=environment(self._home))
        self._broker.wait_for("boot success", READY_SECONDS)

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.terminate()
        self._broker.wait(STOP_SECONDS)

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def create_topic(self) -> None:
        with wire.Connection(f"127.0.0.1:{self._port}") as connection:
            wire.create_topic(connection, TOPIC, 1)

    def driver(self, name: str) -> Driver:
        return Driver("java-5.5.0", self._home / name, self.namesrv)


@pytest.fixture
def house(tmp_path: Path, java_packages: None) -> Iterator[House]:
    with NameServer(OURS, tmp_path / "namesrv") as namesrv:
        house = House(tmp_path / "house", namesrv.address)
        try:
            yield house
        finally:
            house.kill()


def transaction(driver: Driver, body: str, state: str, check: str) -> None:
    driver.send("transaction", group=GROUP, topic=TOPIC, body=body, state=state, check=check)


def begin(driver: Driver, prefix: str) -> None:
    """One transaction of each kind; about that which nobody decides its producer is asked once at least."""
    for state in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"):
        transaction(driver, f"{prefix}-{state}", state, "UNKNOW")
    before = len(driver.said("checked", GROUP))
    wait_until(lambda: len(driver.said("checked", GROUP)) > before, SOON, "it is asked")


def test_what_one_broker_began_the_next_one_ends(house: House) -> None:
    house.apache()
    house.create_topic()
    with house.driver("begins") as driver:
        begin(driver, "apache")
    house.stop()
    house.ours()
    with house.driver("goes on") as driver:
        transaction(driver, "ours", "COMMIT_MESSAGE", "COMMIT_MESSAGE")
        driver.do("push", name="first", group="first", topic=TOPIC)
        expected = {"apache-COMMIT_MESSAGE", "apache-UNKNOW", "ours"}
        driver.wait_for_bodies("first", expected, SOON)
        assert sorted(driver.bodies("first")) == sorted(expected)
        begin(driver, "ours")
    house.stop()
    house.apache()
    with house.driver("ends") as driver:
        transaction(driver, "last", "COMMIT_MESSAGE", "COMMIT_MESSAGE")
        driver.do("push", name="second", group="second", topic=TOPIC)
        expected |= {"ours-COMMIT_MESSAGE", "ours-UNKNOW", "last"}
        driver.wait_for_bodies("second", expected, SOON)
        assert sorted(driver.bodies("second")) == sorted(expected)
