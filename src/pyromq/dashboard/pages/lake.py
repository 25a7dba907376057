"""`/lake`: archived topics; grey, with the reason, where there is no lake."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..lake import lake_state
from ..web.languages import gettext as _
from ..web.routing import page

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked


async def lake(ask: Asked) -> Response:
    state = await asyncio.to_thread(lake_state, ask.site.config.lake, ask.site.read_lake)
    return ask.page(
        "lake.html", {"title": _("Lake"), "state": state, "reason": _(state.reason) if state.reason else ""}
    )


ENDPOINTS = [page("/lake", lake)]
