"""`pyromq controller`, `pyromq broker ha` in controller mode, doctor and mqadmin's seven, against stand-ins."""

from __future__ import annotations

import socket

import pytest
from tests.integration.cli.cli_kit import Commands
from tests.integration.cli.stand_in_kit import StandInBroker, StandInGroup, StandIns, pair, running


class Scene:
    """Commands for the stand-ins that run; addresses are written as they are called here, so that outputs compare."""

    def __init__(self, capsys, stand_ins):
        self.stand_ins = stand_ins
        self._run = Commands(capsys, stand_ins.namesrv)

    @property
    def group(self):
        return self.stand_ins.groups["fx"]

    def __call__(self, line):
        for number, address in enumerate(self.stand_ins.controllers):
            line = line.replace(f"n{number}:PORT", address)
        return self._run(*line.split())

    def text(self, line):
        """What a command says on stdout, with names in the place of addresses."""
        ended = self(line)
        assert ended.code == 0, ended.err
        return self.named(ended.out)

    def named(self, text):
        for number, address in enumerate(self.stand_ins.controllers):
            text = text.replace(address, f"controller-{number}:9878")
        for group in self.stand_ins.groups.values():
            for broker in group.brokers:
                text = text.replace(broker.address, f"{group.name}-{broker.id}:10911")
        return text


@pytest.fixture
def scene(capsys):
    with running(StandIns(pair(), count=3)) as stand_ins:
        yield Scene(capsys, stand_ins)


def table(text):
    """Each line with single blanks, which do not depend on how long addresses are."""
    return [" ".join(line.split()) for line in text.splitlines()]


# Looking


@pytest.mark.slow
def test_controllers_are_listed_whichever_one_is_named(scene):
    scene.stand_ins.leader = 1
    lines = [
        "CONTROLLER ID ROLE LEADER GROUP PROBLEM",
        "controller-0:9878 n0 FOLLOWER controller-1:9878 group1 -",
        "controller-1:9878 n1 LEADER controller-1:9878 group1 -",
        "controller-2:9878 n2 FOLLOWER controller-1:9878 group1 -",
    ]
    assert table(scene.text("controller list")) == lines
    assert table(scene.text("controller list --controller n2:PORT")) == lines


def test_the_status_of_a_group_in_good_health(scene):
    scene.group.broker(1).epochs = scene.group.broker(2).epochs = [(1, 0), (2, 600)]
    scene.group.epoch, scene.group.set_epoch = 2, 4
    assert table(scene.text("controller status"))[4:] == [
        "",
        "BROKER ID ROLE ADDRESS ALIVE IN SYNC EPOCH LOG END BEHIND PROBLEM",
        "fx 1 MASTER fx-1:10911 yes yes 2 696 0 -",
        "fx 2 SLAVE fx-2:10911 yes yes 2 696 0 -",
        "",
        "fx: broker 1 is master, epoch 2; in sync: 1, 2 (change 4)",
        "all is well",
    ]


def test_the_status_for_programs_has_everything(scene):
    found = scene("controller status -o json").json
    assert found["leader"] == scene.stand_ins.controllers[0]
    assert [each["role"] for each in found["controllers"]] == ["LEADER", "FOLLOWER", "FOLLOWER"]
    [group] = found["groups"]
    assert (group["cluster"], group["master"], group["inSync"]) == ("C", 1, [1, 2])
    assert group["members"][1] | {"address": ""} == {
        "broker": "fx",
        "id": 2,
        "role": "SLAVE",
        "address": "",
        "alive": True,
        "inSync": True,
        "epoch": 1,
        "logEnd": 696,
        "behind": 0,
        "problem": None,
        "actsAs": "SLAVE",
        "epochs": [{"epoch": 1, "start": 0}],
        "doubtful": False,
    }
    assert found["problems"] == []
    assert scene("controller status -o name").lines == ["fx"]


