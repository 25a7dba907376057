"""Controllers and etcd members are killed, stopped and cut off: never two leaders, and nothing told is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bounds import TOO_LONG
from tests.integration.controller.etcd_kit import Cluster, controllers, metadata, needs_etcd, until, way_to
from tests.integration.namesrv.raw_client import RawClient
from tests.ports import free_port

pytestmark = needs_etcd
ROOT = Path(__file__).parents[3]
# Seconds. Long enough for a busy machine to renew it in time, short enough to wait for its end.
LEASE = 4
SHORT = f"controllerEtcdLease={LEASE}000"


@pytest.fixture
async def three(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 3)
    cluster.start()
    await cluster.ready()
    yield cluster
    cluster.stop()


@pytest.fixture
async def one(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 1)
    cluster.start()
    await cluster.ready()
    yield cluster
    cluster.stop()


async def leads(scene):
    return (await metadata(scene))["isLeader"] == "true"


@pytest.mark.scenario("controller 34")
async def test_a_killed_leader_is_followed_within_the_lease(three, tmp_path):
    async with controllers(tmp_path, [three.endpoints] * 3, SHORT, processes=True) as all_:
        old = await all_.leader()
        one, _ = await old.group(2)
        await one.alter([1, 2])
        before = await old.info()
        all_.process_of(old).kill()
        killed = time.monotonic()
        await all_.stop(all_.name_of(old))
        new = await all_.leader()
        # etcd looks for ended leases twice a second; the rest is for a busy machine.
        assert time.monotonic() - killed < LEASE + 3
        assert await new.info() == before
        # A member of etcd dies, be it the one in use: decisions go on.
        three.members[0].kill()
        assert await (await new.broker()).join() == 3
        assert await leads(new)
        assert await new.info() == before


@pytest.mark.scenario("controller 34")
async def test_a_leader_that_is_cut_off_says_so_before_another_leads(three, tmp_path):
    async with contextlib.AsyncExitStack() as life:
        ways = [await life.enter_async_context(way_to(three)) for _ in range(3)]
        all_ = await life.enter_async_context(
            controllers(tmp_path, [way.endpoints for way in ways], SHORT, processes=True)
        )
        old = await all_.leader()
        name = all_.name_of(old)
        await old.group(2)
        before = await old.info()
        others = [scene for scene in all_.scenes.values() if scene is not old]
        way = ways[int(name[1:])]
        way.pause()

        async def another_leads():
            for scene in others:
                if await leads(scene):
                    # Asked afterwards, so it had stopped before.
                    assert not await leads(old)
                    assert (await old.call(1004, {"brokerName": "b"})).code == 2007
                    return True
            return False

        await until(another_leads, "another leads")
        said = await metadata(old)
        assert "controllerLeaderId" not in said
        way.resume()
        new = await all_.leader(not_=name)
        assert await new.info() == before


@pytest.mark.scenario("controller 35")
async def test_without_a_majority_nothing_is_decided_and_all_comes_back(three, tmp_path):
    async with controllers(tmp_path, [three.endpoints] * 3, SHORT) as all_:
        leader = await all_.leader()
        brokers = await leader.group(2)
        await brokers[0].alter([1, 2])
        before = await leader.info()
        for member in three.members[1:]:
            member.kill()
        client = await leader.connect()
        apply = {"brokerName": "b", "appliedBrokerId": 3, "registerCheckCode": "h:1;5"}
        asked = asyncio.create_task(client.call(1013, apply))

        async def nobody_leads():
            return not any([await leads(scene) for scene in all_.scenes.values()])

        await until(nobody_leads, "nobody leads")
        assert (await asked).code in (1, 2007)
        for scene in all_.scenes.values():
            for code in (1002, 1004, 1012):
                assert (await scene.call(code, {"brokerName": "b"})).code == 2007
        # The master's connection closes; nobody decides what follows from it.
        await brokers[0].dies()
        three.start(*three.members[1:])
        await three.ready()
        leader = await all_.leader()
        assert await leader.info() == before
        found = three.keys(all_.prefix)[f"{all_.prefix}groups/b"]["group"]
        assert found["masterEpoch"] == before["epoch"]
        wanted = (await leader.call(1012, {"brokerName": "b"})).ext["nextBrokerId"]
        again = {"brokerName": "b", "appliedBrokerId": wanted, "registerCheckCode": "h:1;5"}
        assert (await leader.call(1013, again)).code == 0


async def test_a_leader_that_stood_still_longer_than_its_lease_decides_nothing(one, tmp_path):
    async with controllers(tmp_path, [one.endpoints] * 2, SHORT, processes=True) as all_:
        old = await all_.leader()
        name = all_.name_of(old)
        await (await old.broker()).join()
        client = await old.connect()
        process = all_.process_of(old)
        process.send_signal(signal.SIGSTOP)
        try:
            # It reads this when it wakes up, as the first thing.
            pending = asyncio.create_task(
                client.call(1013, {"brokerName": "b", "appliedBrokerId": 2, "registerCheckCode": "old:1;5"})
            )
            new = next(scene for scene in all_.scenes.values() if scene is not old)
            await until(lambda: leads(new), "the other leads")
            broker = await new.broker()
            assert await broker.join() == 2
        finally:
            process.send_signal(signal.SIGCONT)
        assert (await asyncio.wait_for(pending, TOO_LONG)).code == 2007
        assert (await all_.leader(not_=name)) is new
        kept = one.keys(all_.prefix)[f"{all_.prefix}groups/b"]["group"]["members"]
        assert kept["2"]["checkCode"] == f"{broker.address};1000"


async def test_a_decision_that_reaches_etcd_too_late_is_not_written(one, tmp_path):
    async with way_to(one) as way, controllers(tmp_path, [way.endpoints, one.endpoints], SHORT) as all_:
        old = await all_.leader()
        if all_.name_of(old) != "n0":
            await all_.stop("n1")
            old = await all_.leader()
            await all_.start(1)
        await (await old.broker()).join()
        way.pause()
        client = await old.connect()
        pending = asyncio.create_task(
            client.call(1013, {"brokerName": "b", "appliedBrokerId": 2, "registerCheckCode": "old:1;5"})
        )
        new = all_.scenes["n1"]
        await until(lambda: leads(new), "the other leads")
        way.resume()
        assert (await pending).code in (1, 2007)
        broker = await new.broker()
        assert await broker.join() == 2
        kept = one.keys(all_.prefix)[f"{all_.prefix}groups/b"]
        assert kept["by"] == "n1"
        assert kept["group"]["members"]["2"]["checkCode"] == f"{broker.address};1000"


@pytest.mark.parametrize("count", [1, 8, 15])
async def test_what_was_told_is_in_etcd_after_kill_9(one, tmp_path, count):
    async with controllers(tmp_path, [one.endpoints], SHORT, processes=True) as all_:
        leader = await all_.leader()
        client = await leader.connect()
        for number in range(1, count + 1):
            asked = {"brokerName": "b", "appliedBrokerId": number, "registerCheckCode": f"h:{number};5"}
            assert (await client.call(1013, asked)).code == 0
        all_.process_of(leader).kill()
        kept = one.keys(all_.prefix)[f"{all_.prefix}groups/b"]["group"]["members"]
        assert [*kept] == [str(number) for number in range(1, count + 1)]


async def test_a_silent_member_is_left_for_the_next(three, tmp_path):
    async with controllers(tmp_path, [three.endpoints] * 2, SHORT) as all_:
        leader = await all_.leader()
        term = three.keys(all_.prefix)[f"{all_.prefix}leader"]
        silent = three.members[0]  # the first endpoint of all
        silent.signal(signal.SIGSTOP)
        try:
            broker = await leader.broker()
            assert await broker.join() == 1
            assert await leads(leader)
        finally:
            silent.signal(signal.SIGCONT)
        await three.ready()
        assert three.keys(all_.prefix)[f"{all_.prefix}leader"] == term


async def test_a_slow_etcd_is_good_enough(one, tmp_path):
    async with way_to(one) as way, controllers(tmp_path, [way.endpoints], "controllerEtcdLease=10000") as all_:
        leader = await all_.leader()
        way.delay(0.3)
        one_, _ = await leader.group(2)
        assert (await one_.alter([1, 2])).code == 0
        assert (await leader.info())["set"] == [1, 2]


async def test_the_controllers_of_the_page(one, tmp_path):
    """docs/how-to/controllers-on-etcd.md, with the addresses of this machine."""
    page = (ROOT / "docs" / "how-to" / "controllers-on-etcd.md").read_text()
    [file] = re.findall(r"```properties\n(controllerDLegerGroup.*?)```", page, re.DOTALL)
    command = re.search(r"^pyromq (controller -c controller.properties .*=)n0$", page, re.MULTILINE)
    assert command is not None
    ports = [free_port() for _ in range(3)]
    for number, port in enumerate(ports, 1):
        file = file.replace(f"10.0.0.{number}:9878", f"127.0.0.1:{port}").replace(
            f"10.0.0.{number}:2379", one.endpoints
        )
    processes = []
    try:
        for number in range(3):
            home = tmp_path / f"n{number}"
            home.mkdir()
            (home / "controller.properties").write_text(file.replace("/var/lib", str(home)))
            words = [*f"{command[1]}n{number}".split(), "bindAddress=127.0.0.1"]
            processes.append(spawned(words, home))
        clients = [await connected(port) for port in ports]

        async def agreed():
            said = [(await client.call(1005)).ext for client in clients]
            return {each.get("controllerLeaderId") for each in said} in ({"n0"}, {"n1"}, {"n2"})

        await until(agreed, "all name the same leader")
        for client in clients:
            await client.close()
    finally:
        for process in processes:
            process.kill()
            process.wait(TOO_LONG)


def spawned(words, home):
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pyromq.cli.main", *words], cwd=home, env=environ, stdout=log, stderr=log
        )


async def connected(port):
    async with asyncio.timeout(TOO_LONG):
        while True:
            try:
                return await RawClient.connect(port)
            except OSError:
                await asyncio.sleep(0.05)
