"""Forms that send messages: what was typed comes back with the result, so that it can be sent again."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pyromq.admin.messages.viewing import DELAY_LEVELS, Draft, publish
from pyromq.errors import ConfigError, PyroMQError

from ..web.languages import gettext as _

if TYPE_CHECKING:
    from pyromq.admin.messages.viewing import MessageView, Sent

    from ..web.asked import Asked, Form

GROUP = "pyromq_dashboard"
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Typed:
    """The fields of the form."""

    body: str = ""
    encoding: str = "text"
    tags: str = ""
    keys: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    delay: str = ""
    delay_level: int = 0
    shard_key: str = ""
    queue: str = ""
    count: int = 1
    origin: str = ""


def blank(ask: Asked) -> Typed:
    """An empty form; the address may fill in some of it."""
    return Typed(body=ask.text("body"), tags=ask.text("tags"), keys=ask.text("keys"))


def again(view: MessageView, text: str | None) -> Typed:
    """A form with everything that the producer of a message set."""
    body, encoding = (text, "text") if text is not None else (base64.b64encode(view.body).decode(), "base64")
    own = {name: value for name, value in view.own.items() if name != "__SHARDINGKEY"}
    return Typed(
        body=body,
        encoding=encoding,
        tags=view.tags or "",
        keys=" ".join(view.keys),
        properties=tuple(own.items()),
        shard_key=view.own.get("__SHARDINGKEY", ""),
        origin=view.id,
    )


def typed(form: Form) -> Typed:
    names, values = form.texts("property"), form.texts("value")
    return Typed(
        form.raw("body"),
        "base64" if form.text("encoding") == "base64" else "text",
        form.text("tags"),
        form.text("keys"),
        tuple((name, value) for name, value in zip(names, values, strict=False) if name),
        form.text("delay"),
        form.number("delay_level", 0, most=len(DELAY_LEVELS)),
        form.text("shard_key"),
        form.text("queue"),
        max(1, form.number("count", 1, most=_MOST)),
        form.text("origin"),
    )


async def publish_now(ask: Asked, topic: str, form: Form) -> tuple[Typed, list[Sent], str]:
    """What was typed, where it was stored, and why it was not."""
    given = Typed()
    try:
        given = typed(form)
        draft = _draft(topic, given)
        detail = f"again: {given.origin}" if given.origin else f"{given.count} times" if given.count > 1 else ""
        async with ask.cluster.publishing, ask.changing("send message", topic, detail), ask.deadline(10):
            return given, await publish(ask.admin, draft, count=given.count, group=GROUP), ""
    except (PyroMQError, TimeoutError) as exc:
        return given, [], str(exc) or _("no answer in time")


def _draft(topic: str, given: Typed) -> Draft:
    try:
        body = base64.b64decode(given.body, validate=True) if given.encoding == "base64" else given.body.encode()
    except (binascii.Error, ValueError):
        raise ConfigError(_("The body is not base64.")) from None
    draft = Draft(
        topic,
        body,
        given.tags or None,
        tuple(given.keys.split()),
        dict(given.properties),
        delay_level=given.delay_level,
        shard_key=given.shard_key or None,
        at=given.queue or None,
    )
    if given.delay:
        try:
            draft = replace(draft, delay=timedelta(seconds=float(given.delay)))
        except (ValueError, OverflowError):
            raise ConfigError(_("The delay is not a number of seconds.")) from None
    return draft
