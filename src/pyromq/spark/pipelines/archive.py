"""`archive`: topics become tables of the lake. The work is done in `lake/archive.py`; this is what is around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..lake.archive import archive
from .pipelines_file import in_folder, name_of
from .places import matching_topics, ranges_of
from .progress import Progress, count, span
from .surroundings import Outcome, Plan

if TYPE_CHECKING:
    from ..lake.archive import ArchiveProgress, ArchiveSummary
    from .settings import ArchiveSettings
    from .surroundings import Surroundings


class Archive:
    """Archives topics: what is there now, or on and on."""

    def __init__(self, settings: ArchiveSettings, where: Surroundings) -> None:
        self.settings = settings
        self.name = name_of("archive", settings)
        self.every: float | None = settings.every
        self._where = where
        self._lake = where.needed_lake()

    def plan(self) -> Plan:
        topics = matching_topics(self._where, self.settings.topics)
        ranges = [ranges_of(self._where, topic) for topic in topics]
        total = sum(each.messages for each in ranges)
        where = f"{self._lake.root} ({self._lake.format or 'delta'})"
        lines = [f"{self.name}: {count(len(topics), 'topic')} into {where}, every {span(self.settings.every)}"]
        lines += [f"  {each.topic}: brokers have {count(each.messages, 'message')}" for each in ranges]
        return Plan(tuple(lines), total)

    def run(self) -> Outcome:
        return self._archive(once=True)

    def keep(self) -> Outcome:
        return self._archive(once=False)

    def _archive(self, *, once: bool) -> Outcome:
        settings = self.settings
        connection: dict[str, Any] = dict(self._where.connection)
        namesrv = connection.pop("namesrv", None)
        stores = dict(each.split("=", 1) for each in settings.stores)
        summary = archive(
            self._where.spark,
            settings.topics,
            root=self._lake.root,
            namesrv=namesrv,
            table_format=self._lake.format,
            lake_options=self._lake.options,
            aliases={settings.topics[0]: settings.alias} if settings.alias else None,
            once=once,
            every=settings.every,
            max_lag=settings.max_lag,
            stores={broker: in_folder(folder, self._where.folder) for broker, folder in stores.items()} or None,
            direct_log_over=settings.direct_log_over,
            hourly=settings.hourly,
            decode=_decode(settings),
            progress=self._tell,
            stop=self._where.stopping.is_set,
            **connection,
        )
        return _outcome(self.name, summary)

    def _tell(self, at: ArchiveProgress) -> None:
        self._where.report(Progress(f"{self.name}: {at.topic}", at.rows, at.rows_per_second, at.lag))
        if at.error:
            self._where.say(f"{self.name}: {at.topic}: {at.error}; it is tried again")
        for gap in at.gaps:
            self._where.say(
                f"{self.name}: {at.topic}: messages {gap.start} to {gap.end - 1} of {gap.queue.broker_name} queue "
                f"{gap.queue.queue_id} were gone before they were archived"
            )


def _decode(settings: ArchiveSettings) -> dict[str, str] | None:
    if settings.decode is None:
        return None
    given = {
        "decode": settings.decode,
        "onError": settings.on_error,
        "decode.schema": settings.decode_schema,
        "decode.message": settings.decode_message,
        "decode.delimiter": settings.decode_delimiter,
        "keepBody": "true" if settings.keep_body else "false",
    }
    return {key: value for key, value in given.items() if value is not None}


def _outcome(name: str, done: ArchiveSummary) -> Outcome:
    said = (
        f"{name}: {count(done.rows, 'row')} in {count(done.files, 'file')}, {done.bytes:,} bytes, "
        f"{count(done.commits, 'commit')} in {span(done.seconds)}"
    )
    if done.bad_rows:
        said += f", {count(done.bad_rows, 'bad row')}"
    if behind := sum(done.lag.values()):
        said += f", lag {behind:,}"
    lost = sum(gap.end - gap.start for gap in done.gaps)
    return Outcome(
        said,
        done.rows,
        problems=(f"{count(lost, 'message')} were gone before they were archived",) if lost else (),
        failures=tuple(f"{topic}: {error}" for topic, error in sorted(done.errors.items())),
    )
