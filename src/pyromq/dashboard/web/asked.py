"""Asked: a request as a page sees it, with everything a page needs to answer."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse

from pyromq.admin.asking import within
from pyromq.errors import ConfigError, PyroMQError

from .. import __version__
from ..access.roles import Role
from ..config import is_loopback
from ..sampler import DEADLINE, age
from . import static_files
from .languages import LANGUAGES
from .languages import gettext as _
from .rendering import render

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from pyromq.admin.asking import AdminClient
    from pyromq.admin.lookout import Snapshot

    from ..access.roles import Visitor
    from ..site import Cluster, Site

FLASH = "pyromq_flash"
PAGE = 100


@dataclass(frozen=True, slots=True)
class Flash:
    """A sentence that the next page shows."""

    text: str
    bad: bool = False


class Asked:
    """One request. `url` and `redirect` take paths as pages know them, without base path and cluster."""

    def __init__(self, request: Request) -> None:
        self.request = request
        state = request.scope["state"]
        self.site: Site = state["site"]
        self.cluster: Cluster = state["cluster"]
        self.visitor: Visitor = state["visitor"]
        self.root: str = state["root"]
        self.language: str = state["language"]

    @property
    def admin(self) -> AdminClient:
        return self.cluster.admin

    @property
    def seen(self) -> Snapshot:
        return self.cluster.seen

    @property
    def wants_part(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return "hx-request" in self.request.headers

    def is_welcome(self) -> bool:
        """Whether the visitor is still logged in: a stream outlives the request that began it."""
        number = self.visitor.session
        return number is None or self.site.sessions.is_alive(number)

    # What was asked

    def part(self, name: str) -> str:
        """A variable part of the path."""
        return str(self.request.path_params[name])

    def text(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int, *, most: int = 10**9) -> int:
        return whole(self.text(name), name, default, most=most)

    async def form(self) -> Form:
        return Form(await self.request.form(max_fields=500, max_files=4))

    # Answers

    def url(self, path: str, **query: object) -> str:
        given = {name: value for name, value in query.items() if value not in (None, "", False)}
        return self.root + path + (f"?{urlencode(given)}" if given else "")

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        flash = self._flash()
        response = HTMLResponse(render(template, self._common() | {"flash": flash} | dict(values)), status)
        if flash is not None:
            response.delete_cookie(FLASH, path=self.site.config.base_path or "/")
        return response

    def done(self, text: str, path: str, *, bad: bool = False) -> Response:
        """Go on to another page, which says what was done."""
        response = RedirectResponse(self.url(path), 303)
        value = quote(json.dumps([text[:1500], bad], ensure_ascii=False))
        response.set_cookie(
            FLASH, value, max_age=60, path=self.site.config.base_path or "/", httponly=True, samesite="lax"
        )
        return response

    def _flash(self) -> Flash | None:
        from urllib.parse import unquote

        try:
            text, bad = json.loads(unquote(self.request.cookies.get(FLASH, "")))
        except (ValueError, TypeError):
            return None
        return Flash(str(text), bool(bad))

    def _common(self) -> dict[str, Any]:
        config = self.site.config
        theme = self.request.cookies.get("theme", "")
        return {
            "ask": self,
            "url": self.url,
            "static": lambda name: f"{config.base_path}/static/{static_files.version()}/{name}",
            "visitor": self.visitor,
            "seen": self.seen,
            "age": age(self.seen),
            "cluster": self.cluster.name,
            "clusters": list(self.site.clusters),
            "base": config.base_path,
            "login": config.login,
            "open_to_all": not config.login and not is_loopback(config.host),
            "language": self.language,
            "languages": LANGUAGES,
            "theme": theme if theme in ("light", "dark") else "",
            "path": self.request.scope["path"],
            "pyromq_version": __version__,
            "may_operate": self.visitor.may(Role.OPERATOR),
            "may_admin": self.visitor.may(Role.ADMIN),
        }

    # Doing

    @asynccontextmanager
    async def deadline(self, seconds: float = DEADLINE) -> AsyncIterator[None]:
        async with within(seconds):
            yield

    @asynccontextmanager
    async def changing(self, action: str, target: str, detail: str = "") -> AsyncIterator[None]:
        """Notes in the audit what is done here, and how it ended."""
        try:
            yield
        except (PyroMQError, TimeoutError) as exc:
            await self.audit(action, target, "failed", str(exc))
            raise
        await self.audit(action, target, "done", detail)
        self.cluster.sampler.look_soon()

    async def audit(self, action: str, target: str, outcome: str, detail: str = "") -> None:
        await self.site.audit.add(self.visitor, action, target, outcome, cluster=self.cluster.name, detail=detail)


class Form:
    """The fields of a form. What cannot be read raises ConfigError, which the page shows."""

    def __init__(self, data: FormData) -> None:
        self._data = data

    def text(self, name: str, default: str = "") -> str:
        value = self._data.get(name, default)
        return value.strip() if isinstance(value, str) else default

    def raw(self, name: str) -> str:
        """With its blanks and line ends, which browsers write as CR LF."""
        value = self._data.get(name, "")
        return value.replace("\r\n", "\n") if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        return [value.strip() for value in self._data.getlist(name) if isinstance(value, str)]

    def needed(self, name: str, label: str) -> str:
        if not (value := self.text(name)):
            raise ConfigError(_("%(field)s is missing") % {"field": label})
        return value

    def number(self, name: str, default: int, *, most: int = 10**9) -> int:
        return whole(self.text(name), name, default, most=most)

    def on(self, name: str) -> bool:
        return self.text(name) not in ("", "0", "false", "off")


def whole(text: str, name: str, default: int, *, most: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) > most:
        raise ConfigError(f"{name}: {text!r} is not a number from 0 to {most}")
    return int(text)


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def local_path(text: str, default: str = "/") -> str:
    """Where to go back to, if that is a path of ours: not another site, however it is written."""
    fine = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and "\\" not in text
    return text if fine else default
