"""`/topics`: the list, and of each topic its queues, groups, producers, settings, and a form to send messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse

from pyromq.admin.asking import fan_out, partly
from pyromq.admin.groups.members import producer_list
from pyromq.admin.messages.viewing import DELAY_LEVELS
from pyromq.admin.topic_kinds import TopicKind
from pyromq.admin.topics import topic_route, topic_settings, topic_stats
from pyromq.errors import ConfigError, TopicNotFound

from ..access.roles import Role
from ..web.asked import segment
from ..web.languages import gettext as _
from ..web.routing import action, page
from ..web.tables import cut
from .overview import span_of
from .publishing import blank, publish_now

if TYPE_CHECKING:
    from starlette.responses import Response

    from ..web.asked import Asked

PERMS = {"rw": 6, "r": 4, "w": 2}
TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
_COLUMNS: dict[str, Any] = {
    "topic": lambda topic: topic.topic.lower(),
    "in_tps": lambda topic: topic.in_tps,
    "messages": lambda topic: topic.end,
    "groups": lambda topic: topic.groups,
    "queues": lambda topic: topic.write_queues,
}


async def topics(ask: Asked) -> Response:
    word, system = ask.text("q").lower(), bool(ask.text("all"))
    rows = [
        topic
        for topic in ask.seen.topics.values()
        if (system or topic.kind is TopicKind.NORMAL) and word in topic.topic.lower()
    ]
    table = cut(ask, rows, _COLUMNS, first="topic", keep={"q": ask.text("q"), "all": ask.text("all")})
    clusters = sorted({each.row.cluster for each in ask.seen.brokers})
    return ask.page(
        "topics/list.html",
        {
            "title": _("Topics"),
            "table": table,
            "q": ask.text("q"),
            "all": system,
            "clusters_of_brokers": clusters,
            "types": TYPES,
        },
    )


async def topic_frame(ask: Asked, tab: str, **values: Any) -> dict[str, Any]:
    """What every tab of a topic shows."""
    name = ask.part("topic")
    topic = ask.seen.topics.get(name)
    if topic is None:
        async with ask.deadline():
            await ask.admin.topics.route(name)  # it may be newer than the last look; raises TopicNotFound
    return {
        "title": name,
        "topic": name,
        "known": topic,
        "tab": tab,
        "home": f"/topics/{segment(name)}",
        "readable": topic is None or "r" in topic.perm,
        **values,
    }


async def queues(ask: Asked) -> Response:
    frame = await topic_frame(ask, "queues")
    async with ask.deadline():
        stats, route = await asyncio.gather(
            topic_stats(ask.admin, ask.part("topic")), topic_route(ask.admin, ask.part("topic"))
        )
    most = max((row.messages or 0 for row in stats.rows), default=0)
    return ask.page("topics/queues.html", frame | {"stats": stats, "route": route, "most": most})


async def groups(ask: Asked) -> Response:
    frame = await topic_frame(ask, "groups")
    async with ask.deadline():
        names, missing = await partly(ask.admin.topics.groups(ask.part("topic")))
        answers = await fan_out(names, lambda name: ask.admin.groups.progress(name, ask.part("topic")))
    rows: list[dict[str, Any]] = []
    for name in names:
        progress = answers.results.get(name)
        seen = ask.seen.groups.get(name)
        rows.append(
            {
                "group": name,
                "lag": progress.lag if progress else None,
                "tps": progress.tps if progress else None,
                "seen": seen,
            }
        )
    rows.sort(key=lambda row: -(row["lag"] or 0))
    return ask.page("topics/groups.html", frame | {"rows": rows, "missing_servers": missing})


async def producers(ask: Asked) -> Response:
    frame = await topic_frame(ask, "producers")
    async with ask.deadline():
        brokers = await ask.admin.brokers.of_topic(ask.part("topic"))
        found = await producer_list(ask.admin)
    rows = [row for row in found.rows if set(row.brokers) & set(brokers)]
    return ask.page("topics/producers.html", frame | {"rows": rows, "missing_servers": found.missing})


async def publish_form(ask: Asked) -> Response:
    frame = await topic_frame(ask, "publish")
    async with ask.deadline():
        route = await topic_route(ask.admin, ask.part("topic"))
    return ask.page(
        "topics/publish.html",
        frame | {"draft": blank(ask), "sent": (), "route": route, "levels": DELAY_LEVELS, "error": ""},
    )


async def publish(ask: Asked) -> Response:
    frame = await topic_frame(ask, "publish")
    form = await ask.form()
    async with ask.deadline():
        route = await topic_route(ask.admin, ask.part("topic"))
    draft, sent, error = await publish_now(ask, ask.part("topic"), form)
    values = {"draft": draft, "sent": sent, "route": route, "levels": DELAY_LEVELS, "error": error}
    return ask.page("topics/publish.html", frame | values, 400 if error else 200)


async def config(ask: Asked) -> Response:
    frame = await topic_frame(ask, "config", span=span_of(ask))
    async with ask.deadline():
        settings = await topic_settings(ask.admin, ask.part("topic"))
    return ask.page("topics/config.html", frame | {"settings": settings})


async def create(ask: Asked) -> Response:
    form = await ask.form()
    name = form.needed("topic", _("The name"))
    queues = form.number("queues", 8, most=1024)
    kind = form.text("type") if form.text("type") in TYPES else ""
    if name in ask.seen.topics:
        raise ConfigError(_("Topic %(topic)s exists already.") % {"topic": name})
    async with ask.changing("create topic", name, f"{queues} queues {kind}".strip()), ask.deadline(5):
        await ask.admin.topics.create(
            name,
            cluster=form.text("cluster") or None,
            read_queues=queues,
            write_queues=queues,
            perm=PERMS.get(form.text("perm"), 6),
            attributes={"message.type": kind} if kind and kind != "NORMAL" else None,
        )
    await ask.cluster.sampler.look()
    return ask.done(_("Topic %(topic)s is there.") % {"topic": name}, f"/topics/{segment(name)}")


async def update(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("topic")
    read, write = form.number("read_queues", 8, most=1024), form.number("write_queues", 8, most=1024)
    perm = form.text("perm")
    broker = form.text("broker")
    if not read or not write or perm not in PERMS:
        raise ConfigError(_("Give the number of queues, and a permission."))
    async with (
        ask.changing("change topic", name, f"{broker}: read {read}, write {write}, perm {perm}"),
        ask.deadline(5),
    ):
        await ask.admin.topics.update(
            name, brokers=[broker] if broker else None, read_queues=read, write_queues=write, perm=PERMS[perm]
        )
    return ask.done(_("Topic %(topic)s is changed.") % {"topic": name}, f"/topics/{segment(name)}/config")


async def delete(ask: Asked) -> Response:
    form, name = await ask.form(), ask.part("topic")
    if form.text("name") != name:
        raise ConfigError(_("Type the name of the topic to delete it."))
    async with ask.changing("delete topic", name), ask.deadline(5):
        if name not in ask.seen.topics and name not in await ask.admin.topics.names():
            raise TopicNotFound(f"there is no topic {name}")
        await ask.admin.topics.delete(name)
    await ask.cluster.sampler.look()
    return ask.done(_("Topic %(topic)s is deleted.") % {"topic": name}, "/topics")


async def to_messages(ask: Asked) -> Response:
    return RedirectResponse(ask.url(f"/topics/{segment(ask.part('topic'))}"), 303)


ENDPOINTS = [
    page("/topics", topics),
    action("/topics", create),
    page("/topics/{topic}/messages", to_messages),
    page("/topics/{topic}/queues", queues),
    page("/topics/{topic}/groups", groups),
    page("/topics/{topic}/producers", producers),
    page("/topics/{topic}/publish", publish_form, Role.OPERATOR),
    action("/topics/{topic}/publish", publish),
    page("/topics/{topic}/config", config),
    action("/topics/{topic}/config", update),
    action("/topics/{topic}/delete", delete, Role.ADMIN),
]
