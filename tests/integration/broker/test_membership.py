"""How a broker joins its group and stays in touch with its controllers, whatever they do. Over real sockets."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.integration.broker.member_kit import StandIn, member, until
from tests.ports import free_port

from pyromq.broker.failover import controllers as controllers_module
from pyromq.broker.failover import membership as module
from pyromq.broker.failover.role import InSyncSet, Role
from pyromq.errors import BrokerError, PyroMQError, StateError
from pyromq.protocol.bodies import ElectMasterResponseBody
from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.codes import ResponseCode as Reply
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    BrokerHeartbeat,
    ElectMasterReply,
    GetMetadataInfoReply,
    GetNextBrokerIdReply,
    GetReplicaInfoReply,
    NotifyBrokerRoleChanged,
)
from pyromq.remoting import RemotingClient, RemotingServer, ServerConfig
from pyromq.testing.disk import FaultyDisk
from pyromq.testing.proxy import Proxy

OWN = "10.1.2.3:10911"
OTHER = "10.1.2.4:10911"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_SOON", 0.02)
    monkeypatch.setattr(module, "_LATER", 0.05)
    monkeypatch.setattr(module, "_WITHOUT_MASTER", 0.05)
    monkeypatch.setattr(module, "_REGISTERED_AGAIN", 0.05)
    monkeypatch.setattr(controllers_module, "_REACH", 0.05)


@pytest.fixture
async def controller():
    async with StandIn() as controller:
        yield controller


def add_broker(controller, broker_id=2, address=OTHER):
    """Another member of the group, which is alive."""
    controller.codes_by_id[broker_id] = f"{address};1"
    controller.addresses[broker_id] = address
    controller.alive[broker_id] = object()
    controller._given = max(controller._given, broker_id)


def given_id(folder, broker_id=1):
    (folder / "brokerIdentity").write_text(f"C#b#{broker_id}")


def known(controller, broker_id=1):
    controller.codes_by_id[broker_id] = f"{OWN};1"
    controller._given = max(controller._given, broker_id)


# Joining


@pytest.mark.scenario("controller 2")
async def test_the_first_broker_of_a_group_becomes_its_master(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        assert await joined.has_role() == Role(1, 1, OWN, InSyncSet(frozenset({1}), 1))
        await joined.has_lease()
        assert [code for code in controller.codes[:7] if code != Code.CONTROLLER_GET_REPLICA_INFO] == [
            Code.CONTROLLER_GET_METADATA_INFO,
            Code.CONTROLLER_GET_NEXT_BROKER_ID,
            Code.CONTROLLER_APPLY_BROKER_ID,
            Code.CONTROLLER_REGISTER_BROKER,
            Code.BROKER_HEARTBEAT,
            Code.CONTROLLER_ELECT_MASTER,
            Code.BROKER_HEARTBEAT,
        ]
        assert joined.identity() == "C#b#1"
        assert not joined.files.claim_path.exists()
        assert joined.membership.broker_id == 1
        assert joined.membership.is_master
        assert joined.membership.problem is None


async def test_a_broker_that_finds_a_master_asks_for_no_election(tmp_path, controller):
    add_broker(controller, broker_id=1)
    controller.elect(1)
    async with member(tmp_path, controller) as joined:
        assert await joined.has_role() == Role(1, 1, OTHER, InSyncSet(frozenset({1}), 1))
        await controller.next(Code.CONTROLLER_GET_REPLICA_INFO)
        assert joined.membership.broker_id == 2
        assert not joined.membership.is_master
        assert not joined.lease.is_valid()
        assert Code.CONTROLLER_ELECT_MASTER not in controller.codes


async def test_a_heartbeat_says_how_far_the_broker_is(tmp_path, controller):
    async with member(tmp_path, controller, priority=7, heartbeat_timeout=4000) as joined:
        await joined.has_role()
        joined.epoch, joined.max_offset = 3, 700
        await controller.next(Code.BROKER_HEARTBEAT, 2)
        assert controller.asked(Code.BROKER_HEARTBEAT)[-1].header(BrokerHeartbeat) == BrokerHeartbeat(
            "C", OWN, "b", 1, 3, 700, 700, 4000, 7
        )


@pytest.mark.scenario("controller 16")
async def test_a_broker_waits_for_its_controller_and_then_joins(tmp_path):
    port = free_port()
    async with member(tmp_path, f"127.0.0.1:{port}") as waiting:
        await waiting.has_problem(f"controller: none leads: 127.0.0.1:{port}: cannot connect: Connection refused")
        assert waiting.roles == []
        assert waiting.identity() is None
        assert not waiting.lease.is_valid()
        async with StandIn(port):
            await waiting.has_lease()
            assert waiting.membership.problem is None


async def test_without_addresses_the_problem_says_which_setting_is_missing(tmp_path):
    async with member(tmp_path) as waiting:
        await waiting.has_problem("set controllerAddr")


async def test_a_malformed_address_is_a_problem_not_an_end(tmp_path, caplog):
    async with member(tmp_path, "nonsense") as waiting:
        await waiting.has_problem("set controllerAddr")
        assert "'nonsense' is not an address" in caplog.text


async def test_a_name_server_is_no_controller(tmp_path):
    async with (
        RemotingServer(ServerConfig(listen_port=0, bind_address="127.0.0.1"), {}) as name_server,
        member(tmp_path, f"127.0.0.1:{name_server.port}") as waiting,
    ):
        await waiting.has_problem("not a controller; is it the port of a name server?")


async def test_a_name_is_looked_up(tmp_path):
    async with StandIn() as controller:
        name = f"localhost:{controller.server.port}"
        async with member(tmp_path, name, look_up=True) as joined:
            await joined.has_role()
            assert controller.address in joined.membership.controllers.addresses


# The id


@pytest.mark.scenario("controller 17")
async def test_a_broker_that_crashed_before_it_kept_its_id_gets_the_same_one(tmp_path, controller):
    disk = FaultyDisk()
    disk.fail_syncs(where="brokerIdentity.tmp")
    async with member(tmp_path, controller, disk=disk) as crashing:
        await crashing.has_problem("error")
    claim = crashing.files.claim_path.read_text()
    assert crashing.identity() is None
    add_broker(controller, 2)
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        assert joined.membership.broker_id == 1
        assert joined.identity() == "C#b#1"
    codes = {request.ext["registerCheckCode"] for request in controller.asked(Code.CONTROLLER_APPLY_BROKER_ID)}
    assert codes == {claim.split("#")[3]}
    assert len(controller.asked(Code.CONTROLLER_GET_NEXT_BROKER_ID)) == 1


@pytest.mark.slow
async def test_a_claim_without_an_answer_is_kept(tmp_path, controller, monkeypatch):
    unanswered = iter([None, Reply.CONTROLLER_NOT_LEADER, Reply.SYSTEM_ERROR])

    def answer(request):
        code = next(unanswered, ...)
        return code if code in (None, ...) else request.reply(code, "not now")

    controller.answers[Code.CONTROLLER_APPLY_BROKER_ID] = answer
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        claims = controller.asked(Code.CONTROLLER_APPLY_BROKER_ID)
        assert len({request.ext["registerCheckCode"] for request in claims}) == 1
        assert len(claims) == 4
        assert len(controller.asked(Code.CONTROLLER_GET_NEXT_BROKER_ID)) == 1


async def test_a_claim_that_another_broker_won_is_dropped(tmp_path, controller):
    controller.codes_by_id[1] = "another"  # taken after the controller offered it
    offers = iter([1])
    controller.answers[Code.CONTROLLER_GET_NEXT_BROKER_ID] = lambda request: request.reply(
        header=GetNextBrokerIdReply(next(offers, 2))
    )
    async with member(tmp_path, controller) as joined:
        await until(joined.identity)
        assert joined.identity() == "C#b#2"


async def test_an_id_that_is_offered_for_ever_although_it_is_taken_is_passed_over(tmp_path, controller):
    controller.codes_by_id = {1: "another", 2: "one more"}
    controller.answers[Code.CONTROLLER_GET_NEXT_BROKER_ID] = lambda request: request.reply(
        header=GetNextBrokerIdReply(1)
    )
    async with member(tmp_path, controller) as joined:
        await until(joined.identity)
        assert joined.identity() == "C#b#3"


@pytest.mark.scenario("controller 18")
async def test_brokers_that_start_together_get_different_ids_and_one_master(tmp_path, controller):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with (
        member(tmp_path / "a", controller, address=OWN) as one,
        member(tmp_path / "b", controller, address=OTHER) as other,
    ):
        first, second = await one.has_role(), await other.has_role()
        assert {one.identity(), other.identity()} == {"C#b#1", "C#b#2"}
        assert (first.epoch, first.master_id) == (second.epoch, second.master_id)
        assert one.membership.is_master != other.membership.is_master


@pytest.mark.scenario("controller 19")
async def test_the_identity_of_another_broker_keeps_this_one_out(tmp_path, controller):
    (tmp_path / "brokerIdentity").write_text("C#other#1")
    async with member(tmp_path, controller) as refused:
        await refused.has_problem("brokerIdentity belongs to broker other of cluster C")
        assert refused.roles == []
        assert not refused.lease.is_valid()
        given_id(tmp_path)  # corrected
        known(controller)
        await refused.has_role()


async def test_a_broker_that_was_cleaned_away_says_what_to_do(tmp_path, controller):
    given_id(tmp_path, 5)
    async with member(tmp_path, controller) as refused:
        await refused.has_problem("the controllers do not know broker 5 of group b")
        assert "brokerIdentity away" in refused.membership.problem


# Former lives


async def test_a_controller_that_forgot_epochs_is_not_obeyed(tmp_path, controller):
    given_id(tmp_path)
    known(controller)
    add_broker(controller)
    controller.elect(2)
    async with member(tmp_path, controller, epoch=5) as waiting:
        await waiting.has_problem("the controller is at epoch 1, but this broker has already seen epoch 5")
        assert waiting.roles == []
        controller.epoch = 6
        assert (await waiting.has_role()).epoch == 6


async def test_a_crashed_master_does_not_take_up_its_epoch_again(tmp_path, controller):
    """Its log may have lost its end, which a slave still has; so the controller has to choose again."""
    given_id(tmp_path)
    known(controller)
    add_broker(controller)
    controller.epoch, controller.set_epoch, controller.master, controller.in_sync = 5, 9, 1, [1, 2]
    controller.addresses[1] = OWN
    controller.alive[1] = object()  # the connection of its former life, whose end nobody has noticed
    controller.alive.pop(1)
    async with member(tmp_path, controller, epoch=5) as back:
        role = await back.has_role()
        assert (role.epoch, role.master_id) == (6, 2)
        assert not back.lease.is_valid()


async def test_a_crashed_master_that_is_alone_gets_a_new_epoch(tmp_path, controller):
    given_id(tmp_path)
    known(controller)
    controller.epoch, controller.set_epoch, controller.master, controller.in_sync = 5, 9, 1, [1]
    controller.addresses[1] = OWN
    async with member(tmp_path, controller, epoch=5) as back:
        role = await back.has_role()
        assert (role.epoch, role.master_id) == (7, 1)  # 6 was the election that found nobody
        await back.has_lease()


async def test_a_master_that_stopped_cleanly_takes_up_its_epoch_again(tmp_path, controller):
    given_id(tmp_path)
    known(controller)
    controller.epoch, controller.set_epoch, controller.master, controller.in_sync = 5, 9, 1, [1]
    controller.addresses[1] = OWN
    async with member(tmp_path, controller, epoch=5, is_intact=True) as back:
        assert (await back.has_role()).epoch == 5
        await back.has_lease()


# In doubt about its log


def in_doubt(tmp_path, controller, *, master=None, in_sync=(1, 2)):
    """A group that is at epoch 5. Broker 1 comes back from a power failure."""
    given_id(tmp_path)
    known(controller)
    add_broker(controller)
    controller.epoch, controller.set_epoch, controller.master, controller.in_sync = 5, 9, master, list(in_sync)
    controller.addresses[1] = OWN


async def test_a_broker_in_doubt_does_not_take_up_an_epoch_that_it_forgot(tmp_path, controller):
    """The power failure took the end of its log, and with it the epoch in which it was master."""
    in_doubt(tmp_path, controller, master=1)
    controller.knows_doubt = True
    controller.alive[1] = object()  # the connection of its former life, whose end nobody has noticed
    async with member(tmp_path, controller, epoch=3, is_doubtful=True) as back:
        await until(lambda: controller.asked(Code.CONTROLLER_REGISTER_BROKER))
        await back.has_problem("was master of epoch 5 before it crashed")
        assert back.roles == []
        controller.elect(2)
        assert (await back.has_role()).master_id == 2


async def test_a_broker_in_doubt_says_so_before_anything_else(tmp_path, controller):
    in_doubt(tmp_path, controller, master=2)
    controller.knows_doubt = True
    async with member(tmp_path, controller, epoch=5, is_doubtful=True) as back:
        await back.has_role()
        first, *_ = [each for each in controller.codes if each != Code.CONTROLLER_GET_METADATA_INFO]
        assert first == Code.CONTROLLER_GET_REPLICA_INFO
        heard = controller.asked(Code.BROKER_HEARTBEAT)[0]
        assert controller.codes.index(Code.BROKER_HEARTBEAT) < controller.codes.index(Code.CONTROLLER_REGISTER_BROKER)
        assert heard.header(BrokerHeartbeat).doubtful is True
        back.membership.end_doubt()
        await until(lambda: controller.asked(Code.BROKER_HEARTBEAT)[-1].header(BrokerHeartbeat).doubtful is None)


async def test_controllers_that_do_not_know_doubt_hear_nothing_of_a_broker_that_they_would_elect(tmp_path, controller):
    in_doubt(tmp_path, controller)
    controller.alive.clear()
    async with member(tmp_path, controller, epoch=5, is_doubtful=True) as back:
        await back.has_problem("waiting for broker 2, which may have them")
        assert "stop this broker, delete" in back.membership.problem
        controller.alive[2] = object()
        controller.elect(2, [1, 2])
        assert (await back.has_role()).master_id == 2
        # A slave that has not caught up would be elected, too.
        await controller.next(Code.CONTROLLER_GET_REPLICA_INFO, 3)
        assert not controller.asked(Code.BROKER_HEARTBEAT)
        controller.elect(None)
        await back.has_problem("waiting for broker 2, which may have them")
        assert not controller.asked(Code.CONTROLLER_ELECT_MASTER)
        back.membership.end_doubt()
        await controller.next(Code.CONTROLLER_ELECT_MASTER)
        assert controller.asked(Code.BROKER_HEARTBEAT)


@pytest.mark.parametrize("in_sync", [[1], [2], [2, 3]])
async def test_a_broker_that_nobody_is_ahead_of_or_that_cannot_be_elected_does_not_hold_back(
    tmp_path, controller, in_sync
):
    in_doubt(tmp_path, controller, in_sync=in_sync)
    async with member(tmp_path, controller, epoch=5, is_doubtful=True) as back:
        assert (await back.has_role()).master_id == in_sync[0]
        assert controller.asked(Code.BROKER_HEARTBEAT)
        assert back.membership.is_doubtful is (in_sync != [1])


# Roles


@pytest.fixture
async def served():
    """Starts a port for the requests of controllers, and returns how to send one."""
    servers = []
    async with RemotingClient() as client:

        async def serve(joined):
            server = RemotingServer(
                ServerConfig(listen_port=0, bind_address="127.0.0.1"), joined.membership.processors()
            )
            await server.__aenter__()
            servers.append(server)
            return lambda request: client.invoke(f"127.0.0.1:{server.port}", request)

        yield serve
    for server in servers:
        await server.close()


async def test_a_notice_changes_the_role_at_once(tmp_path, controller, served):
    async with member(tmp_path, controller, poll_interval=3_600_000) as joined:
        await joined.has_lease()
        notify = await served(joined)
        add_broker(controller)
        controller.answers[Code.BROKER_HEARTBEAT] = lambda request: None  # so nothing else tells it
        controller.elect(2)
        assert (await notify(controller.notice())).code == 0
        assert joined.roles[-1] == Role(2, 2, OTHER, InSyncSet(frozenset({2}), 2))
        assert not joined.lease.is_valid()
        assert joined.lease.why == "broker 2 is master of epoch 2"


async def test_an_old_notice_changes_nothing(tmp_path, controller, served):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        notify = await served(joined)
        old = Command.request(
            Code.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChanged(OTHER, 2, 1, 1), controller._set()
        )
        assert (await notify(old)).code == 0
        assert (await notify(Command.request(Code.NOTIFY_BROKER_ROLE_CHANGED))).code == 0
        assert (await notify(Command.request(Code.NOTIFY_BROKER_ROLE_CHANGED, body=b"{"))).code == 0
        broken = Command.request(Code.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChanged(OTHER, 2, 9, 9), b"{")
        assert (await notify(broken)).code == 1
        assert len(joined.roles) == 1
        assert joined.lease.is_valid()


async def test_a_missed_notice_is_made_good_by_the_poll(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        add_broker(controller)
        controller.elect(2)
        await until(lambda: joined.roles[-1].master_id == 2)
        controller.elect(1)
        await until(lambda: joined.roles[-1].master_id == 1)
        assert [role.epoch for role in joined.roles] == [1, 2, 3]
        await joined.has_lease()


async def test_a_master_that_is_elected_again_goes_on_in_the_new_epoch(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.elect(1)
        await until(lambda: joined.roles[-1].epoch == 2)
        await joined.has_lease()


async def test_when_the_group_has_no_master_its_members_ask_for_one(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.master, controller.epoch = None, 4
        controller.in_sync = [9]
        controller.answers[Code.CONTROLLER_ELECT_MASTER] = lambda request: (
            ... if controller.in_sync == [1] else request.reply(Reply.CONTROLLER_ELECT_MASTER_FAILED, "Failed")
        )
        await joined.has_problem("group b has no master")
        assert not joined.lease.is_valid()
        assert joined.lease.why == "the group has no master since epoch 4"
        controller.in_sync = [1]
        await until(lambda: joined.roles[-1].epoch == 5)
        await joined.has_lease()
        await joined.is_well()


async def test_a_master_that_moved_is_a_change_of_role(tmp_path, controller):
    add_broker(controller, broker_id=1)
    controller.elect(1)
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        controller.addresses[1] = "10.9.9.9:1"
        await until(lambda: len(joined.roles) == 2)
        assert joined.roles[-1] == Role(1, 1, "10.9.9.9:1", InSyncSet(frozenset({1}), 1))


async def test_a_master_does_not_mind_its_own_old_address(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.addresses[1] = "10.9.9.9:1"
        await controller.next(Code.CONTROLLER_GET_REPLICA_INFO, 3)
        assert len(joined.roles) == 1
        assert joined.lease.is_valid()


async def test_a_second_master_of_the_same_epoch_is_not_obeyed(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        add_broker(controller)
        controller.master = 2
        await joined.has_problem("says that broker 2 is master of epoch 1, but that is broker 1")
        assert len(joined.roles) == 1
        assert not joined.lease.is_valid()


async def test_a_group_that_was_cleaned_is_reported_every_minute(tmp_path, controller, monkeypatch, caplog):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.codes_by_id.clear()
        await joined.has_problem("do not know broker 1")
        await controller.next(Code.CONTROLLER_REGISTER_BROKER, 3)
        assert caplog.text.count("do not know broker 1") == 1
        monkeypatch.setattr(module, "_REMINDER", 0.0)
        await controller.next(Code.CONTROLLER_REGISTER_BROKER, 3)
        assert caplog.text.count("do not know broker 1") > 1


async def test_a_learner_asks_for_no_election(tmp_path, controller):
    async with member(tmp_path, controller, learner=True) as learning:
        await learning.has_problem("a learner cannot become one")
        add_broker(controller)
        controller.elect(2)
        assert (await learning.has_role()).master_id == 2
        assert Code.CONTROLLER_ELECT_MASTER not in controller.codes


# The in-sync set


async def test_a_larger_set_is_told_to_its_master(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.in_sync, controller.set_epoch = [1, 2], 7
        await until(lambda: joined.sets)
        assert joined.sets == [InSyncSet(frozenset({1, 2}), 7)]
        assert joined.membership.role.in_sync == joined.sets[0]
        assert len(joined.roles) == 1


async def test_a_master_changes_its_set(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        assert await joined.membership.alter_in_sync({2, 1}) == InSyncSet(frozenset({1, 2}), 2)
        assert joined.sets == [InSyncSet(frozenset({1, 2}), 2)]
        assert controller.in_sync == [1, 2]
        assert await joined.membership.alter_in_sync({1}) == InSyncSet(frozenset({1}), 3)


async def test_a_set_that_is_refused_is_an_error_and_the_truth_follows(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        controller.set_epoch, controller.in_sync = 5, [1, 3]
        with pytest.raises(BrokerError) as refused:
            await joined.membership.alter_in_sync({1, 2})
        assert refused.value.code == Reply.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        await until(lambda: joined.sets)
        assert joined.sets[-1] == InSyncSet(frozenset({1, 3}), 5)


async def test_only_a_master_changes_the_set(tmp_path, controller):
    add_broker(controller, broker_id=1)
    controller.elect(1)
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        with pytest.raises(StateError):
            await joined.membership.alter_in_sync({1, 2})


async def test_a_set_of_an_epoch_that_ended_meanwhile_is_not_taken(tmp_path, controller, served):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        notify = await served(joined)
        asked = asyncio.Event()
        answer = asyncio.get_running_loop().create_future()

        def later(request):
            asked.set()
            return answer

        controller.answers[Code.CONTROLLER_ALTER_SYNC_STATE_SET] = later
        altering = asyncio.create_task(joined.membership.alter_in_sync({1, 2}))
        await asked.wait()
        add_broker(controller)
        controller.elect(2)
        await notify(controller.notice())
        request = controller.asked(Code.CONTROLLER_ALTER_SYNC_STATE_SET)[0]
        answer.set_result(request.reply(body=b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'))
        with pytest.raises(StateError, match="epoch 1 ended"):
            await altering
        assert joined.sets == []


# The lease


@pytest.mark.scenario("controller 11")
async def test_a_master_whose_connection_is_cut_has_no_lease_until_it_asked_again(tmp_path, controller):
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy) as joined:
        await joined.has_lease()
        proxy.refuse()
        controller.closed = lambda *_: None  # the controller has not noticed, or does not mind
        proxy.cut()
        await until(lambda: not joined.lease.is_valid())
        await joined.has_problem("this master takes no messages, because the connection to the leading controller")
        proxy.restore()
        await joined.has_lease()
        await joined.is_well()
        assert len(joined.roles) == 1


@pytest.mark.slow
@pytest.mark.scenario("controller 11")
async def test_a_master_that_hears_nothing_has_no_lease_before_another_is_elected(tmp_path, controller):
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy, heartbeat_timeout=1000) as joined:
        await joined.has_lease()
        sent = time.monotonic()
        proxy.pause()
        await until(lambda: not joined.lease.is_valid())
        assert time.monotonic() - sent < 1.0
        # One late answer must not end the connection, which would end the role.
        assert joined.membership.controllers.leader is not None
        proxy.resume()
        await joined.has_lease()
        assert len(joined.roles) == 1


async def test_a_lease_needs_an_answer_to_the_heartbeat(tmp_path, controller):
    controller.answers[Code.BROKER_HEARTBEAT] = lambda request: (
        request.reply(Reply.SYSTEM_ERROR, "no") if controller.master else ...
    )
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        await controller.next(Code.BROKER_HEARTBEAT, 3)
        assert not joined.lease.is_valid()
        controller.answers.clear()
        await joined.has_lease()


async def test_a_lease_needs_the_word_of_the_controller_after_it(tmp_path, controller):
    controller.answers[Code.CONTROLLER_GET_REPLICA_INFO] = lambda request: request.reply(Reply.SYSTEM_ERROR, "no")
    async with member(tmp_path, controller) as joined:
        await joined.has_problem("controller: no (code 1)")
        await controller.next(Code.CONTROLLER_GET_REPLICA_INFO, 3)
        assert not joined.lease.is_valid()
        controller.answers.clear()
        await joined.has_lease()
        await joined.is_well()


async def test_a_lease_runs_from_when_the_heartbeat_left(tmp_path, controller):
    async with member(tmp_path, controller, heartbeat_interval=3_600_000, heartbeat_timeout=10_000) as joined:
        await joined.has_lease()
        assert 7.0 < joined.lease.left <= 8.0


async def test_without_leases_a_master_goes_on_alone(tmp_path, controller):
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy, lease=False) as joined:
        await joined.has_role()
        proxy.refuse()
        proxy.cut()
        await joined.has_problem("none leads")
        assert joined.lease.is_valid()


# Controllers that fail


async def test_another_leader_is_found_when_this_one_no_longer_leads(tmp_path):
    async with StandIn(name="n0") as first, StandIn(name="n1") as second:
        second.leads = False
        async with member(tmp_path, first, second) as joined:
            await joined.has_lease()
            assert joined.membership.controllers.leader == first.address
            await second.next(Code.BROKER_HEARTBEAT, 2)  # the others hear of the broker, too
            assert second.asked(Code.BROKER_HEARTBEAT)[-1].is_oneway
            assert not first.asked(Code.BROKER_HEARTBEAT)[-1].is_oneway
            second.__dict__.update(
                {name: getattr(first, name) for name in ("codes_by_id", "addresses", "epoch", "set_epoch", "in_sync")}
            )
            second.master, first.leads, second.leads = 1, False, True
            await until(lambda: joined.membership.controllers.leader == second.address)
            await second.next(Code.CONTROLLER_GET_REPLICA_INFO, 2)
            await joined.is_well()
            assert joined.lease.is_valid()
            assert len(joined.roles) == 1


async def test_a_dead_controller_delays_nobody(tmp_path, controller):
    dead = f"127.0.0.1:{free_port()}"
    async with StandIn() as silent, member(tmp_path, dead, silent, controller) as joined:
        silent.answers = dict.fromkeys(Code, lambda request: None)
        await joined.has_lease()
        assert joined.membership.controllers.leader == controller.address
        assert dead in joined.membership.controllers.unreachable


async def test_a_leader_by_another_address_is_known_by_the_listed_one(tmp_path, controller):
    """One connection per controller: the end of any other would look like the end of the broker."""
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy) as joined:
        await joined.has_lease()
        assert joined.membership.controllers.leader == proxy.address
        assert len(controller.server.connections) == 1


async def test_a_leader_that_is_not_listed_is_found_through_those_that_are(tmp_path, controller):
    async with StandIn() as follower:
        follower.leads, follower.leader_address = False, controller.address
        async with member(tmp_path, follower) as joined:
            await joined.has_lease()
            assert joined.membership.controllers.leader == controller.address


@pytest.mark.parametrize("code", [Code.CONTROLLER_GET_METADATA_INFO, *[1012, 1013, 1003, 904, 1002, 1004]])
async def test_garbage_is_survived(tmp_path, controller, code):
    garbage = iter(
        [
            lambda request: request.reply(body=b"\xff\x00{"),
            lambda request: request.reply(-7, "\x00"),
            lambda request: request.reply(header=GetMetadataInfoReply("g", "n0", "no address", False)),
            lambda request: request.reply(header=GetNextBrokerIdReply(-1)),
            lambda request: request.reply(header=GetReplicaInfoReply(-1, 1, OWN), body=b"[]"),
            lambda request: request.reply(header=ElectMasterReply(), body=ElectMasterResponseBody().encode()),
        ]
    )
    if code == Code.CONTROLLER_APPLY_BROKER_ID:  # any success gives the id
        garbage = iter([lambda request: request.reply(-7, "\x00"), lambda request: request.reply(2**31 - 1)])
    controller.answers[code] = lambda request: next(garbage, lambda _: ...)(request)
    async with member(tmp_path, controller) as joined:
        await joined.has_role()
        await until(lambda: next(garbage, None) is None)
        await joined.is_well()
        assert joined.identity() == "C#b#1"


async def test_bytes_that_are_no_frames_end_only_the_connection(tmp_path, controller):
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy) as joined:
        await joined.has_lease()
        proxy.garble(3)
        await until(lambda: not joined.lease.is_valid())
        await joined.is_well()
        assert not joined.running.done()


@pytest.mark.slow
async def test_a_controller_that_hangs_up_at_once_does_not_keep_the_broker_busy(tmp_path, controller):
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy, heartbeat_interval=500) as joined:
        await joined.has_lease()
        controller.closed = lambda *_: None
        connected: list[object] = []
        controller.connected = connected.append
        controller.answers = dict.fromkeys(Code, lambda request: controller.cut())
        proxy.cut()
        began = time.monotonic()
        # One that did not pause would be there within milliseconds; each attempt may need a second connection.
        await until(lambda: len(connected) >= 20)
        assert time.monotonic() - began > 0.5
        controller.answers = {}
        await joined.has_lease()


@pytest.mark.slow
async def test_a_connection_that_leads_nowhere_is_given_up_soon(tmp_path, controller):
    """As behind a proxy whose controller hung up while it connected."""
    async with Proxy(controller.address) as proxy, member(tmp_path, proxy, heartbeat_timeout=30_000) as joined:
        await joined.has_lease()
        controller.closed = lambda *_: None
        connected: list[object] = []
        controller.connected = connected.append
        # What is asked on the next connection is never answered.
        controller.answers = dict.fromkeys(Code, lambda request: None if len(connected) < 2 else ...)
        began = time.monotonic()
        proxy.cut()
        await until(lambda: len(connected) == 2)
        await joined.has_lease()
        assert time.monotonic() - began < 15


@pytest.mark.slow
async def test_a_silent_controller_is_given_up_in_the_end(tmp_path):
    connected: list[object] = []
    async with StandIn() as silent:
        silent.connected = connected.append
        silent.answers = dict.fromkeys(Code, lambda request: None)
        async with member(tmp_path, silent, heartbeat_timeout=500) as waiting:
            await until(lambda: len(connected) >= 2)
            await waiting.has_problem("no answer")
            silent.answers = {}
            await waiting.has_lease()


async def test_a_broker_that_lost_its_controller_for_long_goes_on_when_it_is_back(tmp_path):
    port = free_port()
    async with StandIn(port) as controller, member(tmp_path, controller) as joined:
        await joined.has_lease()
        kept = dict(controller.__dict__)
        controller.closed = lambda *_: None
        await controller.server.close()
        await joined.has_problem("none leads")
        assert not joined.lease.is_valid()
        async with StandIn(port) as back:
            back.__dict__.update(
                {name: kept[name] for name in ("codes_by_id", "addresses", "epoch", "set_epoch", "master", "in_sync")}
            )
            await joined.has_lease()
            await joined.is_well()
            assert len(joined.roles) == 1


# The end


async def test_leaving_ends_the_connections_and_nothing_is_sent_afterwards(tmp_path, controller):
    async with member(tmp_path, controller) as joined:
        await joined.has_lease()
        add_broker(controller)
        controller.in_sync = [1, 2]
        await joined.stop()
        asked = len(controller.requests)
        await joined.membership.leave()
        assert joined.lease.why == "this broker is stopping"
        await until(lambda: controller.master == 2)  # at once: its connection ended
        assert len(controller.requests) == asked
        with pytest.raises(PyroMQError, match="left its controllers"):
            await joined.membership.controllers.ask(Command.request(Code.CONTROLLER_GET_METADATA_INFO))


@pytest.mark.slow
@pytest.mark.scenario("controller 4")
async def test_how_often_controllers_hear_of_a_broker(tmp_path, controller):
    add_broker(controller, broker_id=1)
    controller.elect(1)
    settings = {"heartbeat_interval": 100, "poll_interval": 500, "leader_interval": 1000}
    async with member(tmp_path, controller, **settings) as joined:
        await joined.has_role()
        await controller.next(Code.CONTROLLER_GET_REPLICA_INFO)
        controller.requests.clear()
        began = time.monotonic()
        await controller.next(Code.BROKER_HEARTBEAT, 20)
        assert time.monotonic() - began > 1.8
        assert 2 <= len(controller.asked(Code.CONTROLLER_GET_REPLICA_INFO)) <= 5
        assert 1 <= len(controller.asked(Code.CONTROLLER_GET_METADATA_INFO)) <= 3
        assert set(controller.codes) <= {
            Code.BROKER_HEARTBEAT,
            Code.CONTROLLER_GET_REPLICA_INFO,
            Code.CONTROLLER_GET_METADATA_INFO,
        }
        assert len(controller.server.connections) == 1
