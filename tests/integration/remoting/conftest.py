"""Every test here runs on asyncio's own loop and on uvloop, and leaves nothing behind on either."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import uvloop

from pyromq.remoting import ClientConfig, RemotingClient, RemotingServer, ServerConfig, TlsConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

LONGEST_TEST = 90.0


@pytest.fixture(autouse=True)
def all_is_logged() -> Iterator[None]:
    """What a connection logs only in the depths is looked at too; other tests are not to hear of it."""
    logger = logging.getLogger("pyromq")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(level)


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No test waits for ever, no task runs on after it, and no error was left to the event loop to report."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    too_long = loop.call_later(LONGEST_TEST, lambda: [task.cancel() for task in asyncio.all_tasks()])
    yield
    too_long.cancel()
    this = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not this] == []
    assert not errors


@pytest_asyncio.fixture
async def cleanup(nothing_is_left: None) -> AsyncIterator[contextlib.AsyncExitStack]:
    """Whatever is entered here is left at the end of the test, the last first."""
    async with contextlib.AsyncExitStack() as stack:
        yield stack


class Start:
    """Starts servers and clients that end with the test. Settings of the config go by name, others as `with_`."""

    def __init__(self, cleanup: contextlib.AsyncExitStack) -> None:
        self._cleanup = cleanup

    async def server(
        self, processors: Mapping[int, Any] | None = None, with_: Mapping[str, Any] | None = None, **settings: Any
    ) -> RemotingServer:
        """With a certificate of its own making, for clients that speak TLS, unless `with_` has other settings."""
        config = ServerConfig(**{"listen_port": 0, "bind_address": "127.0.0.1", **settings})
        server = RemotingServer(config, processors or {}, **{"tls": TlsConfig(test_mode=True), **(with_ or {})})
        return await self._cleanup.enter_async_context(server)

    async def client(
        self, processors: Mapping[int, Any] | None = None, with_: Mapping[str, Any] | None = None, **settings: Any
    ) -> RemotingClient:
        client = RemotingClient(ClientConfig(**settings), processors, **(with_ or {}))
        return await self._cleanup.enter_async_context(client)


@pytest.fixture
def start(cleanup: contextlib.AsyncExitStack) -> Start:
    return Start(cleanup)
