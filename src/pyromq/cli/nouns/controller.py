"""`pyromq controller <verb>`: who is master of each broker group, and who may take over; of any controllers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pyromq.admin.cluster.controllers import (
    Controller,
    FailOver,
    Group,
    Member,
    at_risk,
    candidate,
    controllers_in_use,
    controllers_table,
    fail_over,
    split_addresses,
)
from pyromq.admin.cluster.fail_over_rules import examined, problems
from pyromq.admin.listing import Listing
from pyromq.client.admin.fan_out import partly

from ..failures import CommandFailed, Exit
from ..output import Output
from ..parameters import ClusterName, pairs_of
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, SettingChange, changes, compared, note_unknown, shown

app = new_app("Inspect and manage fail-over. Without a verb, `pyromq controller` runs a controller.")
config = new_app("Show and change controller settings.")
app.add_typer(config, name="config")

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker group.", show_default=False)]
ControllerOption = Annotated[
    str | None,
    typer.Option(
        "--controller",
        metavar="HOST:PORT",
        help="Controllers, separated by ';'; else those of the context, or of the brokers' settings.",
    ),
]


@dataclass(frozen=True, slots=True)
class Election:
    """The master of a group, before and after."""

    broker: str
    before: int | None
    master: int | None
    address: str | None
    epoch: int | None
    set_epoch: int | None


def main(arguments: list[str]) -> int:
    return run_app(app, "controller", arguments)


# Looking


@reading(app, "list")
async def list_controllers(
    session: Session, controller: ControllerOption = None, cluster: ClusterName = None
) -> Listing[Controller]:
    """List the controllers and which of them leads.

    Example: pyromq controller list --controller 10.0.0.5:9878
    """
    views = await session.admin.controllers.views(await _controllers(session, controller, cluster))
    views.some()
    return Listing.make(Controller, controllers_table(views), views.missing)


@reading(app, "status", timeout=5.0)
async def status(
    session: Session,
    brokers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BROKER]...", help="Only these groups; needed for one that is down as a whole."),
    ] = None,
    controller: ControllerOption = None,
    cluster: ClusterName = None,
) -> Listing[Member] | tuple[Listing[Any], ...] | dict[str, Any]:
    """Show who is master of each group, who is in sync, how far behind, and what is wrong.

    ROLE, ALIVE and IN SYNC are as the controller sees them; EPOCH, LOG END and BEHIND as each broker says itself.

    Example: pyromq controller status broker-a --watch 1
    """
    found = await fail_over(session.admin, await _controllers(session, controller, cluster), brokers or ())
    if cluster is not None:
        found = dataclasses.replace(found, groups=tuple(each for each in found.groups if each.cluster == cluster))
    wrong = problems(examined(found))
    members = Listing.make(Member, found.members, found.missing, _summary(found, wrong))
    match session.printer.output:
        case Output.table:
            return Listing.make(Controller, found.controllers), members
        case Output.csv | Output.name:
            return members
    session.incomplete(found.missing)
    return {"leader": found.leader, "controllers": found.controllers, "groups": found.groups, "problems": wrong}


def _summary(found: FailOver, wrong: list[str]) -> str:
    groups = [_sentence(group) for group in found.groups] or ["the controllers know none of these brokers"]
    return "\n".join([*groups, "", *(f"! {line}" for line in wrong)] if wrong else [*groups, "all is well"])


def _sentence(group: Group) -> str:
    master = "no master" if group.master is None else f"broker {group.master} is master"
    in_sync = ", ".join(map(str, group.in_sync)) or "none"
    return f"{group.broker}: {master}, epoch {group.epoch}; in sync: {in_sync} (change {group.set_epoch})"


# Changing


@changing(app, "elect", timeout=5.0)
async def elect(
    session: Session,
    broker: BrokerName,
    broker_id: Annotated[
        int | None,
        typer.Argument(metavar="[ID]", help="Its new master; without, the in-sync slave that has most."),
    ] = None,
    controller: ControllerOption = None,
    cluster: ClusterName = None,
) -> Listing[Election] | None:
    """Hand the role of master over to another broker of the group, for example before maintenance.

    Only a live broker that is in sync can be elected. Senders wait a moment and go on at the new master. A broker whose
    machine failed may lack acknowledged messages; if nobody else can be master, name it to elect it all the same.

    Example: pyromq controller elect broker-a 2 --yes
    """
    controllers = await _controllers(session, controller, cluster)
    group = (await fail_over(session.admin, controllers, [broker])).group(broker)
    wanted = candidate(group, broker_id)
    old = f"instead of broker {group.master}" if group.master is not None else "which has none"
    if wanted.id == group.master:
        session.note(f"broker {wanted.id} is master of {broker} already")
        return Listing.make(
            Election, [Election(broker, wanted.id, wanted.id, wanted.address, group.epoch, group.set_epoch)]
        )
    risk = at_risk(group, wanted)
    what = f"make broker {wanted.id} ({wanted.address}) master of {broker} {old}{f': {risk}' if risk else ''}"
    if not session.agreed(what, dangerous=True):
        return None
    won = await session.admin.controllers.elect(controllers, _cluster(cluster, group), broker, wanted.id)
    row = Election(broker, group.master, won.broker_id, won.address, won.epoch, won.set_epoch)
    return Listing.make(Election, [row])


@changing(app, "clean", timeout=5.0)
async def clean(
    session: Session,
    broker: BrokerName,
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="[ID]...", help="Brokers to forget; the whole group without.")
    ] = None,
    *,
    living: Annotated[
        bool, typer.Option("--living", help="The whole group, even while its brokers run. They must be started afresh.")
    ] = False,
    controller: ControllerOption = None,
    cluster: ClusterName = None,
) -> Listing[Change] | None:
    """Make the controllers forget brokers that are gone for good.

    A broker that comes back after that gets a new id only if its file brokerIdentity is deleted.

    Example: pyromq controller clean broker-a 2 --yes
    """
    if living and ids:
        raise CommandFailed(
            "--living forgets the whole group: Apache's controllers ignore the ids then; stop the broker instead",
            Exit.USAGE,
        )
    controllers = await _controllers(session, controller, cluster)
    group = (await fail_over(session.admin, controllers, [broker])).group(broker)
    for each in ids or ():
        group.member(each)  # raises RouteNotFound
    what = f"broker {', '.join(map(str, ids))} of {broker}" if ids else f"all of {broker}"
    while_running = ", even while it runs" if living else ""
    if not session.agreed(f"forget {what} at the controllers{while_running}", dangerous=True):
        return None
    name = _cluster(cluster, group)
    await session.admin.controllers.clean(controllers, broker, ids or (), cluster=name, living=living)
    return changes(what, "forgotten", [";".join(controllers)])


# Settings


@reading(config, "get")
async def get(
    session: Session,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Only these keys.")] = None,
    controller: ControllerOption = None,
    cluster: ClusterName = None,
) -> Listing[Any] | dict[str, str]:
    """Show the settings of every controller.

    Example: pyromq controller config get enableElectUncleanMaster
    """
    addresses = await _all(session, controller, cluster)
    configs, missing = await partly(session.admin.controllers.config(addresses))
    return shown(configs, keys or (), missing)


@changing(config, "set")
async def set_config(
    session: Session,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings to change; also KEY VALUE.")],
    controller: ControllerOption = None,
    cluster: ClusterName = None,
) -> Listing[SettingChange] | None:
    """Change settings on every controller, at once and in its file.

    Example: pyromq controller config set enableElectUncleanMaster=false
    """
    wanted = pairs_of(pairs)
    addresses = await _all(session, controller, cluster)
    before = await session.admin.controllers.config(addresses)
    note_unknown(session, before, wanted)
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    unclean = wanted.get("enableElectUncleanMaster", "").lower() == "true"
    warning = ": a broker that lacks messages may become master" if unclean else ""
    if not session.agreed(f"set {said} on {', '.join(before)}{warning}", dangerous=unclean):
        return None
    await session.admin.controllers.set_config(addresses, wanted)
    return compared(before, await session.admin.controllers.config(addresses), wanted)


# Where


async def _controllers(session: Session, given: str | None, cluster: str | None) -> tuple[str, ...]:
    """Addresses of one group of controllers: as given, of the context, or as brokers and name servers tell."""
    if named := split_addresses(given or session.target.controller or ""):
        return named
    found = await controllers_in_use(session.admin, cluster)
    if not found:
        raise CommandFailed(
            f"no broker or name server at {session.target.namesrv} has a controller; name one with --controller",
            Exit.NOT_FOUND,
        )
    if len(found) > 1:
        groups = " and ".join(";".join(each) for each in found)
        raise CommandFailed(f"there are several groups of controllers: {groups}; choose one with --controller or -c")
    return found[0]


async def _all(session: Session, given: str | None, cluster: str | None) -> list[str]:
    """All controllers of the group, the peers included, whether they answer or not."""
    views = await session.admin.controllers.views(await _controllers(session, given, cluster))
    views.some()
    return [*views.results, *views.failures]


def _cluster(given: str | None, group: Group) -> str:
    if name := given or group.cluster:
        return name
    raise CommandFailed(f"no broker of {group.broker} tells its cluster; name it with -c", Exit.USAGE)
