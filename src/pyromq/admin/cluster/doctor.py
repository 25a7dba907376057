"""`doctor`: check a cluster as a client sees it; say what is wrong and how to fix it.

First every name server; then every broker at the address it advertises, its clock, its disk and its replication; then
controllers, if there are any; then the groups that are online. A problem does not stop the later checks. The rules
are in doctor_rules and fail_over_rules.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyromq.client.admin import AdminClient
from pyromq.client.admin.addresses import MASTER, replicas
from pyromq.client.admin.certificates import certificate_expires
from pyromq.client.admin.fan_out import fan_out
from pyromq.errors import ConsumerNotOnline, NoPermission, PyroMQError

from ..groups.lag import group_list, people_groups
from ..groups.members import group_inspect, subscription_mismatch
from ..listing import Listing
from . import doctor_rules as rules
from . import fail_over_rules
from .controllers import controllers_in_use, fail_over
from .doctor_rules import Finding, Health
from .replication import replica_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyromq.client import Client
    from pyromq.client.admin.addresses import Replica
    from pyromq.protocol.bodies import ClusterInfo

_CONNECT_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class _NameServer:
    admin: AdminClient
    info: ClusterInfo


async def examine(name_servers: Sequence[str], client: Callable[[str], Client]) -> Listing[Finding]:
    """Check everything. `client` makes an unstarted client for one name server, with its credentials."""
    async with AsyncExitStack() as life:
        findings: list[Finding] = []
        there: dict[str, _NameServer] = {}
        looks = await asyncio.gather(*(_name_server(address, client(address), life) for address in name_servers))
        for address, (finding, found) in zip(name_servers, looks, strict=True):
            findings.append(finding)
            if found is not None:
                there[address] = found
        if there:
            findings += rules.name_servers_agree({each: _addresses(found.info) for each, found in there.items()})
            first, found = next(iter(there.items()))
            findings += await _brokers(found, first)
            findings += await _certificates(found, list(there), client(first).is_encrypted)
            findings = await _with_fail_over(found.admin, findings)
            findings += await _groups(found.admin)
        return Listing.make(Finding, findings, summary=rules.summary(findings))


# Name servers


async def _name_server(address: str, client: Client, life: AsyncExitStack) -> tuple[Finding, _NameServer | None]:
    what = f"name server {address}"
    if (reason := await why_not(address)) is not None:
        to_do = "check that it is running (`pyromq up` starts one here) and that host and port are right"
        return Finding(Health.FAIL, what, f"cannot be reached: {reason}", to_do), None
    admin = await life.enter_async_context(AdminClient(client=client, timeout=_CONNECT_WITHIN * 2))
    began = time.perf_counter()
    try:
        info = await admin.brokers.cluster_info()
    except NoPermission as exc:
        return Finding(Health.FAIL, what, str(exc), rules.CREDENTIALS), None
    except PyroMQError as exc:
        to_do = "check that a name server listens there: name servers use 9876, brokers 10911"
        return Finding(Health.FAIL, what, f"accepts connections but does not answer: {exc}", to_do), None
    took = (time.perf_counter() - began) * 1000
    if not info.broker_addr_table:
        to_do = "start a broker with namesrvAddr set to this address"
        return Finding(Health.FAIL, what, "knows no broker", to_do), _NameServer(admin, info)
    return Finding(Health.OK, what, f"answers in {took:.0f} ms"), _NameServer(admin, info)


async def why_not(address: str) -> str | None:
    """Why connecting to an address fails, or None if it works."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_WITHIN):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except socket.gaierror:
        return f"unknown host {host}"
    except TimeoutError:
        return f"no answer within {_CONNECT_WITHIN:g} s"
    except OSError as exc:
        return os.strerror(exc.errno) if exc.errno else str(exc)
    except ValueError:
        return f"{address!r} is not HOST:PORT"
    writer.close()
    return None


def _addresses(info: ClusterInfo) -> frozenset[str]:
    return frozenset(each.address for each in replicas(info))


# Brokers


