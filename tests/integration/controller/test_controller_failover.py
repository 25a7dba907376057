"""A controller and stand-ins for brokers: who becomes master when somebody dies, and who does not."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time

import pytest

from pyromq.testing import Clock

pytestmark = pytest.mark.slow


async def test_a_closed_connection_replaces_the_master_at_once(scene):
    one, two, three = await scene.group(3)
    await one.alter([1, 2])
    began = time.monotonic()
    await one.dies()
    assert await scene.until(lambda info: info["master"] != 1) == {
        "master": 2,
        "epoch": 2,
        "set": [2],
        "set_epoch": 3,
    }
    assert time.monotonic() - began < 1
    for broker in (two, three):
        heard = await broker.notice()
        while heard["extFields"]["masterEpoch"] == "1":
            heard = await broker.notice()
        assert (heard["code"], heard["flag"] & 2) == (1008, 2)
        assert heard["extFields"] == {
            "masterAddress": two.address,
            "masterBrokerId": "2",
            "masterEpoch": "2",
            "syncStateSetEpoch": "3",
        }
        assert heard["body"] == {"syncStateSet": [2], "syncStateSetEpoch": 3}


async def test_a_silent_master_is_replaced_when_its_time_out_ends(scene):
    one, two = await scene.group(2)
    await one.alter([1, 2])
    await one.beat(timeout=300)
    began = time.monotonic()
    assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2
    assert 0.25 < time.monotonic() - began < 3
    assert await one.client.closed_by_server() == b""
    assert (await two.elect()).code == 2011


async def test_a_slave_that_dies_changes_nothing(scene):
    one, two = await scene.group(2)
    await one.alter([1, 2])
    before = await scene.info()
    await two.dies()
    alive = True
    while alive:
        info = (await scene.call(1006, {}, b'["b"]')).json["replicasInfoTable"]["b"]
        alive = all(replica["alive"] for replica in info["inSyncReplicas"])
    assert await scene.info() == before


@pytest.mark.scenario("controller 12")
async def test_nobody_outside_the_set_is_elected_and_the_old_master_comes_back(scene):
    one, two = await scene.group(2)
    await one.dies()
    assert await scene.until(lambda info: info["master"] is None) == {
        "master": None,
        "epoch": 2,
        "set": [1],
        "set_epoch": 1,
    }
    assert (await two.elect()).code == 2012
    # It returns with its id, beats and asks.
    again = await scene.broker()
    again.id = 1
    assert "masterBrokerId" not in (await again.register()).ext
    await again.beat()
    assert (await again.elect()).code == 0
    assert await scene.info() == {"master": 1, "epoch": 3, "set": [1], "set_epoch": 2}


@pytest.mark.scenario("controller 13")
async def test_somebody_outside_the_set_is_elected_if_loss_is_allowed(start):
    async with start("enableElectUncleanMaster=true") as scene:
        one, _ = await scene.group(2)
        await one.dies()
        info = await scene.until(lambda info: info["master"] == 2)
        assert (info["epoch"], info["set"]) == (2, [2])


async def test_loss_can_be_allowed_while_a_group_has_no_master(scene):
    one, two = await scene.group(2)
    await one.dies()
    await scene.until(lambda info: info["master"] is None)
    assert (await scene.call(1009, {}, b"enableElectUncleanMaster=true")).code == 0
    assert (await two.elect()).code == 0
    assert (await scene.info())["master"] == 2


@pytest.mark.scenario("controller 27")
async def test_equal_logs_are_decided_by_priority(scene):
    one, two, three = await scene.group(3)
    await one.alter([1, 2, 3])
    await two.beat(offset=500, priority=9)
    await three.beat(offset=500, priority=1)
    await one.dies()
    assert (await scene.until(lambda info: info["master"] != 1))["master"] == 3


@pytest.mark.scenario("controller 18")
async def test_brokers_that_start_at_the_same_time_get_different_ids_and_one_master(scene):
    brokers = [await scene.broker() for _ in range(8)]

    async def starts(broker):
        await broker.join()
        await broker.beat()
        return (await broker.elect()).code

    codes = await asyncio.gather(*map(starts, brokers))
    assert sorted(broker.id for broker in brokers) == list(range(1, 9))
    assert sorted(codes) == [0] + [2011] * 7


@pytest.mark.scenario("controller 17")
async def test_a_broker_that_crashed_before_it_noted_its_id_gets_the_same_one(start):
    async with start() as scene:
        broker = await scene.broker()
        code = {"appliedBrokerId": 1, "registerCheckCode": f"{broker.address};1000"}
        assert (await broker.call(1013, code)).code == 0
        await broker.dies()
        again = await scene.broker()
        assert (await again.call(1013, code)).code == 0
    async with start() as scene:
        broker = await scene.broker()
        assert (await broker.call(1013, code)).code == 0
        other = code | {"registerCheckCode": "127.0.0.1:1;1000"}
        assert (await broker.call(1013, other)).code == 2014


@pytest.mark.scenario("controller 14")
async def test_a_tool_moves_the_master_and_back(scene):
    one, two = await scene.group(2)
    await one.alter([1, 2])
    asked = {"clusterName": "c", "brokerName": "b", "brokerId": 2, "designateElect": "true"}
    reply = await scene.call(1002, asked)
    assert (reply.code, reply.ext["masterBrokerId"], reply.ext["masterEpoch"]) == (0, "2", "2")
    assert (await scene.call(1002, asked | {"brokerId": 1})).code == 2012  # not in the new set yet
    assert (await two.alter([1, 2], epoch=2, set_epoch=3)).code == 0
    assert (await scene.call(1002, asked | {"brokerId": 1})).ext["masterEpoch"] == "3"


@pytest.mark.scenario("controller 20")
async def test_a_restart_keeps_everything_and_deposes_nobody_before_all_were_heard(start):
    async with start() as scene:
        one, _ = await scene.group(2)
        await one.alter([1, 2])
        before = await scene.info()
    assert (before["master"], before["set"]) == (1, [1, 2])
    clock = Clock()
    async with start("scanInactiveMasterInterval=20", clock=clock) as scene:
        one, two = await scene.broker(), await scene.broker()
        one.id, two.id = 1, 2
        # The slave is heard long before the master.
        await two.beat(timeout=60_000)
        await passes(9.9, scene, clock)
        await looked_at_all_groups(scene, clock)
        assert await scene.info() == before
        await one.beat(timeout=60_000)
        await passes(0.2, scene, clock)
        await looked_at_all_groups(scene, clock)
        assert await scene.info() == before


async def test_a_master_that_stays_away_after_a_restart_is_replaced_when_the_wait_ends(start):
    async with start() as scene:
        one, _ = await scene.group(2)
        await one.alter([1, 2])
        before = await scene.info()
    clock = Clock()
    async with start("scanInactiveMasterInterval=20", clock=clock) as scene:
        two = await scene.broker()
        two.id = 2
        await two.beat(timeout=60_000)
        await passes(9.9, scene, clock)
        await looked_at_all_groups(scene, clock)
        assert await scene.info() == before
        await passes(0.2, scene, clock)
        assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2


async def test_a_master_that_was_heard_after_a_restart_is_replaced_after_its_own_time_out(start):
    """No earlier: its lease may be from before, and may not depend on its connection to this controller."""
    async with start() as scene:
        one, _ = await scene.group(2)
        await one.alter([1, 2])
        before = await scene.info()
    clock = Clock()
    async with start("scanInactiveMasterInterval=20", clock=clock) as scene:
        one, two = await scene.broker(), await scene.broker()
        one.id, two.id = 1, 2
        await two.beat(timeout=60_000)
        await one.beat(timeout=3000)
        await one.dies()
        await passes(2.9, scene, clock)
        await looked_at_all_groups(scene, clock)
        assert await scene.info() == before
        await passes(0.2, scene, clock)
        assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2


async def test_a_controller_that_stood_still_deposes_nobody(start):
    clock = Clock()
    async with start("scanInactiveMasterInterval=20", clock=clock) as scene:
        one, two = await scene.group(2)
        await one.alter([1, 2])
        before = await scene.info()
        clock.advance(60)
        await looked_at_all_groups(scene, clock)
        assert await scene.info() == before
        await two.beat()
        await passes(9.5, scene, clock)
        assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2


async def passes(seconds, scene, clock):
    """Time goes by, and the controller notices: one that does not look at its clock for a second stood still."""
    while seconds > 0:
        step = min(seconds, 0.5)
        clock.advance(step)
        await scene.call(1006, {}, b'["b"]')
        seconds -= step


async def looked_at_all_groups(scene, clock):
    """A new group does not wait. When its dead master was seen to be gone, all others have been looked at, too."""
    alone, other = await scene.group(2, f"other{len(scene.brokers)}")
    await other.beat(timeout=60_000)
    await alone.alter([1, 2])
    await alone.beat(timeout=1)
    clock.advance(0.01)
    await scene.until(lambda info: info["master"] == 2, alone.name)


async def test_the_old_connection_of_a_broker_that_came_back_may_close(scene):
    one, two = await scene.group(2)
    await one.alter([1, 2])
    again = await scene.broker()
    again.id = 1
    await again.beat()
    await one.dies()
    assert (await two.elect()).code == 2011
    await again.dies()
    assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2


@contextlib.contextmanager
def full_disk(path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_decision_that_cannot_be_saved_is_told_to_nobody(start, tmp_path):
    async with start("scanInactiveMasterInterval=50") as scene:
        one, two = await scene.group(2)
        await one.alter([1, 2])
        before = await scene.info()
        while not two.told.empty():
            await two.notice()
        with full_disk(tmp_path / "store" / "journal"):
            reply = await one.alter([1], set_epoch=2)
            assert (reply.code, reply.remark) == (1, "the decision could not be saved: File too large")
            await one.dies()
            reply = await two.elect()
            assert reply.code == 1
            assert await scene.info() == before
            assert two.told.empty()
        # With room again, the next check makes up for it.
        assert (await scene.until(lambda info: info["master"] == 2))["epoch"] == 2


async def test_many_groups_lose_their_masters_at_once(scene):
    groups = [await scene.group(2, f"b{number}") for number in range(10)]
    for one, _ in groups:
        await one.alter([1, 2])
    await asyncio.gather(*(one.dies() for one, _ in groups))
    for _, two in groups:
        assert (await scene.until(lambda info: info["master"] == 2, two.name))["epoch"] == 2


async def test_brokers_that_obeyed_another_journal_are_told_of_in_the_log(scene, caplog):
    [one] = await scene.group(1)
    again = await scene.broker()
    again.id = 2
    await again.beat(epoch=1)
    assert "what it keeps is not what brokers" not in caplog.text
    again.id = 3
    await again.beat(epoch=5)
    assert "broker 3 of b knows epoch 5, this controller only 1: what it keeps is not what brokers" in caplog.text
    assert (await one.info())["epoch"] == 1
