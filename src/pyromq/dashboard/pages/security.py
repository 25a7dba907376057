"""`/security`: users of this dashboard; accounts of 4.x, users and policies of 5.x. Secrets are never shown."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from pyromq.admin.accounts import account_list, acl_files
from pyromq.admin.users import policy_list, user_list
from pyromq.errors import ConfigError, PyroMQError, RequestCodeNotSupported

from ..access.roles import Role
from ..web.languages import gettext as _
from ..web.routing import action, page

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.responses import Response

    from ..web.asked import Asked, Form


async def security(ask: Asked) -> Response:
    async with ask.deadline(4):
        accounts, files, users, policies = await asyncio.gather(
            *(
                _if_supported(found)
                for found in (
                    account_list(ask.admin),
                    acl_files(ask.admin),
                    user_list(ask.admin),
                    policy_list(ask.admin),
                )
            )
        )
    people = await ask.site.users.all() if ask.site.config.login and ask.visitor.may(Role.ADMIN) else []
    values = {
        "accounts": accounts,
        "files": files,
        "users": users,
        "policies": policies,
        "people": people,
        "roles": list(Role),
    }
    return ask.page("security.html", {"title": _("Security"), **values})


async def _if_supported(found: Awaitable[Any]) -> tuple[Any, str]:
    """A table, or why brokers do not give it."""
    try:
        return await found, ""
    except RequestCodeNotSupported:
        return None, _("The brokers do not have this kind of access control, or it is off.")
    except (PyroMQError, TimeoutError) as exc:
        reason = str(exc) or _("no answer in time")
        if "not supported" in reason or "RequestCodeNotSupported" in reason:
            reason = _("The brokers do not have this kind of access control, or it is off.")
        return None, reason


def _role(form: Form) -> Role:
    try:
        return Role[form.text("role").upper()]
    except KeyError:
        raise ConfigError(_("Choose a role.")) from None


async def add_user(ask: Asked) -> Response:
    form = await ask.form()
    name, role = form.needed("name", _("The name")), _role(form)
    if await ask.site.users.get(name) is not None:
        raise ConfigError(_("User %(name)s exists already.") % {"name": name})
    password = secrets.token_urlsafe(9)
    async with ask.changing("add user", name, role.word):
        await ask.site.users.put(name, password, role, one_time=True)
    text = _("User %(name)s is there. The one-time password is %(password)s; it is not shown again.")
    return ask.done(text % {"name": name, "password": password}, "/security")


async def change_user(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("name")
    if await ask.site.users.get(name) is None:
        raise ConfigError(_("There is no user %(name)s.") % {"name": name})
    if form.text("do") == "delete":
        async with ask.changing("delete user", name):
            await ask.site.users.delete(name)
        text = _("User %(name)s is deleted.") % {"name": name}
    elif form.text("do") == "password":
        password = secrets.token_urlsafe(9)
        user = await ask.site.users.get(name)
        async with ask.changing("reset password", name):
            await ask.site.users.put(name, password, user.role if user else Role.VIEWER, one_time=True)
        text = _("The one-time password of %(name)s is %(password)s; it is not shown again.") % {
            "name": name,
            "password": password,
        }
    else:
        role = _role(form)
        async with ask.changing("change role", name, role.word):
            await ask.site.users.set_role(name, role)
        text = _("%(name)s is now %(role)s.") % {"name": name, "role": role.word}
    ask.site.sessions.end_all(name)
    return ask.done(text, "/security")


ENDPOINTS = [
    page("/security", security),
    action("/security/users", add_user, Role.ADMIN),
    action("/security/users/{name}", change_user, Role.ADMIN),
]
