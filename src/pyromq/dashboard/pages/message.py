"""`/m/…`: one message, for ever at the same address: body, properties, what became of it, its trace; send it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse, Response

from pyromq.admin.messages.search import message_at
from pyromq.admin.messages.viewing import (
    DELAY_LEVELS,
    deliveries,
    message_view,
    neighbours,
    traced,
    view_of,
)
from pyromq.admin.topics import topic_route
from pyromq.errors import ConfigError

from ..access.roles import Role
from ..web.asked import segment
from ..web.bodies import shown
from ..web.languages import gettext as _
from ..web.routing import action, page
from .messages import home_of
from .publishing import Typed, again, publish_now
from .timeline import timeline

if TYPE_CHECKING:
    from ..web.asked import Asked


async def _found(ask: Asked) -> Any:
    numbers = ask.part("queue"), ask.part("offset")
    if not all(number.isascii() and number.isdigit() and len(number) < 19 for number in numbers):
        raise ConfigError(_("Queue and offset are numbers."))
    return await message_at(ask.admin, ask.part("topic"), ask.part("broker"), int(numbers[0]), int(numbers[1]))


async def by_id(ask: Asked) -> Response:
    async with ask.deadline():
        message = await message_view(ask.admin, ask.part("topic"), ask.part("id"))
        return await _page(ask, message)


async def by_place(ask: Asked) -> Response:
    async with ask.deadline():
        return await _page(ask, await _found(ask))


async def _page(ask: Asked, message: Any) -> Response:
    view = view_of(message)
    before, after = await neighbours(ask.admin, message)
    where = f"/m/{segment(view.topic)}/{segment(view.broker)}/{view.queue}"
    return ask.page(
        "messages/message.html",
        {
            "title": view.id,
            "view": view,
            "shown": shown(view.body),
            "home": home_of(view),
            "before": f"{where}/{view.offset - 1}" if before else None,
            "after": f"{where}/{view.offset + 1}" if after else None,
        },
    )


async def deliveries_part(ask: Asked) -> Response:
    async with ask.deadline(5):
        rows = await deliveries(ask.admin, await _found(ask))
    return ask.page("messages/deliveries.html", {"rows": rows})


async def trace_part(ask: Asked) -> Response:
    async with ask.deadline():
        view = view_of(await _found(ask))
        found = await traced(ask.admin, view.id, message=view)
    events = found.events.rows if found.events else ()
    return ask.page(
        "messages/trace.html", {"found": found, "picture": timeline(events), "events": events, "name": view.id}
    )


async def body(ask: Asked) -> Response:
    """The bytes as they were sent, to be saved and never shown."""
    async with ask.deadline(10):
        view = view_of(await _found(ask))
    name = "".join(letter if letter.isalnum() else "_" for letter in view.id)[:64]
    headers = {"Content-Disposition": f'attachment; filename="{name}.bin"'}
    return Response(view.body, media_type="application/octet-stream", headers=headers)


async def again_form(ask: Asked) -> Response:
    async with ask.deadline():
        view = view_of(await _found(ask))
    return await _again_page(ask, view, again(view, shown(view.body).text))


async def again_send(ask: Asked) -> Response:
    form = await ask.form()
    topic = form.needed("topic", _("The topic"))
    async with ask.deadline():
        view = view_of(await _found(ask))
    draft, sent, error = await publish_now(ask, topic, form)
    return await _again_page(ask, view, draft, topic, sent=sent, error=error)


async def _again_page(ask: Asked, view: Any, draft: Typed, topic: str | None = None, **result: Any) -> Response:
    topic = topic or view.origin_topic or view.topic
    async with ask.deadline():
        route = await topic_route(ask.admin, topic)
    values = {
        "title": _("Send again"),
        "view": view,
        "home": home_of(view),
        "draft": draft,
        "topic": topic,
        "route": route,
    }
    values |= {"levels": DELAY_LEVELS, "sent": (), "error": ""} | result
    return ask.page("messages/again.html", values, 400 if result.get("error") else 200)


async def to_place(ask: Asked) -> Response:
    return RedirectResponse(ask.url("/messages"), 303)


_PLACE = "/m/{topic}/{broker}/{queue}/{offset}"
ENDPOINTS = [
    page("/m/{topic}/{id}", by_id),
    page(_PLACE, by_place),
    page(f"{_PLACE}/deliveries", deliveries_part),
    page(f"{_PLACE}/trace", trace_part),
    page(f"{_PLACE}/body", body),
    page(f"{_PLACE}/again", again_form, Role.OPERATOR),
    action(f"{_PLACE}/again", again_send),
    page("/m", to_place),
]
