"""What can go wrong between a master and its slaves: each says so in a clear sentence, and the healthy ones go on."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time

import pytest
from tests.integration.broker.command_kit import line_with, started
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import (
    HEAD,
    MASTER,
    SLAVE,
    SYNC,
    caught_up,
    end,
    has_problem,
    knows_topic,
    refusals_of,
    report_of,
)
from tests.integration.broker.scene_kit import Shift
from tests.ports import free_port

from pyromq.admin.cluster.replication import replication_table
from pyromq.broker import broker as broker_module
from pyromq.client.admin import AdminClient
from pyromq.testing.disk import FaultyDisk

pytestmark = pytest.mark.slow

SECOND = ("brokerRole=SLAVE", "brokerId=2", "slaveSyncInterval=50")


async def shown(group):
    """The rows of `pyromq broker ha`, by id."""
    async with AdminClient(group.namesrv) as admin:
        return {row.id: row for row in (await replication_table(admin)).rows}


def links(scene):
    return scene.broker._parts.replication.master.links


async def send_many(client, count, size=1000):
    for number in range(count):
        await client.sent(b"%d" % number + b"x" * size, queue_id=number % 4)


# What comes over the line


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, b"\x16\x03\x01\x02\x00\x01\x00\x01"])
async def test_who_does_not_speak_the_protocol_is_refused_in_these_words(group, deaf, garbage):
    master = await group.start("master", SYNC)
    slave = await group.start("slave", *SLAVE)
    client = await master.connect()
    await client.put()
    await caught_up(master, slave)
    stranger = await deaf(master)
    stranger.writer.write(garbage)
    assert await stranger.is_closed()
    words = f"it does not speak the protocol of replication, but sends {garbage[:8]!r}"
    assert refusals_of(master) == [words]
    assert words in (await shown(group))[0].problem
    assert (await client.put()).code == 0


async def test_a_frame_that_does_not_continue_the_log_is_told_with_both_places(group, fake_master):
    slave = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    async with group.broker("source", MASTER) as source:
        client = await source.connect()
        await client.sent(b"one")
        size = end(source)
    data = next(iter(group.log("source").values()))[:size]
    master = await fake_master.slave()
    await report_of(master)
    master.writer.write(HEAD.pack(0, size) + data)
    await report_of(master)
    master.writer.write(HEAD.pack(size + 8, 4) + b"oops")
    words = f"the master sent what belongs to {size + 8}; this log ends at {size}"
    await has_problem(slave, words)
    assert words in (await shown(group))[1].problem
    assert end(slave) == size


@pytest.mark.scenario("ha 7")
async def test_a_line_that_is_cut_within_a_record_completes_it_later(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    line = await group.line(master)
    slave = await group.start("slave", *SLAVE, f"haMasterAddress={line.address}")
    reader = await slave.connect()
    await client.sent(b"whole")
    await caught_up(master, slave)
    await reader.until(lambda: knows_topic(reader))
    line.cut_after = line.carried + 12 + 5000
    await client.sent(b"x" * 20_000)
    before = end(master)

    async def cut():
        return end(slave) < before and slave.broker._parts.replication.follower.following is None

    await eventually(cut)
    assert [message.body for message in await reader.read()] == [b"whole"]
    line.cut_after = None
    await caught_up(master, slave)
    assert [len(message.body) for message in await reader.read()] == [5, 20_000]
    assert group.log("slave") == group.log("master")


async def test_a_slow_line_delays_its_own_slave_only(group):
    files = "mappedFileSizeCommitLog=64m"
    master = await group.start("master", SYNC, files)
    near = await group.start("near", *SLAVE, files)
    line = await group.line(master, rate=4 << 20, delay=0.01)
    client = await master.connect()
    await client.put()
    await caught_up(master, near)
    far = await group.start("far", *SECOND, files, f"haMasterAddress={line.address}")
    await caught_up(master, far)
    line.hold()  # at first it is so slow that nothing comes at all
    for _ in range(80):
        assert (await client.put(b"x" * 100_000)).code == 0
    assert end(near) == end(master)
    row = (await shown(group))[2]
    assert 80 * 100_000 < row.behind < 80 * 100_500
    assert 0 < row.behind_s < 30
    assert row.problem is None
    # Nothing is kept for it in memory: what it lacks lies in the file.
    assert all(len(link._head) <= HEAD.size for link in links(master))
    line.release()

    async def arriving():
        return 0 < end(master) - end(far) < 80 * 100_000

    await eventually(arriving)
    assert (await client.put()).code == 0
    await caught_up(master, far)
    row = (await shown(group))[2]
    assert (row.behind, row.behind_s) == (0, 0.0)
    assert group.log("far") == group.log("near") == group.log("master")
    await line.close()


async def test_a_line_that_stands_still_is_given_up_by_both_and_taken_up_again(group):
    settings = ("haHousekeepingInterval=500", "haSendHeartbeatInterval=100")
    master = await group.start("master", MASTER, *settings)
    client = await master.connect()
    line = await group.line(master)
    slave = await group.start("slave", *SLAVE, *settings, f"haMasterAddress={line.address}")
    await client.sent()
    await caught_up(master, slave)
    line.hold()
    await client.sent(b"meanwhile")

    async def dropped():
        return not links(master)

    await eventually(dropped)
    await has_problem(slave, "silent for 0.5 s")
    line.release()
    line.cut()
    await caught_up(master, slave)
    assert group.log("slave") == group.log("master")


@pytest.mark.scenario("ha 5")
async def test_a_slave_that_was_stopped_for_a_while_goes_on(group, tmp_path):
    settings = ("haHousekeepingInterval=500", "haSendHeartbeatInterval=100")
    master = await group.start("master", SYNC, *settings, "slaveTimeout=200")
    client = await master.connect()
    await client.put()
    place = [f"storePathRootDir={tmp_path / 'slave'}", f"listenPort={free_port()}", "brokerIP1=127.0.0.1"]
    files = ["mappedFileSizeCommitLog=1m", "mappedFileSizeConsumeQueue=20000", "brokerName=broker-a"]
    arguments = ["broker", "-n", group.namesrv, *place, *files, *SLAVE, *settings, "drainSeconds=0"]
    with started(tmp_path, *arguments) as process:
        await asyncio.to_thread(line_with, process, "boot success")

        async def safe():
            return (await client.put()).code == 0

        await eventually(safe)
        process.send_signal(signal.SIGSTOP)

        async def alone():
            return (await client.put()).code == 11

        await eventually(alone)
        process.send_signal(signal.SIGCONT)
        await eventually(safe)

        async def same():
            return [link.acknowledged for link in links(master)] == [end(master)]

        await eventually(same)
        assert group.log("slave") == group.log("master")


# What lies on disks


async def test_a_slave_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(group, caplog):
    disk = FaultyDisk()
    master = await group.start("master", SYNC)
    healthy = await group.start("healthy", *SECOND)
    slave = await group.start("slave", *SLAVE, disk=disk)
    client = await master.connect()
    await client.put()
    await caught_up(master, healthy)
    await caught_up(master, slave)
    disk.fill(1500)
    for _ in range(30):
        assert (await client.put(b"x" * 1000)).code == 0
    words = f"the slave cannot write to {group.folder / 'slave'}: No space left on device"
    await has_problem(slave, words)

    async def told():
        return words in refusals_of(master)

    await eventually(told)
    rows = await shown(group)
    assert rows[1].problem == words
    assert f"stayed away: {words}" in rows[0].problem
    assert rows[2].problem is None
    await caught_up(master, healthy)
    reader = await slave.connect()
    await reader.until(lambda: knows_topic(reader))
    assert (await reader.read())[0].offset == 0  # it serves what it has
    disk.heal()
    await caught_up(master, slave)
    assert group.log("slave") == group.log("healthy") == group.log("master")

    async def well():
        rows = await shown(group)
        return [rows[number].problem for number in range(3)] == [None] * 3

    await eventually(well)
    noted = [record for record in caplog.records if words in record.message and "stays away" in record.message]
    assert len(noted) == 1


async def test_a_slave_that_cannot_write_its_queues_takes_no_more(group):
    disk = FaultyDisk()
    master = await group.start("master", MASTER)
    slave = await group.start("slave", *SLAVE, "flushConsumeQueueThoroughInterval=50", disk=disk)
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    disk.fail_writes(where="consumequeue")
    await client.sent()
    store = slave.broker._parts.context.store

    async def failed():
        return store.failure

    await eventually(failed)
    await client.sent()
    await has_problem(slave, "consume queues or index cannot be written")
    assert end(slave) < end(master)
    disk.heal()
    await caught_up(master, slave)


@pytest.fixture
async def restored(group):
    """A slave, and the folder of its master as it was before the last messages."""
    for count in (10, 5):
        async with group.leaving("master", MASTER) as master, group.leaving("slave", *SLAVE) as slave:
            client = await master.connect()
            await send_many(client, count)
            await caught_up(master, slave)
        if count == 10:
            shutil.copytree(group.folder / "master", group.folder / "backup")
    return "backup"


@pytest.mark.scenario("ha 19")
async def test_a_master_restored_from_an_older_backup_refuses_a_slave_that_has_more(group, restored, caplog):
    master = await group.start(restored, MASTER)
    before = group.log("slave")
    slave = await group.start("slave", *SLAVE)
    words = f"the slave's log ends at {end(slave)}, the master's at {end(master)}"
    await has_problem(slave, words)
    assert refusals_of(master) == [words]
    rows = await shown(group)
    assert words in rows[0].problem
    assert words in rows[1].problem
    assert group.log("slave") == before
    assert {"ERROR"} == {record.levelname for record in caplog.records if words in record.message}


async def test_a_slave_whose_log_differs_from_that_of_a_restored_master_stays_away(group, restored):
    master = await group.start(restored, MASTER)
    client = await master.connect()
    await send_many(client, 9, size=1100)  # other messages, beyond the end of the slave's log
    before = group.log("slave")
    slave = await group.start("slave", *SLAVE)
    healthy = await group.start("healthy", *SECOND)
    await has_problem(slave, "the logs differ: the slave has a message at ")

    async def told():
        return any(reason.startswith("the logs differ") for reason in refusals_of(master))

    await eventually(told)
    rows = await shown(group)
    assert "stayed away: the logs differ" in rows[0].problem
    assert "where master" in rows[1].problem
    await caught_up(master, healthy)
    assert group.log("slave") == before


# Clocks


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_slave_whose_clock_is_wrong_is_shown_with_times_that_are_right(group, monkeypatch, hours):
    master = await group.start("master", MASTER)
    wrong = Shift()
    wrong.advance(hours * 3600)
    monkeypatch.setattr(broker_module, "_now", wrong)
    slave = await group.start("slave", *SLAVE)
    monkeypatch.undo()
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    row = (await shown(group))[1]
    assert (row.behind, row.behind_s, row.problem) == (0, 0.0, None)
    assert abs(time.time() - row.since.timestamp()) < 60
    own = slave.broker._parts.replication.status.info().ha_client_runtime_info
    assert abs(wrong() - own.last_read_timestamp) < 60_000
    assert 0 <= own.since_millis < 60_000


# Flow control


async def test_flow_control_limits_the_bytes_per_second_to_a_slave(group, deaf):
    flow = ("haFlowControlEnable=true", "maxHaTransferByteInSecond=200000")
    master = await group.start("master", MASTER, "mappedFileSizeCommitLog=64m", *flow)
    client = await master.connect()
    for _ in range(20):
        await client.sent(b"x" * 100_000)
    slave = await deaf(master, report=0)
    began = time.perf_counter()
    async with asyncio.timeout(30):
        await slave.reader.readexactly(200_000)
        # The first portion, of a tenth of a second, goes at once.
        assert time.perf_counter() - began > 0.85
        assert (await client.call(25, body=b"haFlowControlEnable=false")).code == 0
        began = time.perf_counter()
        await slave.reader.readexactly(1_700_000)
        assert time.perf_counter() - began < 5
