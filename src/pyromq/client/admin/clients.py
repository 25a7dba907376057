"""`admin.clients`: reports of single consumers, through a broker they are connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError
from pyromq.protocol.bodies import ConsumerRunningInfo, GetConsumerStatusBody
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import GetConsumerRunningInfo, GetConsumerStatus

from .requests import RELAYED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.command import Command
    from pyromq.protocol.header import Header
    from pyromq.protocol.message_queue import MessageQueue

    from .addresses import Addresses
    from .requests import Requests


class ClientAdmin:
    """Asks consumers. Any broker that knows one can pass a request on, so brokers are tried in turn."""

    def __init__(self, requests: Requests, addresses: Addresses) -> None:
        self._requests = requests
        self._addresses = addresses

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The settings, queues and rates of one consumer; `stacks` adds its threads' stacks.

        Raises ServerError if no broker has it, and ConsumeMessageTimeout if it does not answer within ten seconds.
        """
        serving = await self._addresses.serving_group(group)
        header = GetConsumerRunningInfo(group, client_id, stacks)
        reply = await self._first(serving.values(), RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.decode(reply.body_bytes)

    async def consume_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets in the memory of one consumer or all, committed or not, by client id.

        Silent consumers are left out. Raises TopicNotFound, and ServerError if no one is online.
        """
        serving = await self._addresses.serving(topic)
        header = GetConsumerStatus(topic, group, client_id)
        reply = await self._first(serving.values(), RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        return GetConsumerStatusBody.decode(reply.body_bytes).consumer_table

    async def _first(self, addresses: Iterable[str], code: int, header: Header) -> Command:
        failure: PyroMQError | None = None
        for address in addresses:
            try:
                return await self._requests.ask(address, code, header, at_least=RELAYED)
            except PyroMQError as exc:
                failure = exc
        assert failure is not None, "there is at least one address"
        raise failure