def test_the_status_says_what_is_wrong(scene):
    scene.group.broker(2).alive, scene.group.in_sync = False, [1]
    lines = table(scene.text("controller status"))
    assert lines[7] == "fx 2 SLAVE fx-2:10911 no no 1 696 0 -"
    gone, alone = (line for line in lines if line.startswith("!"))
    assert gone == (
        "! fail-over of fx: broker 2 at fx-2:10911 is not alive; start it; if it is gone for good: "
        "pyromq controller clean fx 2"
    )
    assert alone.startswith(
        "! fail-over of fx: only broker 1 is in sync, of 2: nobody can take over if it fails; see that the others run"
    )


def test_what_does_not_answer_is_told_and_makes_the_exit_code_1(capsys):
    group = StandInGroup("fx", [StandInBroker(1), StandInBroker(2, alive=False, runs=False)])
    with running(StandIns(group)) as stand_ins:
        ended = Scene(capsys, stand_ins)("controller status")
    assert ended.code == 0  # that broker is known to be down
    assert "does not answer: " in ended.out
    with running(StandIns(pair(), count=3)) as stand_ins:
        scene = Scene(capsys, stand_ins)
        stand_ins.controllers[2] = "127.0.0.1:1"
        ended = scene("controller status --controller n0:PORT")
    assert ended.code == 1
    assert "incomplete: 127.0.0.1:1" in ended.err
    assert "! controller n2 127.0.0.1:1: does not answer" in ended.out


@pytest.mark.slow
def test_who_hangs_does_not_keep_the_others_from_being_shown(scene):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = f"127.0.0.1:{silent.getsockname()[1]}"
        scene.stand_ins.controllers[2] = scene.group.broker(2).address = hanging
        ended = scene("controller status")
    assert ended.code == 1
    assert f"incomplete: {hanging}" in ended.err
    lines = table(scene.named(ended.out))
    assert "fx 1 MASTER fx-1:10911 yes yes 1 696 0 -" in lines
    assert any(
        line.startswith("fx 2 SLAVE") and line.endswith("does not answer: no answer within 1 s") for line in lines
    )


def test_a_group_that_is_down_as_a_whole_is_shown_by_its_name(capsys):
    """No name server knows it then; the controllers are known from the name server, which has one inside."""
    down = [StandInBroker(1, alive=False, runs=False), StandInBroker(2, alive=False, runs=False)]
    stand_ins = StandIns(StandInGroup("fx", down, master=None, in_sync=[1]))
    stand_ins.in_name_server = True
    with running(stand_ins):
        scene = Scene(capsys, stand_ins)
        assert "the controllers know none of these brokers" in scene.text("controller status")
        lines = table(scene.text("controller status fx"))
    assert "fx: no master, epoch 1; in sync: 1 (change 1)" in lines
    assert any("it has no master, so it takes no messages; start broker 1" in line for line in lines)


def test_a_group_that_no_controller_knows(scene):
    ended = scene("controller status nope")
    assert (ended.code, ended.out) == (3, "")
    assert "the controller knows no broker nope; it knows: none that runs" in ended.err


def test_controllers_come_from_the_option_then_the_context_then_the_brokers(scene):
    assert scene("context add here --controller 127.0.0.1:1 --use").code == 0
    assert scene("controller list").code == 0  # -n names another cluster, maybe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene._run, "__class__", WithoutNamesrv)
        unreachable = scene("controller list")
        assert unreachable.code == 5
        assert "127.0.0.1:1" in unreachable.err
        assert scene("controller list --controller n0:PORT").code == 0


class WithoutNamesrv(Commands):
    """Commands as typed by somebody who has a context."""

    def __call__(self, *arguments):
        had, self.namesrv = self.namesrv, ""
        try:
            return super().__call__(*arguments)
        finally:
            self.namesrv = had


def test_a_cluster_without_controllers(pyromq):
    ended = pyromq("controller", "status")
    assert ended.code == 3
    assert "name one with --controller" in ended.err