async def _brokers(name_server: _NameServer, its_address: str) -> list[Finding]:
    findings: list[Finding] = []
    table = sorted(name_server.info.broker_addr_table.items())
    findings += [rules.without_master(name) for name, data in table if MASTER not in data.broker_addrs]
    # Two brokers may claim one address, one of them wrongly: check each.
    places = {f"{each.broker} {each.address}": each for each in replicas(name_server.info)}
    looks = await fan_out(places, lambda each: _broker(name_server.admin, each.broker, each.address, its_address))
    for found in looks.results.values():
        findings += found
    for label, error in looks.failures.items():
        broker, address = places[label].broker, places[label].address
        findings.append(
            rules.refused(broker, address, str(error))
            if isinstance(error, NoPermission)
            else rules.unreachable(broker, address, str(error), None)
        )
    return findings + await _replication(name_server.admin, list(places.values()))


async def _broker(admin: AdminClient, name: str, address: str, name_server: str) -> list[Finding]:
    if (reason := await why_not(address)) is not None:
        return [rules.unreachable(name, address, reason, await _elsewhere(admin, name, address, name_server))]
    began = time.perf_counter()
    runtime = await admin.brokers.runtime(address)
    now, took = time.time(), time.perf_counter() - began
    findings = [rules.advertised(name, address, name_server, await _name_of(admin, address))]
    findings += [each for each in (rules.clock(name, runtime, now, took), rules.disk(name, runtime)) if each]
    return findings + rules.archives(name, runtime)


async def _certificates(name_server: _NameServer, name_servers: list[str], is_encrypted: bool) -> list[Finding]:
    """Certificates that expire soon. Those that do not even answer have been found already."""
    if not is_encrypted:
        return []
    servers = {f"name server {each}": each for each in name_servers}
    servers |= {f"broker {each.broker} {each.address}": each.address for each in replicas(name_server.info)}
    looks = await fan_out(servers, lambda address: certificate_expires(address, _CONNECT_WITHIN))
    now = datetime.now(UTC)
    return [found for what, expires in looks.results.items() if (found := rules.certificate(what, expires, now))]


async def _replication(admin: AdminClient, brokers: list[Replica]) -> list[Finding]:
    """Those that do not answer have been found already; brokers of 4.9 do not know the question."""
    addresses = {each.address for each in brokers}
    infos = (await fan_out(addresses, admin.brokers.ha_status)).results
    switched = (await fan_out(addresses, admin.brokers.epochs)).results  # those in controller mode
    findings: list[Finding] = []
    for each in brokers:
        info = infos.get(each.address)
        if info is not None and info.master:
            findings += rules.followed(each.broker, info, waits_for_set=each.address in switched)
    rows = replica_rows(brokers, infos, {}, switched)
    return findings + [rules.follows(row) for row in rows if row.address in infos and not infos[row.address].master]


async def _with_fail_over(admin: AdminClient, findings: list[Finding]) -> list[Finding]:
    """The findings so far and those about controllers, which know better why a group has no master."""
    try:
        groups = await controllers_in_use(admin)
    except PyroMQError:
        return findings  # the name server has been reported already
    for controllers in groups:
        try:
            found = await fail_over(admin, controllers)
        except PyroMQError as exc:
            findings.append(fail_over_rules.no_controller(controllers, str(exc)))
            continue
        known = [rules.without_master(each.broker) for each in found.groups]
        findings = [each for each in findings if each not in known] + fail_over_rules.examined(found)
    return findings


async def _elsewhere(admin: AdminClient, name: str, address: str, name_server: str) -> str | None:
    """Where a broker does answer: it often runs beside the name server, with its port forwarded there."""
    host, port = rules.host_of(name_server), address.rpartition(":")[2]
    guess = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if guess == address or await why_not(guess) is not None:
        return None
    return guess if await _name_of(admin, guess) == name else None


async def _name_of(admin: AdminClient, address: str) -> str | None:
    """The name a broker gives itself; None if it does not tell, for example because of an ACL."""
    try:
        return (await admin.brokers.config(address)).get("brokerName")
    except PyroMQError:
        return None


# Groups


async def _groups(admin: AdminClient) -> list[Finding]:
    try:
        groups = [row.group for row in people_groups((await group_list(admin)).rows)]
    except PyroMQError:
        return []  # silent brokers have been reported already
    looks = await fan_out(groups, lambda group: _group(admin, group))
    return [finding for group in groups if (finding := looks.results.get(group)) is not None]


async def _group(admin: AdminClient, group: str) -> Finding | None:
    """None for a group without members online."""
    try:
        members = await group_inspect(admin, group)
    except ConsumerNotOnline:
        return None
    return rules.group_members(group, subscription_mismatch(list(members.rows)))
