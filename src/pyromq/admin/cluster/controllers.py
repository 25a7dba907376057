"""Fail-over: the controllers of a cluster, and who is master, in sync and alive in each of its broker groups.

`fail_over` gathers the facts over the wire, from controllers and brokers of any make; `fail_over_rules` says what is
wrong with them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyromq.client.admin.addresses import replicas
from pyromq.client.admin.fan_out import Missing, fan_out, partly
from pyromq.errors import BrokerError, NoNameServer, PyroMQError, RequestTimeout, RouteNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from pyromq.client.admin import AdminClient, ControllerView
    from pyromq.client.admin.fan_out import Answers
    from pyromq.protocol.bodies import EpochEntryCache, ReplicaIdentity, ReplicasInfo

# The port of a controller inside our name server, if no setting says otherwise.
EMBEDDED_PORT = 9878
# A broker that is asked how it is answers at once, or something is wrong with it.
_LOOK_WITHIN = 1.0

MASTER, SLAVE = "MASTER", "SLAVE"
DOUBTFUL = "its machine or disk failed: it may lack acknowledged messages until it has caught up with a master"
LEADER, FOLLOWER = "LEADER", "FOLLOWER"


@dataclass(frozen=True, slots=True)
class Controller:
    """One controller. `leader` is the address it calls leader. All but the address is None if it does not answer."""

    controller: str
    id: str | None = None
    role: str | None = None
    leader: str | None = None
    group: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """From `start` on, the log was written by the master of this epoch."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class Member:
    """One broker of a group. `id`, `role`, `alive` and `in_sync` are the controller's words, the others its own.

    `epoch` is the newest of its `epochs`, `behind` counts the bytes that the master has more. `acts_as` is the role it
    takes itself for. A `doubtful` one may lack acknowledged messages. None is what it does not tell.
    """

    broker: str
    id: int
    role: str
    address: str
    alive: bool
    in_sync: bool
    epoch: int | None = None
    log_end: int | None = None
    behind: int | None = None
    problem: str | None = None
    acts_as: str | None = field(default=None, metadata={"hidden": True})
    epochs: tuple[Epoch, ...] = field(default=(), metadata={"hidden": True})
    doubtful: bool = field(default=False, metadata={"hidden": True})


@dataclass(frozen=True, slots=True)
class Group:
    """The brokers of one name. `master` is its id; None while there is none."""

    broker: str
    cluster: str | None
    master: int | None
    master_address: str | None
    epoch: int
    set_epoch: int
    in_sync: tuple[int, ...]
    members: tuple[Member, ...]

    def member(self, broker_id: int) -> Member:
        """Raises RouteNotFound."""
        for each in self.members:
            if each.id == broker_id:
                return each
        known = ", ".join(str(each.id) for each in self.members)
        raise RouteNotFound(f"{self.broker} has no broker {broker_id}; the controller knows: {known or 'none'}")


@dataclass(frozen=True, slots=True)
class FailOver:
    """What is to be known. `shared` says that the controllers keep their state in etcd, not among themselves."""

    leader: str | None
    controllers: tuple[Controller, ...]
    groups: tuple[Group, ...]
    shared: bool = False
    missing: tuple[Missing, ...] = field(default=(), metadata={"hidden": True})

    def group(self, broker: str) -> Group:
        """Raises RouteNotFound, or why the leader does not tell its groups."""
        for each in self.groups:
            if each.broker == broker:
                return each
        for silent in self.missing:
            if silent.server == self.leader:
                raise silent.error
        known = ", ".join(each.broker for each in self.groups)
        raise RouteNotFound(f"the controller knows no broker {broker}; it knows: {known or 'none that runs'}")

    @property
    def members(self) -> list[Member]:
        return [member for group in self.groups for member in group.members]


# Where controllers are


async def controllers_in_use(admin: AdminClient, cluster: str | None = None) -> list[tuple[str, ...]]:
    """The controllers that running brokers and name servers are set up with, as groups of addresses.

    Brokers tell by their settings, as far as they answer. So do name servers with a controller inside, which helps
    while no broker is registered. Raises RouteNotFound for an unknown cluster.
    """
    brokers = [each.address for each in replicas(await admin.brokers.cluster_info(), cluster)]
    configs = await fan_out(brokers, lambda address: _config(admin, address))
    found = [controllers_of(config) for config in configs.results.values()]
    with contextlib.suppress(PyroMQError):  # with an ACL, name servers may not tell
        servers, _ = await partly(admin.namesrv.config())
        found += [embedded_controllers(config, address) for address, config in servers.items()]
    return together(found)


def controllers_of(config: Mapping[str, str]) -> tuple[str, ...]:
    """The controllers of a broker, by its settings; none if it is not in controller mode."""
    if config.get("enableControllerMode", "").lower() != "true":
        return ()
    return split_addresses(config.get("controllerAddr", ""))


