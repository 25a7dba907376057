"""The requests that clients send to brokers, one coroutine each; a refusal raises the error for its code.

Addresses are those of the broker's listener. Like RocketMQ's clients, these can use the VIP channel, a second port two
below it that pulls cannot crowd out. Topic and group names are those on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyromq.errors import ConnectFailed, broker_error
from pyromq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerIdList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    GetConsumerListByGroup,
    GetEarliestStoreTime,
    GetEarliestStoreTimeReply,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    SearchOffset,
    UnregisterClient,
    UpdateConsumerOffset,
)
from pyromq.remoting import vip_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyromq.protocol.bodies import HeartbeatData, SubscriptionData
    from pyromq.protocol.headers import ConsumerSendMessageBack, EndTransaction, PullMessage
    from pyromq.protocol.message_queue import MessageQueue
    from pyromq.remoting import RemotingClient

_PULL_ANSWERS = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)

OFFSET_TIMEOUT = 5.0
SEND_BACK_TIMEOUT = 5.0
LOCK_TIMEOUT = 1.0


class BrokerCalls:
    """Asks brokers. `timeout` None means `api_timeout`, or the default of RocketMQ's clients for that request.

    Raises a BrokerError for a refusal, ConnectFailed if nothing was sent, and ConnectionLost or RequestTimeout if the
    request may have taken effect.
    """

    def __init__(self, remoting: RemotingClient, api_timeout: float = 3.0, *, vip_channel: bool = False) -> None:
        self._remoting = remoting
        self._api_timeout = api_timeout
        self._vip_channel = vip_channel

    def vip(self, address: str) -> str:
        """The address for requests that may use the VIP channel: `address` itself unless that is switched on."""
        if not self._vip_channel:
            return address
        try:
            return vip_address(address)
        except ValueError:  # no port two below, or not an address, as connecting will show
            return address

    async def invoke(
        self, address: str, command: Command, timeout: float | None = None, *, vip: bool = True
    ) -> Command:
        """The reply to `command`; raises unless it says success."""
        reply = await self.ask(address, command, timeout, vip=vip)
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, address)
        return reply

    async def ask(self, address: str, command: Command, timeout: float | None = None, *, vip: bool = True) -> Command:
        """The reply to `command`, whatever its code."""
        if vip:
            address = self.vip(address)
        try:
            return await self._remoting.invoke(address, command, self._api_timeout if timeout is None else timeout)
        except ConnectFailed as exc:
            raise unreachable(exc) from exc

    async def oneway(self, address: str, command: Command, timeout: float | None = None, *, vip: bool = False) -> None:
        """Send `command` one-way. An error means that it was not sent."""
        if vip:
            address = self.vip(address)
        try:
            await self._remoting.oneway(address, command, self._api_timeout if timeout is None else timeout)
        except ConnectFailed as exc:
            raise unreachable(exc) from exc

    # Offsets

    async def query_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        set_zero_if_not_found: bool | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """The offset `group` committed for `queue`; None if it never did (22). Raises any other refusal."""
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found)
        request = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        reply = await self.ask(address, request, OFFSET_TIMEOUT if timeout is None else timeout)
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise broker_error(reply.code, reply.remark, address)
        return reply.header(OffsetReply).offset

    async def update_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        oneway: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Commit `offset`. When this returns it is stored, or, if one-way, on its way."""
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)
        limit = OFFSET_TIMEOUT if timeout is None else timeout
        if oneway:
            await self.oneway(address, request, limit, vip=True)
        else:
            await self.invoke(address, request, limit)

    async def max_offset(
        self, address: str, queue: MessageQueue, timeout: float | None = None, *, hidden: bool = False
    ) -> int:
        """The offset after the last message of `queue`; with `hidden`, also of those that nobody may read yet.

        A group that fails over hides a message until its slaves have it. Brokers before 5.0 hide none.
        """
        header = GetMaxOffset(queue.topic, queue.queue_id, False if hidden else None)
        reply = await self.invoke(address, Command.request(RequestCode.GET_MAX_OFFSET, header), timeout)
        return reply.header(OffsetReply).offset

    async def min_offset(self, address: str, queue: MessageQueue, timeout: float | None = None) -> int:
        """The offset of the oldest message in `queue`."""
        header = GetMinOffset(queue.topic, queue.queue_id)
        reply = await self.invoke(address, Command.request(RequestCode.GET_MIN_OFFSET, header), timeout)
        return reply.header(OffsetReply).offset

    async def search_offset(
        self, address: str, queue: MessageQueue, timestamp_ms: int, timeout: float | None = None
    ) -> int:
        """The offset of the first message of `queue` that was stored at that time or later."""
        header = SearchOffset(queue.topic, queue.queue_id, timestamp_ms)
        reply = await self.invoke(address, Command.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header), timeout)
        return reply.header(OffsetReply).offset

    async def earliest_store_time(self, address: str, queue: MessageQueue, timeout: float | None = None) -> int:
        """When the oldest message of `queue` was stored, ms since 1970."""
        header = GetEarliestStoreTime(queue.topic, queue.queue_id)
        reply = await self.invoke(address, Command.request(RequestCode.GET_EARLIEST_MSG_STORETIME, header), timeout)
        return reply.header(GetEarliestStoreTimeReply).timestamp

    # Groups

    async def consumer_ids(self, address: str, group: str, timeout: float | None = None) -> list[str]:
        """The client ids of the members of `group` that are connected to this broker."""
        request = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup(group))
        reply = await self.invoke(address, request, timeout)
        return ConsumerIdList.decode(reply.body_bytes).consumer_id_list

    async def lock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], timeout: float | None = None
    ) -> set[MessageQueue]:
        """Lock queues for this client, or renew the locks; returns the queues it holds now."""
        body = LockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        request = Command.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
        reply = await self.invoke(address, request, LOCK_TIMEOUT if timeout is None else timeout)
        return set(LockBatchResponseBody.decode(reply.body_bytes).lock_ok_mq_set)

    async def unlock(
        self,
        address: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        oneway: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Unlock queues."""
        body = UnlockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=list(queues))
        request = Command.request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode(), oneway=oneway)
        limit = LOCK_TIMEOUT if timeout is None else timeout
        if oneway:
            await self.oneway(address, request, limit)
        else:
            await self.invoke(address, request, limit)

    async def check_subscription(
        self,
        address: str,
        client_id: str,
        group: str,
        subscription: SubscriptionData,
        timeout: float | None = None,
    ) -> None:
        """Ask the broker to check `subscription`; raises if it would not serve it."""
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.invoke(address, Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode()), timeout)

    async def heartbeat(self, address: str, data: HeartbeatData, timeout: float | None = None) -> int:
        """Send a heartbeat; returns the broker's version."""
        request = Command.request(RequestCode.HEART_BEAT, body=data.encode())
        return (await self.invoke(address, request, timeout, vip=False)).version

    async def unregister(
        self,
        address: str,
        client_id: str,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Unregister a group."""
        header = UnregisterClient(client_id, producer_group, consumer_group)
        await self.invoke(address, Command.request(RequestCode.UNREGISTER_CLIENT, header), timeout, vip=False)

    # Messages

    async def send_back(self, address: str, header: ConsumerSendMessageBack, timeout: float | None = None) -> None:
        """Ask for a message to be delivered again later, or never, as its delay level says."""
        request = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await self.invoke(address, request, SEND_BACK_TIMEOUT if timeout is None else timeout)

    async def end_transaction(
        self, address: str, header: EndTransaction, remark: str | None = None, timeout: float | None = None
    ) -> None:
        """Report how a transaction ended, one-way: if it gets lost, the broker asks."""
        request = Command.request(RequestCode.END_TRANSACTION, header, oneway=True)
        request.remark = remark
        await self.oneway(address, request, timeout)

    async def pull(self, address: str, header: PullMessage, timeout: float | None = None) -> Command:
        """The reply to a pull: messages (0), or none (19, 20, 21), which is not an error."""
        reply = await self.ask(address, Command.request(RequestCode.PULL_MESSAGE, header), timeout, vip=False)
        if reply.code not in _PULL_ANSWERS:
            raise broker_error(reply.code, reply.remark, address)
        return reply


def unreachable(exc: ConnectFailed) -> ConnectFailed:
    """`exc` with a hint at where the address comes from: the most common mistake in a first set-up."""
    hint = "the broker advertises this address; if you cannot reach it from here, set brokerIP1 in its broker.conf"
    return ConnectFailed(exc.peer, f"{exc.reason}; {hint}")
