"""Every request code that a name server serves, and what holds for it by the code alone. One line per code.

Who serves it stands in `NameServer._processors`; a test walks both.
"""

from __future__ import annotations

from pyromq.protocol.codes import RequestCode as Code
from pyromq.remoting import BodySize, Rule

RULES: dict[int, Rule] = {
    Code.PUT_KV_CONFIG: Rule(),
    Code.GET_KV_CONFIG: Rule(),
    Code.DELETE_KV_CONFIG: Rule(),
    Code.GET_KVLIST_BY_NAMESPACE: Rule(),
    Code.REGISTER_BROKER: Rule(BodySize.FRAME),
    Code.UNREGISTER_BROKER: Rule(),
    Code.QUERY_DATA_VERSION: Rule(),
    Code.BROKER_HEARTBEAT: Rule(),
    Code.REGISTER_TOPIC_IN_NAMESRV: Rule(BodySize.LIST),
    Code.GET_ROUTEINFO_BY_TOPIC: Rule(),
    Code.GET_BROKER_CLUSTER_INFO: Rule(),
    Code.GET_BROKER_MEMBER_GROUP: Rule(),
    Code.WIPE_WRITE_PERM_OF_BROKER: Rule(),
    Code.ADD_WRITE_PERM_OF_BROKER: Rule(),
    Code.DELETE_TOPIC_IN_NAMESRV: Rule(),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Rule(),
    Code.GET_TOPICS_BY_CLUSTER: Rule(),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Rule(),
    Code.GET_UNIT_TOPIC_LIST: Rule(),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: Rule(),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Rule(),
    Code.UPDATE_NAMESRV_CONFIG: Rule(),
    Code.GET_NAMESRV_CONFIG: Rule(),
}
