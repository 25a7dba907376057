"""Headers of controller mode: brokers and tools to a controller, a controller to brokers (docs/spec/controller.md 2).

904 of brokers is `BrokerHeartbeat`, the same as at a name server; in it a controller finds the last five fields too.
`invoke_time` is the sender's clock in milliseconds; nothing evaluates it.
"""

from __future__ import annotations

from ..header import I32, I64, Header


class AlterSyncStateSet(Header):
    """1001, with the wanted set and the current set's epoch as body"""

    broker_name: str
    master_broker_id: I64
    master_epoch: I32
    invoke_time: I64 | None = None


class AlterSyncStateSetReply(Header):
    """0 in a refusal."""

    new_sync_state_set_epoch: I32 = 0


class ElectMaster(Header):
    """1002. A tool sets `designate_elect`: `broker_id` shall be master. A broker that looks for a master does not."""

    cluster_name: str
    broker_name: str
    broker_id: I64
    designate_elect: bool
    invoke_time: I64 | None = None


class ElectMasterReply(Header):
    """All of them with codes 0 and 2011, none otherwise."""

    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class ControllerRegisterBroker(Header):
    """1003"""

    broker_name: str
    broker_id: I64
    broker_address: str
    cluster_name: str | None = None
    invoke_time: I64 | None = None


class ControllerRegisterBrokerReply(Header):
    """The last four only if there is a master and it is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: I64 | None = None
    master_address: str | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class GetReplicaInfo(Header):
    """1004. `doubtful` is ours: a broker in doubt about its log says so, and who knows what it means says it back."""

    broker_name: str
    doubtful: bool | None = None


class GetReplicaInfoReply(Header):
    """The master only while there is one, alive or not."""

    master_epoch: I32
    master_broker_id: I64 | None = None
    master_address: str | None = None
    doubtful: bool | None = None


class GetMetadataInfoReply(Header):
    """1005. `peers` is `id:host:port;` for each controller. The leader's fields are absent while it is unknown."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class NotifyBrokerRoleChanged(Header):
    """1008, from a controller to brokers"""

    master_address: str | None = None
    master_broker_id: I64 | None = None
    master_epoch: I32 | None = None
    sync_state_set_epoch: I32 | None = None


class CleanBrokerData(Header):
    """1011. `broker_controller_ids_to_clean` is `1;2`; without it the whole group goes."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: I64 | None = None


class GetNextBrokerId(Header):
    """1012"""

    broker_name: str
    cluster_name: str | None = None


class GetNextBrokerIdReply(Header):
    next_broker_id: I64
    cluster_name: str | None = None
    broker_name: str | None = None


class ApplyBrokerId(Header):
    """1013. `register_check_code` is `address;milliseconds` and tells a repeated request from another broker's."""

    broker_name: str
    applied_broker_id: I64
    register_check_code: str
    cluster_name: str | None = None


class ApplyBrokerIdReply(Header):
    cluster_name: str | None = None
    broker_name: str | None = None
