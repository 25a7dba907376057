"""Logging in and out, and changing one's password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from pyromq.errors import ConfigError

from ..access.roles import Visitor
from ..web.asked import local_path
from ..web.gate import COOKIE
from ..web.languages import gettext as _
from ..web.routing import action, page

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked


async def login_form(ask: Asked) -> Response:
    if not ask.site.config.login or ask.visitor.role is not None:
        return RedirectResponse(ask.url("/"), 303)
    return _login_page(ask)


def _login_page(ask: Asked, error: str = "", name: str = "", status: int = 200) -> Response:
    values = {"title": _("Log in"), "error": error, "name": name, "back": local_path(ask.text("back"), "")}
    return ask.page("account/login.html", values, status)


async def login(ask: Asked) -> Response:
    form = await ask.form()
    name, password = form.text("name")[:64], form.raw("password")
    address = ask.visitor.address
    if wait := ask.site.tries.wait(address, name):
        await _audit(ask, name, "refused", "too many tries")
        return _login_page(ask, _("Too many tries. Wait %(seconds)s seconds.") % {"seconds": int(wait) + 1}, name, 429)
    user = await ask.site.users.check(name, password)
    if user is None:
        ask.site.tries.failed(address, name)
        await _audit(ask, name, "refused", "wrong name or password")
        return _login_page(ask, _("The name or the password is wrong."), name, 401)
    ask.site.tries.succeeded(address, name)
    number = ask.site.sessions.begin(user.name, user.role, one_time=user.one_time)
    await _audit(ask, user.name, "done", "")
    base = ask.site.config.base_path
    back = local_path(form.text("back"), "")
    if not back.startswith(f"{base}/"):
        back = f"{base}/"
    response = RedirectResponse(f"{base}/account/password" if user.one_time else back, 303)
    _set_session(ask, response, number)
    return response


async def _audit(ask: Asked, name: str, outcome: str, detail: str) -> None:
    who = Visitor(name, None, ask.visitor.address)
    await ask.site.audit.add(who, "log in", name, outcome, detail=detail)


def _set_session(ask: Asked, response: Response, number: str) -> None:
    secure = ask.request.url.scheme == "https"
    path = ask.site.config.base_path or "/"
    if number:
        response.set_cookie(COOKIE, number, path=path, httponly=True, samesite="lax", secure=secure)
    else:
        response.delete_cookie(COOKIE, path=path, httponly=True, samesite="lax", secure=secure)


async def logout(ask: Asked) -> Response:
    if ask.visitor.session:
        ask.site.sessions.end(ask.visitor.session)
    response = RedirectResponse(f"{ask.site.config.base_path}/login", 303)
    _set_session(ask, response, "")
    return response


async def password_form(ask: Asked) -> Response:
    return ask.page("account/password.html", {"title": _("Change password"), "error": ""})


async def password(ask: Asked) -> Response:
    form, name = await ask.form(), ask.visitor.name
    try:
        if not ask.site.config.login:
            raise ConfigError(_("There is no login here."))
        if ask.site.tries.wait(ask.visitor.address, name):
            raise ConfigError(_("Too many tries. Wait a moment."))
        if await ask.site.users.check(name, form.raw("old")) is None:
            ask.site.tries.failed(ask.visitor.address, name)
            raise ConfigError(_("That is not your password."))
        if form.raw("new") != form.raw("again"):
            raise ConfigError(_("The new passwords are not the same."))
        if form.raw("new") == form.raw("old"):
            raise ConfigError(_("Choose a password that is new."))
        user = await ask.site.users.get(name)
        if user is None:
            raise ConfigError(_("There is no such user."))
        async with ask.changing("change password", name):
            await ask.site.users.put(name, form.raw("new"), user.role)
    except ConfigError as exc:
        return ask.page("account/password.html", {"title": _("Change password"), "error": str(exc)}, 400)
    ask.site.sessions.end_all(name)
    response = ask.done(_("Your password is changed."), "/")
    _set_session(ask, response, ask.site.sessions.begin(user.name, user.role))
    return response


ENDPOINTS = [
    page("/login", login_form, None),
    action("/login", login, None),
    action("/logout", logout, None),
    page("/account/password", password_form),
    action("/account/password", password, None),
]
