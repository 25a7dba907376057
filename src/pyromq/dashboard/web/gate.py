"""The gate: what every request passes before a page sees it.

    base path    only what lies below it exists; it is removed, and every link gets it again
    host         without a login, a browser must call us by a name of ours
    cluster      /c/{name} selects a cluster other than the first; it becomes part of the base path
    size         a request has an end
    visitor      who asks: by session, by HTTP Basic for the API, or anybody where there is no login
    forms        a change needs the token of the session, and must not come from another site

Every answer gets headers that keep scripts of others out.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse

from ..access.roles import Role, Visitor
from ..config import is_loopback
from . import languages

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ..site import Site

COOKIE = "pyromq_session"
BIGGEST = 8 << 20
_OPEN = ("/login", "/language/", "/static/", "/healthz")
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class TooLarge(HTTPException):
    """The body of a request has no end in sight."""

    def __init__(self) -> None:
        super().__init__(413, "The request is too large.\n")


class Gate:
    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site
        self._base = site.config.base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        limited = _limited(receive, Headers(scope=scope))
        request = Request(scope, limited)
        refusal = self._locate(scope) or self._check_host(request)
        visitor, fresh = (None, None) if refusal else await self._visitor(request)
        language = languages.preferred(request.cookies.get("lang"), request.headers.get("accept-language", "")[:200])
        token = languages.current.set(language)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "no-store")
                if fresh is not None:
                    headers.append("set-cookie", self.cookie(request, fresh))
            await send(message)

        scope["state"]["visitor"] = visitor
        scope["state"]["language"] = language
        try:
            if refusal is None and visitor is not None:
                refusal = await self._refused(request, visitor)
            if refusal is not None:
                await refusal(scope, receive, answer)
            else:
                await self._app(scope, _again(scope["state"].get("read", []), limited), answer)
        except TooLarge as exc:  # while the gate itself was reading
            await PlainTextResponse(exc.detail, exc.status_code)(scope, receive, answer)
        finally:
            languages.current.reset(token)

    def _locate(self, scope: Scope) -> Response | None:
        """Remove the base path and the cluster. Paths that a proxy may read otherwise do not exist."""
        scope.setdefault("state", {})
        scope["state"]["site"] = self._site
        path = scope["path"]
        cluster = self._site.default
        root = self._base
        if self._base:
            if path == self._base:
                return RedirectResponse(f"{self._base}/", 308)
            if not path.startswith(f"{self._base}/"):
                return PlainTextResponse("Not found.\n", 404)
            path = path[len(self._base) :]
        if "\\" in path or "\0" in path or any(segment in (".", "..") for segment in path.split("/")):
            return PlainTextResponse("Not found.\n", 404)
        if path.startswith("/c/"):
            name, _, rest = path[3:].partition("/")
            if name not in self._site.clusters:
                return PlainTextResponse("There is no such cluster.\n", 404)
            cluster = self._site.clusters[name]
            if cluster is not self._site.default:
                root = f"{root}/c/{name}"
            path = f"/{rest}"
        scope["path"] = path
        scope["raw_path"] = path.encode()
        scope["root_path"] = ""
        scope["state"] |= {"cluster": cluster, "root": root}
        return None

    def _check_host(self, request: Request) -> Response | None:
        config = self._site.config
        if not config.asks_for_host:
            return None
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if is_loopback(name) or name == config.host or name in config.hosts:
            return None
        reply = "This dashboard has no login, so it only answers to names of its own; --host-name adds one.\n"
        return PlainTextResponse(reply, 421)

    async def _visitor(self, request: Request) -> tuple[Visitor, str | None]:
        """Who asks, and the number for a new cookie."""
        sessions = self._site.sessions
        address = request.client.host if request.client else "?"
        number = request.cookies.get(COOKIE, "")
        if not self._site.config.login:
            fresh = None if 20 <= len(number) <= 100 else secrets.token_urlsafe(32)
            return Visitor("anybody", Role.ADMIN, address, sessions.token(fresh or number)), fresh
        if number and (session := sessions.get(number)) is not None:
            token = sessions.token(number)
            return Visitor(session.user, session.role, address, token, number, session.one_time), None
        given = request.headers.get("authorization", "")
        if given.lower().startswith("basic ") and request.scope["path"].startswith("/api/"):
            return await self._by_password(given[6:], address), None
        # The form of the login has a token, too: nobody else may log a browser in.
        fresh = None if 20 <= len(number) <= 100 else secrets.token_urlsafe(32)
        return Visitor("", None, address, sessions.token(fresh or number)), fresh

    async def _by_password(self, given: str, address: str) -> Visitor:
        nobody = Visitor("", None, address)
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return nobody
        if self._site.tries.wait(address, name):
            return nobody
        user = await self._site.users.check(name, password)
        if user is None:
            self._site.tries.failed(address, name)
            return nobody
        return nobody if user.one_time else Visitor(user.name, user.role, address)

    async def _refused(self, request: Request, visitor: Visitor) -> Response | None:
        path = request.scope["path"]
        api = path.startswith("/api/")
        if visitor.role is None and not path.startswith(_OPEN):
            if api:
                headers = {"WWW-Authenticate": 'Basic realm="PyroMQ"'}
                return JSONResponse({"error": "log in first"}, 401, headers)
            if request.method in _SAFE:
                to = f"{self._base}/login"
                if path not in ("/", "/events"):
                    query = request.scope["query_string"].decode("latin-1")
                    back = request.scope["state"]["root"] + path + (f"?{query}" if query else "")
                    to = str(
                        request.url.replace(scheme="", netloc="", path=to, query="").include_query_params(back=back)
                    )
                if "hx-request" in request.headers:
                    return PlainTextResponse("", 401, {"HX-Redirect": to})
                return RedirectResponse(to, 303)
            return PlainTextResponse("Log in first.\n", 401)
        if visitor.one_time and path not in ("/account/password", "/logout") and not path.startswith(_OPEN):
            if api:
                return JSONResponse({"error": "change the one-time password first"}, 403)
            return RedirectResponse(f"{self._base}/account/password", 303)
        if request.method not in _SAFE:
            return await self._forged(request, visitor, api=api)
        return None

    async def _forged(self, request: Request, visitor: Visitor, *, api: bool) -> Response | None:
        """A change that another site made a browser ask for."""
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if (origin and urlsplit(origin).netloc != request.headers.get("host")) or site not in ("same-origin", "none"):
            return await self._no(request, visitor, "it came from another site")
        if api and not request.cookies.get(COOKIE):
            # Without a cookie there is nothing to steal; JSON cannot be sent across sites without asking first.
            if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return JSONResponse({"error": "send application/json"}, 415)
            return None
        token = request.headers.get("x-csrf-token") or await _token_in_form(request)
        number = request.cookies.get(COOKIE, "")
        if not token or not number or not self._site.sessions.is_token(number, token):
            return await self._no(request, visitor, "its token is missing or old")
        return None

    async def _no(self, request: Request, visitor: Visitor, why: str) -> Response:
        path = request.scope["path"]
        await self._site.audit.add(visitor, "request", f"{request.method} {path}", "refused", detail=why)
        return PlainTextResponse(f"Refused: {why}. Load the page again.\n", 403)

    def cookie(self, request: Request, number: str) -> str:
        """The Set-Cookie header for a session; with an empty number it is forgotten."""
        secure = "; Secure" if request.url.scheme == "https" else ""
        age = "; Max-Age=0" if not number else ""
        return f"{COOKIE}={number}; Path={self._base or '/'}; HttpOnly; SameSite=Lax{secure}{age}"


async def _token_in_form(request: Request) -> str:
    """The field `csrf` of a form. Its body is kept, so that the page can read it, too."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        return ""
    body = bytearray()
    messages: list[Message] = []
    receive = request.receive
    while True:
        message = await receive()
        messages.append(message)
        body += message.get("body", b"")
        if not message.get("more_body") or message["type"] == "http.disconnect":
            break
    request.scope["state"]["read"] = messages
    # The token is the first field of our forms, before any long one.
    head = bytes(body[:4096]).decode("latin-1")
    return parse_qs(head, max_num_fields=200).get("csrf", [""])[0]


def _again(messages: list[Message], receive: Receive) -> Receive:
    """What the gate has read, and then the rest."""
    left = iter(messages)

    async def again() -> Message:
        return next(left, None) or await receive()

    return again


def _limited(receive: Receive, headers: Headers) -> Receive:
    """The body, and no more of it than allowed."""
    if (length := headers.get("content-length")) is not None and (not length.isdigit() or int(length) > BIGGEST):

        async def refuse() -> Message:
            raise TooLarge

        return refuse
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BIGGEST:
            raise TooLarge
        return message

    return limited
