"""`/brokers`: figures, replication, settings with search and differences, draining."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from pyromq.admin.cluster.brokers import drain_broker, undrain_broker
from pyromq.admin.cluster.replication import replication_table
from pyromq.errors import ConfigError, PyroMQError, RouteNotFound

from ..access.roles import Role
from ..web.asked import segment
from ..web.languages import gettext as _
from ..web.routing import action, page
from .overview import span_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from pyromq.admin.lookout import BrokerSeen

    from ..web.asked import Asked

_SECRET = re.compile(r"secret|password|credential|accesskey|token", re.IGNORECASE)
HIDDEN = "••••••"
_SPARKS = 100
_KEY = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


async def brokers(ask: Asked) -> Response:
    rows = ask.seen.brokers
    now = time.time()
    names = [f"broker/{each.row.address}/in" for each in rows[:_SPARKS]]
    chart = await ask.site.history.chart(ask.cluster.name, names, now - 3600, now)
    sparks = {each.row.address: spark(line.values) for each, line in zip(rows, chart.lines, strict=False)}
    return ask.page("brokers/list.html", {"title": _("Brokers"), "rows": rows, "sparks": sparks})


def spark(values: Sequence[float | None]) -> str:
    """A line of 100 by 20 as a path; empty if there is nothing to draw."""
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    parts = []
    pen_down = False
    for index, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        x, y = index / max(len(values) - 1, 1) * 100, 19 - value / most * 18
        parts.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
    return " ".join(parts) if len(parts) > 1 else ""


async def replication(ask: Asked) -> Response:
    async with ask.deadline(4):
        table = await replication_table(ask.admin)
    return ask.page("brokers/replication.html", {"table": table, "failover": table.of.__name__ == "FailOverRow"})


def _seen(ask: Asked) -> BrokerSeen:
    for each in ask.seen.brokers:
        if each.row.broker == ask.part("name") and str(each.row.id) == ask.part("id"):
            return each
    raise RouteNotFound(
        _("There is no broker %(name)s with id %(id)s.") % {"name": ask.part("name"), "id": ask.part("id")}
    )


async def broker(ask: Asked) -> Response:
    seen = _seen(ask)
    runtime: dict[str, str] = {}
    error = ""
    async with ask.deadline():
        try:
            runtime = await ask.admin.brokers.runtime(seen.row.address)
        except PyroMQError as exc:
            error = str(exc)
    return ask.page(
        "brokers/broker.html",
        _frame(ask, seen, "runtime") | {"runtime": dict(sorted(runtime.items())), "error": error, "span": span_of(ask)},
    )


def _frame(ask: Asked, seen: BrokerSeen, tab: str) -> dict[str, Any]:
    row = seen.row
    return {
        "title": f"{row.broker} #{row.id}",
        "each": seen,
        "tab": tab,
        "home": f"/brokers/{segment(row.broker)}/{row.id}",
    }


async def config(ask: Asked) -> Response:
    """The settings; with `diff`, only those that another broker has otherwise."""
    seen = _seen(ask)
    others = [f"{each.row.broker}/{each.row.id}" for each in ask.seen.brokers if each is not seen]
    other = ask.text("diff") if ask.text("diff") in others else ""
    async with ask.deadline():
        if other:
            addresses = {f"{each.row.broker}/{each.row.id}": each.row.address for each in ask.seen.brokers}
            own, theirs = await asyncio.gather(
                ask.admin.brokers.config(seen.row.address), ask.admin.brokers.config(addresses[other])
            )
        else:
            own, theirs = await ask.admin.brokers.config(seen.row.address), {}
    word = ask.text("q").lower()
    rows = [
        {
            "key": key,
            "value": masked(key, own.get(key)),
            "other": masked(key, theirs.get(key)),
            "differs": bool(other) and own.get(key) != theirs.get(key),
        }
        for key in sorted({*own, *theirs}, key=str.lower)
        if word in key.lower() or word in (own.get(key) or "").lower()
    ]
    if other:
        rows = [row for row in rows if row["differs"]]
    values = {
        "rows": rows,
        "others": others,
        "other": other,
        "q": ask.text("q"),
        "edit": ask.text("edit"),
        "total": len(own),
    }
    return ask.page("brokers/config.html", _frame(ask, seen, "config") | values)


def masked(key: str, value: str | None) -> str | None:
    """Secrets are never sent to a browser."""
    return HIDDEN if value and _SECRET.search(key) else value


async def set_config(ask: Asked) -> Response:
    seen, form = _seen(ask), await ask.form()
    key, value = form.needed("key", _("The key")), form.raw("value")
    if not _KEY.fullmatch(key) or "\n" in value:
        raise ConfigError(_("A key has letters, digits and dots; a value has one line."))
    if value == HIDDEN:
        raise ConfigError(_("Type the secret anew to change it."))
    home = f"/brokers/{segment(seen.row.broker)}/{seen.row.id}/config"
    detail = f"{key}={masked(key, value)}"
    async with ask.changing("change setting", f"{seen.row.broker} #{seen.row.id}", detail), ask.deadline(5):
        await ask.admin.brokers.set_config({key: value}, brokers=[seen.row.address])
        now = (await ask.admin.brokers.config(seen.row.address)).get(key)
    if now != value:
        text = _("The broker was asked to set %(key)s, but says it is %(value)s.") % {
            "key": key,
            "value": masked(key, now) or "–",
        }
        return ask.done(text, home, bad=True)
    return ask.done(_("%(key)s is set.") % {"key": key}, home)


async def drain(ask: Asked) -> Response:
    """Take a broker out of what producers use, or put it back."""
    seen, form = _seen(ask), await ask.form()
    back = form.on("undrain")
    async with ask.changing("undrain broker" if back else "drain broker", seen.row.broker), ask.deadline(5):
        await (undrain_broker if back else drain_broker)(ask.admin, seen.row.broker, seen.row.address)
    text = _("%(broker)s takes messages again.") if back else _("%(broker)s takes no more messages; consumers go on.")
    return ask.done(text % {"broker": seen.row.broker}, f"/brokers/{segment(seen.row.broker)}/{seen.row.id}")


ENDPOINTS = [
    page("/brokers", brokers),
    page("/brokers/replication", replication),
    page("/brokers/{name}/{id}", broker),
    page("/brokers/{name}/{id}/config", config),
    action("/brokers/{name}/{id}/config", set_config, Role.ADMIN),
    action("/brokers/{name}/{id}/drain", drain, Role.ADMIN),
]
