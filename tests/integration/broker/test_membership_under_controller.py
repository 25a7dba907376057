"""Brokers' memberships under our own controller, which decides by the rules: over real sockets, files and time-outs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.bounds import TOO_LONG
from tests.integration.broker.member_kit import member, until
from tests.ports import free_port

from pyromq.broker.failover import membership as module
from pyromq.broker.failover.role import InSyncSet, Role
from pyromq.controller.config import load_settings
from pyromq.controller.server import Controller
from pyromq.errors import BrokerError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import ElectMaster
from pyromq.remoting import RemotingClient, RemotingServer, ServerConfig
from pyromq.testing.proxy import Proxy

if TYPE_CHECKING:
    from pyromq.remoting import Processor

pytestmark = pytest.mark.slow

FAST = {"heartbeat_interval": 50, "heartbeat_timeout": 1000, "poll_interval": 200}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_SOON", 0.05)
    monkeypatch.setattr(module, "_LATER", 0.2)


def new_controller(folder, port):
    return Controller(
        load_settings(
            sets=[
                f"controllerDLegerPeers=n0-127.0.0.1:{port}",
                "controllerDLegerSelfId=n0",
                f"controllerStorePath={folder}/controller",
                f"configStorePath={folder}/controller.properties",
                "bindAddress=127.0.0.1",
            ]
        )
    )


class Group:
    """Brokers of one name, each with a port for the notices of the controller, behind a proxy of its own."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port

    @property
    def controller(self):
        return f"127.0.0.1:{self.port}"

    def running(self):
        return new_controller(self.folder, self.port)

    @contextlib.asynccontextmanager
    async def broker(self, name, **settings):
        processors: dict[int, Processor] = {}
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
        async with (
            RemotingServer(config, processors) as server,
            Proxy(self.controller) as proxy,
            member(folder, proxy, address=f"127.0.0.1:{server.port}", **(FAST | settings)) as joined,
        ):
            processors.update(joined.membership.processors())
            joined.proxy = proxy
            joined.address = f"127.0.0.1:{server.port}"
            yield joined


@pytest.fixture
def group(tmp_path):
    return Group(tmp_path, free_port())


async def pair(one, other):
    """Two brokers with roles: the master and its slave, both in the in-sync set."""
    await one.has_role()
    await other.has_role()
    master, slave = (one, other) if one.membership.is_master else (other, one)
    await master.has_lease()
    async with asyncio.timeout(TOO_LONG):
        # A slave has its role before its first heartbeat.
        while len(master.membership.role.in_sync.members) < 2:
            with contextlib.suppress(BrokerError):
                await master.membership.alter_in_sync({1, 2})
    return master, slave


@pytest.mark.scenario("controller 2")
async def test_the_first_broker_becomes_master(group):
    async with group.running(), group.broker("a") as first:
        assert await first.has_role() == Role(1, 1, first.address, InSyncSet(frozenset({1}), 1))
        await first.has_lease()
        assert first.identity() == "C#b#1"


@pytest.mark.scenario("controller 18")
async def test_brokers_that_start_together_have_different_ids_and_one_master(group):
    async with group.running(), contextlib.AsyncExitStack() as life:
        brokers = await asyncio.gather(*(life.enter_async_context(group.broker(name)) for name in "abcde"))
        roles = [await each.has_role() for each in brokers]
        assert {each.membership.broker_id for each in brokers} == {1, 2, 3, 4, 5}
        assert len({(role.epoch, role.master_id, role.master_address) for role in roles}) == 1
        assert sum(each.membership.is_master for each in brokers) == 1


async def test_the_other_takes_over_when_the_connection_of_the_master_ends(group):
    async with group.running(), group.broker("a") as one, group.broker("b") as other:
        master, slave = await pair(one, other)
        master.proxy.refuse()
        master.proxy.cut()
        await slave.has_lease()
        assert not master.lease.is_valid()
        assert slave.membership.role.epoch == 2
        master.proxy.restore()
        await until(lambda: master.membership.role.epoch == 2)
        assert not master.membership.is_master
        await master.is_well()


@pytest.mark.scenario("controller 11")
async def test_a_silent_master_has_no_lease_when_the_other_takes_over(group):
    async with group.running(), group.broker("a") as one, group.broker("b") as other:
        master, slave = await pair(one, other)
        had_lease = []
        changed = slave.membership.role_changed

        def role_changed(role):
            had_lease.append(master.lease.is_valid())
            changed(role)

        slave.membership.role_changed = role_changed
        master.proxy.pause()
        await slave.has_lease()
        assert had_lease == [False]
        master.proxy.resume()
        await until(lambda: master.membership.role.epoch == 2)
        assert not master.lease.is_valid()


async def test_a_master_that_leaves_is_replaced_at_once(group):
    async with group.running(), group.broker("a") as one, group.broker("b") as other:
        master, slave = await pair(one, other)
        await master.stop()
        await master.membership.leave()
        await slave.has_lease()


