"""What is decided about one broker name: its brokers, its master, its in-sync set, and the events that change them.

A group is a value and an event makes the next one, so whoever keeps events (`journal`) or groups (etcd) comes to the
same state. Events carry no epochs: each event counts them on (docs/spec/controller.md 3.1, 3.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_ID = 1


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """A broker. By its check code it proves that an id was given to it and not to another."""

    address: str
    check_code: str


class Group(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The brokers of one broker name. `master` is None before the first election and after one that found nobody."""

    cluster: str
    name: str
    members: dict[int, Member] = msgspec.field(default_factory=dict)
    next_id: int = FIRST_ID
    master: int | None = None
    master_epoch: int = 0
    sync_state_set: frozenset[int] = frozenset()
    set_epoch: int = 0

    def address_of(self, broker_id: int | None) -> str | None:
        """The address of a member; None if there is none of this id."""
        member = self.members.get(broker_id) if broker_id is not None else None
        return member.address if member is not None else None

    @property
    def in_sync(self) -> list[int]:
        """The in-sync set, in order."""
        return sorted(self.sync_state_set)


class Event(msgspec.Struct, frozen=True, rename="camel", tag_field="eventType"):
    """A decision about one group. The JSON is RocketMQ's."""

    broker_name: str

    def applied_to(self, group: Group | None) -> Group | None:
        """The group after this event; None if none is left. An event for a group that is not there changes nothing."""
        raise NotImplementedError


class AlterSyncStateSetEvent(Event, frozen=True, tag="ALTER_SYNC_STATE_SET_EVENT"):
    new_sync_state_set: frozenset[int]

    def applied_to(self, group: Group | None) -> Group | None:
        if group is None:
            return None
        return _replace(group, sync_state_set=self.new_sync_state_set, set_epoch=group.set_epoch + 1)


class ApplyBrokerIdEvent(Event, frozen=True, tag="APPLY_BROKER_ID_EVENT"):
    """The first one makes the group."""

    cluster_name: str
    broker_address: str
    new_broker_id: int
    register_check_code: str

    def applied_to(self, group: Group | None) -> Group | None:
        if group is None:
            group = Group(cluster=self.cluster_name, name=self.broker_name)
        if self.new_broker_id in group.members:
            return group
        member = Member(self.broker_address, self.register_check_code)
        members = dict(sorted({**group.members, self.new_broker_id: member}.items()))
        # Not one more per member, as RocketMQ counts: that may lead to a taken id.
        return _replace(group, members=members, next_id=max(group.next_id, self.new_broker_id + 1))


class ElectMasterEvent(Event, frozen=True, tag="ELECT_MASTER_EVENT"):
    """A new master, alone in the in-sync set; or nobody, then the set stays, since only its members have all data."""

    new_master_broker_id: int | None = None
    new_master_elected: bool = True

    def applied_to(self, group: Group | None) -> Group | None:
        if group is None:
            return None
        epoch = group.master_epoch + 1
        if not self.new_master_elected or self.new_master_broker_id is None:
            return _replace(group, master=None, master_epoch=epoch)
        return _replace(
            group,
            master=self.new_master_broker_id,
            master_epoch=epoch,
            sync_state_set=frozenset({self.new_master_broker_id}),
            set_epoch=group.set_epoch + 1,
        )


class CleanBrokerDataEvent(Event, frozen=True, tag="CLEAN_BROKER_DATA_EVENT"):
    """Remove these ids, or the whole group if there are none. A group without members disappears."""

    broker_id_set_to_clean: frozenset[int] = frozenset()

    def applied_to(self, group: Group | None) -> Group | None:
        if group is None or not self.broker_id_set_to_clean:
            return None
        members = {key: member for key, member in group.members.items() if key not in self.broker_id_set_to_clean}
        if not members:
            return None
        left = group.sync_state_set - self.broker_id_set_to_clean
        # RocketMQ keeps the epoch, so a master never learns that the set became smaller and waits for the lost one.
        changed = left != group.sync_state_set
        master = None if group.master in self.broker_id_set_to_clean else group.master
        return _replace(
            group, members=members, master=master, sync_state_set=left, set_epoch=group.set_epoch + int(changed)
        )


class UpdateBrokerAddressEvent(Event, frozen=True, tag="UPDATE_BROKER_ADDRESS"):
    cluster_name: str
    broker_address: str
    broker_id: int

    def applied_to(self, group: Group | None) -> Group | None:
        if group is None or self.broker_id not in group.members:
            return group
        member = Member(self.broker_address, group.members[self.broker_id].check_code)
        return _replace(group, members={**group.members, self.broker_id: member})


AnyEvent = (
    AlterSyncStateSetEvent | ApplyBrokerIdEvent | ElectMasterEvent | CleanBrokerDataEvent | UpdateBrokerAddressEvent
)


def apply(groups: dict[str, Group], event: Event) -> Group | None:
    """Let an event change `groups`; returns the group that it left, if any."""
    group = event.applied_to(groups.get(event.broker_name))
    put(groups, event.broker_name, group)
    return group


def put(groups: dict[str, Group], name: str, group: Group | None) -> None:
    """Make `group` what is known of a broker name; None forgets it."""
    if group is None:
        groups.pop(name, None)
    else:
        groups[name] = group


def epochs(groups: Mapping[str, Group], name: str) -> tuple[int, int]:
    """The master's epoch and the set's of a group; zeros if there is none."""
    group = groups.get(name)
    return (group.master_epoch, group.set_epoch) if group is not None else (0, 0)


def _replace(group: Group, **changes: Any) -> Group:
    return msgspec.structs.replace(group, **changes)
