"""`/groups`: who consumes what, how far behind, in messages and seconds; clients, subscriptions, offsets, settings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyromq.admin.asking import dlq_topic, retry_topic
from pyromq.admin.groups.lag import group_lag
from pyromq.admin.groups.members import group_inspect, subscription_mismatch
from pyromq.admin.groups.reset import Goal, Move, apply_plan, reset_plan
from pyromq.admin.groups.settings import USUAL, group_configs, group_settings, update_group
from pyromq.admin.times import parse_time
from pyromq.errors import ConfigError, ConsumerNotOnline, PyroMQError, SubscriptionGroupNotExist

from ..access.roles import Role
from ..web.asked import segment
from ..web.languages import gettext as _
from ..web.routing import action, page
from ..web.tables import cut
from .overview import span_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyromq.admin.groups.members import InspectedClient
    from pyromq.admin.groups.reset import ResetPlan

    from ..web.asked import Asked, Form

_COLUMNS: dict[str, Any] = {
    "group": lambda group: group.group.lower(),
    "lag": lambda group: group.lag,
    "seconds": lambda group: group.seconds,
    "out_tps": lambda group: group.out_tps,
    "topics": lambda group: len(group.topics),
    "dead": lambda group: group.dead,
}


async def groups(ask: Asked) -> Response:
    word, system = ask.text("q").lower(), bool(ask.text("all"))
    rows = [group for group in ask.seen.groups.values() if (system or not group.system) and word in group.group.lower()]
    table = cut(ask, rows, _COLUMNS, first="lag", keep={"q": ask.text("q"), "all": ask.text("all")})
    return ask.page("groups/list.html", {"title": _("Groups"), "table": table, "q": ask.text("q"), "all": system})


async def group(ask: Asked) -> Response:
    """Lag over time, and queue by queue."""
    frame = await _frame(ask, "lag")
    lag, error = None, ""
    async with ask.deadline():
        try:
            lag = await group_lag(ask.admin, ask.part("group"), clients=True)
        except ConsumerNotOnline as exc:
            error = str(exc)
    topics: dict[str, list[Any]] = {}
    for row in sorted(lag.rows, key=lambda row: row.topic == frame["retry"]) if lag else ():
        topics.setdefault(row.topic, []).append(row)
    worst = max((row.lag or 0 for row in lag.rows), default=0) if lag else 0
    values = {"lag": lag, "error": error, "topics": topics, "worst": worst, "span": span_of(ask)}
    return ask.page("groups/lag.html", frame | values)


async def _frame(ask: Asked, tab: str) -> dict[str, Any]:
    name = ask.part("group")
    known = ask.seen.groups.get(name)
    if known is None:
        async with ask.deadline():
            if name not in await ask.admin.groups.names():
                raise SubscriptionGroupNotExist(f"no broker knows group {name}")
    return {
        "title": name,
        "group": name,
        "known": known,
        "tab": tab,
        "home": f"/groups/{segment(name)}",
        "retry": retry_topic(name),
        "dlq": dlq_topic(name),
    }


async def clients(ask: Asked) -> Response:
    """Who is online, what they do, and whether they agree on what they want."""
    frame = await _frame(ask, "clients")
    chosen = ask.text("client") or None
    rows: tuple[InspectedClient, ...] = ()
    missing: Any = ()
    async with ask.deadline(8 if chosen else 4):
        try:
            found = await group_inspect(ask.admin, ask.part("group"))
            rows, missing = found.rows, found.missing
            if chosen:
                alone = await group_inspect(ask.admin, ask.part("group"), chosen, stacks=True)
                chosen_client = next((row for row in alone.rows if row.client == chosen), None)
            else:
                chosen_client = None
        except ConsumerNotOnline:
            chosen_client = None
    topics = sorted({topic for row in rows for topic in row.subscriptions or {}})
    matrix = [
        {
            "client": row.client,
            "cells": [(row.subscriptions or {}).get(topic) for topic in topics],
            "differs": odd_one_out(row, rows),
        }
        for row in rows
    ]
    values = {
        "rows": rows,
        "missing_servers": missing,
        "topics": topics,
        "matrix": matrix,
        "mismatch": subscription_mismatch(list(rows)),
        "chosen": chosen_client,
    }
    return ask.page("groups/clients.html", frame | values)


def odd_one_out(row: InspectedClient, rows: tuple[InspectedClient, ...]) -> str:
    """What a client that differs from most of its group brings about; empty if it is like most of them."""
    forms: dict[tuple[tuple[str, str], ...], int] = {}
    for each in rows:
        if each.subscriptions is not None:
            form = tuple(sorted(each.subscriptions.items()))
            forms[form] = forms.get(form, 0) + 1
    if row.subscriptions is None or len(forms) < 2:
        return ""
    own = tuple(sorted(row.subscriptions.items()))
    usual = max(forms, key=lambda form: (forms[form], form))
    if own == usual:
        return ""
    topics = dict(usual)
    missing = sorted(topics.keys() - row.subscriptions.keys())
    more = sorted(row.subscriptions.keys() - topics.keys())
    other = sorted(topic for topic, said in row.subscriptions.items() if topic in topics and topics[topic] != said)
    parts = []
    if missing:
        parts.append(
            _("it does not read %(topics)s: messages in the queues given to it wait for ever")
            % {"topics": ", ".join(missing)}
        )
    if more:
        parts.append(_("it alone reads %(topics)s: queues given to others are not read") % {"topics": ", ".join(more)})
    if other:
        parts.append(
            _("it wants other messages of %(topics)s: brokers keep one subscription only, so one side loses messages")
            % {"topics": ", ".join(other)}
        )
    return "; ".join(parts)


# Offsets


async def offsets(ask: Asked) -> Response:
    frame = await _frame(ask, "offsets")
    values = {"topic": ask.text("topic"), "move": ask.text("move", "time"), "value": ask.text("value")}
    plan, error = None, ""
    if values["topic"]:
        try:
            async with ask.deadline(5):
                plan = await reset_plan(
                    ask.admin, ask.part("group"), values["topic"], goal_of(values["move"], values["value"])
                )
        except (PyroMQError, TimeoutError) as exc:
            error = str(exc) or _("no answer in time")
    topics = frame["known"].topics if frame["known"] else ()
    return ask.page(
        "groups/offsets.html",
        frame
        | {"targets": targets_of(plan) if plan else "", "form": values, "plan": plan, "error": error, "topics": topics},
        400 if error else 200,
    )


async def move_offsets(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("group")
    topic, move, value = form.needed("topic", _("The topic")), form.text("move"), form.text("value")
    goal = goal_of(move, value)
    if move == "time" and (fixed := form.text("fixed")):
        goal = Goal(Move.TIME, when=parse_time(fixed, datetime.now(UTC)))
    async with ask.deadline(8):
        plan = await reset_plan(ask.admin, name, topic, goal)
        _as_seen(plan, form)
        async with ask.changing("move group", f"{name} in {topic}", plan.summary):
            await apply_plan(ask.admin, plan)
    return ask.done(
        _("Group %(group)s is moved: %(summary)s.") % {"group": name, "summary": plan.summary},
        f"/groups/{segment(name)}",
    )


def _as_seen(plan: ResetPlan, form: Form) -> None:
    """The plan must still be about the same queues, and go to the same places, as when it was shown."""
    seen = form.text("targets")
    if seen and seen != targets_of(plan):
        raise ConfigError(_("The queues have changed meanwhile; look at the preview again."))


def targets_of(plan: ResetPlan) -> str:
    """Where a plan leads, for those goals that do not move by themselves."""
    if plan.goal.move in (Move.LATEST, Move.SHIFT, Move.EARLIEST):
        return ",".join(f"{row.broker}:{row.queue}" for row in plan.rows)
    return ",".join(f"{row.broker}:{row.queue}:{row.target}" for row in plan.rows)


def goal_of(move: str, value: str) -> Goal:
    """Raises ConfigError."""
    if move == "earliest":
        return Goal(Move.EARLIEST)
    if move == "latest":
        return Goal(Move.LATEST)
    if move == "time":
        return Goal(Move.TIME, when=parse_time(value or "now", datetime.now(UTC)))
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 18) or (move == "offset" and value != digits):
        raise ConfigError(_("%(value)s is not a number") % {"value": value or "–"})
    if move == "offset":
        return Goal(Move.OFFSET, number=int(value))
    if move == "shift":
        return Goal(Move.SHIFT, number=int(value))
    raise ConfigError(_("Choose where the group should go on."))


# Settings


async def config(ask: Asked) -> Response:
    frame = await _frame(ask, "config")
    async with ask.deadline():
        settings = await group_settings(ask.admin, ask.part("group"))
    return ask.page("groups/config.html", frame | {"settings": settings})


async def create(ask: Asked) -> Response:
    form = await ask.form()
    name = form.needed("group", _("The name"))
    if name in ask.seen.groups:
        raise ConfigError(_("Group %(group)s exists already.") % {"group": name})
    async with ask.changing("create group", name), ask.deadline(5):
        await ask.admin.groups.create(name)
    await ask.cluster.sampler.look()
    return ask.done(_("Group %(group)s is there.") % {"group": name}, f"/groups/{segment(name)}/config")


async def update(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("group")
    changes: dict[str, Any] = {
        USUAL["consume"]: form.on("consume"),
        USUAL["from_min"]: form.on("from_min"),
        USUAL["broadcast"]: form.on("broadcast"),
        USUAL["orderly"]: form.on("orderly"),
        USUAL["retry_queues"]: form.number("retry_queues", 1, most=64),
        USUAL["retry_max"]: form.number("retry_max", 16, most=1000),
    }
    said = ", ".join(f"{key}={value}" for key, value in changes.items())
    async with ask.changing("change group", name, f"{form.text('broker')}: {said}"), ask.deadline(5):
        broker = form.text("broker")
        configs = await group_configs(ask.admin, name, brokers=[broker] if broker else None)
        await update_group(ask.admin, configs, changes)
    return ask.done(_("Group %(group)s is changed.") % {"group": name}, f"/groups/{segment(name)}/config")


async def delete(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("group")
    if form.text("name") != name:
        raise ConfigError(_("Type the name of the group to delete it."))
    async with ask.changing("delete group", name), ask.deadline(5):
        await ask.admin.groups.delete(name, remove_offsets=form.on("offsets"))
    await asyncio.shield(ask.cluster.sampler.look())
    return ask.done(_("Group %(group)s is deleted.") % {"group": name}, "/groups")


ENDPOINTS = [
    page("/groups", groups),
    action("/groups", create),
    page("/groups/{group}", group),
    page("/groups/{group}/clients", clients),
    page("/groups/{group}/offsets", offsets),
    action("/groups/{group}/offsets", move_offsets),
    page("/groups/{group}/config", config),
    action("/groups/{group}/config", update),
    action("/groups/{group}/delete", delete, Role.ADMIN),
]
