"""Every request code that a name server serves, and what holds for it by the code alone. One line per code.

Who serves it stands in `NameServer._processors`; a test walks both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.rights import SIGNED, Action, ResourceKind, cluster, every, topic
from pyromq.remoting import Admin, BodySize, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

# What changes a name server for good, and what only its neighbours may change without access control.
CHANGES = (
    Code.PUT_KV_CONFIG,
    Code.DELETE_KV_CONFIG,
    Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER,
    Code.DELETE_TOPIC_IN_NAMESRV,
)
# What brokers say of themselves. RocketMQ's do not sign it, or only since 5.x.
OF_BROKERS = (
    Code.REGISTER_BROKER,
    Code.UNREGISTER_BROKER,
    Code.BROKER_HEARTBEAT,
    Code.REGISTER_TOPIC_IN_NAMESRV,
)
ONLY_NEAR = (Code.UPDATE_NAMESRV_CONFIG,)

LISTS = every(ResourceKind.TOPIC, Action.LIST, Action.GET)

RULES: dict[int, Rule] = {
    Code.PUT_KV_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_KV_CONFIG: Rule(needs=cluster(Action.GET)),
    Code.DELETE_KV_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_KVLIST_BY_NAMESPACE: Rule(needs=cluster(Action.GET)),
    Code.REGISTER_BROKER: Rule(BodySize.FRAME, needs=cluster(Action.UPDATE)),
    Code.UNREGISTER_BROKER: Rule(needs=cluster(Action.UPDATE)),
    Code.QUERY_DATA_VERSION: Rule(needs=cluster(Action.GET)),
    Code.BROKER_HEARTBEAT: Rule(needs=cluster(Action.UPDATE)),
    Code.REGISTER_TOPIC_IN_NAMESRV: Rule(BodySize.LIST, needs=cluster(Action.UPDATE)),
    Code.GET_ROUTEINFO_BY_TOPIC: Rule(needs=topic(Action.PUB, Action.SUB, Action.GET)),
    Code.GET_BROKER_CLUSTER_INFO: Rule(needs=SIGNED),
    Code.GET_BROKER_MEMBER_GROUP: Rule(needs=cluster(Action.GET)),
    Code.WIPE_WRITE_PERM_OF_BROKER: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.ADD_WRITE_PERM_OF_BROKER: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.DELETE_TOPIC_IN_NAMESRV: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Rule(needs=LISTS),
    Code.GET_TOPICS_BY_CLUSTER: Rule(needs=LISTS),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Rule(needs=LISTS),
    Code.GET_UNIT_TOPIC_LIST: Rule(needs=LISTS),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: Rule(needs=LISTS),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Rule(needs=LISTS),
    Code.UPDATE_NAMESRV_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.STRICT),
    Code.GET_NAMESRV_CONFIG: Rule(needs=cluster(Action.GET), admin=Admin.STRICT),
}


def rules(*, known_brokers_only: bool) -> Mapping[int, Rule]:
    """The rules of one name server: whether brokers have to prove that they are ours is its choice."""
    if not known_brokers_only:
        return RULES
    return RULES | {code: replace(RULES[code], admin=Admin.ALWAYS) for code in OF_BROKERS}
