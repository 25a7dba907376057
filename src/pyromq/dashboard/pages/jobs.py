"""`/jobs`: work that goes on in the background, with a result for each row."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from starlette.responses import Response

from pyromq.errors import NoMessage

from ..web.languages import gettext as _
from ..web.routing import action, page

if TYPE_CHECKING:
    from ..kept.jobs import Job
    from ..web.asked import Asked

_SHOWN = 200
_DOWNLOADED = 1_000_000


async def jobs(ask: Asked) -> Response:
    return ask.page("jobs.html", {"title": _("Jobs"), "jobs": await ask.site.jobs.all()})


async def _job(ask: Asked) -> Job:
    number = ask.part("id")
    found = await ask.site.jobs.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else None
    if found is None:
        raise NoMessage(_("There is no job %(number)s.") % {"number": number})
    return found


async def job(ask: Asked) -> Response:
    found = await _job(ask)
    failed_only = bool(ask.text("failed"))
    rows = await ask.site.jobs.rows(found.id, failed_only=failed_only, limit=_SHOWN)
    values = {
        "title": _("Job %(number)s") % {"number": found.id},
        "job": found,
        "rows": rows,
        "failed_only": failed_only,
        "most": _SHOWN,
    }
    return ask.page("job.html", values)


async def results(ask: Asked) -> Response:
    found = await _job(ask)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("id", "outcome", "failed"))
    for row in await ask.site.jobs.rows(found.id, limit=_DOWNLOADED):
        writer.writerow((row.name, row.outcome, row.failed))
    headers = {"Content-Disposition": f'attachment; filename="job-{found.id}.csv"'}
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


async def stop(ask: Asked) -> Response:
    found = await _job(ask)
    async with ask.changing("stop job", str(found.id), found.what):
        stopped = ask.site.jobs.stop(found.id)
    text = _("The job is being stopped. What it has done stays done.") if stopped else _("The job has ended already.")
    return ask.done(text, f"/jobs/{found.id}")


ENDPOINTS = [
    page("/jobs", jobs),
    page("/jobs/{id}", job),
    page("/jobs/{id}/results.csv", results),
    action("/jobs/{id}/stop", stop),
]
