"""`/ops`: what `pyromq doctor` finds, name servers and how they differ, their key/value table, the clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyromq.admin.asking import partly
from pyromq.admin.cluster.doctor import examine
from pyromq.errors import PyroMQError

from ..web.languages import gettext as _
from ..web.routing import page

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyromq.admin.asking import Missing

    from ..web.asked import Asked

_ORDER = "ORDER_TOPIC_CONFIG"


async def ops(ask: Asked) -> Response:
    servers: dict[str, dict[str, str]] = {}
    error = ""
    missing: tuple[Missing, ...] = ()
    table: dict[str, str] = {}
    async with ask.deadline():
        try:
            servers, missing = await partly(ask.admin.namesrv.config())
        except PyroMQError as exc:
            error = str(exc)
        try:
            table = await ask.admin.namesrv.list_kv(_ORDER)
        except PyroMQError:
            table = {}
    values = {
        "servers": sorted({*servers, *ask.cluster.source.namesrv}),
        "answering": set(servers),
        "drift": drift(servers),
        "missing_servers": missing,
        "error": error,
        "table": table,
        "sources": [each.source for each in ask.site.clusters.values()],
    }
    return ask.page("ops.html", {"title": _("Checks"), **values})


def drift(configs: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """The settings that name servers do not agree on, except those that are about one machine."""
    keys = {key for config in configs.values() for key in config}
    own = ("address", "port", "path", "home", "ip", "name")
    rows = []
    for key in sorted(keys):
        values = {server: config.get(key) for server, config in configs.items()}
        if len(set(values.values())) > 1 and not any(word in key.lower() for word in own):
            rows.append({"key": key, "values": values})
    return rows


async def findings(ask: Asked) -> Response:
    """The doctor takes a moment, so the page asks for this part by itself."""
    async with ask.deadline(10):
        found = await examine(list(ask.cluster.source.namesrv), ask.cluster.source.client)
    order = {"fail": 0, "warn": 1, "ok": 2}
    rows = sorted(found.rows, key=lambda row: order[row.status.value])
    return ask.page("findings.html", {"rows": rows, "summary": found.summary})


ENDPOINTS = [page("/ops", ops), page("/ops/findings", findings)]
