"""A controller on a free port, with its files in a temporary folder, for each test."""

from __future__ import annotations

import contextlib
import time

import pytest
from tests.integration.controller.controller_kit import Scene

from pyromq.controller import Controller, load_settings


@pytest.fixture
def start(tmp_path):
    """Start a controller, or start it again: `async with start("enableElectUncleanMaster=true") as scene`."""

    @contextlib.asynccontextmanager
    async def starting(*sets: str, clock=time.monotonic):
        files = [f"controllerStorePath={tmp_path}/store", f"configStorePath={tmp_path}/controller.properties"]
        here = ["bindAddress=127.0.0.1", "controllerDLegerPeers=n0-127.0.0.1:0"]
        async with contextlib.AsyncExitStack() as life:
            controller = Controller(load_settings(sets=[*files, *here, *sets]), clock=clock)
            scene = Scene(controller)
            # Brokers outlive the controller: it must not take its own end for theirs.
            life.push_async_callback(scene.close)
            await life.enter_async_context(controller)
            yield scene

    return starting


@pytest.fixture
async def scene(start):
    async with start() as scene:
        yield scene
