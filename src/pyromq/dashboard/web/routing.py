"""Pages and actions: each says with its path which role it needs; failures of servers become pages, too."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pyromq.errors import (
    ConfigError,
    ConnectionLost,
    ConsumerNotOnline,
    InvalidFilter,
    InvalidMessage,
    LocalProtocolError,
    NoMessage,
    NoPermission,
    PyroMQError,
    QueryNotFound,
    RequestTimeout,
    RouteNotFound,
    StateError,
    SubscriptionGroupNotExist,
    TooManyRequests,
    TopicNotFound,
)

from ..access.roles import Role
from .asked import Asked
from .languages import gettext as _

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    Handler = Callable[[Asked], Awaitable[Response]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    path: str
    handler: Handler
    method: str
    role: Role | None


def page(path: str, handler: Handler, role: Role | None = Role.VIEWER) -> Endpoint:
    return Endpoint(path, handler, "GET", role)


def action(path: str, handler: Handler, role: Role | None = Role.OPERATOR) -> Endpoint:
    return Endpoint(path, handler, "POST", role)


def route(endpoint: Endpoint) -> Route:
    async def answer(request: Request) -> Response:
        ask = Asked(request)
        if endpoint.role is not None and not ask.visitor.may(endpoint.role):
            await ask.audit("request", f"{request.method} {request.url.path}", "refused", f"needs {endpoint.role.word}")
            text = _("Your role, %(own)s, may not do this; it needs %(needed)s.") % {
                "own": ask.visitor.role.word if ask.visitor.role else "-",
                "needed": endpoint.role.word,
            }
            return failure_page(ask, 403, _("Not allowed"), text)
        try:
            return await endpoint.handler(ask)
        except (PyroMQError, TimeoutError) as exc:
            return failed(ask, exc)

    return Route(endpoint.path, answer, methods=[endpoint.method])


def status_of(error: BaseException) -> int:
    match error:
        case TopicNotFound() | SubscriptionGroupNotExist() | NoMessage() | QueryNotFound() | ConsumerNotOnline():
            return 404
        case RouteNotFound():
            return 404
        case ConfigError() | LocalProtocolError() | InvalidMessage() | InvalidFilter():
            return 400
        case NoPermission():
            return 403
        case StateError() | TooManyRequests():
            return 409
        case RequestTimeout() | TimeoutError():
            return 504
        case ConnectionLost():
            return 502
        case _:
            return 502


def failed(ask: Asked, error: BaseException) -> Response:
    """The page for a failure: what failed, and what to try."""
    status = status_of(error)
    heading = {
        400: _("That does not work"),
        403: _("Refused by the cluster"),
        404: _("Not found"),
        409: _("Not now"),
        504: _("No answer in time"),
    }.get(status, _("The cluster did not answer"))
    return failure_page(ask, status, heading, str(error) or _("no answer in time"))


def failure_page(ask: Asked, status: int, heading: str, text: str) -> Response:
    if ask.wants_part:
        # htmx shows it where the part would have been.
        return ask.page("failure_part.html", {"heading": heading, "text": text}, status)
    return ask.page("failure.html", {"title": heading, "heading": heading, "text": text, "status": status}, status)


async def unexpected(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return PlainTextResponse("Something went wrong here; the log says what.\n", 500)
