"""What a caller of these operations needs of the client: an admin client, one deadline, and who did not answer."""

from __future__ import annotations

from pyromq.client import Client
from pyromq.client.admin import AdminClient
from pyromq.client.admin.addresses import brokers_in, masters_in, replicas
from pyromq.client.admin.fan_out import Missing, fan_out, partly, within
from pyromq.client.admin.times import from_millis, to_millis
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, TRACE_TOPIC, dlq_topic, is_system_group, retry_topic

__all__ = [
    "DLQ_PREFIX",
    "RETRY_PREFIX",
    "TRACE_TOPIC",
    "AdminClient",
    "Client",
    "Missing",
    "brokers_in",
    "dlq_topic",
    "fan_out",
    "from_millis",
    "is_system_group",
    "masters_in",
    "partly",
    "replicas",
    "retry_topic",
    "to_millis",
    "within",
]
