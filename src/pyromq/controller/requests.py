"""Every request code that a controller serves, and what holds for it by the code alone. One line per code.

Who serves it stands in `Controller._processors`; a test walks both.
"""

from __future__ import annotations

from pyromq.protocol.codes import RequestCode as Code
from pyromq.remoting import BodySize, Rule

RULES: dict[int, Rule] = {
    Code.BROKER_HEARTBEAT: Rule(),
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: Rule(),
    Code.CONTROLLER_ELECT_MASTER: Rule(),
    Code.CONTROLLER_REGISTER_BROKER: Rule(),
    Code.CONTROLLER_GET_REPLICA_INFO: Rule(),
    Code.CONTROLLER_GET_METADATA_INFO: Rule(),
    Code.CONTROLLER_GET_SYNC_STATE_DATA: Rule(BodySize.LIST),
    Code.UPDATE_CONTROLLER_CONFIG: Rule(),
    Code.GET_CONTROLLER_CONFIG: Rule(),
    Code.CLEAN_BROKER_DATA: Rule(),
    Code.CONTROLLER_GET_NEXT_BROKER_ID: Rule(),
    Code.CONTROLLER_APPLY_BROKER_ID: Rule(),
}
