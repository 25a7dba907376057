"""NOTIFY_BROKER_ROLE_CHANGED: tell the live brokers of a group who is master now.

Only a hint over connections that the controller opens: a broker that misses it asks within seconds anyway.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import SyncStateSet
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import NotifyBrokerRoleChanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.remoting import RemotingClient

    from .config import LiveSettings
    from .replicas import Group

logger = logging.getLogger(__name__)

_SEND_TIMEOUT = 3.0


class RoleNotices:
    """`post` never waits; `run` delivers until cancelled. A newer notice replaces an older one to the same broker."""

    def __init__(self, client: RemotingClient, settings: LiveSettings) -> None:
        self._client = client
        self._settings = settings
        self._posted: dict[str, Group] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    def post(self, group: Group, broker_ids: Iterable[int]) -> None:
        """Tell these members, if the settings ask for it."""
        if not self._settings.config.notify_broker_role_changed:
            return
        for broker_id in broker_ids:
            address = group.address_of(broker_id)
            if address is not None:
                self._posted[address] = group
        self._news.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._news.wait()
                self._news.clear()
                posted, self._posted = self._posted, {}
                for address, group in posted.items():
                    older = self._sending.get(address)
                    if older is not None:
                        older.cancel()
                    self._sending[address] = tasks.create_task(self._send(address, group), name=f"notify {address}")

    async def _send(self, address: str, group: Group) -> None:
        header = NotifyBrokerRoleChanged(
            master_address=group.address_of(group.master),
            master_broker_id=group.master,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
        )
        body = SyncStateSet(sync_state_set=group.in_sync, sync_state_set_epoch=group.set_epoch)
        request = Command.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body.encode(), oneway=True)
        try:
            await self._client.oneway(address, request, _SEND_TIMEOUT)
        except PyroMQError as exc:
            logger.warning("broker not notified of the new master of %s: %s; it asks by itself", group.name, exc)
        finally:
            if self._sending.get(address) is asyncio.current_task():
                del self._sending[address]
