"""One name server with an Apache broker of each line under it, shared by the whole run: a JVM costs seconds.

`INTEROP_NAMESRV=apache-5.5.0` puts Apache's own name server in the place of ours, as a control: what fails there too
is not ours to repair. `INTEROP_NAMESRV=ours,apache-5.5.0` runs both.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from scripts.setup import SetupError
from tests.interop import compat_table, jars, wire
from tests.interop.apache import Admin, Broker, Client
from tests.interop.apache_with_client import Apache
from tests.interop.meeting import MAKES, Meeting, meeting_at
from tests.interop.peers import OURS, NameServer
from tests.interop.process import stop_all, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

NAME_SERVERS = os.environ.get("INTEROP_NAMESRV", OURS).split(",")
BROKERS = ("5.5.0", "4.9.7")
# A 5.5.0 broker looks in the background which name servers it can reach. If that has not ended when it boots, it says
# `boot success` without having registered and tries again 10 s later; two starts in five did, under Apache's own too.
REGISTERED_WITHIN = 20.0


@dataclass
class Cluster:
    """A name server and the brokers that registered with it, and the tools to look at them."""

    namesrv: NameServer
    brokers: list[Broker]
    home: Path
    _clients: dict[str, Client] = field(default_factory=dict)
    _admins: dict[str, Admin] = field(default_factory=dict)

    def client(self, version: str) -> Client:
        if version not in self._clients:
            self._clients[version] = Client(version, self.home / f"client-{version}", self.namesrv.address)
        return self._clients[version]

    def admin(self, version: str) -> Admin:
        if version not in self._admins:
            self._admins[version] = Admin(version, self.home / f"admin-{version}", self.namesrv.address)
        return self._admins[version]

    @property
    def addresses(self) -> dict[str, dict[str, str]]:
        """What a name server must say about the brokers."""
        return {broker.name: {"0": broker.address} for broker in self.brokers}

    def wait_until_registered(self, seconds: float) -> float:
        """Wait until the name server knows all brokers and where new topics may go; the seconds it took."""
        address = self.namesrv.address

        def known() -> bool:
            return (
                wire.brokers(address) == self.addresses
                and wire.route(address, "TBW102").keys() == self.addresses.keys()
            )

        return wait_until(known, seconds, f"{self.namesrv.make} knows {', '.join(self.addresses)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave the table of this run in `.cache/interop/compat.md`, and show it."""
    stats = terminalreporter.stats
    text = compat_table.table([*stats.get("passed", []), *stats.get("failed", []), *stats.get("error", [])])
    if text:
        (jars.CACHE / "compat.md").write_text(text)
        terminalreporter.section("what official peers do with our broker")
        terminalreporter.write(text)


@pytest.fixture(scope="session")
def java_packages() -> None:
    """Fetch and compile first, so that no test's timeout runs while Maven works."""
    try:
        for name in jars.SETS:
            jars.class_path(name)
    except SetupError as exc:
        pytest.exit(str(exc), returncode=1)


@pytest.fixture(scope="session", params=NAME_SERVERS)
def cluster(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    with NameServer(request.param, home / "namesrv") as namesrv:
        brokers = [Broker(version, home / f"broker-{version}", namesrv.address) for version in BROKERS]
        try:
            for broker in brokers:
                broker.wait_until_booted()
            running = Cluster(namesrv, brokers, home)
            running.wait_until_registered(REGISTERED_WITHIN)
            yield running
        finally:
            stop_all(broker.process for broker in brokers)


@pytest.fixture(scope="session", params=BROKERS)
def apache(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Apache]:
    """Apache's name server and broker of each line, for our client. Tests of one line run before those of the other."""
    with Apache(request.param, tmp_path_factory.mktemp(f"apache-{request.param}")) as running:
        yield running


@pytest.fixture(scope="session", params=MAKES)
def meeting(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Meeting]:
    """A broker, ours and then Apache's, at which our clients and official ones meet."""
    with meeting_at(request.param, tmp_path_factory.mktemp("meeting")) as running:
        yield running


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    """After the test all tasks have ended, and no error was left to the event loop to report."""
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=2.0)
    assert not left, left
    assert not errors, errors
