"""`/dlq`: messages that groups gave up on, and sending them again, many at once, as a job with a result for each."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pyromq.admin.asking import DLQ_PREFIX, dlq_topic
from pyromq.admin.messages.dead_letters import redrive
from pyromq.admin.messages.query import parse_query
from pyromq.admin.messages.ranges import parse_place, topic_ranges
from pyromq.admin.messages.reading import read_ranges
from pyromq.admin.messages.search import Found, message_at, search
from pyromq.errors import ConfigError, NoPermission, PyroMQError, TopicNotFound

from ..access.roles import Role
from ..kept.jobs import RowResult
from ..web.asked import segment
from ..web.languages import gettext as _
from ..web.routing import action, page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.responses import Response

    from ..web.asked import Asked

_MOST_RATE = 10_000


async def letters(ask: Asked) -> Response:
    rows: list[dict[str, Any]] = []
    for name, topic in ask.seen.topics.items():
        if name.startswith(DLQ_PREFIX):
            group = name.removeprefix(DLQ_PREFIX)
            count = topic.messages if topic.messages is not None else topic.end
            rows.append(
                {
                    "group": group,
                    "topic": name,
                    "count": count,
                    "seen": ask.seen.groups.get(group),
                    "brokers": topic.brokers,
                }
            )
    rows.sort(key=lambda row: (-(row["count"] or 0), row["group"]))
    every = bool(ask.text("all"))
    shown = [row for row in rows if every or row["count"] != 0]
    return ask.page(
        "dlq/list.html",
        {"title": _("Dead letters"), "rows": shown, "hidden": len(rows) - len(shown), "total": ask.seen.dead},
    )


async def of_group(ask: Asked) -> Response:
    group = ask.part("group")
    topic = dlq_topic(group)
    found, reason = Found(()), ""
    error = ""
    try:
        query = parse_query(ask.text("q")).in_topic(topic)
        async with ask.deadline(6):
            found = await search(ask.admin, query, limit=100, older=ask.text("older") or None)
        if found.missing and any(isinstance(each.error, NoPermission) for each in found.missing):
            reason = "unreadable"
    except TopicNotFound:
        reason = "none"
    except ConfigError as exc:
        error = str(exc)
    return ask.page(
        "dlq/group.html",
        {
            "title": _("Dead letters of %(group)s") % {"group": group},
            "group": group,
            "topic": topic,
            "found": found,
            "reason": reason,
            "error": error,
            "q": ask.text("q"),
            "older": ask.text("older"),
            "home": f"/dlq/{segment(group)}",
        },
        400 if error else 200,
    )


async def start_redrive(ask: Asked) -> Response:
    """Send the chosen dead letters, or all of them, again."""
    form, group = await ask.form(), ask.part("group")
    topic, to = dlq_topic(group), form.text("to") or None
    rate = form.number("rate", 50, most=_MOST_RATE) or None
    chosen = [] if form.on("all") else form.texts("place")
    if not chosen and not form.on("all"):
        raise ConfigError(_("Choose the dead letters to send again."))
    places = [_place(text) for text in chosen]
    async with ask.deadline():
        if to is not None:
            await ask.admin.topics.route(to)  # raises TopicNotFound
        ranges = None if places else await topic_ranges(ask.admin, topic)
    if ranges is not None and ranges.missing:
        raise ConfigError(
            _("Some brokers do not answer, so not all dead letters can be sent: %(who)s") % {"who": ranges.missing[0]}
        )
    total = ranges.count if ranges is not None else len(places)

    async def messages(failures: list[RowResult]) -> AsyncGenerator[Any, None]:
        if ranges is not None:
            async with aclosing(read_ranges(ask.admin, ranges)) as found:
                async for message in found:
                    yield message
            return
        for text, place in zip(chosen, places, strict=True):
            try:
                yield await message_at(ask.admin, topic, *place)
            except PyroMQError as exc:
                failures.append(RowResult(text, str(exc), failed=True))

    async def work(number: int) -> AsyncGenerator[RowResult, None]:
        failures: list[RowResult] = []
        outcomes = redrive(ask.admin, messages(failures), to=to, rate=rate, producer_group=f"pyromq_redrive_{number}")
        async with aclosing(outcomes) as results:
            async for each in results:
                while failures:
                    yield failures.pop(0)
                if each.error is not None:
                    yield RowResult(each.id, each.error.replace("--to", "“to”"), failed=True)
                else:
                    yield RowResult(each.id, f"{each.topic} {each.at} {each.new_id}")
        for failure in failures:
            yield failure

    what = f"{group} → {to or _('where they came from')}"
    async with ask.changing("re-drive dead letters", group, f"{total} to {to or 'their topics'}, {rate or 'any'}/s"):
        job = await ask.site.jobs.start(
            "redrive", what, work, user=ask.visitor.name, cluster=ask.cluster.name, total=total
        )
    return ask.done(_("%(count)s dead letters are being sent again.") % {"count": total}, f"/jobs/{job.id}")


async def make_readable(ask: Asked) -> Response:
    """Brokers of 4.x create dead-letter topics that can only be written."""
    group = ask.part("group")
    topic = dlq_topic(group)
    async with ask.changing("change topic", topic, "perm rw"), ask.deadline(5):
        await ask.admin.topics.update(topic, perm=6)
    return ask.done(_("Its dead letters can be read now."), f"/dlq/{segment(group)}")


async def purge(ask: Asked) -> Response:
    form, group = await ask.form(), ask.part("group")
    if form.text("name") != group:
        raise ConfigError(_("Type the name of the group to delete its dead letters."))
    async with ask.changing("purge dead letters", group), ask.deadline(5):
        await ask.admin.topics.delete(dlq_topic(group))
    await ask.cluster.sampler.look()
    return ask.done(_("The dead letters of %(group)s are deleted.") % {"group": group}, "/dlq")


def _place(text: str) -> tuple[str, int, int]:
    try:
        broker, queue, offset = parse_place(text)
    except ValueError:
        offset = None
    if offset is None:
        raise ConfigError(_("%(text)s is not a place of a message") % {"text": text})
    return broker, queue, offset


ENDPOINTS = [
    page("/dlq", letters),
    page("/dlq/{group}", of_group),
    action("/dlq/{group}/redrive", start_redrive),
    action("/dlq/{group}/readable", make_readable, Role.ADMIN),
    action("/dlq/{group}/purge", purge, Role.ADMIN),
]
