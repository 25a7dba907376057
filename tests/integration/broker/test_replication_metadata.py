"""What a slave copies from its master beside the log (docs/spec/ha.md 5, scenarios 14 to 16)."""

from __future__ import annotations

import json
import struct

import pytest
from tests.integration.broker.life_kit import Peer, eventually
from tests.integration.broker.replication_kit import MASTER, SLAVE, caught_up, knows_topic
from tests.integration.broker.scene_kit import GROUP, TOPIC, loose_json

from pyromq.broker.replication import metadata
from pyromq.broker.timers.checkpoint import TimerCheckpoint
from pyromq.protocol.bodies import TopicRouteData
from pyromq.protocol.headers import GetRouteInfo
from pyromq.remoting import vip_address

OFFSETS = f"{TOPIC}@{GROUP}"


def saved(group, broker, name):
    """A settings file of a broker, None while there is none."""
    path = group.folder / broker / "config" / name
    return loose_json(path.read_bytes()) if path.exists() else None


async def same_file(group, name, *, differs_from=None):
    """Wait until master and slave have the same in a file, and another thing than before."""

    async def same():
        content = saved(group, "master", name)
        return content is not None and content != differs_from and content == saved(group, "slave", name)

    await eventually(same)
    return saved(group, "slave", name)


async def pair(group, *sets):
    master = await group.start("master", MASTER, "flushConsumerOffsetInterval=50", *sets)
    slave = await group.start("slave", *SLAVE, *sets)
    return await master.connect(), await slave.connect()


async def send(client, count, queue_id=0):
    for number in range(count):
        await client.sent(b"%d" % number, queue_id=queue_id)


def retries(number):
    return json.dumps({"groupName": GROUP, "retryMaxTimes": number, "consumeEnable": True}).encode()


@pytest.mark.slow
@pytest.mark.scenario("ha 14")
async def test_topics_and_groups_of_a_slave_are_its_masters_in_its_files(group):
    client, reader = await pair(group)
    await client.create_topic("made")
    assert (await client.call(200, body=retries(3))).code == 0
    topics = await same_file(group, "topics.json")
    assert "made" in topics["topicConfigTable"]
    groups = await same_file(group, "subscriptionGroup.json")
    assert groups["subscriptionGroupTable"][GROUP]["retryMaxTimes"] == 3

    await client.create_topic("made", read=9)
    changed = await same_file(group, "topics.json", differs_from=topics)
    assert changed["topicConfigTable"]["made"]["readQueueNums"] == 9
    assert (await client.call(200, body=retries(5))).code == 0
    await same_file(group, "subscriptionGroup.json", differs_from=groups)

    assert (await client.call(215, {"topic": "made"})).code == 0
    assert (await client.call(207, {"groupName": GROUP})).code == 0
    changed = await same_file(group, "topics.json", differs_from=changed)
    assert "made" not in changed["topicConfigTable"]
    assert not await knows_topic(reader, "made")
    await reader.until(lambda: _has_no_group(reader))


async def test_a_young_topic_is_copied_with_its_first_message(group):
    client = await (await group.start("master", MASTER)).connect()
    await client.create_topic("old")
    reader = await (await group.start("slave", *SLAVE, "slaveSyncInterval=600000")).connect()
    await reader.until(lambda: knows_topic(reader, "old"))
    await client.create_topic("young", read=9, write=9)
    assert (await client.call(200, body=retries(3))).code == 0
    await client.sent(topic="young")

    async def copied():
        topics = (await reader.call(21)).json["topicConfigTable"]
        groups = (await reader.call(201)).json["subscriptionGroupTable"]
        return topics.get("young", {}).get("readQueueNums") == 9 and groups.get(GROUP, {}).get("retryMaxTimes") == 3

    await eventually(copied)


async def _has_no_group(client):
    return GROUP not in (await client.call(201)).json["subscriptionGroupTable"]


@pytest.mark.slow
@pytest.mark.scenario("ha 14")
async def test_consumer_offsets_of_a_slave_are_its_masters(group):
    client, reader = await pair(group)
    await send(client, 7)
    await send(client, 3, queue_id=2)
    await client.commit(7)
    await client.commit(3, queue_id=2)
    assert (await same_file(group, "consumerOffset.json"))["offsetTable"][OFFSETS] == {"0": 7, "2": 3}
    await client.commit(2)  # back, as by a reset

    async def back():
        return (await reader.committed()).ext.get("offset") == "2"

    await eventually(back)


@pytest.mark.slow
@pytest.mark.scenario("ha 15")
@pytest.mark.scenario("ha 16")
async def test_offsets_committed_to_a_slave_survive_until_the_master_has_others(group):
    async with group.broker("master", MASTER) as master:
        client = await master.connect()
        await send(client, 6)
        await client.commit(1)
        async with group.broker("slave", *SLAVE) as slave:
            reader = await slave.connect()
            await caught_up(master, slave)
            await reader.until(lambda: knows_topic(reader))
            await reader.until(lambda: _committed(reader, 1))
            await master.broker._parts.state.offsets.saved()
    # The master is gone.
    async with group.broker("slave", *SLAVE) as slave:
        reader = await slave.connect()
        await reader.commit(5)
        await reader.commit(6, group="only-here")
    async with group.broker("slave", *SLAVE) as slave:
        reader = await slave.connect()
        assert await _committed(reader, 5)
        assert await _committed(reader, 6, "only-here")
        assert len(await reader.read()) == 6
        async with group.broker("master", MASTER):
            await slave.broker._parts.registration.register()  # which tells it where the master is now
            await reader.until(lambda: _committed(reader, 1))
            assert await _committed(reader, 6, "only-here")


