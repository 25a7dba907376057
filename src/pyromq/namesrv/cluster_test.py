"""Cluster-test mode: a test environment's name server borrows the routes it lacks from production.

Only GET_ROUTEINFO_BY_TOPIC differs: if its own tables do not know a topic, it asks the production name servers. Their
addresses are in `productNamesrvAddr` or are looked up over HTTP, as RocketMQ's clients do (docs/spec/namesrv.md 6).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, TopicNotFound, broker_error
from pyromq.protocol.bodies import TopicRouteData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetRouteInfo
from pyromq.remoting import NameServers, split_addresses
from pyromq.remoting.address_server import look_up, lookup_url

from .route_answers import not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.remoting import Connection, RemotingClient

    from .live_settings import LiveSettings
    from .route_answers import RouteAnswers

logger = logging.getLogger(__name__)

_ASK_TIMEOUT = 3.0
_REFRESH_MS = 120_000
_RETRY_MS = 10_000  # after a failed lookup


class BorrowedRoutes:
    """Answers 105 from its own tables first, then from production."""

    def __init__(
        self, answers: RouteAnswers, settings: LiveSettings, client: RemotingClient, clock: Callable[[], int]
    ) -> None:
        self._answers = answers
        self._settings = settings
        self._clock = clock
        self._upstream = NameServers(client, [])
        self._next_lookup = 0
        self._looking_up = asyncio.Lock()

    def answer(self, connection: Connection, request: Command) -> Command | Awaitable[Command]:
        """The processor of 105."""
        try:
            return self._answers.answer(connection, request)
        except TopicNotFound:
            return self._borrow(request)

    async def _borrow(self, request: Command) -> Command:
        topic = request.header(GetRouteInfo).topic
        try:
            self._upstream.update(await self._addresses())
            question = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic))
            reply = await self._upstream.invoke(question, _ASK_TIMEOUT)
            if reply.code != ResponseCode.SUCCESS:
                raise broker_error(reply.code, reply.remark)
            # Decode and encode it again, so that an old server's dialect reaches clients as ours.
            return request.reply(body=TopicRouteData.decode(reply.body_bytes).encode())
        except (PyroMQError, ValueError) as exc:  # ValueError: a malformed list of addresses
            if not isinstance(exc, TopicNotFound):
                logger.warning("route of %s not borrowed from production: %s", topic, exc)
            raise not_found(topic) from exc

    async def _addresses(self) -> list[str]:
        config = self._settings.config
        if config.product_namesrv_addr:
            return split_addresses(config.product_namesrv_addr)
        async with self._looking_up:
            now = self._clock()
            if now < self._next_lookup:
                return list(self._upstream.addresses)
            self._next_lookup = now + _RETRY_MS
            url = lookup_url(config.namesrv_domain, config.namesrv_subgroup, config.product_env_name)
            found = await look_up(url)
            self._next_lookup = now + _REFRESH_MS
            return found
