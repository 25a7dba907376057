"""The settings of all servers of a cluster, to be kept or compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..asking import fan_out
from ..partial import partly
from ..places import brokers_in

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient

    from ..listing import Missing


@dataclass(frozen=True, slots=True)
class ServerConfigs:
    """Settings by RocketMQ's keys. Name servers by their address; brokers by name, then by id, as 0 for the master."""

    name_servers: dict[str, dict[str, str]]
    brokers: dict[str, dict[int, dict[str, str]]]
    missing: tuple[Missing, ...] = ()


async def cluster_configs(admin: AdminClient, cluster: str | None = None) -> ServerConfigs:
    """Of every name server, and of every broker of a cluster or of all; who does not answer is missing."""
    info = await admin.brokers.cluster_info()
    brokers_in(info, cluster)  # raises for an unknown cluster
    names = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
    places = {
        f"{name} {broker_id}": (name, broker_id, address)
        for name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    }
    answers = await fan_out(places, lambda place: admin.brokers.config(place[2]))
    brokers: dict[str, dict[int, dict[str, str]]] = {}
    for label, config in answers.some().items():
        name, broker_id, _ = places[label]
        brokers.setdefault(name, {})[broker_id] = dict(sorted(config.items()))
    name_servers, silent = await partly(admin.namesrv.config())
    known = {address: dict(sorted(config.items())) for address, config in sorted(name_servers.items())}
    return ServerConfigs(known, brokers, answers.missing + silent)
