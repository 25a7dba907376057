"""Controllers on a real etcd: one leads, what it decides is there for all, and nobody else can write."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.integration.controller.etcd_kit import Cluster, controllers, encoded, metadata, needs_etcd, until

pytestmark = needs_etcd
_groups = itertools.count(1)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """One member for all tests of this module; each has keys of its own."""
    cluster = Cluster(tmp_path_factory.mktemp("etcd"), 1)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def etcd(one):
    await one.ready()
    return one


@pytest.fixture
def group():
    return f"g{next(_groups)}"


async def test_one_leads_and_the_others_say_who(etcd, tmp_path, group):
    async with controllers(tmp_path, [etcd.endpoints] * 3, group=group) as all_:
        leader = await all_.leader()
        name = all_.name_of(leader)
        assert etcd.keys(all_.prefix)[f"{all_.prefix}leader"] == {"id": name, "address": leader.controller.address}
        for scene in all_.scenes.values():
            said = await metadata(scene)
            assert said["controllerLeaderAddress"] == leader.controller.address
            assert said["peers"] == "".join(f"{peer.replace('-', ':', 1)};" for peer in all_.peers.split(";"))
            if scene is not leader:
                for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
                    reply = await scene.call(code, {"brokerName": "b"})
                    assert (reply.code, reply.remark) == (2007, "The controller is not in leader state")


async def test_what_is_decided_is_in_etcd_when_it_is_told(etcd, tmp_path, group):
    async with controllers(tmp_path, [etcd.endpoints], group=group) as all_:
        leader = await all_.leader()
        first, second = await leader.group(2)
        assert (await first.alter([1, 2])).code == 0
        kept = etcd.keys(all_.prefix)[f"{all_.prefix}groups/b"]
        assert kept["by"] == "n0"
        assert kept["group"]["master"] == 1
        assert (kept["group"]["masterEpoch"], kept["group"]["setEpoch"]) == (1, 2)
        assert {*kept["group"]["syncStateSet"]} == {1, 2}
        await second.dies()
        reply = await leader.call(1011, {"brokerName": "b", "clusterName": "c", "isCleanLivingBroker": "true"})
        assert reply.code == 0
        assert [*etcd.keys(all_.prefix)] == [f"{all_.prefix}leader"]
        assert (await leader.call(1012, {"brokerName": "b"})).ext["nextBrokerId"] == "1"


async def test_a_leader_that_stops_hands_over_at_once_with_everything(etcd, tmp_path, group):
    sets = ("controllerEtcdLease=600000",)
    async with controllers(tmp_path, [etcd.endpoints] * 2, *sets, group=group) as all_:
        old = await all_.leader()
        await old.group(3)
        before = await old.info()
        await all_.stop(all_.name_of(old))
        new = await all_.leader()
        assert await new.info() == before
        broker = await new.broker()
        assert await broker.join() == 4


async def test_a_thousand_decisions_are_all_there(etcd, tmp_path, group):
    # It keeps a stack for each of some ten thousand callbacks.
    asyncio.get_running_loop().set_debug(False)
    async with controllers(tmp_path, [etcd.endpoints] * 2, group=group) as all_:
        leader = await all_.leader()
        brokers = [await leader.broker(f"b{number}") for number in range(50)]

        async def applies(broker):
            for number in range(1, 21):
                asked = {"appliedBrokerId": number, "registerCheckCode": f"h:{number};5"}
                assert (await broker.call(1013, asked)).code == 0

        await asyncio.gather(*map(applies, brokers))
        kept = etcd.keys(all_.prefix)
        for number in range(50):
            found = kept[f"{all_.prefix}groups/b{number}"]
            assert [*found["group"]["members"]] == [str(id_) for id_ in range(1, 21)]
        # The other one followed: it leads with the same.
        await all_.stop(all_.name_of(leader))
        new = await all_.leader()
        for number in range(50):
            assert (await new.call(1012, {"brokerName": f"b{number}"})).ext["nextBrokerId"] == "21"


async def test_another_leads_when_the_leaders_key_is_removed_by_hand(etcd, tmp_path, group):
    async with controllers(tmp_path, [etcd.endpoints], group=group) as all_:
        leader = await all_.leader()
        await leader.group(1)
        key = f"{all_.prefix}leader"
        term = etcd.call("kv/range", {"key": encoded(key)})["kvs"][0]["create_revision"]
        etcd.call("kv/deleterange", {"key": encoded(key)})

        def again():
            found = etcd.call("kv/range", {"key": encoded(key)}).get("kvs")
            return bool(found) and found[0]["create_revision"] != term

        await until(again, "a new term")
        assert (await (await all_.leader()).info())["epoch"] == 1