async def _committed(client, offset, group=GROUP):
    return (await client.committed(group=group)).ext.get("offset") == str(offset)


@pytest.mark.slow
async def test_request_modes_of_a_slave_are_its_masters(group):
    client, reader = await pair(group)
    await client.create_topic()
    await client.beat()
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2}
    assert (await client.call(401, body=json.dumps(mode).encode())).code == 0
    await same_file(group, "messageRequestMode.json")
    assert (await reader.call(402)).json == (await client.call(402)).json != {}


@pytest.mark.slow
async def test_the_route_of_a_topic_shows_master_and_slave(group):
    client, reader = await pair(group)
    await client.create_topic()
    await reader.until(lambda: knows_topic(reader))

    async with Peer() as peer:
        reply = await peer.ask(group.namesrv, 105, GetRouteInfo(TOPIC))
    (broker,) = TopicRouteData.decode(reply.body_bytes).broker_datas
    assert sorted(broker.broker_addrs) == [0, 1]


# Progress of delayed messages


@pytest.mark.slow
async def test_a_slave_that_becomes_master_delivers_what_its_master_did_not_and_nothing_twice(group, shift, hurry):
    fine = "timerPrecisionMs=100"
    async with group.broker("master", MASTER, fine) as master:
        client = await master.connect()
        async with group.broker("slave", *SLAVE, fine) as slave:
            await client.sent(b"level", queue_id=0, properties={"DELAY": 1})
            await client.sent(b"later level", queue_id=0, properties={"DELAY": 5})
            await client.sent(b"timer", queue_id=1, properties={"TIMER_DELAY_SEC": 2})
            await client.sent(b"later timer", queue_id=1, properties={"TIMER_DELAY_SEC": 600})
            shift.advance(5)
            assert (await client.first(queue_id=0)).body == b"level"
            assert (await client.first(queue_id=1)).body == b"timer"
            await caught_up(master, slave)

            async def noted():
                delays, timers = saved(group, "slave", "delayOffset.json"), _timers(group)
                return delays and delays["offsetTable"].get("1") == 1 and timers.queue_offset == 2

            await eventually(noted)
    async with group.broker("slave", MASTER, fine) as promoted:
        client = await promoted.connect()
        shift.advance(3600)
        assert (await client.first(queue_id=0, offset=1)).body == b"later level"
        assert (await client.first(queue_id=1, offset=1)).body == b"later timer"
        assert [message.body for message in await client.read(queue_id=0)] == [b"level", b"later level"]
        assert [message.body for message in await client.read(queue_id=1)] == [b"timer", b"later timer"]


def _timers(group):
    return TimerCheckpoint(group.folder / "slave").load()


@pytest.mark.slow
async def test_progress_is_not_taken_before_the_log_has_come(group, shift, hurry, monkeypatch):
    """A message that only the master's log has must not count as delivered on the slave."""
    monkeypatch.setattr(metadata, "_LOOKS", 3)
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent(b"level", properties={"DELAY": 1})
    nowhere = "haMasterAddress=127.0.0.1:9"
    slave = await group.start("slave", *SLAVE, nowhere)
    shift.advance(5)
    assert (await client.first()).body == b"level"
    reader = await slave.connect()
    await slave.broker._parts.metadata.copy(f"127.0.0.1:{master.port}")
    assert await knows_topic(reader)
    assert slave.broker._parts.schedule.offsets == {}


@pytest.mark.slow
async def test_only_masters_tell_how_many_timers_wait(group, hurry):
    client, reader = await pair(group, "timerPrecisionMs=100")
    await client.sent(b"later", properties={"TIMER_DELAY_SEC": 600})

    async def counted():
        reply = (await client.call(61)).json
        return reply["timingCount"].get(TOPIC, {}).get("count") == 1 and reply["dataVersion"]["counter"] > 0

    await eventually(counted)
    assert (await reader.call(61)).code == 1  # a slave has them in its log, and counts when it is a master


# Masters of other kinds


async def test_what_slaves_copy_is_served_on_both_ports(group):
    master = await group.start("master", MASTER)
    async with Peer() as peer:
        for address in (f"127.0.0.1:{master.port}", vip_address(f"127.0.0.1:{master.port}")):
            for code in (21, 43, 45, 61, 201, 402):
                assert loose_json((await peer.ask(address, code)).body_bytes) is not None
            checkpoint = (await peer.ask(address, 60)).body_bytes
            assert len(struct.unpack(">7q", checkpoint)) == 7


async def test_offsets_have_a_version(group):
    """Without one, slaves of 5.5.0 fail before they have saved the offsets."""
    master = await group.start("master", MASTER)
    assert (await (await master.connect()).call(43)).json["dataVersion"]["counter"] == 0


@pytest.mark.slow
async def test_a_master_that_does_not_know_a_request_is_asked_for_the_rest(group, caplog):
    master = await group.start("master", MASTER)
    for code in (21, 60, 402):  # 4.9 does not know the last two
        del master.broker._ports._processors[code]
    client = await master.connect()
    await send(client, 4)
    await client.commit(4)
    slave = await group.start("slave", *SLAVE)
    reader = await slave.connect()
    await reader.until(lambda: _committed(reader, 4))
    assert "not copied" not in caplog.text
    assert not await knows_topic(reader)


async def test_a_master_that_cannot_be_reached_is_told_of_once(group, caplog):
    slave = await group.start("slave", *SLAVE)
    for _ in range(3):
        await slave.broker._parts.metadata.copy("127.0.0.1:9")
    assert caplog.text.count("settings not copied from master 127.0.0.1:9") == 1
