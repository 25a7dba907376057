"""Requests to controllers: the leader is found, and found again when the lead changes."""

from __future__ import annotations

import pytest
from tests.integration.cli.stand_in_kit import StandInBroker, StandInGroup, StandIns, pair
from tests.ports import free_port

from pyromq.client import AdminClient
from pyromq.errors import BrokerError, ConnectFailed, NoPermission, PartialFailure


@pytest.fixture
async def trio():
    async with StandIns(pair(), count=3) as running:
        yield running


@pytest.fixture
async def admin(trio):
    async with AdminClient(trio.namesrv) as client:
        yield client


async def test_any_controller_says_who_leads(trio, admin):
    trio.leader = 2
    view = await admin.controllers.view(trio.controllers[0])
    assert (view.group, view.leader_id, view.leader, view.leads) == ("group1", "n2", trio.controllers[2], False)
    assert view.peers == {f"n{number}": address for number, address in enumerate(trio.controllers)}
    assert (await admin.controllers.view(trio.controllers[2])).leads


async def test_the_peers_of_one_that_is_named_are_asked_too(trio, admin):
    await trio.stop_controller(1)
    views = await admin.controllers.views([trio.controllers[0]])
    assert sorted(views.results) == sorted([trio.controllers[0], trio.controllers[2]])
    assert list(views.failures) == [trio.controllers[1]]


async def test_groups_are_asked_for_at_the_leader(trio, admin):
    trio.leader = 1
    found = await admin.controllers.replicas([trio.controllers[0]], ["fx", "unknown"])
    assert list(found) == ["fx"]
    assert (found["fx"].master_broker_id, found["fx"].master_epoch) == (1, 1)
    assert [each.broker_id for each in found["fx"].in_sync_replicas] == [1, 2]
    assert [request.code for request in trio.asked[1]] == [1006]
    assert await admin.controllers.replicas([trio.controllers[0]], []) == {}


async def test_a_controller_that_is_down_does_not_matter_while_another_answers(trio, admin):
    await trio.stop_controller(0)
    trio.leader = 1
    dead = f"127.0.0.1:{free_port()}"
    assert list(await admin.controllers.replicas([dead, *trio.controllers], ["fx"])) == ["fx"]


@pytest.mark.slow
async def test_a_lead_that_changes_meanwhile_is_followed(trio, admin):
    """The first answer names a leader that has just lost the lead: it says 2007, and the new one is found."""
    trio.named = {0: 0, 1: 0, 2: 0}
    trio.leader = 2

    def change(number, request):
        if request.code == 1006:
            trio.named = {}

    trio.on_request = change
    assert list(await admin.controllers.replicas(trio.controllers, ["fx"])) == ["fx"]
    assert [request.code for request in trio.asked[0]].count(1006) == 1
    assert [request.code for request in trio.asked[2]].count(1006) == 1


@pytest.mark.slow
async def test_a_leader_that_has_died_is_waited_out(trio, admin):
    await trio.stop_controller(0)
    trio.named = {1: 0, 2: 0}
    asked = []

    def change(number, request):
        asked.append(number)
        if len(asked) > 3:
            trio.named, trio.leader = {}, 1

    trio.on_request = change
    assert list(await admin.controllers.replicas(trio.controllers, ["fx"])) == ["fx"]


@pytest.mark.slow
async def test_without_a_leader_the_error_says_so(trio, admin):
    trio.named = {0: None, 1: None, 2: None}
    with pytest.raises(BrokerError, match="no controller leads at the moment") as caught:
        await admin.controllers.replicas(trio.controllers, ["fx"])
    assert caught.value.code == 2007


async def test_if_none_can_be_reached_the_error_names_one(trio, admin):
    dead = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=dead):
        await admin.controllers.replicas([dead], ["fx"])


async def test_a_master_is_elected(trio, admin):
    won = await admin.controllers.elect(trio.controllers, "C", "fx", 2)
    address = trio.groups["fx"].broker(2).address
    assert (won.broker_id, won.address, won.epoch, won.set_epoch, won.changed) == (2, address, 2, 2, True)
    [request] = [each for each in trio.asked[0] if each.code == 1002]
    assert request.ext["designateElect"] == "true"
    assert request.ext["clusterName"] == "C"
    again = await admin.controllers.elect(trio.controllers, "C", "fx", 2)
    assert (again.broker_id, again.epoch, again.changed) == (2, 2, False)
    for broker, broker_id, code in (("fx", 1, 2012), ("nope", 1, 2010)):
        with pytest.raises(BrokerError) as caught:
            await admin.controllers.elect(trio.controllers, "C", broker, broker_id)
        assert caught.value.code == code


async def test_brokers_are_forgotten(trio, admin):
    with pytest.raises(BrokerError, match="still alive") as caught:
        await admin.controllers.clean(trio.controllers, "fx", [2], cluster="C")
    assert caught.value.code == 2009
    trio.groups["fx"].broker(2).alive = False
    await admin.controllers.clean(trio.controllers, "fx", [2], cluster="C")
    assert [each.id for each in trio.groups["fx"].brokers] == [1]
    await admin.controllers.clean(trio.controllers, "fx", cluster="C", living=True)
    assert trio.groups == {}


async def test_settings_are_read_and_changed_at_each_controller(trio, admin):
    assert (await admin.controllers.config(trio.controllers))[trio.controllers[1]]["controllerType"] == "DLedger"
    done = await admin.controllers.set_config(trio.controllers, {"enableElectUncleanMaster": "true"})
    assert done == trio.controllers
    assert {each["enableElectUncleanMaster"] for each in trio.configs} == {"true"}
    with pytest.raises(NoPermission):
        await admin.controllers.set_config(trio.controllers[:1], {"configStorePath": "x"})
    await trio.stop_controller(2)
    with pytest.raises(PartialFailure) as caught:
        await admin.controllers.config(trio.controllers)
    assert len(caught.value.partial) == 2


async def test_a_broker_tells_its_epochs(admin, trio):
    broker = trio.groups["fx"].broker(2)
    broker.epochs, broker.end = [(1, 0), (2, 696)], 922
    cache = await admin.brokers.epochs(broker.address)
    assert [(each.epoch, each.start_offset, each.end_offset) for each in cache.epoch_list] == [
        (1, 0, 696),
        (2, 696, 2**63 - 1),
    ]
    assert (cache.broker_id, cache.max_offset) == (2, 922)


async def test_a_group_without_a_master_has_no_address_of_one():
    async with StandIns(StandInGroup("fx", [StandInBroker(1)], master=None)) as running, AdminClient() as admin:
        info = (await admin.controllers.replicas(running.controllers, ["fx"]))["fx"]
    assert (info.master_broker_id, info.master_address) == (None, None)
