"""The requests of a controller: each code is one entry in a table and one short function.

A function reads the header, asks for a verdict when the group's turn comes, and answers once the decision is durable
(docs/spec/controller.md 2).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from pyromq.errors import MissingField, NotLeader, RemoteProtocolError, ServerError
from pyromq.protocol import fastjson
from pyromq.protocol.bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    AlterSyncStateSet,
    AlterSyncStateSetReply,
    ApplyBrokerId,
    ApplyBrokerIdReply,
    BrokerHeartbeat,
    CleanBrokerData,
    ControllerRegisterBroker,
    ControllerRegisterBrokerReply,
    ElectMaster,
    ElectMasterReply,
    GetMetadataInfoReply,
    GetNextBrokerId,
    GetNextBrokerIdReply,
    GetReplicaInfo,
    GetReplicaInfoReply,
)
from pyromq.remoting import with_body

from . import verdicts
from .liveness import DEFAULT_TIMEOUT, BrokerKey, standing_of
from .replicas import ElectMasterEvent
from .verdicts import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyromq.protocol.command import Command
    from pyromq.remoting import Connection, Processor

    from .config import LiveSettings
    from .decisions import Decisions, Turns
    from .election import Standing
    from .elections import Elections
    from .liveness import Liveness
    from .replicas import Group

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Callers give up after 3 s; by then it is too late to be of use.
_DECISION_TIMEOUT = 5.0


class BrokerProcessors:
    """Heartbeats, which every controller hears, and who leads, which every controller knows."""

    def __init__(
        self, decisions: Decisions, liveness: Liveness, settings: LiveSettings, clock: Callable[[], float]
    ) -> None:
        self._decisions = decisions
        self._liveness = liveness
        self._settings = settings
        self._clock = clock

    def table(self) -> dict[int, Processor]:
        return {
            RequestCode.BROKER_HEARTBEAT: _with_fields(self.heartbeat),
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata_info,
        }

    def heartbeat(self, connection: Connection, request: Command) -> Command:
        header = request.header(BrokerHeartbeat)
        cluster, name, address = header.cluster_name, header.broker_name, header.broker_addr
        if header.broker_id is None:
            return request.reply(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        timeout = (header.heartbeat_timeout_mills or 0) / 1000
        key = BrokerKey(cluster, name, header.broker_id)
        standing = standing_of(header.epoch, header.max_offset, header.election_priority, header.doubtful)
        timeout = timeout if timeout > 0 else DEFAULT_TIMEOUT
        was_doubtful = self._liveness.is_doubtful(key)
        if self._liveness.beat(key, connection, standing, timeout, self._clock()):
            logger.info("broker alive name=%s id=%d addr=%s cluster=%s", name, key.id, address, cluster)
            group = self._decisions.groups.get(name)
            if group is not None and standing.epoch > group.master_epoch:
                logger.error(
                    "broker %d of %s knows epoch %d, this controller only %d: what it keeps is not what brokers "
                    "obeyed before; they ignore it until its epochs are larger",
                    key.id,
                    name,
                    standing.epoch,
                    group.master_epoch,
                )
        if standing.doubtful and not was_doubtful:
            logger.warning(
                "broker %d of %s may lack acknowledged messages after a failure of its machine: it is elected only "
                "together with all others of its in-sync set, or by hand",
                key.id,
                name,
            )
        elif was_doubtful and not self._liveness.is_doubtful(key):
            logger.info("broker %d of %s lacks nothing any more", key.id, name)
        return request.reply(remark="Heart beat success")

    def metadata_info(self, connection: Connection, request: Command) -> Command:
        leader = self._decisions.leader
        header = GetMetadataInfoReply(
            group=self._settings.config.group,
            controller_leader_id=leader.id if leader is not None else None,
            controller_leader_address=leader.address if leader is not None else None,
            is_leader=self._decisions.is_leader,
            peers="".join(f"{peer.id}:{peer.address};" for peer in self._decisions.peers),
        )
        return request.reply(header=header)


class GroupProcessors:
    """What only the leader answers: groups, and every decision on them."""

    def __init__(self, decisions: Decisions, turns: Turns, elections: Elections, settings: LiveSettings) -> None:
        self._decisions = decisions
        self._turns = turns
        self._elections = elections
        self._settings = settings

    def table(self) -> dict[int, Processor]:
        served: dict[int, Processor] = {
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: with_body(SyncStateSet.decode, self.alter_sync_state_set),
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect_master,
            RequestCode.CONTROLLER_REGISTER_BROKER: self.register_broker,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: with_body(_names, self.sync_state_data),
            RequestCode.CLEAN_BROKER_DATA: self.clean_broker_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply_broker_id,
        }
        return {code: _with_fields(self._if_leader(processor)) for code, processor in served.items()}

    async def alter_sync_state_set(self, connection: Connection, request: Command, body: SyncStateSet) -> Command:
        header = request.header(AlterSyncStateSet)
        name, _, _ = header.broker_name, header.master_broker_id, header.master_epoch
        verdict, group = await self._decide(
            name, lambda group: verdicts.alter_sync_state_set(group, header, body, self._elections.standings(group))
        )
        if isinstance(verdict, Refusal):
            logger.warning("in-sync set of %s not changed for %s: %s", name, connection.peer, verdict.remark)
            return request.reply(verdict.code, verdict.remark, header=AlterSyncStateSetReply())
        assert group is not None
        logger.info("in-sync set changed name=%s set=%s epoch=%d", name, group.in_sync, group.set_epoch)
        return request.reply(header=AlterSyncStateSetReply(group.set_epoch), body=_set_of(group))

    async def elect_master(self, connection: Connection, request: Command) -> Command:
        header = request.header(ElectMaster)
        name, asker, designate, _ = (
            header.broker_name,
            header.broker_id,
            header.designate_elect,
            header.cluster_name,
        )
        unclean = self._settings.config.enable_elect_unclean_master
        verdict, group = await self._decide(
            name,
            lambda group: verdicts.elect_master(
                group, asker, self._elections.standings(group), designate=designate, unclean=unclean
            ),
        )
        if isinstance(verdict, ElectMasterEvent) and group is not None:
            self._elections.told(verdict, group)
            if verdict.new_master_elected:
                return request.reply(header=_master_of(group), body=_elected_in(group, with_members=True))
            remark = "Old master has down and failed to elect a new broker master"
            return request.reply(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, remark)
        assert isinstance(verdict, Refusal)
        if verdict.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and group is not None:
            body = _elected_in(group, with_members=False)
            return request.reply(verdict.code, verdict.remark, header=_master_of(group), body=body)
        logger.warning("no master elected for %s, asked by %s: %s", name, connection.peer, verdict.remark)
        return request.reply(verdict.code, verdict.remark)

    async def register_broker(self, connection: Connection, request: Command) -> Command:
        header = request.header(ControllerRegisterBroker)
        name, broker_id, address = header.broker_name, header.broker_id, header.broker_address
        reply = ControllerRegisterBrokerReply(header.cluster_name, name)
        before: Group | None = None

        def verdict_on(group: Group | None) -> object:
            nonlocal before
            before = group
            return verdicts.register_broker(group, header)

        verdict, _ = await self._decide(name, verdict_on)
        if isinstance(verdict, Refusal):
            return request.reply(verdict.code, verdict.remark, header=reply)
        assert before is not None
        logger.info("broker registered name=%s id=%d addr=%s", name, broker_id, address)
        if before.master in self._elections.standings(before):
            master = _master_of(before)
            reply.master_broker_id, reply.master_address = master.master_broker_id, master.master_address
            reply.master_epoch, reply.sync_state_set_epoch = master.master_epoch, master.sync_state_set_epoch
        return request.reply(header=reply, body=_set_of(before))

    def replica_info(self, connection: Connection, request: Command) -> Command:
        asked = request.header(GetReplicaInfo)
        group = self._decisions.groups.get(asked.broker_name)
        if group is None:
            remark = "Broker metadata is not existed"
            return request.reply(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark)
        master = group.address_of(group.master)
        header = GetReplicaInfoReply(group.master_epoch, group.master, master, asked.doubtful)
        return request.reply(header=header, body=_set_of(group))

    def sync_state_data(self, connection: Connection, request: Command, names: list[str]) -> Command:
        known = self._decisions.groups
        groups = [known[name] for name in names if name in known]
        table = {group.name: _replicas(group, self._elections.standings(group)) for group in groups}
        return request.reply(body=BrokerReplicasInfo(replicas_info_table=table).encode())

    async def clean_broker_data(self, connection: Connection, request: Command) -> Command:
        header = request.header(CleanBrokerData)
        name = header.broker_name
        verdict, _ = await self._decide(
            name,
            lambda group: verdicts.clean_broker_data(
                group, header, lambda broker_id: self._elections.is_alive(header.cluster_name or "", name, broker_id)
            ),
        )
        if isinstance(verdict, Refusal):
            return request.reply(verdict.code, verdict.remark)
        ids = header.broker_controller_ids_to_clean or "all"
        logger.warning("brokers removed by %s name=%s ids=%s", connection.peer, name, ids)
        return request.reply()

    def next_broker_id(self, connection: Connection, request: Command) -> Command:
        header = request.header(GetNextBrokerId)
        following = verdicts.next_broker_id(self._decisions.groups.get(header.broker_name))
        return request.reply(header=GetNextBrokerIdReply(following, header.cluster_name, header.broker_name))

    async def apply_broker_id(self, connection: Connection, request: Command) -> Command:
        header = request.header(ApplyBrokerId)
        name, broker_id, code = header.broker_name, header.applied_broker_id, header.register_check_code
        verdict, _ = await self._decide(name, lambda group: verdicts.apply_broker_id(group, header))
        reply = ApplyBrokerIdReply(header.cluster_name, name)
        if isinstance(verdict, Refusal):
            return request.reply(verdict.code, verdict.remark, header=reply)
        if verdict is not None:
            logger.info("broker id given name=%s id=%d to %s", name, broker_id, code.partition(";")[0])
        return request.reply(header=reply)

    async def _decide(self, name: str, verdict: Callable[[Group | None], T]) -> tuple[T, Group | None]:
        try:
            async with asyncio.timeout(_DECISION_TIMEOUT):
                return await self._turns.decide(name, verdict)
        except TimeoutError:
            raise ServerError(f"no decision on {name} within {_DECISION_TIMEOUT:g} s") from None

    def _if_leader(self, processor: Processor) -> Processor:
        def serve(connection: Connection, request: Command) -> Command | Awaitable[Command | None] | None:
            if not self._decisions.is_leader:
                raise NotLeader("The controller is not in leader state")
            return processor(connection, request)

        return serve


def _names(content: bytes) -> list[str]:
    """The broker names that are asked for, each once."""
    names = fastjson.loads(content) if content else None
    if not names:
        raise ServerError("not set any response code")
    if not isinstance(names, list):
        raise RemoteProtocolError("the body must be a list of broker names")
    return [*dict.fromkeys(map(str, names))]


def _with_fields(processor: Processor) -> Processor:
    """Name a missing field as RocketMQ does."""

    def serve(connection: Connection, request: Command) -> Command | Awaitable[Command | None] | None:
        try:
            result = processor(connection, request)
        except MissingField as exc:
            raise _is_null(exc) from exc
        return _awaited(result) if asyncio.iscoroutine(result) else result

    return functools.wraps(processor)(serve)


async def _awaited(result: Awaitable[Command | None]) -> Command | None:
    try:
        return await result
    except MissingField as exc:
        raise _is_null(exc) from exc


def _is_null(exc: MissingField) -> ServerError:
    return ServerError(f"the custom field <{exc.field}> is null")


def _set_of(group: Group) -> bytes:
    return SyncStateSet(sync_state_set=group.in_sync, sync_state_set_epoch=group.set_epoch).encode()


def _master_of(group: Group) -> ElectMasterReply:
    return ElectMasterReply(group.master, group.address_of(group.master), group.master_epoch, group.set_epoch)


def _elected_in(group: Group, *, with_members: bool) -> bytes:
    addresses = {broker_id: member.address for broker_id, member in group.members.items()}
    members = BrokerMemberGroup(broker_addrs=addresses, broker_name=group.name, cluster=group.cluster)
    body = ElectMasterResponseBody(broker_member_group=members if with_members else None, sync_state_set=group.in_sync)
    return body.encode()


def _replicas(group: Group, alive: Mapping[int, Standing]) -> ReplicasInfo:
    brokers = [
        ReplicaIdentity(
            alive=broker_id in alive,
            broker_address=member.address,
            broker_id=broker_id,
            broker_name=group.name,
            doubtful=broker_id in alive and alive[broker_id].doubtful,
        )
        for broker_id, member in group.members.items()
    ]
    return ReplicasInfo(
        in_sync_replicas=[broker for broker in brokers if broker.broker_id in group.sync_state_set],
        master_address=group.address_of(group.master),
        master_broker_id=group.master,
        master_epoch=group.master_epoch,
        not_in_sync_replicas=[broker for broker in brokers if broker.broker_id not in group.sync_state_set],
        sync_state_set_epoch=group.set_epoch,
    )
