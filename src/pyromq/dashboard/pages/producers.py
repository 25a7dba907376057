"""`/producers`: all of them, without typing a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.admin.groups.members import producer_list

from ..web.languages import gettext as _
from ..web.routing import page

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked


async def producers(ask: Asked) -> Response:
    async with ask.deadline():
        found = await producer_list(ask.admin)
    word = ask.text("q").lower()
    rows = [row for row in found.rows if word in f"{row.group} {row.client} {row.address}".lower()]
    values = {
        "title": _("Producers"),
        "rows": rows[:500],
        "total": len(rows),
        "missing_servers": found.missing,
        "q": ask.text("q"),
    }
    return ask.page("producers.html", values)


ENDPOINTS = [page("/producers", producers)]
