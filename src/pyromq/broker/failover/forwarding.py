"""A slave passes on to its master what clients meant for the master.

After a fail-over clients go on sending to the old master until they ask for the routes again, which RocketMQ's do every
30 seconds. If the old master is alive, a slave by now, it need not refuse them for so long: it asks the new
master, and gives back its answer.

It asks under its own account, and that may do everything. So it passes on only what it can judge by itself: with access
control, nothing that names a message by its place in the log, whose topic the master alone knows for certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import PyroMQError, ServiceNotAvailable
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyromq.auth import RequestGuard
    from pyromq.remoting import Connection, Processor, RemotingClient

FORWARDED = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    # A slave could keep these, but nobody would ever ask it for them.
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
_BY_PLACE = (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION)

_PATIENCE = 3.0
# A request that was passed on once is not passed on again: two brokers that take each other for the master would play
# with it for ever.
_PASSED_ON = "pyromqForwarded"


class Forwarding:
    """Passes requests on to `master`, which gives its address, or None while there is none."""

    def __init__(self, client: RemotingClient, master: Callable[[], str | None], guard: RequestGuard) -> None:
        self._client = client
        self._master = master
        self._guard = guard

    def table(self) -> dict[int, Processor]:
        table: dict[int, Processor] = dict.fromkeys(FORWARDED, self._forward)
        return table if self._guard.is_open else {**table, **dict.fromkeys(_BY_PLACE, _refuse)}

    def _forward(self, connection: Connection, request: Command) -> Awaitable[Command | None]:
        address = self._master()
        if address is None or _PASSED_ON in (request.ext or {}):
            raise ServiceNotAvailable("this broker is not the master of its group, and knows none that is")
        return self._asked(address, request)

    async def _asked(self, address: str, request: Command) -> Command | None:
        copy = Command.request(request.code, body=request.body_bytes, oneway=request.is_oneway)
        copy.ext = {**(request.ext or {}), _PASSED_ON: "true"}
        copy.language, copy.version = request.language, request.version
        try:
            if request.is_oneway:
                await self._client.oneway(address, copy, _PATIENCE)
                return None
            answer = await self._client.invoke(address, copy, _PATIENCE)
        except PyroMQError as exc:
            raise ServiceNotAvailable(f"the master of this group, {address}, does not answer: {exc}") from exc
        reply = request.reply(answer.code, answer.remark, body=answer.body_bytes)
        reply.ext = answer.ext
        return reply


def _refuse(connection: Connection, request: Command) -> Command:
    raise ServiceNotAvailable("this broker is not the master of its group; with access control, ask the master itself")
