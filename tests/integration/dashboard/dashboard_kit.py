"""A real cluster, a real dashboard on a real port, and a browser without scripts."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from pyromq.client import Client, Message, Producer
from pyromq.dashboard.config import DashboardConfig
from pyromq.dashboard.server import Dashboard
from pyromq.dashboard.site import Source
from pyromq.testing import Cluster

__all__ = ["Browser", "Page", "eventually", "running_dashboard", "scene"]


async def eventually(condition, patience=10.0):
    """Wait until a condition, a function or a coroutine function, holds."""
    async with asyncio.timeout(patience):
        while True:
            result = condition()
            if await result if asyncio.iscoroutine(result) else result:
                return
            await asyncio.sleep(0.01)


@dataclass
class Page:
    status: int
    text: str
    headers: dict[str, str]
    body: bytes = b""

    def csrf(self):
        return self.first(r'name="csrf" value="([0-9a-f]+)"')

    def first(self, pattern: str) -> str:
        """What the group of `pattern` has where it is found first."""
        found = re.search(pattern, self.text)
        assert found is not None, pattern
        return found[1]

    @property
    def said(self):
        """What a reader sees, roughly."""
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", self.text)).split())


@dataclass
class Browser:
    """Follows no redirect by itself, keeps cookies, and sends the token of the session with every form."""

    url: str
    http: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path, **headers):
        return await self._ask("GET", path, headers=headers)

    async def post(self, path, fields=None, *, csrf=None, **headers):
        if csrf is None:
            csrf = await self.token()
        data = [("csrf", csrf), *_pairs(fields)]
        return await self._ask("POST", path, data=data, headers=headers)

    async def json(self, path, body=None):
        """An answer of the API."""
        if body is None:
            return await self._json("GET", path)
        return await self._json("POST", path, json=body, headers={"X-CSRF-Token": await self.token()})

    async def token(self):
        page = await self.get("/ops")
        if page.status != 200:
            page = await self.get("/login")
        found = re.search(r"X-CSRF-Token&#34;: &#34;|X-CSRF-Token\": \"", page.text)
        if found is None:
            return page.csrf()
        return page.first(r"X-CSRF-Token(?:&#34;|\"): (?:&#34;|\")([0-9a-f]{64})")

    async def login(self, name, password):
        return await self.post("/login", {"name": name, "password": password}, csrf=(await self.get("/login")).csrf())

    async def _ask(self, method, path, **more):
        more["headers"] = self.headers | {
            key.replace("_", "-"): value for key, value in more.get("headers", {}).items()
        }
        async with self.http.request(method, self._at(path), allow_redirects=False, **more) as answer:
            body = await answer.read()
            return Page(answer.status, body.decode("utf-8", "replace"), dict(answer.headers), body)

    async def _json(self, method, path, **more):
        async with self.http.request(method, self._at(path), **more) as answer:
            return answer.status, await answer.json()

    def _at(self, path):
        return URL(self.url.rstrip("/") + path, encoded=True)


def _pairs(fields):
    for name, value in (fields or {}).items():
        yield from ((name, each) for each in (value if isinstance(value, list) else [value]))


@contextlib.asynccontextmanager
async def running_dashboard(namesrv, folder=None, **settings):
    """A dashboard for this name server, and a browser for it."""
    more = settings.pop("sources", ())
    config = DashboardConfig(port=0, folder=folder, **({"sample_every": 0.2} | settings))
    sources = [Source("default", (namesrv,), Client), *more]
    server = Dashboard(config, sources)
    listening = asyncio.Event()
    task = asyncio.create_task(server.run(listening.set))
    try:
        await asyncio.wait(
            (task, waiting := asyncio.create_task(listening.wait())), return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        if task.done():
            task.result()
        base = f"http://127.0.0.1:{server.port}{config.base_path}"
        await eventually(lambda: server.site.default.seen.at > 0)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            yield server, Browser(base, http)
    finally:
        task.cancel()
        await asyncio.wait((task,))


@dataclass
class Scene:
    cluster: Cluster
    server: Dashboard
    browser: Browser

    @property
    def site(self):
        return self.server.site

    @property
    def admin(self):
        return self.site.default.admin

    async def looked(self):
        """The pages show everything up to now."""
        await self.site.default.sampler.look()

    async def send(self, topic, *bodies, **more):
        async with Producer("test", namesrv=self.cluster.namesrv) as producer:
            return [await producer.send(Message(topic, body, **more)) for body in bodies]


@contextlib.asynccontextmanager
async def scene(folder, *settings, **config):
    async with (
        Cluster(folder / "cluster", *settings) as cluster,
        running_dashboard(cluster.namesrv, folder / "dashboard", **config) as (server, browser),
    ):
        yield Scene(cluster, server, browser)