def embedded_controllers(config: Mapping[str, str], name_server: str) -> tuple[str, ...]:
    """The controller inside a name server and its peers, by the name server's settings."""
    if config.get("enableControllerInNamesrv", "").lower() != "true":
        return ()
    peers = split_addresses(config.get("controllerDLegerPeers", ""))  # n0-host:port;n1-host:port
    return tuple(each.partition("-")[2] for each in peers) or (f"{name_server.rpartition(':')[0]}:{EMBEDDED_PORT}",)


def split_addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())


def together(found: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Lists that have an address in common, as one: two brokers may name different members of one group."""
    groups: list[list[str]] = []
    for addresses in found:
        if not addresses:
            continue
        same = [group for group in groups if not set(group).isdisjoint(addresses)]
        groups = [group for group in groups if group not in same]
        groups.append(list(dict.fromkeys([each for group in same for each in group] + list(addresses))))
    return [tuple(group) for group in groups]


# What they and their brokers say


async def fail_over(admin: AdminClient, controllers: Sequence[str], brokers: Iterable[str] = ()) -> FailOver:
    """Ask the controllers, then the brokers of the groups of these names, or of all that a name server knows.

    Whoever does not answer is missing. Raises if no controller can be reached; RouteNotFound for a group that the
    controller does not know.
    """
    views = await admin.controllers.views(controllers)
    views.some()
    leader, missing = leader_of(views.results.values()), list(views.missing)
    clusters, silent = await _clusters(admin)
    asked = list(brokers)
    if not asked:
        missing += silent
    infos: dict[str, ReplicasInfo] = {}
    if leader is not None:
        try:
            infos = await admin.controllers.replicas([leader], asked or clusters)
        except PyroMQError as exc:
            missing.append(Missing(leader, exc))
    groups = await _groups(admin, infos, clusters)
    found = FailOver(
        leader, controllers_table(views), tuple(groups), await _shares(admin, leader), tuple(dict.fromkeys(missing))
    )
    for name in asked:
        if leader is not None and not missing:
            found.group(name)  # raises RouteNotFound
    return found


def leader_of(views: Iterable[ControllerView]) -> str | None:
    """Who says of itself that it leads; else whom most call leader."""
    views = list(views)
    for view in views:
        if view.leads:
            return view.leader or view.address
    named = Counter(view.leader for view in views if view.leader)
    return named.most_common(1)[0][0] if named else None


def controllers_table(views: Answers[ControllerView]) -> tuple[Controller, ...]:
    """All controllers, by address. Ids are as the others call them: one that is down cannot say its own."""
    ids = {address: name for view in views.results.values() for name, address in view.peers.items() if name != address}
    rows = [
        Controller(address, ids.get(address), LEADER if view.leads else FOLLOWER, view.leader, view.group)
        for address, view in views.results.items()
    ]
    rows += [
        Controller(address, ids.get(address), problem=f"does not answer: {error}")
        for address, error in views.failures.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.id or "", row.controller)))


async def _clusters(admin: AdminClient) -> tuple[dict[str, str], tuple[Missing, ...]]:
    """The cluster of each broker name that a name server knows."""
    try:
        return {each.broker: each.cluster for each in replicas(await admin.brokers.cluster_info())}, ()
    except NoNameServer:
        return {}, ()
    except PyroMQError as exc:
        return {}, (Missing("name server", exc),)


async def _shares(admin: AdminClient, leader: str | None) -> bool:
    with contextlib.suppress(PyroMQError):
        if leader is not None:
            return (await admin.controllers.config([leader]))[leader].get("controllerStore", "") == "etcd"
    return False


async def _groups(admin: AdminClient, infos: Mapping[str, ReplicasInfo], clusters: Mapping[str, str]) -> list[Group]:
    masters = {info.master_address for info in infos.values() if info.master_address}
    everyone = {
        each.broker_address for info in infos.values() for each in (*info.in_sync_replicas, *info.not_in_sync_replicas)
    }
    # Slaves first: while messages come in, none of them may seem to have more than its master.
    slaves = await fan_out(sorted(everyone - masters), lambda address: _look(admin, address))
    looks = await fan_out(sorted(masters), lambda address: _look(admin, address))
    looks.results.update(slaves.results)
    looks.failures.update(slaves.failures)
    return [group_of(name, info, looks, clusters.get(name)) for name, info in sorted(infos.items())]


@dataclass(frozen=True, slots=True)
class Look:
    """What a broker says of itself. `problem` keeps it from its role; only brokers of ours tell."""

    epochs: EpochEntryCache
    problem: str | None = None


async def _look(admin: AdminClient, address: str) -> Look:
    async with _soon(address):
        epochs = await admin.brokers.epochs(address)
        with contextlib.suppress(PyroMQError):
            if problem := (await admin.brokers.runtime(address)).get("failoverProblem"):
                return Look(epochs, problem)
            return Look(epochs, (await admin.brokers.ha_status(address)).ha_client_runtime_info.problem)
        return Look(epochs)


async def _config(admin: AdminClient, address: str) -> dict[str, str]:
    async with _soon(address):
        return await admin.brokers.config(address)


@contextlib.asynccontextmanager
async def _soon(address: str) -> AsyncIterator[None]:
    """A broker that hangs must not use up the time in which the others are asked."""
    try:
        async with asyncio.timeout(_LOOK_WITHIN):
            yield
    except PyroMQError:  # before TimeoutError, which some of them also are
        raise
    except TimeoutError:
        error = RequestTimeout(address, 0, _LOOK_WITHIN)
        error.args = (f"no answer within {_LOOK_WITHIN:g} s",)
        raise error from None


def group_of(name: str, info: ReplicasInfo, looks: Answers[Look], cluster: str | None = None) -> Group:
    """A group as the controller sees it, with what its brokers said, by address."""
    master = looks.results.get(info.master_address or "")
    end = None if master is None else master.epochs.max_offset
    named = [(each, True) for each in info.in_sync_replicas] + [(each, False) for each in info.not_in_sync_replicas]
    members = sorted(
        (_member(name, each, info.master_broker_id, looks, end, in_sync=in_sync) for each, in_sync in named),
        key=lambda member: (member.role != MASTER, member.id),
    )
    told = [looks.results[each.address].epochs.cluster_name for each in members if each.address in looks.results]
    return Group(
        name,
        cluster or next(filter(None, told), None),
        info.master_broker_id,
        info.master_address,
        info.master_epoch,
        info.sync_state_set_epoch,
        tuple(sorted(each.broker_id for each in info.in_sync_replicas)),
        tuple(members),
    )


def _member(
    name: str, who: ReplicaIdentity, master: int | None, looks: Answers[Look], end: int | None, *, in_sync: bool
) -> Member:
    role = MASTER if who.broker_id == master else SLAVE
    look = looks.results.get(who.broker_address)
    if look is None:
        error = looks.failures.get(who.broker_address)
        problem = None if error is None else _why(error)
        return Member(
            name,
            who.broker_id,
            role,
            who.broker_address,
            who.alive,
            in_sync,
            problem=DOUBTFUL if who.doubtful else problem,
            doubtful=who.doubtful,
        )
    epochs = tuple(Epoch(each.epoch, each.start_offset) for each in look.epochs.epoch_list)
    return Member(
        name,
        who.broker_id,
        role,
        who.broker_address,
        who.alive,
        in_sync,
        epochs[-1].epoch if epochs else None,
        look.epochs.max_offset,
        None if end is None else max(end - look.epochs.max_offset, 0),
        DOUBTFUL if who.doubtful else look.problem,
        MASTER if look.epochs.broker_id == 0 else SLAVE,
        epochs,
        who.doubtful,
    )


def _why(error: PyroMQError) -> str:
    return f"does not tell: {error}" if isinstance(error, BrokerError) else f"does not answer: {error}"


# Elections


def candidate(group: Group, broker_id: int | None = None) -> Member:
    """Who shall be master: that broker, or without an id the slave that is in sync and has most.

    A broker that may lack messages must be named. `at_risk` says what may be lost then. Raises RouteNotFound for an id
    that is not in the group, PyroMQError if the broker cannot be elected.
    """
    if broker_id is None:
        able = [
            each
            for each in group.members
            if each.alive and each.in_sync and not each.doubtful and each.id != group.master
        ]
        if not able:
            raise PyroMQError(f"no slave of {group.broker} is alive and in sync; nobody can take over")
        return max(able, key=lambda each: (each.log_end or 0, -each.id))
    member = group.member(broker_id)
    if not member.alive:
        raise PyroMQError(f"broker {broker_id} of {group.broker} is not alive: the controller does not hear from it")
    if not member.in_sync:
        able_ids = ", ".join(map(str, group.in_sync)) or "none"
        raise PyroMQError(
            f"broker {broker_id} of {group.broker} is not in sync: messages would be lost; in sync: {able_ids}"
        )
    sure = [each.id for each in group.members if each.alive and each.in_sync and not each.doubtful]
    if member.doubtful and sure:
        raise PyroMQError(
            f"broker {broker_id} of {group.broker} may lack acknowledged messages; broker "
            f"{', '.join(map(str, sorted(sure)))} has all of them"
        )
    return member


def at_risk(group: Group, member: Member) -> str | None:
    """What is lost if this broker becomes master now; None if nothing is."""
    if not member.doubtful:
        return None
    away = [each.id for each in group.members if each.in_sync and not each.alive]
    if not away:
        return None
    others = ", ".join(map(str, sorted(away)))
    return f"it may lack acknowledged messages that broker {others} has; those are lost then, for good"
