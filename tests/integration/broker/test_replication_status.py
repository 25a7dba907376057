"""What operators see of a master and its slaves: over the wire, by the command line, and by doctor."""

from __future__ import annotations

import asyncio
import re
import struct
import time

import pytest
from tests.integration.broker.life_kit import eventually
from tests.integration.broker.replication_kit import MASTER, SLAVE, SYNC, caught_up, end
from tests.integration.broker.scene_kit import loose_json
from tests.integration.cli.cli_kit import Commands

KEYS_OF_ROCKETMQ = {
    "master",
    "masterCommitLogMaxOffset",
    "inSyncSlaveNums",
    "haConnectionInfo",
    "haClientRuntimeInfo",
}
CONNECTION_KEYS = {"addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere"}
CLIENT_KEYS = {"maxOffset", "lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "transferredByteInSecond"}


async def ha_status(client):
    reply = await client.call(907)
    assert reply.code == 0
    return loose_json(reply.body)


async def test_a_master_tells_who_follows_it(group):
    master, slave = await group.start("master", SYNC), await group.start("slave", *SLAVE)
    client = await master.connect()
    await client.put()
    await caught_up(master, slave)

    async def acknowledged():
        found = await ha_status(client)
        return found["haConnectionInfo"] and found["haConnectionInfo"][0]["diff"] == 0 and found

    info = await eventually(acknowledged)
    assert info.keys() >= KEYS_OF_ROCKETMQ
    assert (info["master"], info["masterCommitLogMaxOffset"], info["inSyncSlaveNums"]) == (True, end(master), 1)
    assert info["brokerRole"] == "SYNC_MASTER"
    assert 0 < info["lastStoreTimestamp"] <= time.time() * 1000
    [link] = info["haConnectionInfo"]
    assert link.keys() >= CONNECTION_KEYS
    assert link["slaveAckOffset"] == link["transferFromWhere"] == end(master)
    assert link["inSync"] is True
    assert 0 <= time.time() * 1000 - link["sinceTimestamp"] < 60_000


async def test_a_slave_tells_whom_it_follows(group):
    master, slave = await group.start("master", MASTER), await group.start("slave", *SLAVE)
    client, reader = await master.connect(), await slave.connect()
    await client.sent()
    await caught_up(master, slave)
    info = await ha_status(reader)
    assert info["master"] is False
    own = info["haClientRuntimeInfo"]
    assert own.keys() >= CLIENT_KEYS
    assert own["masterAddr"] == f"127.0.0.1:{master.broker._ports.ha_port}"
    assert own["maxOffset"] == own["masterFlushOffset"] == end(master)
    assert own["isActivated"] is True
    assert "problem" not in own
    assert 0 <= time.time() * 1000 - own["lastReadTimestamp"] < 60_000
    assert info["lastStoreTimestamp"] == (await ha_status(client))["lastStoreTimestamp"]


async def test_bytes_per_second_are_measured(group, deaf):
    master = await group.start("master", MASTER)
    client = await master.connect()
    await client.sent()
    await deaf(master, report=end(master))
    status = master.broker._parts.replication.status

    async def follows():
        return [link for link in master.broker._parts.replication.master.links if link.position is not None]

    await eventually(follows)
    status.sample(1000)
    before = end(master)
    await client.sent(b"x" * 9000)

    async def sent():
        return [link for link in master.broker._parts.replication.master.links if link.position == end(master)]

    await eventually(sent)
    status.sample(3000)
    assert (await ha_status(client))["haConnectionInfo"][0]["transferredByteInSecond"] == (end(master) - before) // 2


async def test_a_slave_that_was_sent_away_is_told_with_the_reason(group, deaf):
    master = await group.start("master", SYNC)
    client = await master.connect()
    await client.put()
    assert await (await deaf(master, report=end(master) + 1000)).is_closed()
    [refusal] = (await ha_status(client))["refusals"]
    assert refusal["reason"] == f"the slave's log ends at {end(master) + 1000}, the master's at {end(master)}"
    assert 0 <= refusal["millisAgo"] < 60_000
    runtime = loose_json((await client.call(28)).body)["table"]
    assert runtime["brokerRole"] == "SYNC_MASTER"
    assert runtime["haSlaves"] == "none"
    assert "s ago: the slave's log ends at" in runtime["haRefusals"]


async def test_a_slave_tells_what_keeps_it_from_following(group, fake_master):
    slave = await group.start("slave", *SLAVE, f"haMasterAddress={fake_master.address}")
    reader = await slave.connect()
    (await fake_master.slave()).writer.write(struct.pack(">qi", 0, -1))

    async def problem():
        return (await ha_status(reader))["haClientRuntimeInfo"].get("problem")

    found = await eventually(problem)
    assert fake_master.address in found
    runtime = loose_json((await reader.call(28)).body)["table"]
    assert (runtime["haMaster"], runtime["haProblem"]) == ("none", found)


# By the command line


@pytest.fixture
def command(capsys, group, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    commands = Commands(capsys, group.namesrv)

    async def run(*words):
        return await asyncio.to_thread(commands, *words)

    return run


@pytest.fixture
async def pair(group):
    master, slave = await group.start("master", SYNC), await group.start("slave", *SLAVE)
    client = await master.connect()
    await client.put()
    await caught_up(master, slave)
    return master, slave


async def rows(command, *words):
    return (await command("broker", "ha", *words, "-o", "json")).json


async def test_the_command_shows_who_follows_whom(command, pair):
    master, slave = pair
    first, second = await rows(command, "-b", "broker-a")
    assert (first["role"], first["id"], first["slaves"], first["problem"]) == ("SYNC_MASTER", 0, 1, None)
    assert (second["role"], second["id"], second["address"]) == ("SLAVE", 1, slave.broker.address)
    assert second["follows"] == f"127.0.0.1:{master.broker._ports.ha_port}"
    assert first["logEnd"] == second["logEnd"] == end(master)
    assert (second["behind"], second["behindS"], second["problem"]) == (0, 0.0, None)
    assert second["since"]
    text = await command("broker", "ha")
    assert "SYNC_MASTER" in text.out
    assert "1 slave, at most 0 bytes behind" in text.out + text.err
    unknown = await command("broker", "ha", "-b", "broker-z")
    assert unknown.code != 0
    assert "there is no broker broker-z; there are: broker-a" in unknown.err


async def test_the_command_shows_what_is_wrong(command, group, deaf):
    master = await group.start("master", SYNC)
    client = await master.connect()
    await client.put()
    assert await (await deaf(master, report=end(master) + 1000)).is_closed()
    [row] = await rows(command)
    assert "SLAVE_NOT_AVAILABLE" in row["problem"]
    assert "was refused: the slave's log ends at" in row["problem"]


async def test_the_command_shows_a_slave_whose_master_is_gone(command, group):
    slave = await group.start("slave", *SLAVE)
    [row] = await rows(command)
    assert (row["role"], row["address"], row["behind"]) == ("SLAVE", slave.broker.address, None)
    assert row["problem"] == "no master is known yet"


async def test_mqadmin_shows_a_master_and_a_slave(command, pair):
    master, slave = pair
    of_master = await command("mqadmin", "haStatus", "-c", "DefaultCluster")
    assert of_master.code == 0, of_master.err
    assert of_master.lines[:5] == [
        "",
        f"#MasterAddr\t{master.broker.address}",
        f"#MasterCommitLogMaxOffset\t{end(master)}",
        "#SlaveNum\t1",
        "#InSyncSlaveNum\t1",
    ]
    headings = "#SlaveAddr #SlaveAckOffset #Diff #TransferSpeed(KB/s) #Status #TransferFromWhere"
    assert of_master.lines[5].split() == headings.split()
    _, *figures = of_master.lines[6].split()
    assert [figures[0], figures[1], *figures[3:]] == [str(end(master)), "0", "OK", str(end(master))]
    of_slave = await command("mqadmin", "haStatus", "-b", slave.broker.address)
    assert [line.partition("\t")[0] for line in of_slave.lines] == [
        "",
        "#MasterAddr",
        "#CommitLogMaxOffset",
        "#TransferSpeed(KB/s)",
        "#LastReadTime",
        "#LastWriteTime",
        "#MasterFlushOffset",
    ]
    assert re.search(r"#LastReadTime\t20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\n", of_slave.out)


async def test_doctor_looks_at_replication(command, pair):
    found = {row["what"]: row for row in (await command("doctor", "-o", "json")).json}
    assert (found["slaves of broker-a"]["status"], found["slaves of broker-a"]["found"]) == ("ok", "1 of 1 are near")
    assert found["slave 1 of broker-a"]["status"] == "ok"


async def test_doctor_finds_a_master_without_the_slave_that_it_promises(command, group):
    await group.start("master", SYNC)
    ended = await command("doctor")
    assert ended.code != 0
    assert "answers sends with SLAVE_NOT_AVAILABLE" in ended.out
