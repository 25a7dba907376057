"""`admin.clients`: what single consumers say of themselves, asked through a broker that they are connected to."""

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
    """Asks consumers. Any broker that knows one can pass a question on, so they are tried one after the other."""

    def __init__(self, requests: Requests, addresses: Addresses) -> None:
        self._requests = requests
        self._addresses = addresses

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The settings, queues and rates of one consumer, with `stacks` also what each of its threads is doing.

        Raises ServerError if no broker has it, and ConsumeMessageTimeout if it does not answer within ten seconds.
        """
        serving = await self._addresses.serving_group(group)
        header = GetConsumerRunningInfo(group, client_id, stacks)
        reply = await self._first(serving.values(), RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.decode(reply.body_bytes)

    async def consume_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets that consumers have in memory, committed or not, by client id; of one or of all of them.

        Who does not answer is missing. Raises ServerError if nobody is online, and TopicNotFound.
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
