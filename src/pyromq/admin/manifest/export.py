"""The topics and groups of a cluster as a file for `apply`, in as few entries as possible.

A topic that is the same on all masters is one entry without a place, so that the file suits another cluster; one that
is the same on all masters of a cluster names the cluster; otherwise each variant of its settings is an entry with the
brokers that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pyromq.client.admin.addresses import masters_in
from pyromq.client.admin.fan_out import fan_out
from pyromq.protocol.bodies import SubscriptionGroupConfig
from pyromq.protocol.names import is_system_group

from ..groups import settings as group_settings
from ..topic_kinds import TopicKind, names_of_servers, topic_kind
from ..topics import perm_text
from .apply import GroupWish, TopicWish, Wishes, ordered_topics, with_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.protocol.bodies import TopicConfig

WishT = TypeVar("WishT", TopicWish, GroupWish)
T = TypeVar("T")


async def cluster_metadata(admin: AdminClient, cluster: str | None = None, *, retry: bool = False) -> Wishes:
    """All user topics and groups of one cluster or all; `retry` adds the groups' own topics.

    A file without one broker's topics would look complete, so a silent master is an error: PartialFailure, or its own
    error if it is the only one.
    """
    info = await admin.brokers.cluster_info()
    masters = masters_in(info, cluster)
    topics = (await fan_out(masters, admin.topics.configs, "topics")).check()
    ordered = await ordered_topics(admin)
    groups = (await fan_out(masters, admin.groups.configs, "groups")).check()
    topics = {broker: with_order(configs, ordered) for broker, configs in topics.items()}
    servers = names_of_servers(info)
    kinds = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ) if retry else (TopicKind.NORMAL,)
    # For one cluster, an entry without a place means all its brokers, wherever it is applied.
    clusters = {} if cluster is not None else info.cluster_addr_table
    return Wishes(
        topics=[
            wish
            for name, by_broker in _by_name(topics)
            if topic_kind(name, servers) in kinds
            for wish in placed({broker: topic_wish(each) for broker, each in by_broker.items()}, clusters, masters)
        ],
        groups=[
            wish
            for name, by_broker in _by_name(groups)
            if not is_system_group(name)
            for wish in placed({broker: group_wish(each) for broker, each in by_broker.items()}, clusters, masters)
        ],
    )


def topic_wish(config: TopicConfig) -> TopicWish:
    """A topic as a file entry."""
    reads, writes = config.read_queue_nums, config.write_queue_nums
    return TopicWish(
        name=config.topic_name,
        queues=reads if reads == writes else None,
        read_queues=reads if reads != writes else None,
        write_queues=writes if reads != writes else None,
        perm=perm_text(config.perm),
        order=config.order,
        sys_flag=config.topic_sys_flag or None,
        attributes=config.attributes,
    )


def group_wish(config: SubscriptionGroupConfig) -> GroupWish:
    """A group as a file entry. Rarely used settings appear only if they differ from RocketMQ's defaults."""
    defaults = group_settings.named(SubscriptionGroupConfig(group_name=config.group_name), group_settings.RARE)
    rare = group_settings.named(config, group_settings.RARE)
    return GroupWish(
        name=config.group_name,
        **group_settings.named(config, group_settings.USUAL),
        **{name: value for name, value in rare.items() if value != defaults[name]},
    )


def placed(wishes: Mapping[str, WishT], clusters: Mapping[str, list[str]], masters: Mapping[str, str]) -> list[WishT]:
    """One name's settings by broker, as the fewest entries that say where each belongs."""
    kinds: dict[bytes, list[str]] = {}
    for broker, wish in sorted(wishes.items()):
        kinds.setdefault(msgspec.json.encode(wish), []).append(broker)
    return [
        msgspec.structs.replace(wishes[brokers[0]], **_place(brokers, clusters, masters)) for brokers in kinds.values()
    ]


def _place(brokers: list[str], clusters: Mapping[str, list[str]], masters: Mapping[str, str]) -> dict[str, Any]:
    if {*brokers} == {*masters}:
        return {}
    for cluster in sorted(clusters):
        if {*brokers} == {*clusters[cluster]} & {*masters}:
            return {"cluster": cluster}
    return {"brokers": brokers}


def _by_name(tables: Mapping[str, Mapping[str, T]]) -> list[tuple[str, dict[str, T]]]:
    """Configs by name, then by broker."""
    found: dict[str, dict[str, T]] = {}
    for broker, table in tables.items():
        for name, config in table.items():
            found.setdefault(name, {})[broker] = config
    return sorted(found.items())
