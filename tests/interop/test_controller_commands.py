"""Our commands and the official ones of 5.5.0 side by side: a controller, and a pair of Apache brokers under it.

Lines are compared as they are. Java prints settings and the brokers of a name in the order of its own maps; those are
compared as sets of lines.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import CLUSTER, Admin
from tests.interop.controllers import GROUP, TOGETHER_WITHIN, ControllerInNameServer, apache_pair
from tests.interop.process import wait_until

from pyromq.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.apache import Broker

pytestmark = pytest.mark.interop

NAME = "fx"
AT_ONCE = 2
CONTROLLERS = os.environ.get("INTEROP_CONTROLLER", "ours,apache-5.5.0").split(",")


class Both:
    """A controller with a pair of brokers, and a way to run a line with either tool."""

    def __init__(self, server: ControllerInNameServer, brokers: list[Broker], official: Admin) -> None:
        self.server = server
        self.brokers = brokers
        self._official = official
        self.capsys: pytest.CaptureFixture[str]

    def pyromq(self, line: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as done:
            main([*line.replace("CTL", self.server.controller).split(), "-n", self.server.address])
        out, err = self.capsys.readouterr()
        return int(done.value.code or 0), out, err

    def ours(self, line: str) -> str:
        code, out, err = self.pyromq(f"mqadmin {line}")
        assert code == 0, f"{line}\n{out}\n{err}"
        return out

    def theirs(self, *lines: str) -> list[str]:
        """What the official tool says, a few at a time: each is a JVM, and waits 3 s for an answer."""
        asked = [line.replace("CTL", self.server.controller) for line in lines]
        parts = [asked[start : start + AT_ONCE] for start in range(0, len(asked), AT_ONCE)]
        return [said for part in parts for said in self._official.run(*part)]

    def refused(self, line: str) -> str:
        code, _, err = self.pyromq(f"mqadmin {line}")
        assert code == 1, line
        return err

    @property
    def in_sync(self) -> int:
        found = re.search(r"#SyncStateSetNums\t(\d+)", self.ours(f"getSyncStateSet -a CTL -b {NAME}"))
        return int(found[1]) if found else 0

    @property
    def master(self) -> int:
        found = re.search(r"#MasterBrokerId\t(\d+)", self.ours(f"getSyncStateSet -a CTL -b {NAME}"))
        return int(found[1]) if found else 0

    def wait_for_both(self) -> None:
        wait_until(lambda: self.in_sync == 2, TOGETHER_WITHIN, "both are in sync")


@pytest.fixture(scope="module", params=CONTROLLERS)
def scene(
    request: pytest.FixtureRequest, java_packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    home = tmp_path_factory.mktemp(f"controller-{request.param}")
    with ControllerInNameServer(request.param, home / "namesrv") as server, apache_pair(server, home, NAME) as brokers:
        yield Both(server, brokers, Admin("5.5.0", home / "official", server.address))


@pytest.fixture
def both(scene: Both, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Both:
    for variable in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "PYROMQ_ACCESS_KEY"):
        monkeypatch.delenv(variable, raising=False)
    scene.capsys = capsys
    scene.wait_for_both()
    return scene


def blocks(text: str) -> list[str]:
    return sorted(each.strip() for each in text.split("\n\n"))


@pytest.mark.scenario("controller 31")
def test_what_both_tools_print_is_the_same(both: Both) -> None:
    lines = (
        "getControllerMetaData -a CTL",
        f"getSyncStateSet -a CTL -b {NAME}",
        f"getSyncStateSet -a CTL -c {CLUSTER}",
        "getSyncStateSet -a CTL -b nope",
    )
    for line, theirs in zip(lines, both.theirs(*lines), strict=True):
        assert both.ours(line) == theirs, line
    assert "#ControllerGroup" in both.ours(lines[0])
    epochs = (f"getBrokerEpoch -b {NAME}", f"getBrokerEpoch -c {CLUSTER}")
    for line, theirs in zip(epochs, both.theirs(*epochs), strict=True):
        assert blocks(both.ours(line)) == blocks(theirs), line
    show, change = "getControllerConfig -a CTL", "updateControllerConfig -a CTL -k scanInactiveMasterInterval -v 5000"
    shown, changed = both.theirs(show, change)
    assert sorted(both.ours(show).splitlines()) == sorted(shown.splitlines())
    assert both.ours(change) == changed


@pytest.mark.scenario("controller 32")
def test_what_a_controller_refuses_both_tools_say(both: Both) -> None:
    lines = {
        f"cleanBrokerMetadata -a CTL -bn {NAME} -c {CLUSTER}": 2009,
        f"cleanBrokerMetadata -a CTL -bn {NAME} -b 1;2 -c {CLUSTER}": 2009,
        f"cleanBrokerMetadata -a CTL -bn nope -c {CLUSTER}": 2009,
        f"electMaster -a CTL -b 9 -bn {NAME} -c {CLUSTER}": 2012,
        f"electMaster -a CTL -b 1 -bn nope -c {CLUSTER}": 2010,
        f"electMaster -a CTL -b {both.master} -bn {NAME} -c {CLUSTER}": 2011,
    }
    for (line, code), theirs in zip(lines.items(), both.theirs(*lines), strict=True):
        said = re.search(r"CODE: (\d+)  DESC: (.*)", theirs)
        assert said is not None, f"{line}\n{theirs}"
        ours = both.refused(line)
        assert int(said[1]) == code
        assert f"(code {code})" in ours
        assert said[2].strip().lower() in ours.lower()


@pytest.mark.scenario("controller 14")
def test_a_master_is_elected_and_back_again(both: Both) -> None:
    old = both.master
    new = 3 - old
    line = f"electMaster -a CTL -b {new} -bn {NAME} -c {CLUSTER}"
    ours = both.ours(line)
    assert ours.startswith(f"\n#ClusterName\t{CLUSTER}\n#BrokerName\t{NAME}\n#BrokerMasterAddr\t127.0.0.1:")
    assert both.master == new
    both.wait_for_both()
    code, out, err = both.pyromq(f"controller elect {NAME} {old} --yes")
    assert code == 0, err
    assert out.splitlines()[1].split()[:3] == [NAME, str(new), str(old)]
    both.wait_for_both()
    if both.server.make != "apache-5.5.0":
        # The tool of 5.5.0 cannot read what its own controller answers (docs/spec/controller.md 10).
        [theirs] = both.theirs(line)
        assert re.sub(r"\d+", "N", theirs) == re.sub(r"\d+", "N", ours)
        assert both.master == new


def test_a_person_sees_the_same_cluster(both: Both) -> None:
    code, out, err = both.pyromq("controller list")
    assert code == 0, err
    address = both.server.controller
    assert out.splitlines()[1].split() == [address, "n0", "LEADER", address, GROUP, "-"]
    code, out, err = both.pyromq("controller status")
    assert code == 0, err
    assert out.endswith("all is well\n")
    rows = [line.split() for line in out.splitlines() if line.startswith(f"{NAME} ")]
    assert [row[2] for row in rows] == ["MASTER", "SLAVE"]
    assert {row[3] for row in rows} == {broker.address for broker in both.brokers}
    code, out, err = both.pyromq("broker ha")
    assert code == 0, err
    assert "EPOCH  IN SYNC" in out.splitlines()[0]
    assert [line.split()[5] for line in out.splitlines()[1:3]] == ["yes", "yes"]

    def healthy() -> bool:
        return both.pyromq("doctor -q")[0] == 0

    # Right after an election a slave may not have found its new master yet.
    wait_until(healthy, TOGETHER_WITHIN, "doctor finds nothing wrong")
    assert "in sync: 1, 2" in both.pyromq("doctor")[1]


@pytest.mark.scenario("controller 32")
def test_a_broker_that_is_gone_is_seen_and_forgotten(both: Both) -> None:
    """Comes last: only one broker is left after it."""
    slave = 3 - both.master
    address = both.ours(f"getSyncStateSet -a CTL -b {NAME}")
    [gone] = [broker for broker in both.brokers if f"brokerId={slave}, brokerAddress='{broker.address}'" in address]
    gone.process.kill()
    wait_until(lambda: both.in_sync == 1, TOGETHER_WITHIN, "the set shrinks")
    _, out, _ = both.pyromq("controller status")
    assert f"broker {slave} at {gone.address} is not alive" in out
    assert "nobody can take over" in out
    assert both.pyromq("doctor -q")[0] == 6
    line = f"cleanBrokerMetadata -a CTL -bn {NAME} -b {slave} -c {CLUSTER}"
    assert both.ours(line) == f"clear broker {NAME} metadata from controller success! \n"
    assert f"brokerId={slave}" not in both.ours(f"getSyncStateSet -a CTL -b {NAME}")
    assert both.pyromq("controller status")[1].endswith("all is well\n")