@pytest.mark.scenario("controller 16")
async def test_brokers_wait_for_their_controller_and_go_on_after_it_restarted(group):
    async with group.broker("a") as one, group.broker("b") as other:
        await one.has_problem("none leads")
        async with group.running():
            master, slave = await pair(one, other)
        await until(lambda: not master.lease.is_valid())
        await slave.has_problem("none leads")
        async with group.running():
            await master.has_lease()
            await slave.is_well()
            assert [role.epoch for role in (*one.roles, *other.roles)] == [1, 1]


async def test_a_master_that_crashed_alone_comes_back_in_a_new_epoch(group):
    async with group.running():
        async with group.broker("a") as first:
            await first.has_lease()
        async with group.broker("a", epoch=1) as again:
            await again.has_lease()
            assert again.membership.broker_id == 1
            assert again.membership.role.epoch > 1
    async with group.running(), group.broker("a", epoch=again.epoch) as after_all_was_down:
        await after_all_was_down.has_lease()
        assert after_all_was_down.membership.role.epoch > again.epoch


async def test_a_crashed_master_gives_way_to_a_member_that_has_the_rest_of_its_log(group):
    """The controller has not noticed that it was gone, and would let it go on where others know more than it."""
    async with group.running() as controller, group.broker("a") as one, group.broker("b") as other:
        master, slave = await pair(one, other)
        controller.closed = lambda connection, reason: None
        await master.stop()
        await master.membership.leave()
        assert slave.membership.role.epoch == 1
        name = "a" if master is one else "b"
        async with group.broker(name, epoch=1, heartbeat_timeout=60_000) as back:
            assert (await back.has_role()).master_id == slave.membership.broker_id
            assert back.roles[0].epoch == 2
            await slave.has_lease()


# In doubt about its log


async def down(group):
    """A pair that died as a whole. The controller went first, so it elected nobody. Gives the master's name first."""
    async with group.broker("a") as one, group.broker("b") as other, group.running():
        master, _ = await pair(one, other)
    return ("a", "b") if master is one else ("b", "a")


async def test_who_is_in_doubt_waits_for_the_one_that_has_everything(group, caplog):
    caplog.set_level("INFO", "pyromq.controller")
    master, slave = await down(group)
    async with group.running(), group.broker(slave, epoch=1, is_doubtful=True, max_offset=100) as doubtful:
        await doubtful.has_problem("it may lack acknowledged messages")
        own, other = doubtful.membership.broker_id, 3 - doubtful.membership.broker_id
        assert f"waiting for broker {other}" in doubtful.membership.problem
        assert f"pyromq controller elect b {own}" in doubtful.membership.problem
        assert f"broker {own} of b may lack acknowledged messages" in caplog.text
        assert doubtful.roles == []
        async with group.broker(master, epoch=1, max_offset=100) as sure:
            await sure.has_lease()
            assert (await doubtful.has_role()).master_id == sure.membership.broker_id
            assert doubtful.membership.is_doubtful
            doubtful.membership.end_doubt()
            await until(lambda: f"broker {own} of b lacks nothing any more" in caplog.text)


async def test_a_controller_that_restarts_hears_of_the_doubt_again(group):
    master, slave = await down(group)
    async with group.broker(slave, epoch=1, is_doubtful=True) as doubtful:
        async with group.running():
            await doubtful.has_problem("it may lack acknowledged messages")
        await doubtful.has_problem("none leads")
        async with group.running():
            await doubtful.has_problem("it may lack acknowledged messages")
            async with group.broker(master, epoch=1) as sure:
                await sure.has_lease()


async def test_if_all_are_in_doubt_all_must_be_there_and_the_longest_log_wins(group):
    master, slave = await down(group)
    async with group.running(), group.broker(master, epoch=1, is_doubtful=True, max_offset=90) as less:
        await less.has_problem("it may lack acknowledged messages")
        async with group.broker(slave, epoch=1, is_doubtful=True, max_offset=100) as more:
            await more.has_lease()
            assert not more.membership.is_doubtful
            assert (await less.has_role()).master_id == more.membership.broker_id


async def test_an_operator_may_elect_who_is_in_doubt(group):
    _, slave = await down(group)
    async with (
        group.running(),
        group.broker(slave, epoch=1, is_doubtful=True) as doubtful,
        RemotingClient() as tool,
    ):
        await doubtful.has_problem("it may lack acknowledged messages")
        wanted = ElectMaster("C", "b", doubtful.membership.broker_id, True)
        reply = await tool.invoke(group.controller, Command.request(RequestCode.CONTROLLER_ELECT_MASTER, wanted), 3)
        assert reply.code == 0
        await doubtful.has_lease()


async def test_a_master_is_not_handed_over_to_who_is_in_doubt(group):
    """Its master has not noticed yet that it was gone, and stops."""
    async with group.running(), group.broker("a") as one, group.broker("b") as other:
        master, slave = await pair(one, other)
        await slave.stop()
        await slave.membership.leave()
        async with group.broker("b" if slave is other else "a", epoch=1, is_doubtful=True) as doubtful:
            await doubtful.has_role()
            assert not await master.membership.hand_over()
            assert master.membership.is_master
