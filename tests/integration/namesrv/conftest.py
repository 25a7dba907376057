"""A name server on a free port, with its files in a temporary folder, for each test."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from tests.integration.namesrv.raw_client import Scenes

from pyromq.namesrv import NameServer, load_settings


@pytest.fixture
def start(tmp_path):
    """Start a name server with more settings than usual: `async with start("clusterTest=true") as scenes`."""

    @asynccontextmanager
    async def starting(*sets: str):
        files = [f"kvConfigPath={tmp_path}/kvConfig.json", f"configStorePath={tmp_path}/namesrv.properties"]
        settings = load_settings(sets=[*files, "listenPort=0", "bindAddress=127.0.0.1", *sets])
        async with NameServer(settings) as name_server:
            scenes = Scenes(name_server.port)
            try:
                yield scenes
            finally:
                await scenes.close()

    return starting


@pytest.fixture
async def scenes(start):
    async with start() as scenes:
        yield scenes
