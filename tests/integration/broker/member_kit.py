"""A broker's membership by itself, and a controller that says what a test wants, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib

from tests.bounds import TOO_LONG

from pyromq.broker.config import BrokerConfig, LiveConfig
from pyromq.broker.failover.config import FailoverConfig
from pyromq.broker.failover.identity import IdentityFiles
from pyromq.broker.failover.membership import Membership
from pyromq.broker.failover.role import InSyncSet, Role, Standing
from pyromq.protocol.bodies import ElectMasterResponseBody, SyncStateSet
from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.codes import ResponseCode as Reply
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    AlterSyncStateSet,
    AlterSyncStateSetReply,
    ApplyBrokerId,
    BrokerHeartbeat,
    ControllerRegisterBroker,
    ControllerRegisterBrokerReply,
    ElectMaster,
    ElectMasterReply,
    GetMetadataInfoReply,
    GetNextBrokerIdReply,
    GetReplicaInfo,
    GetReplicaInfoReply,
    NotifyBrokerRoleChanged,
)
from pyromq.remoting import RemotingClient, RemotingServer, ServerConfig


async def until(condition):
    """Wait until `condition` gives something that is true; gives it, too."""
    async with asyncio.timeout(TOO_LONG):
        while True:
            if result := condition():
                return result
            await asyncio.sleep(0.002)


class StandIn:
    """A controller of one group: enough of one to join it, and every answer can be replaced.

    `answers` has functions by code, which get the request and return the reply, None to say nothing, or ... to let
    the usual answer stand. `requests` has all that was asked.
    """

    def __init__(self, port=0, name="n0"):
        self.requests = []
        self.answers = {}
        self.name = name
        self.leads = True
        self.leader_address = None
        self.codes_by_id = {}
        self.addresses = {}
        self.epoch = self.set_epoch = 0
        self.master = None
        self.in_sync = []
        self.alive = {}
        self.knows_doubt = False
        self._given = 0
        self.server = RemotingServer(
            ServerConfig(listen_port=port, bind_address="127.0.0.1"), {}, default=self._take, listener=self
        )

    async def __aenter__(self):
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *exc_info):
        await self.server.close()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.port}"

    @property
    def codes(self):
        """What was asked, in order."""
        return [request.code for request in self.requests]

    def asked(self, code):
        return [request for request in self.requests if request.code == code]

    async def next(self, code, count=1):
        """Wait until `code` was asked so many times more."""
        before = len(self.asked(code))
        await until(lambda: len(self.asked(code)) >= before + count)

    def cut(self):
        for connection in self.server.connections:
            connection.abort()

    def elect(self, broker_id, in_sync=None):
        """Decide who is master; nobody is told."""
        self.epoch += 1
        self.set_epoch += 1
        self.master = broker_id
        if broker_id is not None:
            self.in_sync = in_sync or [broker_id]

    # What it answers

    def connected(self, connection):
        pass

    def closed(self, connection, reason):
        gone = [broker_id for broker_id, at in self.alive.items() if at is connection]
        for broker_id in gone:
            del self.alive[broker_id]
            if broker_id == self.master:
                self.elect(next((member for member in self.in_sync if member in self.alive), None))

    def _take(self, connection, request):
        self.requests.append(request)
        answer = self.answers.get(request.code)
        if answer is not None and (reply := answer(request)) is not ...:
            return reply
        match request.code:
            case Code.CONTROLLER_GET_METADATA_INFO:
                leader = self.leader_address or (self.address if self.leads else None)
                return request.reply(
                    header=GetMetadataInfoReply(
                        group="group1",
                        controller_leader_id=self.name,
                        controller_leader_address=leader,
                        is_leader=self.leads,
                    )
                )
            case Code.BROKER_HEARTBEAT:
                self.alive.setdefault(request.header(BrokerHeartbeat).broker_id, connection)
                return request.reply(remark="Heart beat success")
        if not self.leads:
            return request.reply(Reply.CONTROLLER_NOT_LEADER, "The controller is not in leader state")
        return self._decide(request)

    def _decide(self, request):
        match request.code:
            case Code.CONTROLLER_GET_NEXT_BROKER_ID:
                return request.reply(header=GetNextBrokerIdReply(self._given + 1))
            case Code.CONTROLLER_APPLY_BROKER_ID:
                header = request.header(ApplyBrokerId)
                given = self.codes_by_id.setdefault(header.applied_broker_id, header.register_check_code)
                if given != header.register_check_code:
                    return request.reply(Reply.CONTROLLER_BROKER_ID_INVALID, "Fail to apply brokerId")
                self._given = max(self._given, header.applied_broker_id)
                return request.reply()
            case Code.CONTROLLER_REGISTER_BROKER:
                header = request.header(ControllerRegisterBroker)
                if header.broker_id not in self.codes_by_id:
                    return request.reply(Reply.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "hasn't been registered")
                self.addresses[header.broker_id] = header.broker_address
                said = self._master() if self.master in self.alive else {}
                return request.reply(header=ControllerRegisterBrokerReply(**said), body=self._set())
            case Code.CONTROLLER_ELECT_MASTER:
                asker = request.header(ElectMaster).broker_id
                candidates = [member for member in self.in_sync if member in self.alive]
                code = Reply.SUCCESS
                if self.master in self.alive:
                    code = Reply.CONTROLLER_MASTER_STILL_EXIST
                elif self.epoch == 0 or candidates:
                    self.elect(asker if self.epoch == 0 else candidates[0])
                else:
                    return request.reply(Reply.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
                body = ElectMasterResponseBody(sync_state_set=self.in_sync)
                return request.reply(code, header=ElectMasterReply(**self._master()), body=body.encode())
            case Code.CONTROLLER_GET_REPLICA_INFO:
                if not self.codes_by_id:
                    return request.reply(Reply.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
                address = self.addresses.get(self.master)
                doubtful = request.header(GetReplicaInfo).doubtful if self.knows_doubt else None
                header = GetReplicaInfoReply(self.epoch, self.master, address, doubtful)
                return request.reply(header=header, body=self._set())
            case Code.CONTROLLER_ALTER_SYNC_STATE_SET:
                return self._alter(request)
        return request.reply(Reply.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")

    def _alter(self, request):
        header, wanted = request.header(AlterSyncStateSet), SyncStateSet.decode(request.body_bytes)
        if header.master_epoch != self.epoch:
            return request.reply(Reply.CONTROLLER_FENCED_MASTER_EPOCH, "epoch", header=AlterSyncStateSetReply())
        if wanted.sync_state_set_epoch != self.set_epoch:
            return request.reply(Reply.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "set", header=AlterSyncStateSetReply())
        self.in_sync, self.set_epoch = wanted.sync_state_set, self.set_epoch + 1
        return request.reply(header=AlterSyncStateSetReply(self.set_epoch), body=self._set())

    def notice(self):
        """1008 about the master of now."""
        return Command.request(Code.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChanged(**self._master()), self._set())

    def _master(self):
        return {
            "master_broker_id": self.master,
            "master_address": self.addresses[self.master],
            "master_epoch": self.epoch,
            "sync_state_set_epoch": self.set_epoch,
        }

    def _set(self):
        return SyncStateSet(sync_state_set=self.in_sync, sync_state_set_epoch=self.set_epoch).encode()


class Member:
    """A broker's membership, and what it told its broker."""

    def __init__(self, folder, controllers, *, address="10.1.2.3:10911", epoch=-1, disk=None, **settings):
        intact, doubtful = settings.pop("is_intact", False), settings.pop("is_doubtful", False)
        self.epoch, self.max_offset = epoch, settings.pop("max_offset", 0)
        settings = {"heartbeat_interval": 20, "poll_interval": 60, "leader_interval": 500} | settings
        config = FailoverConfig(controllers=";".join(controllers), **settings)
        self.live = LiveConfig.of(BrokerConfig(cluster_name="C", broker_name="b"), config)
        self.files = IdentityFiles(folder / "brokerIdentity", "C", "b", disk)
        self.client = RemotingClient()
        self.membership = Membership(
            self.client, self.live, self.files, self.standing, address=address, is_intact=intact
        )
        self.membership.is_doubtful = doubtful
        self.roles: list[Role] = []
        self.sets: list[InSyncSet] = []
        self.membership.role_changed = self._role_changed
        self.membership.in_sync_changed = self.sets.append
        self.running: asyncio.Task[None]

    def standing(self):
        return Standing(self.epoch, self.max_offset, self.max_offset)

    def _role_changed(self, role):
        self.roles.append(role)
        if role.master_id == self.membership.broker_id:
            self.epoch = role.epoch  # as a master writes it into its table

    @property
    def lease(self):
        return self.membership.lease

    def identity(self):
        return self.files.path.read_text() if self.files.path.exists() else None

    async def has_role(self):
        await until(lambda: self.roles)
        return self.roles[-1]

    async def has_lease(self):
        await until(self.lease.is_valid)

    async def has_problem(self, words):
        await until(lambda: self.membership.problem and words in self.membership.problem)

    async def is_well(self):
        await until(lambda: self.membership.problem is None)

    async def stop(self):
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


@contextlib.asynccontextmanager
async def member(folder, *controllers, **settings):
    """A membership that runs. `controllers` are addresses, or things that have one."""
    addresses = [getattr(controller, "address", controller) for controller in controllers]
    joining = Member(folder, addresses, **settings)
    async with joining.client:
        joining.running = asyncio.create_task(joining.membership.run())
        try:
            yield joining
        finally:
            failed = joining.running.done() and not joining.running.cancelled() and joining.running.exception()
            await joining.stop() if not failed else None
        if failed:
            raise failed
