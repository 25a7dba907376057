"""Site: everything that pages, the API and streams share."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from pyromq.admin.asking import AdminClient

from .access.sessions import Sessions, Tries
from .access.users import Users
from .kept.audit import Audit
from .kept.database import Database
from .kept.history import History
from .kept.jobs import Jobs
from .sampler import Sampler
from .web.streams import Channel, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyromq.admin.asking import Client
    from pyromq.admin.lookout import Snapshot

    from .config import DashboardConfig
    from .kept.jobs import Job
    from .lake import ArchivedTopic

# For one request; a page as a whole has three seconds.
_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Source:
    """A cluster to be shown: its name, its name servers, and how to make a client for some of them."""

    name: str
    namesrv: tuple[str, ...]
    client: Callable[[str], Client]


@dataclass(slots=True)
class Cluster:
    """A cluster that is being watched."""

    name: str
    source: Source
    admin: AdminClient
    sampler: Sampler
    # One at a time: a client has at most one producer of a group.
    publishing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def seen(self) -> Snapshot:
        return self.sampler.latest


class Site:
    """Entered, it watches its clusters. The first one is shown by default."""

    def __init__(
        self,
        config: DashboardConfig,
        sources: Sequence[Source],
        *,
        read_lake: Callable[[str], Sequence[ArchivedTopic]] | None = None,
    ) -> None:
        self.config = config
        self.read_lake = read_lake
        self.database = Database(config.folder)
        self.history = History(self.database)
        self.audit = Audit(self.database)
        self.users = Users(self.database)
        self.sessions = Sessions()
        self.tries = Tries()
        self.channel = Channel()
        self.jobs = Jobs(self.database, self._job_changed)
        self._sources = sources
        self._life = contextlib.AsyncExitStack()
        self.clusters: Mapping[str, Cluster] = {}

    @property
    def default(self) -> Cluster:
        return next(iter(self.clusters.values()))

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as life:
            life.callback(self.database.close)
            life.push_async_callback(self.jobs.close)
            clusters = {}
            for source in self._sources:
                client = source.client(";".join(source.namesrv))
                admin = await life.enter_async_context(AdminClient(client=client, timeout=_TIMEOUT))
                sampler = Sampler(
                    source.name,
                    admin,
                    self.history,
                    every=self.config.sample_every,
                    looked=partial(self._looked, source.name),
                )
                clusters[source.name] = Cluster(source.name, source, admin, sampler)
                task = asyncio.create_task(sampler.run(), name=f"sampler {source.name}")
                life.push_async_callback(_ended, task)
            self.clusters = clusters
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.channel.close()
        await self._life.aclose()

    def _looked(self, cluster: str, seen: Snapshot) -> None:
        self.channel.publish(Event("sample", f"{seen.at:.3f}", cluster=cluster))

    def _job_changed(self, job: Job) -> None:
        self.channel.publish(Event(f"job-{job.id}", f"{job.done}"))
        self.channel.publish(Event("jobs", f"{job.id}"))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
