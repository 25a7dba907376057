"""A master and its slave over real sockets: bytes, acknowledgements, faults (docs/spec/ha.md 8)."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import HEAD, MASTER, SLAVE, SYNC, caught_up, end, knows_topic, report_of
from tests.integration.broker.scene_kit import batch_body, properties_text, send_ext

from pyromq.testing import FaultyDisk


@pytest.mark.scenario("ha 3")
async def test_a_slave_has_the_same_files_and_serves_the_same_messages(group):
    master = await group.start("master", MASTER)
    slave = await group.start("slave", *SLAVE)
    client = await master.connect()
    await client.sent()
    await caught_up(master, slave)
    for number in range(300):
        await client.sent(b"%d" % number * 2000, queue_id=number % 4)
        if number % 50 == 0:
            await client.call(320, send_ext(m="true"), batch_body(b"a", b"b"))
    await caught_up(master, slave)
    assert len(group.log("master")) > 1  # files were changed on the way
    assert group.log("slave") == group.log("master")
    reader = await slave.connect()
    await reader.until(lambda: knows_topic(reader))
    assert [m.offset for m in await client.read(queue_id=1)] == [m.offset for m in await reader.read(queue_id=1)] != []


@pytest.mark.scenario("ha 1")
@pytest.mark.scenario("ha 2")
async def test_a_fresh_slave_gets_the_last_file_of_its_master(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    for _ in range(300):
        await client.sent(b"x" * 8000)
    slave = await group.start("slave", *SLAVE)
    await caught_up(master, slave)
    log = group.log("master")
    newest = max(log)
    assert len(log) > 2
    assert group.log("slave")[newest] == log[newest]
    assert set(group.log("slave")) == {newest}


@pytest.mark.slow
@pytest.mark.scenario("controller 33")
async def test_without_a_controller_nothing_of_it_is_seen(group, fake_master, deaf):
    """Neither on the wire nor among the files, although an address of controllers is set."""
    none = ("controllerAddr=127.0.0.1:1", "allAckInSyncStateSet=true", "minInSyncReplicas=2")
    master = await group.start("master", MASTER, *none)
    client = await master.connect()
    await client.sent(b"alone")
    slave = await group.start("slave", *SLAVE, *none)
    await caught_up(master, slave)
    assert (await client.put(b"again")).code == 0
    await caught_up(master, slave)
    assert group.log("slave") == group.log("master")

    # A master answers the first report, and a slave begins with one (docs/spec/ha.md 2).
    offset, record = await (await deaf(master, 0)).frame()
    assert (offset, record) == (0, b"".join(group.log("master").values())[: len(record)])
    await group.start("other", *SLAVE, *none, "brokerId=2", f"haMasterAddress={fake_master.address}")
    assert await report_of(await fake_master.slave()) == 0

    for name in ("master", "slave", "other"):
        found = {path.name for path in (group.folder / name).rglob("*")}
        assert "commitlog" in found
        assert not {each for each in found if each.startswith(("brokerBoot", "brokerIdentity", "epochFileCheckpoint"))}


async def test_a_slave_goes_on_where_it_was(group):
    master = await group.start("master", MASTER)
    client = await master.connect()
    async with group.broker("slave", *SLAVE) as slave:
        for _ in range(20):
            await client.sent()
        await caught_up(master, slave)
    for _ in range(20):
        await client.sent(b"while it was away")
    async with group.broker("slave", *SLAVE) as slave:
        await caught_up(master, slave)
        assert group.log("slave") == group.log("master")


# Synchronous replication


@pytest.mark.scenario("ha 8")
async def test_without_a_slave_a_message_is_stored_and_answered_with_11(group):
    master = await group.start("master", SYNC)
    client = await master.connect()
    reply = await client.put(b"alone")
    assert reply.code == 11
    assert reply.ext["queueOffset"] == "0"
    assert [message.body for message in await client.read()] == [b"alone"]


async def test_with_a_slave_that_has_it_a_message_is_answered_with_0(group):
    master = await group.start("master", SYNC)
    slave = await group.start("slave", *SLAVE)
    client = await master.connect()
    await client.put()
    await caught_up(master, slave)
    for number in range(50):
        reply = await client.put(b"%d" % number)
        assert reply.code == 0
        assert end(slave) == end(master)


@pytest.mark.scenario("ha 9")
@pytest.mark.scenario("ha 11")
async def test_a_slave_that_does_not_acknowledge_is_waited_for_and_then_answered_with_12(group, deaf):
    master = await group.start("master", SYNC, "slaveTimeout=300")
    client = await master.connect()
    await client.put()
    await deaf(master, report=end(master))
    await eventually(lambda: _links(master, 1))
    reply = await client.put(b"slow")
    assert reply.code == 12
    assert "within 0.3 s" in reply.remark
    assert [message.body for message in await client.read(offset=1)] == [b"slow"]
    assert (await client.put(properties=properties_text(WAIT="false"))).code == 0


async def _links(scene, count):
    return [link.position for link in scene.broker._parts.replication.master.links].count(end(scene)) == count


@pytest.mark.scenario("ha 12")
async def test_an_asynchronous_master_waits_for_nobody(group, deaf):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    await deaf(master, report=end(master))
    assert (await client.put()).code == 0


@pytest.mark.scenario("ha 10")
async def test_a_slave_that_is_far_behind_is_not_waited_for(group, deaf):
    master = await group.start("master", SYNC, "haSlaveFallbehindMax=10000")
    client = await master.connect()
    await client.put()
    slave = await deaf(master, report=end(master))
    await eventually(lambda: _links(master, 1))
    reply = await client.put(b"x" * 20_000)
    assert reply.code == 11
    slave.report(end(master))

    async def near():
        return (await client.put()).code != 11

    await client.until(near)


# What masters send and refuse


async def test_a_fresh_slave_is_sent_the_log_in_frames(group, deaf):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent(b"x" * 100_000)
    slave = await deaf(master, report=0)
    data, at = b"", 0
    while len(data) < end(master):
        offset, piece = await slave.frame()
        assert offset == at
        assert 0 < len(piece) <= 32_768
        data, at = data + piece, at + len(piece)
    assert data == next(iter(group.log("master").values()))[: end(master)]


@pytest.mark.scenario("ha 4")
async def test_an_idle_pair_exchanges_heartbeats(group, deaf):
    master = await group.start("master", MASTER, "haSendHeartbeatInterval=100")
    client = await master.connect()
    await client.sent()
    slave = await deaf(master, report=end(master))
    assert await slave.frame() == (end(master), b"")


@pytest.mark.scenario("ha 19")
async def test_a_slave_with_more_than_its_master_is_refused_and_does_not_count(group, deaf, caplog):
    master = await group.start("master", SYNC)
    client = await master.connect()
    await client.put()
    slave = await deaf(master, report=end(master) + 1000)
    assert await slave.is_closed()
    assert "is refused: the slave's log ends at" in caplog.text
    assert (await client.put()).code == 11


@pytest.mark.scenario("ha 20")
async def test_a_slave_that_ends_before_the_log_begins_is_refused(group, deaf, caplog):
    first = await group.start("first", MASTER)
    client = await first.connect()
    for _ in range(300):
        await client.sent(b"x" * 8000)
    store = first.broker._parts.context.store
    store.log.drop_oldest().delete()
    slave = await deaf(first, report=10)
    assert await slave.is_closed()
    assert "before the master's begins, at" in caplog.text


@pytest.mark.scenario("ha 5")
async def test_a_silent_slave_is_dropped(group, deaf):
    master = await group.start("master", MASTER, "haHousekeepingInterval=200")
    client = await master.connect()
    await client.sent()
    slave = await deaf(master, report=end(master))
    assert await slave.is_closed()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00" * 7])
async def test_garbage_on_the_port_of_replication_harms_nobody(group, deaf, garbage):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    slave = await deaf(master)
    slave.writer.write(garbage)
    slave.writer.write_eof()
    assert await slave.is_closed()
    assert (await client.put()).code == 0


# What a slave does not do


@pytest.mark.scenario("ha 13")
async def test_a_slave_takes_no_messages(group):
    master = await group.start("master", MASTER)
    slave = await group.start("slave", *SLAVE)
    client, reader = await master.connect(), await slave.connect()
    await client.sent()
    await caught_up(master, slave)
    assert (await reader.put()).code == 14
    assert (await reader.put(topic="never-seen")).code == 14
    ext = {"producerGroup": "g", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8}
    assert (await reader.call(37, ext)).code == 11


# A master that does not behave


@pytest.mark.scenario("ha 7")
async def test_a_record_that_comes_in_pieces_is_served_when_it_is_whole(group, fake_master):
    async with group.broker("source", MASTER) as source:
        client = await source.connect()
        await client.sent(b"one")
        await client.sent(b"two" * 100)
        size = end(source)
    data = next(iter(group.log("source").values()))[:size]
    scene = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    master = await fake_master.slave()
    assert await report_of(master) == 0
    cut = size - 50
    master.writer.write(HEAD.pack(0, cut) + data[:cut])
    assert await report_of(master) == cut
    reader = await scene.connect()
    scene.broker._parts.tables.topics.ensure("T", 4)
    await reader.until(lambda: _has(reader, 1))
    master.writer.write(HEAD.pack(cut, size - cut) + data[cut:])
    assert await report_of(master) == size
    await reader.until(lambda: _has(reader, 2))
    assert [message.body for message in await reader.read()] == [b"one", b"two" * 100]


@pytest.mark.slow
async def test_under_sync_flush_a_slave_reports_what_its_disk_has(group, fake_master):
    async with group.broker("source", MASTER) as source:
        await (await source.connect()).sent(b"one")
        size = end(source)
    data = next(iter(group.log("source").values()))[:size]
    disk = FaultyDisk()
    sets = (f"haMasterAddress={fake_master.address}", "flushDiskType=SYNC_FLUSH", "haSendHeartbeatInterval=100")
    scene = await group.start("slave", *SLAVE, *sets, disk=disk)
    master = await fake_master.slave()
    assert await report_of(master) == 0
    disk.hold_syncs("commitlog")
    try:
        master.writer.write(HEAD.pack(0, size) + data)
        await eventually(lambda: asyncio.to_thread(disk.is_held.wait, 1))
        assert end(scene) == size
        assert await report_of(master) == 0  # a heartbeat
    finally:
        disk.release_syncs()
    while (reported := await report_of(master)) < size:
        assert reported == 0


async def _has(reader, count):
    return len(await reader.read()) == count


@pytest.mark.scenario("ha 6")
async def test_a_frame_with_a_wrong_offset_ends_the_connection_and_nothing_is_kept(group, fake_master):
    scene = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    master = await fake_master.slave()
    assert await report_of(master) == 0
    async with group.broker("source", MASTER) as source:
        client = await source.connect()
        await client.sent(b"one")
        size = end(source)
    data = next(iter(group.log("source").values()))[:size]
    master.writer.write(HEAD.pack(0, size) + data)
    assert await report_of(master) == size
    master.writer.write(HEAD.pack(size + 8, 4) + b"oops")
    assert await master.is_closed()
    assert end(scene) == size
    assert "belongs to" in scene.broker._parts.replication.follower.problem


@pytest.mark.parametrize("frame", [HEAD.pack(0, -1), HEAD.pack(-5, 10), HEAD.pack(0, 2**31 - 1)])
async def test_a_malformed_frame_ends_the_connection(group, fake_master, frame):
    scene = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    master = await fake_master.slave()
    await report_of(master)
    master.writer.write(frame)
    assert await master.is_closed()
    assert end(scene) == 0
