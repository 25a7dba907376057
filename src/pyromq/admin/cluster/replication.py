"""Replication of all brokers: who follows whom, how far behind, since when, and what is wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - a field of rows
from typing import TYPE_CHECKING, NamedTuple

from pyromq.client.admin.addresses import MASTER, replicas
from pyromq.client.admin.fan_out import Missing, fan_out
from pyromq.client.admin.times import from_millis
from pyromq.errors import PyroMQError, RequestCodeNotSupported, RouteNotFound

from ..listing import Listing
from .controllers import DOUBTFUL, controllers_in_use

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from pyromq.client.admin import AdminClient
    from pyromq.client.admin.addresses import Replica
    from pyromq.protocol.bodies import EpochEntryCache, HAClientInfo, HARefusal, HARuntimeInfo

# A slave that is refused comes again every five seconds: what is older than this is over.
RECENT = 60_000


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One broker. `log_end` is how much of the log it has.

    Of a master: `slaves` are connected to it. Of a slave: the address it `follows`, `since` when, and how far it is
    `behind` its master, in bytes and in seconds between their newest messages. None is what is not known.
    """

    broker: str
    id: int
    role: str
    address: str
    log_end: int | None = None
    slaves: int | None = None
    follows: str | None = None
    behind: int | None = None
    behind_s: float | None = None
    since: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FailOverRow:
    """One broker where controllers decide who is master. `id` is the one it got from them, and never changes.

    `epoch` is the newest of its log; `in_sync` says whether it may become master. The others are as in ReplicaRow.
    """

    broker: str
    id: int | None
    role: str
    address: str
    epoch: int | None = None
    in_sync: bool | None = None
    log_end: int | None = None
    slaves: int | None = None
    follows: str | None = None
    behind: int | None = None
    behind_s: float | None = None
    since: datetime | None = None
    problem: str | None = None


async def replication_table(
    admin: AdminClient, broker: str | None = None
) -> Listing[ReplicaRow] | Listing[FailOverRow]:
    """All brokers, or those of one name; one that does not answer has a row, and is missing."""
    found = replicas(await admin.brokers.cluster_info())
    chosen = [each for each in found if broker is None or each.broker == broker]
    if broker is not None and not chosen:
        names = sorted({each.broker for each in found})
        raise RouteNotFound(f"there is no broker {broker}; there are: {', '.join(names) or 'none'}")
    # Slaves first: while messages come in, none of them may seem to have more than its master.
    slaves = await fan_out([each.address for each in chosen if each.id != MASTER], admin.brokers.ha_status)
    masters = await fan_out([each.address for each in chosen if each.id == MASTER], admin.brokers.ha_status)
    failures = {**slaves.failures, **masters.failures}
    epochs = (await fan_out([*masters.results, *slaves.results], admin.brokers.epochs)).results
    rows = replica_rows(chosen, {**slaves.results, **masters.results}, failures, epochs)
    missing = (*masters.missing, *slaves.missing)
    if not epochs:
        return Listing.make(ReplicaRow, rows, missing, _summary(rows))
    known, silent = await _members(admin, {each.broker for each in rows})
    switched = [_fail_over_row(row, epochs.get(row.address), known.get(row.address)) for row in rows]
    return Listing.make(FailOverRow, switched, (*missing, *silent), _summary(rows))


class _Known(NamedTuple):
    """What controllers say of a broker."""

    id: int | None
    in_sync: bool | None
    doubtful: bool


async def _members(admin: AdminClient, brokers: Iterable[str]) -> tuple[dict[str, _Known], list[Missing]]:
    """By address what controllers say of each broker; and those that do not tell."""
    names, silent = list(brokers), []
    found: dict[str, _Known] = {}
    for controllers in await controllers_in_use(admin):
        try:
            infos = await admin.controllers.replicas(controllers, names)
        except PyroMQError as exc:
            silent.append(Missing(";".join(controllers), exc))
            continue
        for info in infos.values():
            for brokers_, in_sync in ((info.in_sync_replicas, True), (info.not_in_sync_replicas, False)):
                found |= {each.broker_address: _Known(each.broker_id, in_sync, each.doubtful) for each in brokers_}
    return found, silent


