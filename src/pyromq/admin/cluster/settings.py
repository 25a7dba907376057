"""The settings of all servers of a cluster, to keep or compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import replicas
from pyromq.client.admin.fan_out import fan_out, partly

if TYPE_CHECKING:
    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.fan_out import Missing


@dataclass(frozen=True, slots=True)
class ServerConfigs:
    """Settings by RocketMQ's keys: name servers by address; brokers by name, then by id, 0 being the master."""

    name_servers: dict[str, dict[str, str]]
    brokers: dict[str, dict[int, dict[str, str]]]
    missing: tuple[Missing, ...] = ()


async def cluster_configs(admin: AdminClient, cluster: str | None = None) -> ServerConfigs:
    """The settings of every name server and of every broker of one cluster or all; silent servers are missing."""
    servers = {f"{each.broker} {each.id}": each for each in replicas(await admin.brokers.cluster_info(), cluster)}
    answers = await fan_out(servers, lambda each: admin.brokers.config(each.address))
    brokers: dict[str, dict[int, dict[str, str]]] = {}
    for label, config in answers.some().items():
        brokers.setdefault(servers[label].broker, {})[servers[label].id] = dict(sorted(config.items()))
    name_servers, silent = await partly(admin.namesrv.config())
    known = {address: dict(sorted(config.items())) for address, config in sorted(name_servers.items())}
    return ServerConfigs(known, brokers, answers.missing + silent)
