"""Slaves whose log is not the beginning of their master's say so and copy nothing (docs/spec/ha.md 2.3)."""

from __future__ import annotations

import shutil

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import HEAD, MASTER, SLAVE, caught_up, end, report_of
from tests.integration.broker.scene_kit import running

from pyromq.broker.replication import follower

pytestmark = pytest.mark.slow

DECIDE = "until somebody decides which of the two is right"
MORE = "the slave's log ends at"  # what a master says to one that has more than it has


def problem(slave):
    return slave.broker._parts.replication.follower.problem or ""


def ha_address(master):
    return f"haMasterAddress=127.0.0.1:{master.broker._ports.ha_port}"


async def is_reported(slave):
    async def reported():
        return DECIDE in problem(slave) or MORE in problem(slave)

    await eventually(reported)


@pytest.fixture
async def other(group):
    """The log of a slave that once followed another master."""
    async with running(group.folder / "slave", MASTER) as scene:
        client = await scene.connect()
        await client.sent(b"another one")
    return group.log("slave")


@pytest.mark.scenario("ha 19")
async def test_a_slave_with_more_than_its_master_says_so_and_stays_as_it_is(group, other):
    await group.start("master", MASTER)
    slave = await group.start("slave", *SLAVE)
    await is_reported(slave)
    assert group.log("slave") == other


@pytest.mark.parametrize("finds_master_by", ["name server", "haMasterAddress"])
async def test_a_slave_with_other_messages_at_the_same_place_says_so(group, other, finds_master_by):
    master = await group.start("master", MASTER)
    client = await master.connect()
    for _ in range(10):
        await client.sent(b"one of many")
    slave = await group.start("slave", *SLAVE, *[ha_address(master)] * (finds_master_by == "haMasterAddress"))
    await is_reported(slave)
    assert group.log("slave") == other
    assert all(link.acknowledged is None for link in master.broker._parts.replication.master.links)


async def test_logs_are_compared_without_name_servers_too(group, other):
    async with (
        running(group.folder / "master", MASTER) as master,
        running(group.folder / "slave", *SLAVE, ha_address(master)) as slave,
    ):
        client = await master.connect()
        for _ in range(10):
            await client.sent(b"one of many")
        await is_reported(slave)
        assert group.log("slave") == other


async def test_a_slave_asks_again_for_a_record_of_which_it_has_a_part(group, fake_master, monkeypatch):
    monkeypatch.setattr(follower, "_FIRST_RETRY", 0.01)
    source = await group.start("source", MASTER)
    client = await source.connect()
    await client.sent(b"one")
    whole = end(source)
    await client.sent(b"two" * 100)
    data = next(iter(group.log("source").values()))
    scene = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    master = await fake_master.slave()
    assert await report_of(master) == 0
    master.writer.write(HEAD.pack(0, whole + 50) + data[: whole + 50])
    assert await report_of(master) == whole + 50
    master.writer.close()
    # The master may have lost what it was sending, and send something else now.
    master = await fake_master.slave()
    assert await report_of(master) == whole
    master.writer.write(HEAD.pack(whole, end(source) - whole) + data[whole : end(source)])
    assert await report_of(master) == end(source)
    assert group.log("slave") == group.log("source")
    assert problem(scene) == ""


async def test_a_slave_of_which_the_store_was_moved_away_gets_a_copy(group, other):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    async with group.broker("slave", *SLAVE) as slave:
        await is_reported(slave)
    shutil.move(group.folder / "slave", group.folder / "moved away")
    slave = await group.start("slave", *SLAVE)
    await caught_up(master, slave)
    assert group.log("slave") == group.log("master")
