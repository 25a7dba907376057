"""A cluster that runs in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from tests.integration.client.cluster_kit import Cluster

PATIENCE = 30.0


class Background:
    """`with` starts and stops it. `do` calls a coroutine method of the cluster."""

    def __init__(self, folder, *sets):
        self._cluster = Cluster(folder / "cluster", *sets)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="cluster")

    def __enter__(self):
        self._thread.start()
        self._loop = self._started.result(PATIENCE)
        return self

    def __exit__(self, *exc_info):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @property
    def namesrv(self):
        return self._cluster.namesrv

    def do(self, method, *args):
        coroutine = getattr(self._cluster, method)(*args)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    async def _run(self):
        self._stop = asyncio.Event()
        try:
            async with self._cluster:
                self._started.set_result(asyncio.get_running_loop())
                await self._stop.wait()
        except BaseException as exc:
            if self._started.done():
                raise
            self._started.set_exception(exc)
