"""The monitoring of one process: metrics and health of all its servers, on one port.

GET /metrics    what Prometheus reads
GET /livez      200 while the event loop runs; also /healthz
GET /readyz     200 if requests should come here, else 503; the body lists each check
GET /startupz   200 once it has started, before that 503 with the progress in percent
GET /version    what runs here, as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from pyromq import __version__, _native
from pyromq.errors import ConfigError

from .config import ExporterType
from .exposition import CONTENT_TYPE, Page, in_turns, render_labels
from .health import LoopWatch
from .http import JSON, HttpServer, Request, Response
from .process import process_samples

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence

    from .config import MetricsConfig
    from .health import Monitored
    from .model import Sample

logger = logging.getLogger(__name__)

_INDEX = "/metrics\n/livez\n/readyz\n/startupz\n/version"


class Monitor:
    """Watches `servers`, the parts of this process, while it is entered. They need not run yet.

        async with Monitor(settings[MetricsConfig], "127.0.0.1", [broker]) as monitor:
            print(monitor.url)

    Where `must_listen` is False, a port that is taken is no error: `problem` says so, and there are no pages.
    """

    def __init__(
        self, config: MetricsConfig, host: str, servers: Sequence[Monitored] = (), *, must_listen: bool = True
    ) -> None:
        self._config = config
        self._must_listen = must_listen
        self.servers: list[Monitored] = list(servers)
        self.problem: str | None = None
        self._loop_watch = LoopWatch()
        self._http = HttpServer(config.host or host, config.port, self._page)
        self._listens = False
        self._open = contextlib.AsyncExitStack()
        self._collecting: asyncio.Task[bytes] | None = None
        self._pages: dict[str, Callable[[], Response]] = {
            "/": lambda: Response.of(_INDEX),
            "/livez": self._liveness,
            "/healthz": self._liveness,
            "/readyz": self._readiness,
            "/startupz": self._startup,
            "/version": self._version,
        }

    @property
    def url(self) -> str | None:
        """Where the pages are; None if there are none."""
        return f"http://{self._http.address}" if self._listens else None

    async def __aenter__(self) -> Self:
        if self._config.exporter is ExporterType.DISABLE:
            return self
        async with contextlib.AsyncExitStack() as life:
            try:
                await life.enter_async_context(self._http)
                self._listens = True
            except ConfigError as exc:
                if self._must_listen:
                    raise
                self.problem = str(exc)
            await life.enter_async_context(_running(self._loop_watch.run(), "watch the loop"))
            for name, service in self._exports():
                await life.enter_async_context(_running(service, name))
            life.push_async_callback(self._stop_collecting)
            self._open = life.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._listens = False
        await self._open.aclose()

    def _exports(self) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        match self._config.exporter:
            case ExporterType.LOG:
                yield "log metrics", self._log()
            case ExporterType.OTLP_GRPC:
                from .otlp import export  # needs an extra

                yield "export metrics", export(self._config, self.collect)

    # Metrics

    async def collect(self, take: Callable[[Sample, Mapping[str, str]], None]) -> None:
        """Hand all samples of this process to `take`, each with the labels of its server."""
        more = self._config.labels
        await in_turns(process_samples(self._loop_watch), lambda sample: take(sample, more))
        for server in list(self.servers):
            await server.refresh()
            labels = {**server.metric_labels(), **more}
            await in_turns(server.samples(), partial(_with, take, labels))

    async def _metrics(self) -> bytes:
        page = Page(with_units=self._config.unit_suffix, limit=self._config.cardinality_limit)
        rendered: dict[int, str] = {}

        def take(sample: Sample, labels: Mapping[str, str]) -> None:
            common = rendered.get(id(labels))
            if common is None:
                common = rendered[id(labels)] = render_labels(labels)
                kept.append(labels)
            page.add(sample, common)

        kept: list[Mapping[str, str]] = []  # alive, so that their ids stay theirs
        await self.collect(take)
        parts = []
        for chunk in page.chunks():
            parts.append(chunk.encode())
            await asyncio.sleep(0)
        return b"".join(parts)

    async def _page_of_metrics(self) -> Response:
        # Those who ask at the same time get the same page: it may take a while to make.
        if self._collecting is None:
            self._collecting = asyncio.create_task(self._metrics(), name="collect metrics")
            self._collecting.add_done_callback(lambda _: setattr(self, "_collecting", None))
        return Response(await asyncio.shield(self._collecting), kind=CONTENT_TYPE)

    async def _stop_collecting(self) -> None:
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.wait([self._collecting])

    async def _log(self) -> None:
        while True:
            await asyncio.sleep(self._config.log_interval / 1000)
            try:
                text = (await self._metrics()).decode()
            except Exception:  # the next one may work
                logger.exception("metrics not logged")
                continue
            logger.info("metrics\n%s", text.rstrip("\n"))

    # Health

    def _liveness(self) -> Response:
        watch = self._loop_watch
        if watch.alive:
            return Response.of("ok")
        return Response.of(f"the event loop has not ticked for {watch.age:.1f} s", HTTPStatus.SERVICE_UNAVAILABLE)

    def _readiness(self) -> Response:
        lines, ready = [], True
        for server in self.servers:
            for check in server.checks():
                ready &= check.ok
                detail = f": {check.detail}" if check.detail else ""
                lines.append(f"{'ok  ' if check.ok else 'FAIL'} {server.kind} {check.name}{detail}")
        lines.append("ready" if ready else "not ready")
        return Response.of("\n".join(lines), HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def _startup(self) -> Response:
        lines, done = [], True
        for server in self.servers:
            startup = server.startup()
            done &= startup.done
            state = "started" if startup.done else f"starting, {startup.percent} %"
            lines.append(f"{server.kind} {state}{f': {startup.detail}' if startup.detail else ''}")
        return Response.of("\n".join(lines) or "started", HTTPStatus.OK if done else HTTPStatus.SERVICE_UNAVAILABLE)

    def _version(self) -> Response:
        facts = {
            "version": __version__,
            "servers": [server.kind for server in self.servers],
            "python": platform.python_version(),
            "hotPath": _native.state(),
        }
        return Response(json.dumps(facts).encode() + b"\n", kind=JSON)

    async def _page(self, request: Request) -> Response:
        if request.path == "/metrics":
            return await self._page_of_metrics()
        page = self._pages.get(request.path)
        if page is None:
            return Response.of(f"no such page; there are\n{_INDEX}", HTTPStatus.NOT_FOUND)
        return page()


def _with(take: Callable[[Sample, Mapping[str, str]], None], labels: Mapping[str, str], sample: Sample) -> None:
    take(sample, labels)


@contextlib.asynccontextmanager
async def _running(service: Coroutine[None, None, None], name: str) -> AsyncIterator[None]:
    task = asyncio.create_task(service, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
