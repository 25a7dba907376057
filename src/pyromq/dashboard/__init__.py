"""The dashboard: pages, a JSON API and live streams over `pyromq.admin`, for our brokers and RocketMQ's own.

    web/      the gate every request passes, pages, streams, the API, static files, languages
    pages/    what each page shows and does
    kept/     history, jobs, audit, in one SQLite file
    access/   users, sessions, roles
    sampler   looks at a cluster every ten seconds, with as many requests as it has brokers
    lake      the seam to the tables of archived topics

Needs the extra `pyromq[dashboard]`. Nothing here imports the client or the protocol: what a page shows, `pyromq.admin`
can also say to a command.
"""

from pyromq import __version__

__all__ = ["__version__"]
