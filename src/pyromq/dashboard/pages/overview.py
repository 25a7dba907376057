"""`/`: is the cluster well, how busy is it, who is behind. And the palette, which leads everywhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from pyromq.admin.topic_kinds import TopicKind

from ..web.asked import local_path, segment
from ..web.languages import LANGUAGES
from ..web.languages import gettext as _
from ..web.rendering import render
from ..web.routing import page

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyromq.admin.lookout import GroupSeen, Snapshot

    from ..web.asked import Asked

SPANS = {"15m": 900, "1h": 3600, "2h": 7200, "1d": 86400, "7d": 7 * 86400}
_SHOWN = 8


def span_of(ask: Asked) -> str:
    """The time that charts show."""
    return span if (span := ask.text("span")) in SPANS else "1h"


async def overview(ask: Asked) -> Response:
    seen = ask.seen
    disks = [(each.row.disk, each.row.broker) for each in seen.brokers if each.row.disk is not None]
    fullest = max(disks, default=(None, None))
    masters = [each.row for each in seen.brokers if each.row.id == 0]
    topics = [topic for topic in seen.topics.values() if topic.kind is TopicKind.NORMAL]
    groups = [group for group in seen.groups.values() if not group.system]
    behind = lagging(seen)
    return ask.page(
        "overview.html",
        {
            "title": _("Overview"),
            "span": span_of(ask),
            "clusters_shown": ", ".join(seen.clusters),
            "brokers": len(seen.brokers),
            "masters": len(masters),
            "up": len(seen.brokers) - len(seen.silent),
            "silent": len(seen.silent),
            "in_today": _sum(row.in_today for row in masters),
            "out_today": _sum(row.out_today for row in masters),
            "slowest": max(behind, key=lambda group: group.seconds or 0, default=None),
            "growth": await dead_letter_growth(ask),
            "fullest": fullest[0],
            "fullest_broker": fullest[1],
            "topics": sorted(topics, key=lambda topic: (-(topic.in_tps or 0), topic.topic))[:_SHOWN],
            "topic_count": len(topics),
            "behind": behind[:_SHOWN],
            "group_count": len(groups),
        },
    )


def lagging(seen: Snapshot) -> list[GroupSeen]:
    """The groups of users that are behind, most messages first."""
    groups = [group for group in seen.groups.values() if group.lag and not group.system]
    return sorted(groups, key=lambda group: (-(group.lag or 0), group.group))


async def dead_letter_growth(ask: Asked) -> int:
    """How many dead letters came in the last hour."""
    now = time.time()
    chart = await ask.site.history.chart(ask.cluster.name, ["dead"], now - 3600, now)
    known = [value for value in chart.lines[0].values if value is not None]
    return max(0, int(known[-1] - known[0])) if known else 0


def _sum(values: object) -> int | None:
    known = [value for value in values if value is not None]  # type: ignore[attr-defined]  # an iterable
    return sum(known) if known else None


async def palette(ask: Asked) -> Response:
    """Places whose names contain what was typed, those that begin with it first."""
    word = ask.text("q").lower()
    seen = ask.seen
    places = [
        *((label, _("page"), ask.url(path)) for label, path in _pages()),
        *(
            (name, _("topic"), ask.url(f"/topics/{segment(name)}"))
            for name, topic in seen.topics.items()
            if topic.kind is TopicKind.NORMAL
        ),
        *(
            (name, _("group"), ask.url(f"/groups/{segment(name)}"))
            for name, group in seen.groups.items()
            if not group.system
        ),
        *(
            (
                f"{each.row.broker} #{each.row.id}",
                _("broker"),
                ask.url(f"/brokers/{segment(each.row.broker)}/{each.row.id}"),
            )
            for each in seen.brokers
        ),
    ]
    found = [place for place in places if word in place[0].lower()]
    found.sort(key=lambda place: not place[0].lower().startswith(word))
    if word:
        found = [
            *found[:11],
            (
                _("Find messages: %(word)s") % {"word": ask.text("q")},
                _("search"),
                ask.url("/messages", q=ask.text("q")),
            ),
        ]
    return HTMLResponse(render("parts/palette.html", {"places": found[:12]}))


def _pages() -> list[tuple[str, str]]:
    return [
        (_("Overview"), "/"),
        (_("Topics"), "/topics"),
        (_("Groups"), "/groups"),
        (_("Messages"), "/messages"),
        (_("Dead letters"), "/dlq"),
        (_("Brokers"), "/brokers"),
        (_("Producers"), "/producers"),
        (_("Traces"), "/traces"),
        (_("Lake"), "/lake"),
        (_("Jobs"), "/jobs"),
        (_("Audit"), "/audit"),
        (_("Security"), "/security"),
        (_("Checks"), "/ops"),
    ]


async def language(ask: Asked) -> Response:
    chosen = ask.part("code")
    came_from = ask.request.headers.get("referer", "")
    path = "/" + came_from.split("/", 3)[3] if came_from.count("/") >= 3 else ask.url("/")
    response = RedirectResponse(local_path(path, ask.url("/")), 303)
    if chosen in LANGUAGES:
        year = 365 * 86400
        response.set_cookie("lang", chosen, max_age=year, path=ask.site.config.base_path or "/", samesite="lax")
    return response


ENDPOINTS = [
    page("/", overview),
    page("/palette", palette),
    page("/language/{code}", language, role=None),
]