# Changing


def test_an_election_is_announced_asked_for_and_done(scene):
    refused = scene("controller elect fx")
    assert refused.code == 2
    wanted = "make broker 2 (fx-2:10911) master of fx instead of broker 1"
    assert scene.named(refused.err) == f"pyromq controller elect: nothing was changed; to {wanted}, add --yes\n"
    assert scene.named(scene("controller elect fx 2 --dry-run").err) == f"pyromq controller elect: would {wanted}\n"
    assert scene.group.master == 1
    assert table(scene.text("controller elect fx 2 --yes")) == [
        "BROKER BEFORE MASTER ADDRESS EPOCH SET EPOCH",
        "fx 1 2 fx-2:10911 2 2",
    ]
    again = scene("controller elect fx 2 --yes")
    assert again.code == 0
    assert "broker 2 is master of fx already" in again.err


def test_who_cannot_be_elected_is_told_why(scene):
    scene.group.in_sync = [1]
    assert "no slave of fx is alive and in sync" in scene("controller elect fx").err
    ended = scene("controller elect fx 2 --yes")
    assert ended.code == 1
    assert "broker 2 of fx is not in sync: messages would be lost; in sync: 1" in ended.err
    assert scene("controller elect fx 9").code == 3
    assert scene("controller elect nope 1").code == 3


def test_a_stopped_broker_is_forgotten_a_live_one_is_not(scene):
    ended = scene("controller clean fx 2 --yes")
    assert ended.code == 1
    assert "Broker [fx,  2] is still alive, clean up failure (code 2009)" in ended.err
    scene.group.broker(2).alive = False
    assert scene("controller clean fx 2").code == 2
    assert [each.id for each in scene.group.brokers] == [1, 2]
    assert table(scene.text("controller clean fx 2 --yes"))[1].startswith("broker 2 of fx forgotten controller-0:9878")
    assert [each.id for each in scene.group.brokers] == [1]
    assert scene("controller clean fx 7 --yes").code == 3


def test_living_brokers_are_forgotten_all_together_only(scene):
    ended = scene("controller clean fx 2 --living --yes")
    assert ended.code == 2
    assert "Apache's controllers ignore the ids" in ended.err
    assert scene("controller clean fx --living --yes").code == 0
    assert scene.stand_ins.groups == {}


def test_settings_are_shown_and_changed_on_every_controller(scene):
    scene.stand_ins.configs[1]["enableElectUncleanMaster"] = "true"
    shown = table(scene.text("controller config get enableElectUncleanMaster --controller n0:PORT"))
    assert sorted(shown[1:]) == [
        "enableElectUncleanMaster false controller-0:9878",
        "enableElectUncleanMaster false controller-2:9878",
        "enableElectUncleanMaster true controller-1:9878",
    ]
    assert scene("controller config set enableElectUncleanMaster=false").code == 0
    assert {each["enableElectUncleanMaster"] for each in scene.stand_ins.configs} == {"false"}
    asked = scene("controller config set enableElectUncleanMaster=true")
    assert asked.code == 2
    assert "a broker that lacks messages may become master, add --yes" in asked.err
    assert scene("controller config set enableElectUncleanMaster=true --yes").code == 0
    assert scene("controller config set configStorePath=x").code == 4


# Replication


def test_replication_shows_epochs_and_who_is_in_sync(scene):
    scene.group.broker(2).end, scene.group.in_sync = 600, [1]
    assert table(scene.text("broker ha")) == [
        "BROKER ID ROLE ADDRESS EPOCH IN SYNC LOG END SLAVES FOLLOWS BEHIND BEHIND S SINCE PROBLEM",
        "fx 1 MASTER fx-1:10911 1 yes 696 0 - - - - -",
        "fx 2 SLAVE fx-2:10911 1 no 600 - 127.0.0.1:1 96 - - -",
        "",
        "1 slave, at most 96 bytes behind",
    ]


