"""Operations on a running controller: `mqadmin` and `pyromq controller`, as people type them."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.cli.cli_kit import Commands

from pyromq.admin.cluster.controllers import fail_over
from pyromq.client import AdminClient

NOWHERE = "127.0.0.1:1"  # nothing here asks a name server


@pytest.fixture
def typed(scene, capsys, monkeypatch, tmp_path):
    """Run a command line; CTL is the controller's address."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    commands = Commands(capsys, NOWHERE)

    async def run(line):
        words = line.replace("CTL", scene.controller.address).split()
        return await asyncio.to_thread(commands, *words)

    return run


@pytest.fixture
async def brokers(scene):
    """Two of one group, both in sync; the first is master."""
    first, second = await scene.group(2)
    assert (await first.alter([1, 2])).code == 0
    return first, second


@pytest.mark.scenario("controller 31")
@pytest.mark.slow
async def test_the_controller_and_its_peers_are_shown(scene, typed):
    address = scene.controller.address
    assert (await typed("mqadmin getControllerMetaData -a CTL")).out == (
        f"\n#ControllerGroup\tgroup1\n#ControllerLeaderId\tn0\n#ControllerLeaderAddress\t{address}\n"
        f"#Peer:\tn0:{address}\n"
    )
    listed = await typed("controller list --controller CTL")
    assert listed.lines[1].split() == [address, "n0", "LEADER", address, "group1", "-"]


@pytest.mark.scenario("controller 31")
async def test_the_master_and_who_is_in_sync_are_shown(brokers, typed):
    first, second = brokers
    members = "".join(
        f"\nInSyncReplica:\tReplicaIdentity{{brokerName='b', brokerId={each.id}, brokerAddress='{each.address}', "
        "alive=true}\n"
        for each in (first, second)
    )
    assert (await typed("mqadmin getSyncStateSet -a CTL -b b")).out == (
        f"\n#brokerName\tb\n#MasterBrokerId\t1\n#MasterAddr\t{first.address}\n#MasterEpoch\t1\n"
        f"#SyncStateSetEpoch\t2\n#SyncStateSetNums\t2\n{members}"
    )


@pytest.mark.scenario("controller 14")
@pytest.mark.slow
async def test_a_master_is_elected_by_either_command(brokers, scene, typed):
    first, second = brokers
    ended = await typed("mqadmin electMaster -a CTL -b 2 -bn b -c c")
    assert ended.out == (
        f"\n#ClusterName\tc\n#BrokerName\tb\n#BrokerMasterAddr\t{second.address}\n#MasterEpoch\t2\n"
        "#SyncStateSetEpoch\t3\n"
    )
    assert [(await first.notice())["extFields"]["masterBrokerId"] for _ in range(2)] == ["1", "2"]
    again = await typed("mqadmin electMaster -a CTL -b 2 -bn b -c c")
    assert (again.code, "(code 2011)" in again.err) == (1, True)
    assert (await second.alter([1, 2], epoch=2, set_epoch=3)).code == 0
    ended = await typed("controller elect b -c c --controller CTL --yes")
    assert ended.lines[1].split() == ["b", "2", "1", first.address, "3", "5"]
    assert (await scene.info())["master"] == 1


@pytest.mark.scenario("controller 15")
@pytest.mark.slow
async def test_who_is_not_in_sync_is_not_elected(scene, typed):
    await scene.group(2)
    ended = await typed("mqadmin electMaster -a CTL -b 2 -bn b -c c")
    assert (ended.code, "Failed to elect a new master (code 2012)" in ended.err) == (1, True)
    ended = await typed("controller elect b 2 -c c --controller CTL --yes")
    assert (ended.code, "is not in sync" in ended.err) == (1, True)
    assert (await scene.info())["master"] == 1


@pytest.mark.scenario("controller 32")
@pytest.mark.slow
async def test_a_stopped_broker_is_forgotten_a_live_one_and_the_master_are_not(brokers, scene, typed):
    clean = "mqadmin cleanBrokerMetadata -a CTL -bn b -c c"
    for line in (clean, f"{clean} -b 2", f"{clean} -b 1 -l", f"{clean[:-4]} -b 1 -l"):
        ended = await typed(line)
        assert (ended.code, "(code 2009)" in ended.err) == (1, True), (line, ended)
    first, second = brokers
    assert (await first.alter([1], set_epoch=2)).code == 0
    await second.dies()
    async with AdminClient(NOWHERE) as admin:

        async def gone():
            found = await fail_over(admin, [scene.controller.address], ["b"])
            return not found.group("b").member(2).alive

        await eventually(gone)
    assert (await typed(f"{clean} -b 2")).out == "clear broker b metadata from controller success! \n"
    assert "brokerId=2" not in (await typed("mqadmin getSyncStateSet -a CTL -b b")).out
    assert (await typed("controller clean b --living -c c --controller CTL --yes")).code == 0
    assert (await typed("mqadmin getSyncStateSet -a CTL -b b")).out == ""


@pytest.mark.scenario("controller 31")
async def test_settings_are_shown_and_changed(scene, typed):
    shown = (await typed("mqadmin getControllerConfig -a CTL")).lines
    assert shown[0] == f"============{scene.controller.address}============"
    assert f"{'enableElectUncleanMaster':<50}=  false" in shown
    assert (await typed("mqadmin updateControllerConfig -a CTL -k enableElectUncleanMaster -v true")).out == (
        f"update controller config success![{scene.controller.address}]\nenableElectUncleanMaster : true\n"
    )
    ended = await typed("controller config get enableElectUncleanMaster --controller CTL")
    assert ended.lines[1].split() == ["enableElectUncleanMaster", "true"]
    refused = await typed("mqadmin updateControllerConfig -a CTL -k configStorePath -v x")
    assert (refused.code, "Can not update config in black list. (code 16)" in refused.err) == (4, True)


async def test_the_status_says_what_is_wrong(brokers, scene, typed):
    """These brokers hear nothing but the controller, so all that is known of them is the controller's."""
    ended = await typed("controller status b --controller CTL")
    assert "b: broker 1 is master, epoch 1; in sync: 1, 2 (change 2)" in ended.lines
    await brokers[0].dies()
    await scene.until(lambda info: info["master"] == 2)
    ended = await typed("controller status b --controller CTL")
    assert "b: broker 2 is master, epoch 2; in sync: 2 (change 3)" in ended.lines
    assert f"! fail-over of b: broker 1 at {brokers[0].address} is not alive" in ended.out
