"""The rules of `doctor`: turn what it saw into findings, each with a remedy. Decides only; `doctor` asks.

OK    name server 10.0.0.5:9876   answers in 1 ms
FAIL  broker broker-a             advertises 172.17.0.2:10911, which cannot be reached from here: timed out
      → set brokerIP1=10.0.0.5 (it answers there), or start it with --advertise
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pyromq.client.admin.certificates import expiry_problem
from pyromq.client.admin.headroom import Alarm, alarm, duration

from .replication import outcome, recent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyromq.protocol.bodies import HARuntimeInfo

    from .replication import ReplicaRow

# From the first on a broker deletes old files early (diskMaxUsedSpaceRatio); from the second it refuses messages.
DISK_WARN, DISK_FULL = 0.75, 0.90
# Brokers report their uptime in whole seconds, and requests take time.
CLOCK_WARN = 3.0
# Seconds between the newest message of a master and that of its slave.
BEHIND_WARN = 60.0

# What to do when a server wants an account, or another one.
CREDENTIALS = "give credentials with --access-key, --context, or PYROMQ_ACCESS_KEY and PYROMQ_SECRET_KEY"

_RUNTIME = re.compile(r"\[ (\d[\d,.\s]*) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `to_do` says how to fix it, and is empty if all is well."""

    status: Health
    what: str
    found: str
    to_do: str | None = None


def host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def is_only_here(address: str) -> bool:
    """Whether an address means a different machine everywhere: loopback, or unspecified."""
    host = host_of(address)
    if host == "localhost":
        return True
    try:
        known = ipaddress.ip_address(host)
    except ValueError:
        return False
    return known.is_loopback or known.is_unspecified


def certificate(what: str, expires: datetime, now: datetime) -> Finding | None:
    """A server whose certificate is valid until `expires`; None if that is far away."""
    problem = expiry_problem(expires, now)
    if problem is None:
        return None
    to_do = "replace the files of tls.server.certPath and keyPath; the server reads them again by itself"
    return Finding(Health.FAIL if expires <= now else Health.WARN, what, f"its certificate {problem}", to_do)


def advertised(broker: str, address: str, name_server: str, answered_as: str | None) -> Finding:
    """A broker that answers at the address it advertises. `answered_as` is the name it gave there."""
    what = f"broker {broker}"
    if answered_as is not None and answered_as != broker:
        return Finding(
            Health.FAIL,
            what,
            f"advertises {address}, where {answered_as} answers",
            f"give {broker} an address of its own: brokerIP1, listenPort",
        )
    if is_only_here(address) and not is_only_here(name_server):
        return Finding(
            Health.WARN,
            what,
            f"advertises {address}, which other machines cannot reach",
            "set brokerIP1 to an address clients can reach; with `pyromq up`, use --listen 0.0.0.0 --advertise HOST",
        )
    return Finding(Health.OK, what, f"answers at {address}, the address it advertises")


def unreachable(broker: str, address: str, reason: str, instead: str | None) -> Finding:
    """A broker that cannot be reached where it advertises; `instead` is where it answers, on the name server's host."""
    if instead is not None:
        to_do = f"set brokerIP1={host_of(instead)}: it answers at {instead}"
    else:
        to_do = f"check that {broker} runs and no firewall blocks it, or set brokerIP1 to an address clients can reach"
    found = f"advertises {address}, which cannot be reached from here: {reason}"
    return Finding(Health.FAIL, f"broker {broker}", found, to_do)


def refused(broker: str, address: str, reason: str) -> Finding:
    """A broker with access control that answers nobody without an account, or not this one."""
    return Finding(Health.FAIL, f"broker {broker}", f"does not answer this account at {address}: {reason}", CREDENTIALS)


def without_master(broker: str) -> Finding:
    return Finding(
        Health.FAIL,
        f"broker {broker}",
        "has no master, so it accepts no messages",
        "start the master (brokerId=0) again, or take the broker out of service",
    )


def clock(broker: str, runtime: Mapping[str, str], now: float, took: float) -> Finding | None:
    """How far a broker's clock is from ours; `took` is how long its answer took. None if it does not tell."""
    match = _RUNTIME.fullmatch(runtime.get("runtime", "").strip())
    boot = runtime.get("bootTimestamp", "")
    if match is None or not boot.isdigit():
        return None
    days = re.sub(r"\D", "", match[1])  # Java groups the digits of large numbers
    up = ((int(days) * 24 + int(match[2])) * 60 + int(match[3])) * 60 + int(match[4])
    # It truncates to whole seconds, so add half of one.
    skew = int(boot) / 1000 + up + 0.5 - (now - took / 2)
    what = f"clock of {broker}"
    if abs(skew) < CLOCK_WARN + took:
        return Finding(Health.OK, what, "agrees with this machine's clock")
    side = "ahead of" if skew > 0 else "behind"
    return Finding(
        Health.WARN,
        what,
        f"{abs(skew):.0f} s {side} this machine's clock",
        "set both clocks by NTP: delays, expiry and searches by time depend on them",
    )


def disk(broker: str, runtime: Mapping[str, str]) -> Finding | None:
    try:
        used = float(runtime.get("commitLogDiskRatio", ""))
    except ValueError:
        return None
    what, found = f"disk of {broker}", f"{used:.0%} used"
    if used >= DISK_FULL:
        return Finding(Health.FAIL, what, f"{found}: messages are refused", "free space, or lower fileReservedTime")
    if used >= DISK_WARN:
        to_do = "free space, or lower fileReservedTime: messages may be deleted before their time"
        return Finding(Health.WARN, what, found, to_do)
    return Finding(Health.OK, what, found)


