"""`/traces/{id}`: what clients say happened to a message, as a time line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from pyromq.admin.messages.viewing import traced

from ..web.asked import segment
from ..web.languages import gettext as _
from ..web.routing import page
from .timeline import timeline

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked


async def traces(ask: Asked) -> Response:
    if name := ask.text("q"):
        return RedirectResponse(ask.url(f"/traces/{segment(name)}"), 303)
    return ask.page("traces.html", {"title": _("Traces"), "name": "", "found": None, "events": (), "picture": None})


async def trace(ask: Asked) -> Response:
    name = ask.part("id")
    async with ask.deadline(5):
        found = await traced(ask.admin, name)
    events = found.events.rows if found.events else ()
    values = {"title": _("Trace"), "name": name, "found": found, "events": events, "picture": timeline(events)}
    return ask.page("traces.html", values)


ENDPOINTS = [page("/traces", traces), page("/traces/{id}", trace)]
