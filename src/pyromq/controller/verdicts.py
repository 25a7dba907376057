"""What a controller decides on a request: an event, or a refusal with RocketMQ's code and words.

Pure: a group (None if it is unknown), the request and who is alive go in; nothing is changed. Checks stand in the order
in which RocketMQ makes them, since the first one that fails is the answer (docs/spec/controller.md 2.3 to 2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyromq.protocol.codes import ResponseCode

from .election import elected
from .replicas import (
    FIRST_ID,
    AlterSyncStateSetEvent,
    ApplyBrokerIdEvent,
    CleanBrokerDataEvent,
    ElectMasterEvent,
    UpdateBrokerAddressEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from pyromq.protocol.bodies import SyncStateSet
    from pyromq.protocol.headers import (
        AlterSyncStateSet,
        ApplyBrokerId,
        CleanBrokerData,
        ControllerRegisterBroker,
    )

    from .election import Standing
    from .replicas import Group

# `brokerId` of an election that the controller itself starts.
NOBODY = -1
_MAX_ID = 2**63 - 2


class Refusal(NamedTuple):
    """Nothing is changed, and this is why."""

    code: int
    remark: str


def alter_sync_state_set(
    group: Group | None, request: AlterSyncStateSet, body: SyncStateSet, alive: Container[int]
) -> AlterSyncStateSetEvent | Refusal:
    """1001: the master wants another in-sync set."""
    code = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if group is None:
        return Refusal(code, "Broker metadata is not existed")
    wanted = frozenset(body.sync_state_set)
    if wanted == group.sync_state_set:
        return Refusal(code, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet")
    rejecting = "Rejecting alter syncStateSet request because the"
    if group.master is None or group.master != request.master_broker_id:
        current = "null" if group.master is None else group.master
        remark = f"{rejecting} current leader is:{{{current}}}, not {{{request.master_broker_id}}}"
        return Refusal(ResponseCode.CONTROLLER_INVALID_MASTER, remark)
    if group.master_epoch != request.master_epoch:
        remark = f"{rejecting} current master epoch is:{{{group.master_epoch}}}, not {{{request.master_epoch}}}"
        return Refusal(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, remark)
    if group.set_epoch != body.sync_state_set_epoch:
        remark = f"{rejecting} current syncStateSet epoch is:{{{group.set_epoch}}}, not {{{body.sync_state_set_epoch}}}"
        return Refusal(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, remark)
    for broker_id in sorted(wanted):
        if broker_id not in group.members:
            remark = f"{rejecting} replicas {{{broker_id}}} don't exist"
            return Refusal(ResponseCode.CONTROLLER_INVALID_REPLICAS, remark)
        if broker_id not in alive:
            remark = f"{rejecting} replicas {{{broker_id}}} don't alive"
            return Refusal(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, remark)
    if group.master not in wanted:
        return Refusal(code, f"{rejecting} newSyncStateSet don't contains origin leader {{{group.master}}}")
    return AlterSyncStateSetEvent(broker_name=group.name, new_sync_state_set=wanted)


def elect_master(
    group: Group | None,
    broker_id: int,
    alive: Mapping[int, Standing],
    *,
    designate: bool = False,
    unclean: bool = False,
) -> ElectMasterEvent | Refusal:
    """1002, and the controller's own elections, whose `broker_id` is NOBODY.

    Only those record that there is no master; an asker who finds nobody changes nothing.
    """
    if group is None:
        return Refusal(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered")
    new: int | None
    if group.master_epoch == 0 and broker_id in group.members:
        # There never was a master, so nobody has anything to lose.
        new = broker_id
    else:
        new = elected(
            group.sync_state_set,
            alive,
            old_master=group.master,
            designated=broker_id if designate else None,
            unclean=group.members if unclean else (),
        )
    if new is None:
        if broker_id == NOBODY:
            return ElectMasterEvent(broker_name=group.name, new_master_elected=False)
        remark = f"Failed to elect a new master{_because_of_doubt(group, alive)}"
        return Refusal(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
    if new == group.master and not alive[new].doubtful:
        remark = f"The old master {new} is still alive, not need to elect new master for broker {group.name}"
        return Refusal(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, remark)
    return ElectMasterEvent(broker_name=group.name, new_master_broker_id=new)


def _because_of_doubt(group: Group, alive: Mapping[int, Standing]) -> str:
    doubtful = [broker_id for broker_id in group.in_sync if broker_id in alive and alive[broker_id].doubtful]
    away = [broker_id for broker_id in group.in_sync if broker_id not in alive]
    if not doubtful or not away:
        return ""
    lacking, having = (", ".join(map(str, ids)) for ids in (doubtful, away))
    return f": broker {lacking} may lack acknowledged messages, and broker {having}, which may have them, is not alive"


def register_broker(
    group: Group | None, request: ControllerRegisterBroker
) -> UpdateBrokerAddressEvent | Refusal | None:
    """1003: a broker starts. None if its address is the one we know."""
    code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if group is None:
        return Refusal(code, f"Broker-set: {request.broker_name} hasn't been registered in controller")
    if request.broker_id not in group.members:
        return Refusal(
            code, f"BrokerId: {request.broker_id} hasn't been registered in broker-set: {request.broker_name}"
        )
    if group.address_of(request.broker_id) == request.broker_address:
        return None
    return UpdateBrokerAddressEvent(
        broker_name=group.name,
        cluster_name=group.cluster,
        broker_address=request.broker_address,
        broker_id=request.broker_id,
    )


def next_broker_id(group: Group | None) -> int:
    """1012: an id that was never given. It is not reserved: 1013 decides."""
    return FIRST_ID if group is None else group.next_id


def apply_broker_id(group: Group | None, request: ApplyBrokerId) -> ApplyBrokerIdEvent | Refusal | None:
    """1013: a broker takes an id. None if it has it already: a repeated request does no harm."""
    code = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    name, broker_id = request.broker_name, request.applied_broker_id
    if group is None and broker_id != FIRST_ID:
        return Refusal(
            code,
            f"Broker-set: {name} hasn't been registered in controller, but broker try to apply brokerId: {broker_id}",
        )
    member = group.members.get(broker_id) if group is not None else None
    if member is not None and member.check_code == request.register_check_code:
        return None
    # 0 is the master's id in routes, and some id has to follow.
    if member is not None or not FIRST_ID <= broker_id <= _MAX_ID:
        return Refusal(code, f"Fail to apply brokerId: {broker_id} in broker-set: {name}")
    return ApplyBrokerIdEvent(
        broker_name=name,
        cluster_name=request.cluster_name or "",
        broker_address=request.register_check_code.partition(";")[0],
        new_broker_id=broker_id,
        register_check_code=request.register_check_code,
    )


def clean_broker_data(
    group: Group | None, request: CleanBrokerData, is_alive: Callable[[int], bool]
) -> CleanBrokerDataEvent | Refusal | None:
    """1011: forget brokers, or a whole group. None if the ids are unknown anyway.

    RocketMQ ignores the list when living brokers may be cleaned, and so removes everybody; we take it at its word.
    """
    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    name = request.broker_name
    listed = (request.broker_controller_ids_to_clean or "").strip()
    if not listed and not request.is_clean_living_broker and group is not None and group.master is not None:
        return Refusal(code, f"Broker {name} is still alive, clean up failure")
    ids: set[int] = set()
    for text in listed.split(";") if listed else ():
        try:
            ids.add(int(text))
        except ValueError:
            remark = "Please set the option <brokerControllerIdsToClean> according to the format, exception: "
            return Refusal(code, f'{remark}For input string: "{text}"')
    if not request.is_clean_living_broker:
        for broker_id in sorted(ids):
            if is_alive(broker_id):
                return Refusal(code, f"Broker [{name},  {broker_id}] is still alive, clean up failure")
    if group is None:
        return Refusal(code, f"Broker {name} is not existed,clean broker data failure.")
    if group.master in ids:
        return Refusal(code, f"Broker [{name},  {group.master}] is the master, clean up failure")
    if ids and not ids & group.members.keys():
        return None
    return CleanBrokerDataEvent(broker_name=name, broker_id_set_to_clean=frozenset(ids))