def archives(broker: str, runtime: Mapping[str, str]) -> list[Finding]:
    """How far the lake is, and what a broker keeps for it. Only ours tell, and only if an archive or setting asks."""
    try:
        count, kept, size = (int(runtime[key]) for key in ("archives", "archiveKeptFiles", "archiveKeptBytes"))
        retention, left = int(runtime["lakeRetentionSeconds"]), int(runtime.get("lake_headroom_seconds", -1))
    except (KeyError, ValueError):
        return []
    what = f"lake archive of {broker}"
    holds = runtime.get("archiveBeforeDelete") == "true"
    keeps = f"; {kept} expired files ({size / 2**30:.1f} GiB) are kept for it" if kept else ""
    if not count:
        found = f"archiveBeforeDelete is on, but no archive has ever reported{keeps}"
        to_do = "start an archive, or set archiveBeforeDelete=false"
        return [Finding(Health.WARN, what, found, to_do)]
    if "archiveBehind" not in runtime:
        return [Finding(Health.OK, what, "has everything")]
    behind, group = runtime["archiveBehind"], runtime.get("archiveBehindGroup", "")
    found = f"{behind} is not archived up to its end; the oldest such message has {duration(left)} left"
    level = alarm(left, retention)
    if level is Alarm.NONE:
        return [Finding(Health.OK, what, found)]
    to_do = f"see that the archive runs; if there is none any more, `pyromq group delete {group} --offsets`"
    if not holds:
        to_do += "; archiveBeforeDelete=true keeps messages until they are archived"
    health = Health.FAIL if level is Alarm.ERROR and not holds else Health.WARN
    return [Finding(health, what, found + keeps, to_do)]


def followed(broker: str, info: HARuntimeInfo, *, waits_for_set: bool = False) -> list[Finding]:
    """A master and those who follow it. In controller mode it waits for its in-sync set, which has rules of its own."""
    what = f"slaves of {broker}"
    findings = [
        Finding(
            Health.FAIL,
            what,
            f"{each.addr} {outcome(each)} {each.millis_ago // 1000} s ago: {each.reason}",
            "if a setting is wrong, correct it; if the logs differ, decide which one is right, stop the other broker, "
            "move its store away, and start it again",
        )
        for each in recent(info.refusals)
    ]
    if waits_for_set:
        return findings
    far = [each for each in info.ha_connection_info if not each.in_sync]
    findings += [
        Finding(
            Health.WARN,
            what,
            f"{each.addr} is {each.diff} bytes behind, too far to be waited for (haSlaveFallbehindMax)",
            "wait until it has caught up; if it does not, look at its disk and the line between the two",
        )
        for each in far
    ]
    count = len(info.ha_connection_info)
    if not count and info.broker_role == "SYNC_MASTER":
        found = "there is none, so this SYNC_MASTER answers sends with SLAVE_NOT_AVAILABLE: there is one copy only"
        to_do = "start a slave (brokerRole=SLAVE, brokerId=1), or set brokerRole=ASYNC_MASTER if one copy is enough"
        findings.append(Finding(Health.FAIL, what, found, to_do))
    elif count > len(far):
        findings.append(Finding(Health.OK, what, f"{count - len(far)} of {count} are near"))
    return findings


def follows(row: ReplicaRow) -> Finding:
    """A slave."""
    what = f"slave {row.id} of {row.broker}"
    if row.problem is not None:
        to_do = "see that its master runs and can be reached; if the logs differ, move the store of the wrong one away"
        return Finding(Health.FAIL, what, f"does not follow: {row.problem}", to_do)
    if row.behind_s is not None and row.behind_s >= BEHIND_WARN:
        found = f"{row.behind_s:.0f} s and {row.behind} bytes behind {row.follows}"
        return Finding(Health.WARN, what, found, "look at its disk and the line to its master")
    return Finding(Health.OK, what, f"follows {row.follows}")


def name_servers_agree(brokers: Mapping[str, frozenset[str]]) -> list[Finding]:
    """`brokers` are the addresses each name server knows."""
    every = frozenset().union(*brokers.values())
    return [
        Finding(
            Health.FAIL,
            f"name server {name_server}",
            f"does not know {', '.join(sorted(every - known))}, but others do",
            "list all name servers in every broker's namesrvAddr: name servers do not tell each other",
        )
        for name_server, known in brokers.items()
        if every - known
    ]


def group_members(group: str, mismatch: str) -> Finding:
    """`mismatch` is the result of `subscription_mismatch` for the members of a group."""
    if mismatch:
        to_do = "give all members the same subscriptions, or put them in separate groups"
        return Finding(Health.FAIL, f"group {group}", mismatch, to_do)
    return Finding(Health.OK, f"group {group}", "all members have the same subscriptions")


def worst(findings: list[Finding]) -> Health:
    order = list(Health)
    return max((each.status for each in findings), key=order.index, default=Health.OK)


def summary(findings: list[Finding]) -> str:
    counts = {status: sum(each.status is status for each in findings) for status in Health}
    if not counts[Health.FAIL] and not counts[Health.WARN]:
        return f"{counts[Health.OK]} checks, all is well"
    return f"{counts[Health.FAIL]} fail, {counts[Health.WARN]} warn, {counts[Health.OK]} ok"
