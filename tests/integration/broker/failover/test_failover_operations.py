"""What people see and do while a controller decides the roles of real brokers: status, elections, doctor."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.integration.broker.failover.group_kit import FailoverGroup, in_sync, is_master, new_controller
from tests.integration.broker.life_kit import eventually, new_name_server
from tests.integration.broker.replication_kit import end
from tests.integration.cli.cli_kit import Commands
from tests.integration.controller.controller_kit import Scene


@pytest.fixture
async def group(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with (
        new_name_server(tmp_path) as name_server,
        new_controller(tmp_path) as controller,
        contextlib.AsyncExitStack() as life,
    ):
        yield FailoverGroup(tmp_path, name_server, controller, life)


@pytest.fixture
def typed(group, capsys):
    """Run a command line; CTL is the controller's address."""
    commands = Commands(capsys, group.namesrv)

    async def run(line):
        return await asyncio.to_thread(commands, *line.replace("CTL", group.controller.address).split())

    return run


async def registered(typed, count):
    """The name server knows the master and its slaves."""

    async def known():
        ended = await typed("broker list -o json")
        return len(ended.json) == count and any(row["id"] == 0 for row in ended.json)

    await eventually(known)


@pytest.mark.slow
@pytest.mark.scenario("controller 14", "controller 31")
async def test_a_pair_is_shown_switched_and_shown_again(group, typed):
    first = await group.start("a")
    await is_master(first)
    second = await group.start("b")
    await in_sync(first, 1, 2)
    await (await first.connect()).sent(b"hello")
    await registered(typed, 2)

    async def equal():
        return end(first) == end(second)

    await eventually(equal)
    ended = await typed("controller status")
    assert ended.lines[-2:] == ["g: broker 1 is master, epoch 1; in sync: 1, 2 (change 2)", "all is well"], ended
    size = str(end(first))
    rows = [line.split() for line in ended.lines if line.startswith("g ")]
    assert rows == [
        ["g", "1", "MASTER", first.broker.address, "yes", "yes", "1", size, "0", "-"],
        ["g", "2", "SLAVE", second.broker.address, "yes", "yes", "1", size, "0", "-"],
    ]
    ha = (await typed("broker ha -o json")).json
    assert [(row["id"], row["role"], row["epoch"], row["inSync"], row["logEnd"], row["problem"]) for row in ha] == [
        (1, "SYNC_MASTER", 1, True, end(first), None),
        (2, "SLAVE", 1, True, end(first), None),
    ]
    doctor = await typed("doctor")
    assert doctor.code == 0, doctor.out
    assert "broker 1 is master in epoch 1, in sync: 1, 2" in doctor.out

    assert (await typed("controller elect g --yes")).lines[1].split()[:3] == ["g", "1", "2"]
    await is_master(second)
    await in_sync(second, 1, 2)
    await (await second.connect()).sent(b"again")
    await eventually(equal)
    epochs = (await typed("mqadmin getBrokerEpoch -b g")).out
    table = f"#Epoch: EpochEntry{{epoch=1, startOffset=0, endOffset={size}}}\n"
    table += f"#Epoch: EpochEntry{{epoch=2, startOffset={size}, endOffset={end(first)}}}\n"
    assert epochs.count(table) == 2
    assert f"#brokerAddr\t{second.broker.address}\n#brokerId\t0\n" in epochs
    assert f"#brokerAddr\t{first.broker.address}\n#brokerId\t1\n" in epochs
    assert (await typed("doctor -q")).code == 0


@pytest.mark.slow
async def test_a_slave_that_cannot_follow_is_shown_with_the_reason(group, typed):
    """It has no epochs yet. Nothing listens where its master says that replication is."""
    first = await group.start("a", "brokerIP2=127.0.0.2")
    await is_master(first)
    await group.start("b")
    await registered(typed, 2)

    async def told():
        return "cannot follow" if "127.0.0.2" in (await typed("controller status")).out else None

    await eventually(told)
    lines = (await typed("controller status")).lines
    [slave] = [line for line in lines if line.startswith("g ") and " SLAVE " in line]
    assert slave.split()[4:9] == ["yes", "no", "-", "0", "0"]
    assert any(line.startswith("! fail-over of g: only broker 1 is in sync, of 2") for line in lines)
    assert (await typed("mqadmin getBrokerEpoch -b g")).out.count("#Epoch:") == 1
    assert (await typed("doctor -q")).code == 6


@pytest.mark.slow
async def test_a_broker_that_may_lack_messages_is_shown_and_elected_by_hand_only(group, typed):
    """Both brokers died. One of them lost power, and is back first."""
    scene = Scene(group.controller)
    try:
        one, two = await scene.group(2, "g")
        assert (await one.alter([1, 2])).code == 0
        await two.dies()
        await one.dies()
        await scene.until(lambda info: info["master"] is None, "g")
        back = await scene.broker("g")
        back.id = 2
        await back.beat(timeout=60_000, doubtful="true")
        assert (await back.elect()).code == 2012
        status = (await typed("controller status g --controller CTL -o json")).json
        members = {each["id"]: each for each in status["groups"][0]["members"]}
        assert {key: each["doubtful"] for key, each in members.items()} == {1: False, 2: True}
        assert "may lack acknowledged messages" in members[2]["problem"]
        assert "start broker 1; if it is lost for good: pyromq controller elect g 2" in status["problems"][0]
        by_chance = await typed("controller elect g -c c --controller CTL --yes")
        assert "nobody can take over" in by_chance.err
        asked = await typed("controller elect g 2 -c c --controller CTL")
        assert "it may lack acknowledged messages that broker 1 has; those are lost then, for good" in asked.err
        assert (await scene.info("g"))["master"] is None
        assert (await typed("controller elect g 2 -c c --controller CTL --yes")).code == 0
        assert (await scene.info("g"))["master"] == 2
    finally:
        await scene.close()


@pytest.mark.slow
@pytest.mark.scenario("controller 32")
async def test_a_broker_that_is_gone_is_forgotten(group, typed):
    first = await group.start("a")
    await is_master(first)
    await group.start("b")
    await in_sync(first, 1, 2)
    refused = await typed("controller clean g 2 --yes")
    assert (refused.code, "still alive" in refused.err) == (1, True)
    await group.stop("b")
    await in_sync(first, 1)

    async def not_alive():
        return (
            "is not alive; start it; if it is gone for good: pyromq controller clean g 2"
            in (await typed("controller status g")).out
        )

    await eventually(not_alive)
    assert (await typed("controller clean g 2 --yes")).code == 0
    assert (await typed("controller status g")).out.endswith("all is well\n")
