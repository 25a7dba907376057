"""Masters and slaves that tell each other who they are: request 906, and what comes of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import (
    MASTER,
    SLAVE,
    SYNC,
    caught_up,
    end,
    has_problem,
    problem_of,
    refusals_of,
    report_of,
)

pytestmark = pytest.mark.slow

INTRODUCE = 906
SECOND = ("brokerRole=SLAVE", "brokerId=2", "slaveSyncInterval=50")


def identity(slave=None, *, broker_id=1, instance="i", **more):
    """The header of 906. `slave` is whose connection is meant."""
    ext = {
        "clusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": str(broker_id),
        "brokerAddr": f"10.0.0.{broker_id}:10911",
        "fileSize": str(1 << 20),
        "instance": instance,
    }
    if slave is not None:
        host, port = slave.writer.get_extra_info("sockname")
        ext["haClientAddr"] = f"{host}:{port}"
    return ext | more


def links(scene):
    return scene.broker._parts.replication.master.links


async def acknowledged(scene, count, at=None):
    async def seen():
        return [link.acknowledged for link in links(scene)].count(end(scene) if at is None else at) == count

    await eventually(seen)


# Who counts


@pytest.fixture
async def strict(group):
    """A master that wants two slaves to have a message."""
    return await group.start("master", SYNC, "inSyncReplicas=3", "slaveTimeout=200")


async def test_two_slaves_of_ours_are_two(group, strict):
    client = await strict.connect()
    slaves = [await group.start("one", *SLAVE), await group.start("two", *SECOND)]
    await client.put()
    for slave in slaves:
        await caught_up(strict, slave)
    await acknowledged(strict, 2)
    assert (await client.put()).code == 0
    assert sorted(link.slave.broker_id for link in links(strict)) == [1, 2]


async def test_slaves_that_do_not_say_who_they_are_count_once_per_machine(strict, deaf):
    client = await strict.connect()
    await client.put()
    one, two = await deaf(strict, report=end(strict)), await deaf(strict, report=end(strict))
    await acknowledged(strict, 2)
    assert await _sent_and_reported(client, strict, one, two) == 12


async def test_slaves_that_say_who_they_are_count_by_their_id(strict, deaf):
    client = await strict.connect()
    await client.put()
    one, two = await deaf(strict), await deaf(strict)
    for number, slave in enumerate((one, two), 1):
        reply = await client.call(INTRODUCE, identity(slave, broker_id=number, instance=str(number)))
        assert (reply.code, reply.ext.get("refusal")) == (0, None)
        slave.report(end(strict))
    await acknowledged(strict, 2)
    assert await _sent_and_reported(client, strict, one, two) == 0


async def _sent_and_reported(client, master, *slaves):
    """Send a message that all slaves acknowledge; gives the code of the answer."""
    before = end(master)
    sending = asyncio.create_task(client.put())

    async def stored():
        return end(master) > before

    await eventually(stored)
    for slave in slaves:
        slave.report(end(master))
    return (await sending).code


async def test_the_newer_of_two_connections_of_one_slave_replaces_the_older(strict, deaf):
    client = await strict.connect()
    await client.put()
    old, new = await deaf(strict), await deaf(strict)
    await client.call(INTRODUCE, identity(old))
    old.report(end(strict))
    await acknowledged(strict, 1)
    await client.call(INTRODUCE, identity(new))
    assert await old.is_closed()
    new.report(end(strict))
    await acknowledged(strict, 1)
    assert refusals_of(strict) == []
    assert len(links(strict)) == 1


async def test_a_slave_may_introduce_itself_before_its_connection_is_accepted(strict, deaf):
    client = await strict.connect()
    await client.put()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        await client.call(INTRODUCE, identity(None, haClientAddr=f"127.0.0.1:{sock.getsockname()[1]}"))
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", strict.broker._ports.ha_port))
        sock.send(struct.pack(">q", end(strict)))
        await acknowledged(strict, 1)
        assert [link.slave.broker_id for link in links(strict)] == [1]


# Who is refused


async def refused_on_both_sides(master, slave, words, caplog):
    await has_problem(slave, words)
    assert any(words in reason for reason in refusals_of(master))
    said = [record.message for record in caplog.records if words in record.message and record.levelname == "ERROR"]
    assert any("is refused" in message for message in said)
    assert any("not replicating" in message for message in said)
    assert end(slave) == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            "brokerClusterName=other",
            "the slave belongs to cluster other, the master to DefaultCluster (brokerClusterName)",
        ),
        ("brokerName=broker-b", "the slave belongs to broker-b, but the master is broker-a (brokerName)"),
        (
            "mappedFileSizeCommitLog=2m",
            "the slave keeps its log in files of 2097152 bytes, the master in files of 1048576",
        ),
    ],
)
async def test_a_slave_with_settings_of_another_group_is_refused(group, caplog, settings, words):
    master = await group.start("master", MASTER)
    healthy = await group.start("healthy", *SECOND)
    client = await master.connect()
    await client.sent()
    address = f"127.0.0.1:{master.broker._ports.ha_port}"
    slave = await group.start("slave", *SLAVE, settings, f"haMasterAddress={address}")
    await refused_on_both_sides(master, slave, words, caplog)
    await client.sent()
    await caught_up(master, healthy)


async def test_the_second_of_two_slaves_with_one_id_is_refused(group, caplog):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    first = await group.start("first", *SLAVE)
    await caught_up(master, first)
    second = await group.start("second", *SLAVE)
    words = f"another slave with brokerId 1 is connected, {first.broker.address}"
    await refused_on_both_sides(master, second, words, caplog)
    await client.sent()
    await caught_up(master, first)
    assert problem_of(first) is None


async def test_a_slave_that_was_not_heard_for_a_while_makes_room_for_another_with_its_id(group, deaf):
    master = await group.start("master", MASTER, "haSendHeartbeatInterval=100")
    client = await master.connect()
    await client.sent()
    old, new = await deaf(master), await deaf(master)
    await client.call(INTRODUCE, identity(old, instance="old"))

    async def welcome():
        return (await client.call(INTRODUCE, identity(instance="new"))).ext.get("refusal") is None

    await eventually(welcome)
    await client.call(INTRODUCE, identity(new, instance="new"))
    assert await old.is_closed()


async def test_a_slave_does_not_follow_a_slave(group):
    master = await group.start("master", MASTER)
    first = await group.start("first", *SLAVE)
    client = await master.connect()
    await client.sent()
    await caught_up(master, first)
    second = await group.start("second", *SECOND, f"haMasterAddress=127.0.0.1:{first.broker._ports.ha_port}")
    await has_problem(second, f"{first.broker.address} is a slave itself")


async def test_what_was_wrong_is_over_when_the_slave_follows(group, deaf):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    reply = await client.call(INTRODUCE, identity(fileSize="4096"))
    assert "files of 4096 bytes" in reply.ext["refusal"]
    assert len(refusals_of(master)) == 1
    slave = await deaf(master)
    await client.call(INTRODUCE, identity(slave))
    slave.report(end(master))
    await acknowledged(master, 1)
    assert refusals_of(master) == []


@pytest.mark.parametrize(
    "change",
    [{"brokerId": "-1"}, {"fileSize": "many"}, {"clusterName": "a\nb"}, {"brokerAddr": "x" * 2000}, {"instance": "\0"}],
)
async def test_an_introduction_that_makes_no_sense_is_answered_with_an_error(group, change):
    master = await group.start("master", MASTER)
    client = await master.connect()
    reply = await client.call(INTRODUCE, identity() | change)
    assert reply.code == 1
    assert "introduces itself with" in reply.remark


async def test_rocketmqs_own_question_is_answered_as_rocketmq_does(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    reply = await client.call(INTRODUCE)
    assert reply.code == 0
    assert reply.ext["masterHaAddress"] == f"127.0.0.1:{master.broker._ports.ha_port}"
    assert (reply.ext["masterAddress"], reply.ext["masterFlushOffset"]) == (master.broker.address, "0")


async def test_a_master_that_does_not_know_the_request_is_followed_all_the_same(group, fake_master):
    """Scenario: a broker of 4.9."""
    slave = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    assert await report_of(await fake_master.slave()) == 0

    async def follows():
        return problem_of(slave) is None

    await eventually(follows)


# Who goes


async def test_a_slave_that_stops_says_so(group, caplog):
    caplog.set_level(logging.INFO)
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    async with group.leaving("slave", *SLAVE) as slave:
        await caught_up(master, slave)
        await acknowledged(master, 1)

    async def gone():
        return not links(master)

    await eventually(gone)
    [record] = [each for each in caplog.records if "is gone" in each.message]
    assert record.levelno == logging.INFO


async def test_a_master_that_stops_says_so(group, caplog):
    caplog.set_level(logging.INFO)
    slave = await group.start("slave", *SLAVE)
    async with group.leaving("master", MASTER) as master:
        client = await master.connect()
        await client.sent()
        await caught_up(master, slave)
        await acknowledged(master, 1)
        address = f"127.0.0.1:{master.broker._ports.ha_port}"
    await has_problem(slave, f"master {address} has stopped")
    noted = [each for each in caplog.records if "replication" in each.name and each.levelno > logging.INFO]
    assert noted == []


async def test_a_slave_that_is_cut_off_is_a_warning(group, deaf, caplog):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    slave = await deaf(master, report=end(master))
    await acknowledged(master, 1)
    slave.writer.transport.abort()

    async def gone():
        return not links(master)

    await eventually(gone)
    assert [each.levelname for each in caplog.records if "is gone" in each.message] == ["WARNING"]


async def test_a_master_that_comes_back_on_other_ports_is_found_within_seconds(group):
    slave = await group.start("slave", *SLAVE, "registerNameServerPeriod=60000")
    async with group.leaving("master", MASTER) as master:
        client = await master.connect()
        await client.sent()
        await caught_up(master, slave)
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    async with asyncio.timeout(10):
        await caught_up(master, slave)
    assert group.log("slave") == group.log("master")
