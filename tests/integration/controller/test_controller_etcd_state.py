"""What a controller knows of etcd: it follows by watch, decides on what is there, and notices an older state."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import urllib.error

import pytest
from tests.bounds import TOO_LONG
from tests.integration.controller.etcd_kit import Cluster, controllers, encoded, needs_etcd, until, way_to
from tests.integration.controller.test_controller_failover import looked_at_all_groups, passes
from tests.integration.remoting.certificates import Authority
from tests.ports import free_port

from pyromq.controller import ControllerConfig, load_settings
from pyromq.controller.decisions import Peer
from pyromq.controller.etcd import Etcd, in_etcd
from pyromq.controller.etcd_seen import SeenFile
from pyromq.controller.gateway import Gateway
from pyromq.controller.replicas import (
    AlterSyncStateSetEvent,
    ApplyBrokerIdEvent,
    CleanBrokerDataEvent,
    ElectMasterEvent,
)
from pyromq.errors import ConfigError, NotDecided, NotLeader
from pyromq.testing import Clock

pytestmark = needs_etcd


@pytest.fixture
async def etcd(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 1)
    cluster.start()
    await cluster.ready()
    yield cluster
    cluster.stop()


@contextlib.asynccontextmanager
async def running(decisions):
    """Decisions that are known; leaving ends them, or raises why they ended by themselves."""
    ready = asyncio.Event()
    task = asyncio.create_task(decisions.run(ready.set))
    known = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((task, known), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield task
    finally:
        known.cancel()
        task.cancel()
        await asyncio.wait((task, known))
        if not task.cancelled():
            task.result()


def decisions(folder, endpoints, name="n0", *sets):
    """What a controller of this name has."""
    chosen = [f"controllerEtcdEndpoints={endpoints}", f"controllerStorePath={folder}/{name}", *sets]
    config = load_settings(sets=chosen)[ControllerConfig]
    me = Peer(name, f"{name}:1")
    return in_etcd(config, me, [me])


async def leading(decisions):
    await until(lambda: decisions.is_leader, "it leads")
    return decisions


def applies(number, name="b"):
    return ApplyBrokerIdEvent(name, "c", f"h:{number}", number, f"h:{number};5")


async def test_a_follower_that_missed_compacted_changes_reads_all_again(etcd, tmp_path, caplog):
    async with way_to(etcd) as way, contextlib.AsyncExitStack() as life:
        leader = decisions(tmp_path, etcd.endpoints, "n0")
        await life.enter_async_context(running(leader))
        await leading(leader)
        follower = decisions(tmp_path, way.endpoints, "n1")
        await life.enter_async_context(running(follower))
        for name in ("a", "b"):
            await leader.decide(applies(1, name))
        await until(lambda: follower.groups == leader.groups, "the follower knows")
        way.pause()
        await leader.decide(CleanBrokerDataEvent("a"))
        for number in range(2, 6):
            await leader.decide(applies(number))
        revision = etcd.call("kv/range", {"key": encoded("x")})["header"]["revision"]
        etcd.call("kv/compaction", {"revision": revision, "physical": True})
        for proxy in way.proxies:
            proxy.cut()
        way.resume()
        await until(lambda: follower.groups == leader.groups, "the follower knows again")
        assert "compacted" in caplog.text
        assert [*follower.groups] == ["b"]
        assert follower.leader == Peer("n0", "n0:1")
        # And it follows on.
        await leader.decide(ElectMasterEvent("b", 1))
        await until(lambda: follower.groups["b"].master == 1, "the follower hears of changes")


async def test_one_of_two_decisions_on_the_same_state_is_made(etcd, tmp_path):
    leader = decisions(tmp_path, etcd.endpoints)
    async with running(leader):
        await leading(leader)
        await leader.decide(applies(1))
        results = await asyncio.gather(
            leader.decide(applies(2)), leader.decide(ElectMasterEvent("b", 1)), return_exceptions=True
        )
        assert [type(result) for result in results if isinstance(result, BaseException)] == [NotDecided]
        assert [*leader.groups["b"].members] == [1, 2]


async def test_a_group_that_somebody_else_changed_is_not_overwritten(etcd, tmp_path):
    async with way_to(etcd) as way:
        leader = decisions(tmp_path, way.endpoints)
        async with running(leader):
            await leading(leader)
            await leader.decide(applies(1))
            key = encoded("/pyromq/group1/groups/b")
            kept = etcd.call("kv/range", {"key": key})["kvs"][0]["value"]
            # Late news: the leader does not hear of it before it decides.
            way.pause()
            etcd.call("kv/put", {"key": key, "value": kept})
            deciding = asyncio.create_task(leader.decide(applies(2)))
            await asyncio.sleep(0)
            way.resume()
            with pytest.raises(NotDecided, match="b changed meanwhile"):
                await deciding
            # Now it knows, and may try again.
            assert [*(await leader.decide(applies(2))).members] == [1, 2]


async def test_a_cancelled_caller_leaves_nothing_half_done(etcd, tmp_path):
    async with way_to(etcd) as way:
        leader = decisions(tmp_path, way.endpoints)
        async with running(leader):
            await leading(leader)
            way.delay(0.05)
            deciding = asyncio.create_task(leader.decide(applies(1)))
            await asyncio.sleep(0)
            deciding.cancel()
            await asyncio.wait((deciding,))
            with pytest.raises(NotDecided, match="under way"):
                await leader.decide(applies(1))
            await until(lambda: "b" in leader.groups, "it is decided all the same")
            assert [*(await leader.decide(applies(2))).members] == [1, 2]


async def test_it_leads_no_longer_when_nine_tenths_of_its_lease_are_over(etcd, tmp_path):
    now = [1000.0]
    me = Peer("n0", "h:1")
    gateway = Gateway([etcd.endpoints])
    seen = SeenFile(tmp_path)
    leader = Etcd(gateway, me, [me], prefix="/x/", lease=6, seen=seen, clock=lambda: now[0])
    async with running(leader):
        await leading(leader)
        now[0] = 1005.39
        assert leader.is_leader
        now[0] = 1005.41
        assert not leader.is_leader
        assert leader.leader is None
        with pytest.raises(NotLeader):
            await leader.decide(applies(1))
        # Its lease is still there, nobody led meanwhile: renewed, it leads again.
        await until(lambda: leader.is_leader, "it leads again")


async def test_a_decision_survives_the_member_that_was_asked(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 3)
    try:
        cluster.start()
        await cluster.ready()
        async with way_to(cluster) as way:
            leader = decisions(tmp_path, way.endpoints)
            async with running(leader):
                await leading(leader)
                first = way.proxies[0]
                # It is done, and the answer is lost on its way.
                first.delay(0.5)
                deciding = asyncio.create_task(leader.decide(applies(1)))
                await until(lambda: bool(cluster.keys("/pyromq/group1/groups/")), "it is written")
                assert not deciding.done()
                first.cut()
                first.refuse()
                assert [*(await deciding).members] == [1]
                assert [*(await leader.decide(applies(2))).members] == [1, 2]
    finally:
        cluster.stop()


async def test_an_etcd_that_starts_later_is_waited_for(tmp_path, caplog):
    cluster = Cluster(tmp_path / "etcd", 1)
    leader = decisions(tmp_path, cluster.endpoints)
    try:
        ready = asyncio.Event()
        task = asyncio.create_task(leader.run(ready.set))
        await until(lambda: "Connect call failed" in caplog.text or "refused" in caplog.text, "it tried")
        assert not ready.is_set()
        cluster.start()
        await leading(leader)
        assert ready.is_set()
        task.cancel()
        await asyncio.wait((task,), timeout=TOO_LONG)
    finally:
        cluster.stop()


# An older state


async def older_state(etcd, folder):
    """Decisions of which etcd forgets the last ones: its files are put back to what they were before."""
    leader = decisions(folder, etcd.endpoints, "n0", "controllerEtcdLease=3000")
    async with running(leader):
        await leading(leader)
        await leader.decide(applies(1))
        await leader.decide(ElectMasterEvent("b", 1))
    etcd.stop()
    member = etcd.members[0]
    shutil.copytree(member.folder, folder / "snapshot")
    etcd.start()
    await etcd.ready()
    async with running(leader) as task:
        await leading(leader)
        await leader.decide(AlterSyncStateSetEvent("b", frozenset({1, 2})))
        for _ in range(5):
            await leader.decide(ElectMasterEvent("b", 1))
        yield leader, task


async def put_back(etcd, folder):
    etcd.stop()
    member = etcd.members[0]
    shutil.rmtree(member.folder)
    shutil.copytree(folder / "snapshot", member.folder)
    etcd.start()
    await etcd.ready()


async def test_a_running_controller_obeys_no_etcd_that_went_back(etcd, tmp_path):
    states = older_state(etcd, tmp_path)
    leader, task = await anext(states)
    await put_back(etcd, tmp_path)
    await asyncio.wait((task,), timeout=TOO_LONG)
    with pytest.raises(
        ConfigError, match=r"went back from revision \d+ to \d+, as after a restore from an old snapshot"
    ):
        await anext(states)
    assert not leader.is_leader


async def test_a_controller_that_starts_refuses_an_etcd_that_went_back(etcd, tmp_path):
    states = older_state(etcd, tmp_path)
    await anext(states)
    seen = tmp_path / "n0" / "etcd-seen.json"
    await until(lambda: '"b":[' in seen.read_text() and ",6," in seen.read_text(), "it is noted")
    with pytest.raises(StopAsyncIteration):
        await anext(states)
    await put_back(etcd, tmp_path)
    again = decisions(tmp_path, etcd.endpoints)
    with pytest.raises(ConfigError, match=r"b is at epoch 1 and set epoch 1, it was at 6 and 7.*etcd-seen.json"):
        async with running(again):
            pass
    seen.unlink()
    again = decisions(tmp_path, etcd.endpoints)
    async with running(again):
        assert again.groups["b"].master_epoch == 1


async def test_a_member_of_another_cluster_is_not_obeyed(etcd, tmp_path):
    other = Cluster(tmp_path / "other", 1, options=("--initial-cluster-token", "another"))
    other.start()
    await other.ready()
    leader = decisions(tmp_path, f"{etcd.endpoints};{other.endpoints}", "n0", "controllerEtcdLease=3000")
    task = asyncio.create_task(leader.run(lambda: None))
    try:
        await leading(leader)
        etcd.stop()
        with pytest.raises(ConfigError, match=r"is not the cluster of before.*must be of one cluster"):
            await asyncio.wait_for(task, TOO_LONG)
    finally:
        other.stop()


# Certificates, users, settings


async def test_with_tls_and_client_certificates(tmp_path):
    authority = Authority(tmp_path, "etcd-ca")
    cert, key = authority.issue("etcd")
    mine, my_key = authority.issue("controller")
    files = ("--cert-file", cert, "--key-file", key, "--trusted-ca-file", authority.trust, "--client-cert-auth")
    cluster = Cluster(tmp_path / "etcd", 1, scheme="https", options=files)
    cluster.start()
    try:
        tls = ("controllerEtcdTls=true", f"controllerEtcdCaPath={authority.trust}")
        shown = (f"controllerEtcdCertPath={mine}", f"controllerEtcdKeyPath={my_key}")
        leader = decisions(tmp_path, cluster.endpoints, "n0", *tls, *shown)
        async with running(leader):
            await leading(leader)
            assert [*(await leader.decide(applies(1))).members] == [1]
    finally:
        cluster.stop()


async def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match="the certificates for etcd cannot be used"):
        decisions(tmp_path, "h:1", "n0", "controllerEtcdTls=true", f"controllerEtcdCaPath={tmp_path}/nothing")


async def test_with_a_user_also_after_its_token_ended(etcd, tmp_path):
    etcd.call("auth/role/add", {"name": "root"})
    etcd.call("auth/role/add", {"name": "pyromq"})
    span = {"key": encoded("/pyromq/"), "range_end": encoded("/pyromq0")}
    etcd.call("auth/role/grant", {"name": "pyromq", "perm": {"permType": "READWRITE", **span}})
    for user, role in (("root", "root"), ("controller", "pyromq")):
        etcd.call("auth/user/add", {"name": user, "password": f"{user}'s"})
        etcd.call("auth/user/grant", {"user": user, "role": role})
    etcd.call("auth/enable", {})
    with pytest.raises(urllib.error.HTTPError):
        etcd.keys("/pyromq/")
    who = ("controllerEtcdUser=controller", "controllerEtcdPassword=controller's", "controllerEtcdLease=3000")
    leader = decisions(tmp_path, etcd.endpoints, "n0", *who)
    async with running(leader):
        await leading(leader)
        await leader.decide(applies(1))
        # Tokens end with the process that gave them.
        etcd.stop()
        etcd.start()

        async def decided():
            with contextlib.suppress(NotDecided, NotLeader):
                await leader.decide(applies(2))
            return 2 in leader.groups["b"].members

        await until(decided, "it decides again")
    wrong = decisions(tmp_path, etcd.endpoints, "n0", *who, "controllerEtcdPassword=wrong")
    with pytest.raises(ConfigError, match=r"etcd at .* refuses: etcdserver: authentication failed"):
        async with running(wrong):
            pass
    elsewhere = decisions(tmp_path, etcd.endpoints, "n0", *who, "controllerEtcdPrefix=/other")
    with pytest.raises(ConfigError, match=r"etcd at .* refuses: etcdserver: permission denied"):
        async with running(elsewhere):
            pass


async def test_an_etcd_without_its_gateway_is_named(tmp_path):
    cluster = Cluster(tmp_path / "etcd", 1, options=("--enable-grpc-gateway=false",))
    cluster.start()
    try:
        with pytest.raises(ConfigError, match="--enable-grpc-gateway=true"):
            async with running(decisions(tmp_path, cluster.endpoints)):
                pass
    finally:
        cluster.stop()


async def test_a_new_leader_elects_nobody_before_all_had_time_to_be_heard(etcd, tmp_path):
    clock = Clock()
    async with controllers(tmp_path, [etcd.endpoints], "scanInactiveMasterInterval=20") as all_:
        old = await all_.leader()
        one, _ = await old.group(2)
        await one.alter([1, 2])
        before = await old.info()
        all_.peers += f";n1-127.0.0.1:{free_port()}"
        all_.ways.append(etcd.endpoints)
        new = await all_.start(1, clock=clock)
        # It runs for long when it becomes the leader.
        for _ in range(40):
            clock.advance(0.5)
            await new.call(1005)
        await all_.stop("n0")
        new = await all_.leader()
        two = await new.broker()
        two.id = 2
        await two.beat(timeout=60_000)
        await passes(9.9, new, clock)
        await looked_at_all_groups(new, clock)
        assert await new.info() == before
        await passes(0.2, new, clock)
        assert (await new.until(lambda info: info["master"] == 2))["epoch"] == 2


def test_what_only_etcd_needs_is_imported_for_etcd_only():
    program = "import sys, pyromq.controller; print('aiohttp' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