def test_replication_is_shown_as_before_where_there_is_no_controller(pyromq, cluster):
    headings = "BROKER ID ROLE ADDRESS LOG END SLAVES FOLLOWS BEHIND BEHIND S SINCE PROBLEM"
    assert table(pyromq("broker", "ha").out)[0] == headings


@pytest.mark.slow
def test_replication_is_shown_though_the_controllers_are_gone(scene):
    scene.stand_ins.named = {0: None, 1: None, 2: None}
    ended = scene("broker ha --timeout 10")
    assert ended.code == 1
    assert "no controller leads at the moment" in ended.err
    assert table(scene.named(ended.out))[1:3] == [
        "fx - MASTER fx-1:10911 1 - 696 0 - - - - -",
        "fx 2 SLAVE fx-2:10911 1 - 696 - 127.0.0.1:1 0 - - -",
    ]


# Doctor


def test_doctor_finds_nothing_wrong_with_a_group_in_good_health(scene):
    text = scene.text("doctor")
    assert "3 answer, controller-0:9878 leads" in text
    assert "broker 1 is master in epoch 1, in sync: 1, 2" in text


def test_doctor_finds_two_masters_and_epochs_that_differ(scene):
    scene.group.broker(2).claims_master = True
    scene.group.broker(2).epochs = [(1, 0), (2, 500)]
    ended = scene("doctor -q")
    assert ended.code == 6
    text = scene.named(ended.out)
    assert "broker 2 at fx-2:10911 claims to be master, but the controller names broker 1" in text
    assert "broker 2 has epoch 2 from 500, its master has no such epoch" in text


@pytest.mark.slow
def test_doctor_finds_that_nobody_leads_and_that_no_controller_answers(scene):
    scene.stand_ins.named = {0: None, 1: None, 2: 0}
    text = scene.named(scene("doctor -q").out)
    assert "have no leader" not in text
    scene.stand_ins.named = {0: 0, 1: 1, 2: 0}
    assert "disagree about the leader" in scene("doctor -q").out
    scene.stand_ins.named = {0: None, 1: None, 2: None}
    assert "have no leader: 3 of 3 can be reached" in scene("doctor -q").out
    scene.stand_ins.controllers[:] = ["127.0.0.1:1"]
    assert "none can be reached: " in scene("doctor -q").out


def test_doctor_says_once_why_a_group_has_no_master(capsys):
    group = StandInGroup("fx", [StandInBroker(1, alive=False, runs=False), StandInBroker(2)], master=None, in_sync=[1])
    with running(StandIns(group)) as stand_ins:
        text = Scene(capsys, stand_ins)("doctor -q").out
    assert "it has no master, so it takes no messages" in text
    assert "brokerId=0" not in text


# mqadmin: what the tool of 5.5.0 printed for the same (recorded from it, addresses renamed)


def test_get_controller_meta_data(scene):
    assert scene.text("mqadmin getControllerMetaData -a n1:PORT") == (
        "\n#ControllerGroup\tgroup1\n#ControllerLeaderId\tn0\n#ControllerLeaderAddress\tcontroller-0:9878\n"
        "#Peer:\tn0:controller-0:9878\n#Peer:\tn1:controller-1:9878\n#Peer:\tn2:controller-2:9878\n"
    )


@pytest.mark.parametrize("whose", ["-b fx", "-c C"])
def test_get_sync_state_set(scene, whose):
    scene.group.in_sync = [1]
    assert scene.text(f"mqadmin getSyncStateSet -a n0:PORT {whose}") == (
        "\n#brokerName\tfx\n#MasterBrokerId\t1\n#MasterAddr\tfx-1:10911\n#MasterEpoch\t1\n#SyncStateSetEpoch\t1\n"
        "#SyncStateSetNums\t1\n"
        "\nInSyncReplica:\tReplicaIdentity{brokerName='fx', brokerId=1, brokerAddress='fx-1:10911', alive=true}\n"
        "\nNotInSyncReplica:\tReplicaIdentity{brokerName='fx', brokerId=2, brokerAddress='fx-2:10911', alive=true}\n"
    )


