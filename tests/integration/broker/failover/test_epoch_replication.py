"""A master and its slaves, with epochs: who gets what, where logs part, and what is never lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.failover.replica_kit import assert_equal, eventually, same
from tests.unit.store.kit import bodies

from pyromq.testing import Proxy


async def leading(replica, *messages, broker_id=1, **config):
    """A master with these messages, alone in its set."""
    master = replica(broker_id, **config)
    master.controllers.elect(broker_id)
    await master.lead()
    for body in messages:
        await master.acknowledged(body)
    return master


async def in_set(master, *ids):
    await eventually(lambda: master.controllers.in_sync.members == {master.id, *ids})
    await eventually(lambda: master.keeper.in_sync.taken == master.controllers.in_sync)


async def test_a_fresh_slave_gets_the_whole_log_and_joins_the_set(replica):
    master = await leading(replica, *(b"m%d" % number for number in range(100)))
    assert len(master.store.log.segments) > 2
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    await eventually(lambda: slave.store.confirmed == master.end)
    assert bodies(slave.store) == bodies(master.store)
    assert slave.epochs.entries == ((1, 0),)
    assert_equal(master, slave)


async def test_a_slave_of_an_empty_master_joins(replica):
    master = await leading(replica)
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    await eventually(lambda: slave.epochs.entries == ((1, 0),))
    await master.acknowledged(b"first")
    assert bodies(master.store) == [b"first"]
    await eventually(lambda: bodies(slave.store) == [b"first"])
    assert_equal(master, slave)


async def test_consumers_of_a_slave_see_at_once_what_is_confirmed(replica):
    """No 5 s until the next heartbeat."""
    master = await leading(replica)
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    slave.seen.clear()
    await master.acknowledged(b"one")
    await eventually(lambda: slave.seen == ["T"], patience=2)
    assert slave.store.confirmed == slave.end


@pytest.mark.slow
async def test_nobody_sees_or_hears_of_a_message_that_a_member_lacks(replica):
    master = await leading(replica)
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    # It goes, and until the controllers know it counts.
    master.controllers.epoch += 1
    await slave.rest()
    told = []
    master.send(b"only here", lambda: told.append(1))
    await eventually(lambda: len(master.controllers.requests) > 1)
    assert (told, bodies(master.store), master.seen) == ([], [], [])
    master.controllers.epoch -= 1
    await eventually(lambda: told == [1])
    assert master.controllers.in_sync.members == {1}
    assert (bodies(master.store), master.seen) == ([b"only here"], ["T"])


async def test_without_a_lease_nothing_is_confirmed(replica):
    master = await leading(replica)
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    master.has_lease = False
    told = []
    master.send(b"x", lambda: told.append(1))
    await eventually(lambda: master.keeper.in_sync.had_by_all([2]) == master.end)
    assert (told, bodies(master.store)) == ([], [])
    master.has_lease = True
    master.keeper.advance()
    assert (told, bodies(master.store)) == ([1], [b"x"])


@pytest.mark.scenario("controller 7")
async def test_an_old_master_cuts_off_what_nobody_else_has(replica):
    old = await leading(replica, b"one", b"two")
    new = replica(2)
    await new.follow(old.address)
    await in_set(old, 2)
    await eventually(lambda: new.store.confirmed == old.end)
    new.controllers.elect(2)
    await new.rest()
    told = []
    for body in (b"lost", b"lost too"):
        old.send(body, lambda: told.append(1))
    parted = new.end
    await old.rest()
    await new.lead()
    await new.acknowledged(b"three")
    assert new.epochs.entries == ((1, 0), (2, parted))

    await old.follow(new.address)
    await in_set(new, 1)
    await eventually(lambda: same(old, new) and bodies(old.store) == [b"one", b"two", b"three"])
    assert told == []
    assert_equal(old, new)
    # Behind the end there is nothing.
    name, data = list(old.files().items())[-1]
    assert data[old.end - int(name) :].strip(b"\0") == b""


async def test_epochs_whose_files_are_gone_are_forgotten(replica):
    master = await leading(replica, *(b"x" * 1000 for _ in range(9)))
    master.controllers.elect(1)
    await master.lead()
    start = master.end
    for _ in range(6):
        await master.acknowledged(b"y" * 1000)
    while master.store.log.start <= start:
        master.store.log.drop_oldest().close()
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    assert slave.store.log.start == master.store.log.start
    master.controllers.elect(1)
    await master.lead()
    assert master.epochs.entries == ((2, start), (3, master.end))
    await slave.follow(master.address)
    await in_set(master, 2)
    await eventually(lambda: slave.epochs.entries == master.epochs.entries)


async def test_masters_take_turns_without_a_message(replica):
    """controller 14: no two epochs of one table have the same start."""
    one = await leading(replica, b"one")
    two = replica(2)
    for epoch in range(2, 7):
        leader, other = (one, two) if epoch % 2 else (two, one)
        other_leads = other.leading is not None
        if other_leads:
            await leader.follow(other.address)
            await in_set(other, leader.id)
        one.controllers.elect(leader.id)
        await other.rest()
        await leader.lead()
        assert leader.epochs.entries == ((1, 0), (epoch, leader.end))
    await other.follow(leader.address)
    await in_set(leader, other.id)
    await eventually(lambda: same(one, two) and one.epochs.entries == two.epochs.entries)
    assert_equal(one, two)


@pytest.mark.scenario("controller 25")
async def test_half_a_record_at_the_end_of_a_new_master_is_cut_off(replica):
    old = await leading(replica, b"one")
    new = replica(2)
    await new.follow(old.address)
    await in_set(old, 2)
    await eventually(lambda: same(old, new))
    await new.rest()
    whole = new.end
    record = bytes(old.store.log.read(0, whole))
    # The line broke within the next record.
    new.store.append_copy(whole, record[:50])
    assert new.end == whole + 50
    new.controllers.elect(2)
    await old.rest()
    await new.lead()
    assert new.epochs.entries == ((1, 0), (2, whole))
    await new.acknowledged(b"two")
    assert bodies(new.store) == [b"one", b"two"]
    await old.follow(new.address)
    await in_set(new, 1)
    assert_equal(old, new)


@pytest.mark.scenario("controller 24")
async def test_logs_that_have_nothing_in_common_stay_as_they_are(replica):
    master = await leading(replica, b"one", b"two")
    master.controllers.elect(1)
    await master.lead()
    stranger = replica(2)
    stranger.controllers.elect_any(2)
    await stranger.lead()
    await stranger.acknowledged(b"other")
    before = stranger.files()
    await stranger.follow(master.address)
    await eventually(lambda: "nothing in common" in (stranger.following.problem or ""))
    assert "1-0" in stranger.following.problem
    assert "3-0" in stranger.following.problem
    assert stranger.files() == before
    assert stranger.epochs.entries == ((3, 0),)
    assert bodies(stranger.store) == [b"other"]


async def test_nothing_in_common_is_no_obstacle_while_nothing_was_confirmed(replica):
    """The first master is replaced before the first message, and writes on: its epoch is in no other table."""
    old = await leading(replica)
    new = replica(2)
    await new.follow(old.address)
    await in_set(old, 2)
    await eventually(lambda: new.epochs.entries == ((1, 0),))
    new.controllers.elect(2)
    await new.rest()
    old.send(b"nobody has this", lambda: pytest.fail("acknowledged"))
    await new.lead()
    assert new.epochs.entries == ((2, 0),)
    await new.acknowledged(b"one")
    await old.follow(new.address)
    await in_set(new, 1)
    await eventually(lambda: same(old, new) and bodies(old.store) == [b"one"])
    assert_equal(old, new)
    await old.crash()
    assert old.end == new.end


async def test_a_log_with_nothing_in_common_is_wiped_on_demand(replica):
    stranger = await leading(replica, *(b"other %d" % number for number in range(60)), broker_id=2, wipe=True)
    assert len(stranger.store.log.segments) > 1
    master = replica(1)
    master.controllers.elect_any(1)
    await master.lead()
    for number in range(50):
        await master.acknowledged(b"mine %d" % number)
    await stranger.follow(master.address)
    await in_set(master, 2)
    await eventually(lambda: stranger.store.confirmed == master.end)
    assert bodies(stranger.store) == bodies(master.store)
    assert_equal(master, stranger)
    await stranger.crash()
    assert stranger.end == master.end
    stranger.check()


@pytest.mark.scenario("controller 26")
async def test_a_learner_copies_and_never_joins(replica):
    master = await leading(replica, b"one")
    learner, slave = replica(2, learner=True), replica(3)
    await learner.follow(master.address)
    await slave.follow(master.address)
    await in_set(master, 3)
    await master.acknowledged(b"two")
    await eventually(lambda: bodies(learner.store) == [b"one", b"two"])
    assert master.controllers.in_sync.members == {1, 3}
    assert all(2 not in request for request in master.controllers.requests)
    assert_equal(master, slave, learner)


async def test_a_slave_joins_while_messages_keep_coming(replica):
    """It never has all of the log, if nobody waits for it."""
    master = await leading(replica, b"first")
    slave = replica(2)
    told = []
    stop = False

    async def produce():
        number = 0
        while not stop:
            master.send(b"m%d" % number, lambda: told.append(1))
            number += 1
            await asyncio.sleep(0)
        return number

    producing = asyncio.get_running_loop().create_task(produce())
    await slave.follow(master.address)
    await in_set(master, 2)
    stop = True
    sent = await producing
    await eventually(lambda: len(told) == sent)
    await eventually(lambda: slave.store.confirmed == master.end)
    assert_equal(master, slave)


@pytest.mark.slow
async def test_three_brokers_and_one_that_lags(replica):
    master = await leading(replica, b"one", not_caught_up=200)
    fast, slow = replica(2), replica(3)
    await fast.follow(master.address)
    async with Proxy(master.address) as proxy:
        await slow.follow(proxy.address)
        await in_set(master, 2, 3)
        proxy.pause()
        told = []
        end = master.send(b"two", lambda: told.append(1))
        await eventually(lambda: fast.end == end and bodies(fast.store))
        assert (told, bodies(master.store), bodies(fast.store)) == ([], [b"one"], [b"one"])
        await in_set(master, 2)
        await eventually(lambda: told == [1])
        assert bodies(master.store) == [b"one", b"two"]
        proxy.resume()
        await in_set(master, 2, 3)
        await eventually(lambda: same(master, fast, slow))
        assert_equal(master, fast, slow)


@pytest.mark.slow
async def test_a_lost_answer_lets_both_sets_count(replica):
    """The controllers took the set, and the master does not know."""
    master = await leading(replica)
    slave = replica(2)
    master.controllers.is_deaf = True
    await slave.follow(master.address)
    await eventually(lambda: master.controllers.in_sync.members == {1, 2})
    await eventually(lambda: master.keeper.in_sync.pending == {1, 2} and master.keeper.in_sync._asked_at is None)
    assert master.keeper.in_sync.taken.members == {1}
    await slave.rest()
    told = []
    master.send(b"x", lambda: told.append(1))
    assert (told, bodies(master.store)) == ([], [])
    # The next poll tells.
    master.controllers.is_deaf = False
    master.keeper.take(master.controllers.in_sync)
    await eventually(lambda: told == [1])
    assert master.controllers.in_sync.members == {1}


async def test_a_slave_that_connects_twice_counts_once(replica):
    master = await leading(replica, b"one")
    slave = replica(2)
    await slave.follow(master.address)
    await in_set(master, 2)
    twin = replica(3)
    twin.id = 2
    await twin.follow(master.address)
    await eventually(lambda: len(master.leading.master.links) == 1 and same(master, twin))


async def test_epochs_are_on_disk_before_their_bytes(replica):
    master = await leading(replica, b"one")
    slave = replica(2)
    slave.disk.hold_syncs(where="epochFileCheckpoint")
    await slave.follow(master.address)
    await eventually(slave.disk.is_held.is_set)
    assert slave.end == 0
    slave.disk.release_syncs()
    await eventually(lambda: same(master, slave))
    assert_equal(master, slave)


async def test_a_slave_whose_disk_does_not_take_an_epoch_keeps_none_of_its_bytes(replica):
    master = await leading(replica, b"one")
    slave = replica(2)
    slave.disk.fail_writes(where="epochFileCheckpoint")
    await slave.follow(master.address)
    await eventually(lambda: "Input/output error" in (slave.following.problem or ""))
    assert slave.end == 0
    slave.disk.heal()
    await eventually(lambda: same(master, slave))
    assert_equal(master, slave)
