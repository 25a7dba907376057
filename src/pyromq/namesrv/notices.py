"""NOTIFY_MIN_BROKER_ID_CHANGE: tell the brokers of a group that another one now has the smallest id.

The name server opens connections to the registered addresses for this; it does not use those that brokers registered
over (docs/spec/namesrv.md 4.8).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import NotifyMinBrokerIdChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.remoting import RemotingClient

    from .live_settings import LiveSettings
    from .routes import MinBrokerChange

logger = logging.getLogger(__name__)

_SEND_TIMEOUT = 0.3
# After this long the brokers' own heartbeats have overtaken the news.
_MOST_WAITING = 1000


class BrokerNotices:
    """News waiting to be delivered. `post` never waits; `run` delivers them one by one until cancelled."""

    def __init__(self, client: RemotingClient, settings: LiveSettings) -> None:
        self._client = client
        self._settings = settings
        self._waiting: asyncio.Queue[MinBrokerChange] = asyncio.Queue(_MOST_WAITING)

    def post(self, changes: Iterable[MinBrokerChange]) -> None:
        """Queue the news, if the settings ask for them."""
        if not self._settings.config.notify_min_broker_id_changed:
            return
        for change in changes:
            try:
                self._waiting.put_nowait(change)
            except asyncio.QueueFull:
                logger.warning(
                    "too many changes of the smallest broker id at once; brokers are not notified of %s", change
                )

    async def run(self) -> None:
        while True:
            change = await self._waiting.get()
            await asyncio.gather(*(self._send(address, change) for address in change.recipients))

    async def _send(self, address: str, change: MinBrokerChange) -> None:
        header = NotifyMinBrokerIdChange(
            min_broker_id=change.min_broker_id,
            min_broker_addr=change.min_broker_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        request = Command.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        try:
            await self._client.oneway(address, request, _SEND_TIMEOUT)
        except PyroMQError as exc:
            # The broker asks for its group every few seconds anyway; this only makes it faster.
            logger.warning("broker not notified of the new smallest broker id: %s", exc)
