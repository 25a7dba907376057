"""Controller mode: in-sync sets, elections, groups and epochs (docs/spec/controller.md 2)."""

from __future__ import annotations

from .base import I32, I64, Body, written
from .route import BrokerMemberGroup  # noqa: TC001 - a field


class SyncStateSet(Body, frozen=True, kw_only=True):
    """1001, 1003, 1004, 1008: the ids of the brokers that have all that is confirmed, in ascending order."""

    sync_state_set: list[I64] = written([])
    sync_state_set_epoch: I32 = written(0)


class ElectMasterResponseBody(Body, frozen=True, kw_only=True):
    """1002. The group is there if a new master was elected.

    Its integer keys are quoted, unlike RocketMQ's own: the `electMaster` of 5.5.0 cannot read the unquoted ones.
    """

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[I64] = written([])


class ReplicaIdentity(Body, frozen=True, kw_only=True):
    """One broker of a group. `doubtful` is ours, left out if it is not so: its log may lack what it acknowledged."""

    alive: bool = written(False)
    broker_address: str = written("")
    broker_id: I64 = written(0)
    broker_name: str = written("")
    doubtful: bool = False


class ReplicasInfo(Body, frozen=True, kw_only=True):
    """One group. The master's id and address are absent while there is none."""

    in_sync_replicas: list[ReplicaIdentity] = written([])
    master_address: str | None = None
    master_broker_id: I64 | None = None
    master_epoch: I32 = written(0)
    not_in_sync_replicas: list[ReplicaIdentity] = written([])
    sync_state_set_epoch: I32 = written(0)


class BrokerReplicasInfo(Body, frozen=True, kw_only=True):
    """1006: groups by broker name; unknown ones are left out."""

    replicas_info_table: dict[str, ReplicasInfo] = written({})


class EpochEntry(Body, frozen=True, kw_only=True):
    """The range of the commit log that one master wrote; the last one's end is 2^63 - 1."""

    end_offset: I64 = written(2**63 - 1)
    epoch: I32 = written(0)
    start_offset: I64 = written(0)


class EpochEntryCache(Body, frozen=True, kw_only=True):
    """1007: a broker's epochs. `broker_id` is 0 on the master."""

    broker_id: I64 = written(0)
    broker_name: str = written("")
    cluster_name: str = written("")
    epoch_list: list[EpochEntry] = written([])
    max_offset: I64 = written(0)
