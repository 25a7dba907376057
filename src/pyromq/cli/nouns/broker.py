"""`pyromq broker <verb>`: inspect, configure and clean running brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyromq.admin.cluster.brokers import Drained, Ping, cluster_table, drain_broker, ping_brokers, undrain_broker
from pyromq.admin.cluster.replication import FailOverRow, ReplicaRow, replication_table
from pyromq.admin.groups.lag import broker_lag
from pyromq.admin.listing import Listing
from pyromq.client.admin.addresses import brokers_in, replicas
from pyromq.client.admin.fan_out import Answers, fan_out
from pyromq.errors import RouteNotFound

from ..failures import CommandFailed, Exit, nearest
from ..parameters import ClusterName, Place, pairs_of
from ..session import Session
from ..verbs import changing, new_app, reading, run_app
from .changes import Change, SettingChange, changes, compared, note_unknown, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

app = new_app("Inspect and manage running brokers. Without a verb, `pyromq broker` runs one.")
config = new_app("Show and change broker settings.")
clean = new_app("Delete unneeded files now instead of at night.")
app.add_typer(config, name="config")
app.add_typer(clean, name="clean")

BrokerArgument = Annotated[
    str | None, typer.Argument(metavar="[BROKER]", help="Name or address; all brokers if omitted.", show_default=False)
]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.", show_default=False)]


def main(arguments: list[str]) -> int:
    return run_app(app, "broker", arguments)


# Looking


@reading(app, "list")
async def list_brokers(session: Session, cluster: ClusterName = None) -> Listing[Any]:
    """List all brokers; the same as `pyromq cluster list`.

    Example: pyromq broker list -o json
    """
    return await cluster_table(session.admin, cluster)


@reading(app, "status")
async def status(
    session: Session, broker: BrokerArgument = None, cluster: ClusterName = None
) -> Listing[Any] | dict[str, str]:
    """Show the runtime figures of brokers.

    Example: pyromq broker status broker-a
    """
    answers = await _ask(session, broker, cluster, session.admin.brokers.runtime)
    return shown(answers.some(), missing=answers.missing)


@reading(app, "lag", timeout=10.0)
async def lag(
    session: Session,
    broker: BrokerArgument = None,
    min_lag: Annotated[
        int, typer.Option("-l", "--min-lag", metavar="N", help="Only queues at least this far behind.")
    ] = 0,
    ordered: Annotated[bool, typer.Option("--ordered", help="Only ordered topics.")] = False,
) -> Listing[Any]:
    """Show the lag of all groups on a broker, in one request.

    Example: pyromq broker lag broker-a --min-lag 1000
    """
    found = await broker_lag(session.admin, await _places(session, broker, None), ordered=ordered)
    rows = [row for row in found.rows if row.lag >= min_lag]
    summary = f"lag {sum(row.lag for row in found.rows)} in {len(found.rows)} queues, {len(rows)} shown"
    return Listing.make(found.of, rows, found.missing, summary)


@reading(app, "ping")
async def ping(
    session: Session,
    broker: BrokerArgument = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Requests per broker.")] = 5,
) -> Listing[Ping]:
    """Measure how fast a broker answers. Sends no messages.

    Example: pyromq broker ping broker-a --count 20
    """
    places = await _places(session, broker, None)
    return await ping_brokers(session.admin, {address: name for name, address in places.items()}, count)


@reading(app, "ha")
async def ha(
    session: Session,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", metavar="NAME", help="Only this broker and its slaves.")
    ] = None,
) -> Listing[ReplicaRow] | Listing[FailOverRow]:
    """Replication: who follows whom, how far behind, since when, and what is wrong.

    Where controllers decide who is master, also each broker's epoch and whether it is in sync.

    Example: pyromq broker ha -b broker-a --watch 1
    """
    return await replication_table(session.admin, broker)


# Settings


@reading(config, "get")
async def get(
    session: Session,
    broker: BrokerArgument = None,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Only these keys.")] = None,
    cluster: ClusterName = None,
) -> Listing[Any] | dict[str, str]:
    """Show broker settings, under RocketMQ's keys.

    Example: pyromq broker config get broker-a fileReservedTime
    """
    if broker is not None and ":" not in broker:
        known = brokers_in(await session.admin.brokers.cluster_info())
        if broker not in known and not nearest(broker, known):
            # Neither a broker nor similar to one: a key, for all brokers.
            keys = [broker, *(keys or ())]
            broker = None
    answers = await _ask(session, broker, cluster, session.admin.brokers.config)
    return shown(answers.some(), keys or (), answers.missing)


@changing(config, "set")
async def set_config(
    session: Session,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings to change; also KEY VALUE.")],
    place: Place,
) -> Listing[SettingChange] | None:
    """Change broker settings, at once and in their files. Needs -b or -c.

    Example: pyromq broker config set fileReservedTime=48 -b broker-a
    """
    wanted = pairs_of(pairs)
    if not place.brokers and place.cluster is None:
        raise CommandFailed("choose brokers with -b BROKER, or -c CLUSTER for all brokers of a cluster", Exit.USAGE)
    if place.brokers:
        named = [await _places(session, each, None) for each in place.brokers]
        places = {name: address for each in named for name, address in each.items()}
    else:
        info = await session.admin.brokers.cluster_info()
        places = {each.address: each.address for each in replicas(info, place.cluster)}
    before = await fan_out(places, session.admin.brokers.config)
    if before.missing:
        raise before.missing[0].error
    note_unknown(session, before.results, wanted)
    said = ", ".join(f"{key}={value}" for key, value in wanted.items())
    if not session.agreed(f"set {said} on {', '.join(places)}"):
        return None
    await session.admin.brokers.set_config(wanted, brokers=list(places.values()))
    after = await fan_out(places, session.admin.brokers.config)
    return compared(before.results, after.results, wanted)


# Draining


@changing(app, "drain")
async def drain(session: Session, broker: BrokerName) -> Listing[Drained] | None:
    """Stop sends to a broker, so that you can shut it down once everything is consumed.

    Name servers remove it from producers' routes at once; its brokerPermission setting keeps it that way.

    Example: pyromq broker drain broker-a
    """
    address = (await _named(session, broker))[broker]
    if not session.agreed(f"make broker {broker} read-only"):
        return None
    return await drain_broker(session.admin, broker, address)


@changing(app, "undrain")
async def undrain(session: Session, broker: BrokerName) -> Listing[Drained] | None:
    """Undo `drain`.

    Example: pyromq broker undrain broker-a
    """
    address = (await _named(session, broker))[broker]
    if not session.agreed(f"let producers send to broker {broker} again"):
        return None
    return await undrain_broker(session.admin, broker, address)


# Cleaning


@changing(clean, "queues", timeout=30.0)
async def clean_queues(session: Session, place: Place) -> Listing[Change] | None:
    """Delete consume queues whose messages have all left the log.

    Example: pyromq broker clean queues -b broker-a --yes
    """
    what = "delete consume queues without messages"
    return await _clean(session, what, session.admin.brokers.clean_queues, place)


@changing(clean, "topics", timeout=30.0)
async def clean_topics(session: Session, place: Place) -> Listing[Change] | None:
    """Delete consume queues of topics that do not exist.

    Example: pyromq broker clean topics -c DefaultCluster --yes
    """
    what = "delete consume queues of topics that do not exist"
    return await _clean(session, what, session.admin.brokers.clean_topics, place)


@changing(clean, "log", timeout=30.0)
async def clean_log(session: Session, place: Place) -> Listing[Change] | None:
    """Delete expired commit log files.

    Example: pyromq broker clean log --yes
    """
    what = "delete expired files of the commit log"
    return await _clean(session, what, session.admin.brokers.clean_log, place)


async def _clean(
    session: Session, what: str, operation: Callable[..., Awaitable[list[str]]], place: Place
) -> Listing[Change] | None:
    if not session.agreed(f"{what} on {place}", dangerous=True):
        return None
    return changes(what.partition(" ")[2], "deleted", await operation(**place.chosen))


# Where


async def _ask(
    session: Session, broker: str | None, cluster: str | None, ask: Callable[[str], Awaitable[dict[str, str]]]
) -> Answers[dict[str, str]]:
    return await fan_out(await _places(session, broker, cluster), ask)


async def _places(session: Session, broker: str | None, cluster: str | None) -> dict[str, str]:
    """Addresses by broker name or address."""
    if broker is not None and ":" in broker:
        return {broker: broker}
    if broker is not None:
        return await _named(session, broker)
    return brokers_in(await session.admin.brokers.cluster_info(), cluster)


async def _named(session: Session, broker: str) -> dict[str, str]:
    known = brokers_in(await session.admin.brokers.cluster_info())
    if broker not in known:
        near = nearest(broker, known) or sorted(known)
        raise RouteNotFound(f"there is no broker {broker}; known brokers: {', '.join(near) or 'none'}")
    return {broker: known[broker]}
