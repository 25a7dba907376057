"""Our controller beside Apache's: the same answers by hand, and brokers and tools of 5.5.0 that see no difference."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop import wire
from tests.interop.apache import CLUSTER, Admin, Broker
from tests.interop.peers import OURS, Controller, NameServer
from tests.interop.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

APACHE = "apache-5.5.0"
SOON = 30.0
PAIR = "pair"


class Dialogue:
    """Requests by hand, and what was answered, with JSON as values."""

    def __init__(self, connection: wire.Connection, controller: str) -> None:
        self._wire = connection
        self._controller = controller
        self.answers: dict[str, tuple[int, str, dict[str, str], Any]] = {}

    def ask(self, about: str, code: int, body: object = None, /, **ext: object) -> wire.Answer:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = self._wire.ask(code, content, **ext)
        said = answer.json if answer.body[:1] == b"{" else answer.body.decode()
        # Whose address it is differs, and nothing else.
        remark = answer.remark.replace(self._controller, "CONTROLLER")
        fields = {key: text.replace(self._controller, "CONTROLLER") for key, text in answer.ext.items()}
        self.answers[about] = (answer.code, remark, fields, said)
        return answer

    def beat(self, about: str, broker_id: int, **more: object) -> None:
        said: dict[str, object] = {"clusterName": "c", "brokerName": "fx", "brokerAddr": f"h{broker_id}:1"}
        said |= {"brokerId": broker_id, "epoch": 1, "maxOffset": 10, "confirmOffset": 10}
        self.ask(about, 904, **(said | {"heartbeatTimeoutMills": 60_000, "electionPriority": 9} | more))


def conversation(talk: Dialogue) -> None:
    """docs/spec/controller.md 2.2 to 2.13, row by row, on a group that does not exist before."""
    fx: dict[str, Any] = {"clusterName": "c", "brokerName": "fx"}
    zz: dict[str, Any] = {"clusterName": "c", "brokerName": "zz"}

    def alter(about: str, ids: list[int], *, master: int = 1, epoch: int = 1, set_epoch: int = 1, **group: Any) -> None:
        body = {"syncStateSet": ids, "syncStateSetEpoch": set_epoch}
        talk.ask(about, 1001, body, **(group or fx), masterBrokerId=master, masterEpoch=epoch, invokeTime=1)

    def elect(about: str, broker_id: int, designate: str = "false", **group: Any) -> wire.Answer:
        return talk.ask(about, 1002, **(group or fx), brokerId=broker_id, designateElect=designate, invokeTime=1)

    def apply(about: str, broker_id: int, code: str, **group: Any) -> None:
        talk.ask(about, 1013, **(group or fx), appliedBrokerId=broker_id, registerCheckCode=code)

    def register(about: str, broker_id: int, address: str, **group: Any) -> None:
        talk.ask(about, 1003, **(group or fx), brokerId=broker_id, brokerAddress=address, invokeTime=1)

    talk.ask("another code", 105, topic="T")
    talk.ask("metadata", 1005)
    talk.ask("next id of an unknown group", 1012, **zz)
    apply("an id of an unknown group", 2, "h2:1;5", **zz)
    apply("the first id", 1, "h1:1;1000")
    apply("the first id again", 1, "h1:1;1000")
    apply("a taken id", 1, "h9:1;1000")
    apply("the second id", 2, "h2:1;1000")
    apply("the third id", 3, "h3:1;1000")
    talk.ask("next id", 1012, **fx)
    register("register in an unknown group", 1, "h1:1", **zz)
    register("register an unknown id", 9, "h1:1")
    register("register without a master", 1, "h1:1")
    talk.ask("replicas of an unknown group", 1004, brokerName="zz")
    talk.ask("replicas without a master", 1004, brokerName="fx")
    talk.ask("beat without an id", 904, **fx, brokerAddr="h1:1")
    talk.beat("beat 1", 1)
    alter("alter an unknown group", [1], **zz)
    alter("alter without a master", [1])
    elect("elect in an unknown group", 1, **zz)
    talk.answers["quoted keys"] = (0, "", {}, elect("the first master", 1).body)
    elect("a master that lives", 2)
    talk.ask("replicas", 1004, brokerName="fx")
    register("register with a master", 2, "h2:1")
    register("register at another address", 1, "h1:2")
    register("register there again", 1, "h1:2")
    talk.beat("beat 2", 2)
    alter("the same set", [1])
    alter("not the master", [1, 2], master=2)
    alter("another epoch", [1, 2], epoch=7)
    alter("another set epoch", [1, 2], set_epoch=9)
    alter("an unknown member", [1, 9])
    alter("a dead member", [1, 3])
    alter("without the master", [2])
    alter("a larger set", [1, 2])
    talk.beat("beat 3", 3)
    elect("designate an outsider", 3, "true")
    elect("designate a member", 2, "true")
    elect("designate the master", 2, "true")
    talk.ask("groups", 1006, ["fx", "zz"])
    talk.ask("no groups", 1006, [])
    talk.ask("groups without a body", 1006)
    talk.ask("clean a group with a master", 1011, **fx)
    talk.ask("clean a living id", 1011, **fx, brokerControllerIdsToClean="2;3")
    talk.ask("clean what is no id", 1011, **fx, brokerControllerIdsToClean="x")
    talk.ask("clean an unknown group", 1011, **zz, brokerControllerIdsToClean="1")
    apply("an id for the dead", 4, "h4:1;1000")
    talk.ask("clean a dead id", 1011, **fx, brokerControllerIdsToClean="4", isCleanLivingBroker="false")
    talk.ask("groups after that", 1006, ["fx"])
    talk.ask("next id after that", 1012, **fx)
    talk.ask("no settings", 1009)
    talk.ask("a setting", 1009, b"notifyBrokerRoleChanged=true")
    talk.ask("a forbidden setting", 1009, b"configStorePath=/x")
    talk.ask("another forbidden setting", 1009, b"rocketmqHome=/x")
    talk.ask("clean everything", 1011, **fx, isCleanLivingBroker="true")
    talk.ask("replicas after that", 1004, brokerName="fx")
    talk.ask("next id of a new life", 1012, **fx)


@pytest.mark.scenario("controller 1")
def test_both_controllers_answer_alike(java_packages: None, tmp_path: Path) -> None:
    said = {}
    for make in (APACHE, OURS):
        with Controller(make, tmp_path / make) as controller, wire.Connection(controller.address) as connection:
            talk = Dialogue(connection, controller.address)
            conversation(talk)
            said[make] = talk.answers
    theirs, ours = said[APACHE], said[OURS]
    # Ours quotes the keys, so that 5.5.0's own tool can read them.
    assert (b'{1:"h1:1"' in theirs.pop("quoted keys")[3], b'{"1":"h1:1"' in ours.pop("quoted keys")[3]) == (True, True)
    # Java names the class of its exception.
    prefix = "Please set the option <brokerControllerIdsToClean> according to the format, exception: "
    assert all(answers.pop("clean what is no id")[1].startswith(prefix) for answers in (theirs, ours))
    assert ours == theirs


def config(controller: str, **more: object) -> dict[str, Any]:
    return {
        "enableControllerMode": "true",
        "controllerAddr": controller,
        "brokerIP2": "127.0.0.1",
        "brokerRole": "SLAVE",
        "brokerId": -1,
        "allAckInSyncStateSet": "true",
        "brokerClusterName": CLUSTER,
        **more,
    }


class Pair:
    """Two brokers of 5.5.0 under our controller, the first of them master, both in the in-sync set."""

    def __init__(self, home: Path, namesrv: NameServer, controller: Controller) -> None:
        self.home = home
        self.namesrv = namesrv
        self.controller = controller
        self.brokers: dict[int, Broker] = {}

    def start(self, number: int) -> Broker:
        home = self.home / f"broker-{number}"
        home.mkdir(exist_ok=True)
        port = self.brokers[number].port if number in self.brokers else 0
        more = config(self.controller.address)
        broker = Broker("5.5.0", home, self.namesrv.address, name=PAIR, port=port, **more)
        self.brokers[number] = broker
        broker.wait_until_booted()
        return broker

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.process.stop()

    @property
    def state(self) -> dict[str, Any]:
        answer = wire.ask(self.controller.address, 1004, brokerName=PAIR)
        if answer.code:
            return {}
        master = answer.ext.get("masterBrokerId")
        return {"master": master, "epoch": int(answer.ext["masterEpoch"]), "set": answer.json["syncStateSet"]}

    def wait_for(self, what: str, **expected: object) -> float:
        return wait_until(lambda: expected.items() <= self.state.items(), SOON, f"{what}: {self.state}")

    def sends(self) -> bool:
        master = wire.brokers(self.namesrv.address).get(PAIR, {}).get("0")
        if master is None:
            return False
        with wire.Connection(master) as connection:
            wire.create_topic(connection, "T", 4)
            return wire.send(connection, "T", 0, b"hello") >= 0


@pytest.fixture
def pair(java_packages: None, tmp_path: Path) -> Iterator[Pair]:
    with (
        NameServer(OURS, tmp_path / "namesrv") as namesrv,
        Controller(OURS, tmp_path / "controller") as controller,
    ):
        pair = Pair(tmp_path, namesrv, controller)
        try:
            pair.start(1)
            pair.wait_for("the first is master", master="1", epoch=1, set=[1])
            pair.start(2)
            pair.wait_for("the second follows", master="1", set=[1, 2])
            yield pair
        finally:
            pair.stop()


@pytest.mark.scenario("controller 2")
@pytest.mark.scenario("controller 3")
@pytest.mark.scenario("controller 5")
@pytest.mark.scenario("controller 6")
def test_a_pair_of_theirs_fails_over_under_our_controller(pair: Pair) -> None:
    identity = pair.home / "broker-1" / "store" / "brokerIdentity"
    assert identity.read_text() == f"{CLUSTER}#{PAIR}#1"
    wait_until(pair.sends, SOON, "the master accepts messages")
    pair.brokers[1].process.kill()
    assert pair.wait_for("the other takes over", master="2", epoch=2, set=[2]) < 2
    wait_until(pair.sends, SOON, "the new master accepts messages")
    pair.start(1)
    pair.wait_for("the old master follows", master="2", epoch=2, set=[1, 2])
    routes = {"0": pair.brokers[2].address, "1": pair.brokers[1].address}
    wait_until(lambda: wire.brokers(pair.namesrv.address).get(PAIR) == routes, SOON, "the routes show both")


def table(text: str) -> dict[str, str]:
    """`#Name<tab>value` lines."""
    rows = (line.split("\t", 1) for line in text.splitlines() if line.startswith("#"))
    return {row[0]: row[1].strip() if len(row) > 1 else "" for row in rows}


@pytest.mark.scenario("controller 14")
@pytest.mark.scenario("controller 31")
def test_the_tool_of_5_5_0_works_with_our_controller(pair: Pair) -> None:
    admin = Admin("5.5.0", pair.home / "admin", pair.namesrv.address)
    controller = pair.controller.address
    metadata, sets, settings = admin.run(
        f"getControllerMetaData -a {controller}",
        f"getSyncStateSet -a {controller} -b {PAIR}",
        f"getControllerConfig -a {controller}",
    )
    assert table(metadata) | {"#Peer:": ""} == {
        "#ControllerGroup": "group1",
        "#ControllerLeaderId": "n0",
        "#ControllerLeaderAddress": controller,
        "#Peer:": "",
    }
    assert f"n0:{controller}" in metadata
    found = table(sets)
    assert (found["#brokerName"], found["#MasterBrokerId"], found["#MasterAddr"]) == (
        PAIR,
        "1",
        pair.brokers[1].address,
    )
    assert (found["#MasterEpoch"], found["#SyncStateSetNums"]) == ("1", "2")
    replica = (
        f"ReplicaIdentity{{brokerName='{PAIR}', brokerId=2, brokerAddress='{pair.brokers[2].address}', alive=true}}"
    )
    assert re.search(rf"^InSyncReplica:\s+{re.escape(replica)}", sets, re.MULTILINE)
    assert f"============{controller}============" in settings
    assert re.search(r"^enableElectUncleanMaster +=  false$", settings, re.MULTILINE)

    [elected] = admin.run(f"electMaster -a {controller} -b 2 -bn {PAIR} -c {CLUSTER}")
    assert "Exception" not in elected
    found = table(elected)
    assert (found["#ClusterName"], found["#BrokerName"], found["#BrokerMasterAddr"], found["#MasterEpoch"]) == (
        CLUSTER,
        PAIR,
        pair.brokers[2].address,
        "2",
    )
    assert "#SyncStateSetEpoch" in found
    pair.wait_for("the old master follows", master="2", epoch=2, set=[1, 2])

    [updated] = admin.run(f"updateControllerConfig -a {controller} -k notifyBrokerRoleChanged -v false")
    assert f"update controller config success![{controller}]" in updated
    assert "notifyBrokerRoleChanged : false" in updated
    assert "notifyBrokerRoleChanged=false" in wire.ask(controller, 1010).body.decode()

    clean = f"cleanBrokerMetadata -a {controller} -bn {PAIR} -c {CLUSTER}"
    [alive] = admin.run(f"{clean} -b 1")
    assert "is still alive, clean up failure" in alive
    pair.brokers[1].process.kill()
    pair.wait_for("the set shrinks", set=[2])
    [cleaned] = admin.run(f"{clean} -b 1")
    assert f"clear broker {PAIR} metadata from controller success!" in cleaned
    [left] = admin.run(f"getSyncStateSet -a {controller} -c {CLUSTER}")
    assert "brokerId=2" in left
    assert "brokerId=1" not in left