def _fail_over_row(row: ReplicaRow, epochs: EpochEntryCache | None, known: _Known | None) -> FailOverRow:
    own_id = row.id if epochs is None or row.id != MASTER else None  # a master has 0 at name servers, whatever its id
    known = known or _Known(own_id, None, False)
    return FailOverRow(
        row.broker,
        known.id,
        row.role,
        row.address,
        epochs.epoch_list[-1].epoch if epochs is not None and epochs.epoch_list else None,
        known.in_sync,
        row.log_end,
        row.slaves,
        row.follows,
        row.behind,
        row.behind_s,
        row.since,
        row.problem or (DOUBTFUL if known.doubtful else None),
    )


def replica_rows(
    brokers: Iterable[Replica],
    infos: Mapping[str, HARuntimeInfo],
    failures: Mapping[str, BaseException],
    switched: Container[str] = (),
) -> list[ReplicaRow]:
    """`infos`, and why others have none, are by address. Masters stand above their slaves.

    `switched` are the addresses of those in controller mode: such a master may be alone in its in-sync set.
    """
    brokers = list(brokers)
    masters = {each.broker: infos.get(each.address) for each in brokers if each.id == MASTER}
    rows = []
    for each in brokers:
        info = infos.get(each.address)
        if info is None:
            role = "MASTER" if each.id == MASTER else "SLAVE"
            rows.append(ReplicaRow(each.broker, each.id, role, each.address, problem=_why(failures.get(each.address))))
        elif info.master:
            rows.append(_master(each, info, alone=each.address in switched))
        else:
            rows.append(_slave(each, info, masters.get(each.broker)))
    return rows


def _master(broker: Replica, info: HARuntimeInfo, *, alone: bool) -> ReplicaRow:
    connected = info.ha_connection_info
    problems = [f"{each.addr} {outcome(each)}: {each.reason}" for each in recent(info.refusals)]
    if info.broker_role == "SYNC_MASTER" and not info.in_sync_slave_nums and not alone:
        problems.insert(0, "no slave is near enough: sends are answered with SLAVE_NOT_AVAILABLE")
    return ReplicaRow(
        broker.broker,
        broker.id,
        info.broker_role or "MASTER",
        broker.address,
        info.master_commit_log_max_offset,
        len(connected),
        problem="; ".join(problems) or None,
    )


def _slave(broker: Replica, info: HARuntimeInfo, master: HARuntimeInfo | None) -> ReplicaRow:
    own = info.ha_client_runtime_info
    behind = seconds = None
    if master is not None and master.master:
        # Below zero it has what its master has not, which says its problem.
        behind = max(master.master_commit_log_max_offset - own.max_offset, 0)
        if info.last_store_timestamp and master.last_store_timestamp:
            later = master.last_store_timestamp - info.last_store_timestamp
            seconds = max(later, 0) / 1000 if behind else 0.0
    return ReplicaRow(
        broker.broker,
        broker.id,
        info.broker_role or "SLAVE",
        broker.address,
        own.max_offset,
        None,
        own.master_addr or None,
        behind,
        seconds,
        _since(own),
        own.problem,
    )


def _since(slave: HAClientInfo) -> datetime | None:
    """By the clock here: that of the slave may be wrong."""
    if slave.since_millis is None:
        return from_millis(slave.since_timestamp)
    return from_millis(time.time_ns() // 1_000_000 - slave.since_millis)


def _why(failure: BaseException | None) -> str:
    if isinstance(failure, RequestCodeNotSupported):
        return "does not tell: brokers before 5.0 do not know the question"
    return "does not answer" if failure is None else f"does not answer: {failure}"


def outcome(refusal: HARefusal) -> str:
    return "stayed away" if refusal.by_itself else "was refused"


def recent(refusals: Iterable[HARefusal]) -> list[HARefusal]:
    """The newest refusal of each machine, unless it is long ago. A slave has another port each time it comes."""
    newest = {each.addr.rpartition(":")[0]: each for each in refusals if each.millis_ago < RECENT}
    return list(newest.values())


def _summary(rows: list[ReplicaRow]) -> str:
    slaves = [row for row in rows if row.slaves is None and row.id != MASTER]
    if not slaves:
        return "no slaves"
    wrong = sum(row.problem is not None for row in rows)
    furthest = max((row.behind for row in slaves if row.behind is not None), default=None)
    behind = "" if furthest is None else f", at most {furthest} bytes behind"
    noun = "slave" if len(slaves) == 1 else "slaves"
    return f"{len(slaves)} {noun}{behind}" + (f", {wrong} with a problem" if wrong else "")
