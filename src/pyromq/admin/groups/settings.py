"""The settings of groups, under the names used in options and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ..listing import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import SubscriptionGroupConfig

# The settings people see, and those they mostly leave alone, by RocketMQ's names.
USUAL = {
    "consume": "consume_enable",
    "from_min": "consume_from_min_enable",
    "broadcast": "consume_broadcast_enable",
    "orderly": "consume_message_orderly",
    "retry_queues": "retry_queue_nums",
    "retry_max": "retry_max_times",
}
RARE = {
    "retry_policy": "group_retry_policy",
    "broker_id": "broker_id",
    "slow_broker_id": "which_broker_when_consume_slowly",
    "notify": "notify_consumer_ids_changed_enable",
    "timeout_minutes": "consume_timeout_minute",
    "sys_flag": "group_sys_flag",
}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group on one broker."""

    broker: str
    consume: bool
    from_min: bool
    broadcast: bool
    orderly: bool
    retry_queues: int
    retry_max: int
    broker_id: int
    slow_broker_id: int
    notify: bool
    attributes: dict[str, str] = field(metadata={"hidden": True})


def said(settings: object) -> dict[str, Any]:
    """The settings of an object with our names as attributes, by RocketMQ's names; None means not set."""
    given = {wire: getattr(settings, name, None) for name, wire in (USUAL | RARE).items()}
    return {wire: value for wire, value in given.items() if value is not None}


def named(config: SubscriptionGroupConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a group by our names."""
    return {name: getattr(config, wire) for name, wire in names.items()}


async def group_settings(admin: AdminClient, group: str, cluster: str | None = None) -> Listing[GroupSettings]:
    """The settings of a group on every broker. Raises SubscriptionGroupNotExist."""
    shown = {name: wire for name, wire in (USUAL | RARE).items() if name in GroupSettings.__dataclass_fields__}
    rows = [
        GroupSettings(broker=address, attributes=config.attributes, **named(config, shown))
        for address, config in sorted((await admin.groups.config(group, cluster)).items())
    ]
    return Listing.make(GroupSettings, rows)


async def group_configs(
    admin: AdminClient, group: str, *, cluster: str | None = None, brokers: list[str] | None = None
) -> dict[str, SubscriptionGroupConfig]:
    """A group's settings wherever it exists: on some brokers, in a cluster, or anywhere. SubscriptionGroupNotExist."""
    known = await admin.groups.config(group, cluster)
    if not brokers:
        return known
    named = {each: (await admin.groups.configs(each)).get(group) for each in brokers}
    return {each: config for each, config in named.items() if config is not None}


async def update_group(
    admin: AdminClient, configs: Mapping[str, SubscriptionGroupConfig], changes: Mapping[str, Any]
) -> None:
    """Change some settings of a group on these brokers and keep the others."""
    for address, config in configs.items():
        await admin.groups.create(msgspec.structs.replace(config, **changes), brokers=[address])
