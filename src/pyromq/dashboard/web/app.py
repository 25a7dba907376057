"""The application: the gate, and behind it every page, stream and API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from ..pages import ENDPOINTS
from . import static_files
from .asked import Asked
from .gate import Gate
from .languages import gettext as _
from .routing import failure_page, route, unexpected
from .streams import MOST_STREAMS, EventStream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from ..site import Site


def application(site: Site) -> ASGIApp:
    """What a server calls. The site has to be entered."""
    from .api import api_routes

    routes = [
        Route("/static/{path:path}", _static),
        Route("/healthz", _healthz),
        Route("/events", _events),
        *api_routes(),
        *(route(endpoint) for endpoint in ENDPOINTS),
    ]
    handlers = {404: _not_found, 405: _not_found, 500: unexpected}
    return Gate(Starlette(routes=routes, exception_handlers=handlers), site)


async def _static(request: Request) -> Response:
    return static_files.serve(request.path_params["path"], request.headers.get("if-none-match", ""))


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _events(request: Request) -> Response:
    """One stream for a page: that its cluster was looked at, that jobs went on."""
    if EventStream.open_now >= MOST_STREAMS:
        return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "10"})
    ask = Asked(request)
    return EventStream(ask.site.channel.watch(ask.cluster.name, ask.is_welcome))


async def _not_found(request: Request, error: Exception) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": "there is nothing here"}, 404)
    ask = Asked(request)
    return failure_page(ask, 404, _("Not found"), _("There is no such page."))
