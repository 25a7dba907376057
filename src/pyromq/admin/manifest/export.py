"""The topics and groups of a cluster as a file for `apply`: what they are, in as few entries as say all of it.

A topic that is the same on all masters is one entry without a place, so that the file suits another cluster; one that
is the same on those of a cluster names the cluster; otherwise there is an entry for each kind of settings, with the
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
    """All topics and groups of people, of one cluster or of all; with `retry` the topics of groups, too.

    A file that lacks what one broker has would look complete, so a master that does not answer is an error:
    PartialFailure, or that of the only one.
    """
    info = await admin.brokers.cluster_info()
    masters = masters_in(info, cluster)
    topics = (await fan_out(masters, admin.topics.configs, "topics")).check()
    ordered = await ordered_topics(admin)
    groups = (await fan_out(masters, admin.groups.configs, "groups")).check()
    topics = {broker: with_order(configs, ordered) for broker, configs in topics.items()}
    servers = names_of_servers(info)
    kinds = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ) if retry else (TopicKind.NORMAL,)
    # Asked for one cluster, a wish without a place means all of its brokers, wherever it is carried out.
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
    """A topic as a file says it."""
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
    """A group as a file says it. Of what hardly anybody touches only that is said which is not RocketMQ's own."""
    defaults = group_settings.named(SubscriptionGroupConfig(group_name=config.group_name), group_settings.RARE)
    rare = group_settings.named(config, group_settings.RARE)
    return GroupWish(
        name=config.group_name,
        **group_settings.named(config, group_settings.USUAL),
        **{name: value for name, value in rare.items() if value != defaults[name]},
    )


def placed(wishes: Mapping[str, WishT], clusters: Mapping[str, list[str]], masters: Mapping[str, str]) -> list[WishT]:
    """The wishes of one name, by broker, as the fewest entries that say where each belongs."""
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
    """Configs by broker, by the name that they have there."""
    found: dict[str, dict[str, T]] = {}
    for broker, table in tables.items():
        for name, config in table.items():
            found.setdefault(name, {})[broker] = config
    return sorted(found.items())