def test_get_sync_state_set_of_a_group_without_a_master(scene):
    scene.group.master = None
    assert "#MasterBrokerId\tnull\n#MasterAddr\tnull\n" in scene.text("mqadmin getSyncStateSet -a n0:PORT -b fx")
    assert scene.text("mqadmin getSyncStateSet -a n0:PORT -b nope") == ""
    assert scene("mqadmin getSyncStateSet -a n0:PORT").code == 2


def test_elect_master(scene):
    assert scene.text("mqadmin electMaster -a n2:PORT -b 2 -bn fx -c C") == (
        "\n#ClusterName\tC\n#BrokerName\tfx\n#BrokerMasterAddr\tfx-2:10911\n#MasterEpoch\t2\n#SyncStateSetEpoch\t2\n"
    )
    for line, code in (("-b 2 -bn fx", 2011), ("-b 1 -bn fx", 2012), ("-b 1 -bn nope", 2010)):
        ended = scene(f"mqadmin electMaster -a n0:PORT {line} -c C")
        assert ended.code == 1
        assert f"(code {code})" in ended.err
    assert scene("mqadmin electMaster -a n0:PORT -b 2 -c C").code == 2


@pytest.mark.parametrize("whose", ["-b fx", "-c C"])
def test_get_broker_epoch(scene, whose):
    scene.group.broker(1).epochs, scene.group.broker(1).end = [(1, 0), (2, 696)], 922
    assert scene.text(f"mqadmin getBrokerEpoch {whose}") == (
        "\n#clusterName\tC\n#brokerName\tfx\n#brokerAddr\tfx-1:10911\n#brokerId\t0\n"
        "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=696}\n"
        "#Epoch: EpochEntry{epoch=2, startOffset=696, endOffset=922}\n"
        "\n#clusterName\tC\n#brokerName\tfx\n#brokerAddr\tfx-2:10911\n#brokerId\t2\n"
        "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=696}\n"
    )
    assert scene("mqadmin getBrokerEpoch").code == 2


def test_controller_config(scene):
    line = f"{'controllerType':<50}=  DLedger\n{'enableElectUncleanMaster':<50}=  false\n"
    assert scene.text("mqadmin getControllerConfig -a n0:PORT;n1:PORT") == (
        f"============controller-0:9878============\n{line}============controller-1:9878============\n{line}"
    )
    assert scene.text("mqadmin updateControllerConfig -a n0:PORT;n1:PORT -k enableElectUncleanMaster -v true") == (
        "update controller config success![controller-0:9878, controller-1:9878]\nenableElectUncleanMaster : true\n"
    )
    assert [each["enableElectUncleanMaster"] for each in scene.stand_ins.configs] == ["true", "true", "false"]
    refused = scene("mqadmin updateControllerConfig -a n0:PORT -k configStorePath -v x")
    assert refused.code == 4
    assert "Can not update config in black list." in refused.err


def test_clean_broker_metadata(scene):
    clean = "mqadmin cleanBrokerMetadata -a n0:PORT -bn fx"
    assert scene(clean).code == 2
    assert scene(f"{clean} -c C -b one").code == 2
    assert "Broker fx is still alive, clean up failure (code 2009)" in scene(f"{clean} -c C").err
    assert "Broker [fx,  1] is still alive, clean up failure (code 2009)" in scene(f"{clean} -c C -b 1;2").err
    scene.group.broker(2).alive = False
    assert scene.text(f"{clean} -c C -b 2") == "clear broker fx metadata from controller success! \n"
    assert [each.id for each in scene.group.brokers] == [1]
    assert scene.text(f"{clean} -l") == "clear broker fx metadata from controller success! \n"
    assert "Broker fx is not existed,clean broker data failure. (code 2009)" in scene(f"{clean} -l").err
