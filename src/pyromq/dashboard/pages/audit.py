"""`/audit`: who did what, and what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..web.languages import gettext as _
from ..web.routing import page

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked

_SHOWN = 100


async def audit(ask: Asked) -> Response:
    before = ask.number("before", 0, most=2**53) or None
    entries = await ask.site.audit.entries(text=ask.text("q"), before=before, limit=_SHOWN + 1)
    more = entries[_SHOWN - 1].id if len(entries) > _SHOWN else None
    return ask.page(
        "audit.html",
        {"title": _("Audit"), "entries": entries[:_SHOWN], "q": ask.text("q"), "more": more, "before": before},
    )


ENDPOINTS = [page("/audit", audit)]
