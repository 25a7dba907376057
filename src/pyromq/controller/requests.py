"""Every request code that a controller serves, and what holds for it by the code alone. One line per code.

Who serves it stands in `Controller._processors`; a test walks both.
"""

from __future__ import annotations

from pyromq.protocol.codes import RequestCode as Code
from pyromq.protocol.rights import OPEN, Action, cluster
from pyromq.remoting import Admin, BodySize, Rule

# RocketMQ 4.x has no controllers, so `aclStrict=false` has nothing to go back to. Brokers sign as administrators.
RULES: dict[int, Rule] = {
    Code.BROKER_HEARTBEAT: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.CONTROLLER_ELECT_MASTER: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.CONTROLLER_REGISTER_BROKER: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.CONTROLLER_GET_REPLICA_INFO: Rule(needs=cluster(Action.GET)),
    Code.CONTROLLER_GET_METADATA_INFO: Rule(needs=OPEN),
    Code.CONTROLLER_GET_SYNC_STATE_DATA: Rule(BodySize.LIST, needs=cluster(Action.GET)),
    Code.UPDATE_CONTROLLER_CONFIG: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.GET_CONTROLLER_CONFIG: Rule(needs=cluster(Action.GET), admin=Admin.ALWAYS),
    Code.CLEAN_BROKER_DATA: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
    Code.CONTROLLER_GET_NEXT_BROKER_ID: Rule(needs=cluster(Action.GET)),
    Code.CONTROLLER_APPLY_BROKER_ID: Rule(needs=cluster(Action.UPDATE), admin=Admin.ALWAYS),
}
