"""`admin.messages`: find messages, and what happened to them.

    offset id   where a message lies: the broker's address and the place in its log (33)
    key         set by its producer, found in the brokers' index (12)
    UNIQ_KEY    the id its producer got, found in the same way

The index works by hashes and seconds, so brokers may find too much; mismatches are dropped here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyromq.errors import (
    ConnectionLost,
    ConsumerNotOnline,
    NoMessage,
    NoNameServer,
    PartialFailure,
    QueryNotFound,
    RemoteProtocolError,
    RequestTimeout,
    ServerError,
)
from pyromq.protocol import sysflag
from pyromq.protocol.batch import unwrap
from pyromq.protocol.bodies import ConsumeMessageDirectlyResult, QueryConsumeQueueResponseBody
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.header import Header
from pyromq.protocol.headers import (
    ConsumeMessageDirectly,
    PullMessage,
    QueryConsumeQueue,
    QueryMessage,
    ViewMessage,
)
from pyromq.protocol.ids import decode_host, decode_offset_message_id, decode_uniq_key
from pyromq.protocol.message import MessageExt, decode_records
from pyromq.protocol.names import TOOLS_GROUP
from pyromq.remoting import join_address

from ..consumer.pull_result import decode_pull
from ..consumer.subscriptions import ALL, subscription_data
from .fan_out import fan_out
from .requests import RELAYED, SLOW
from .times import to_millis
from .tracks import MessageTrack, TrackState, track_of

if TYPE_CHECKING:
    from datetime import datetime

    from pyromq.protocol.bodies import SubscriptionData
    from pyromq.protocol.command import Command
    from pyromq.protocol.message_queue import MessageQueue

    from ..consumer.pull_result import PullResult
    from ..consumer.subscriptions import Expression
    from .addresses import Addresses
    from .groups import GroupAdmin
    from .requests import Requests
    from .topics import TopicAdmin

LIMIT = 64  # most that a broker returns
_ANY_TIME = 2**63 - 1
_UNIQ_KEY_LIMIT = 32
# Clocks of producers and brokers differ a little: a message may be stored "before" its id was made.
_CLOCK_SKEW_MS = 1000


class ResumeCheckHalfMessage(Header):
    """323. The topic is for 5.x."""

    msg_id: str
    topic: str | None = None


class MessageAdmin:
    """Operations on messages. A message that is not found raises NoMessage."""

    def __init__(self, requests: Requests, addresses: Addresses, topics: TopicAdmin, groups: GroupAdmin) -> None:
        self._requests = requests
        self._addresses = addresses
        self._topics = topics
        self._groups = groups

    # Finding

    async def by_offset_id(self, offset_id: str) -> MessageExt:
        """The message at the place in the id, from the broker whose address is in it."""
        address, physical_offset = place_in_id(offset_id)
        try:
            reply = await self._requests.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(physical_offset))
        except ServerError as exc:
            raise NoMessage(exc.remark, address) from exc
        found = _messages(reply, await self._name_of(address))
        if not found:
            raise NoMessage(f"there is no message at {physical_offset}", address)
        return found[0]

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        limit: int = LIMIT,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[MessageExt]:
        """The messages with this key, oldest first; at most `limit` per broker, and no more than 64.

        `begin` and `end` limit the store time. Raises TopicNotFound. If a broker does not answer, PartialFailure has
        what the others found in `partial`.
        """
        window = (0 if begin is None else to_millis(begin), _ANY_TIME if end is None else to_millis(end))
        header = QueryMessage(topic, key, limit, *window)
        found, failure = await self._query(header)
        fitting = [message for message in found if message.topic == topic and key in message.keys]
        if failure is not None:
            failure.partial = fitting
            raise failure
        if not fitting:
            raise NoMessage(f"no message of topic {topic} has the key {key}")
        return fitting

    async def by_uniq_key(self, topic: str, uniq_key: str) -> MessageExt:
        """The message with this id, set by its producer; of several copies, the one stored first.

        The id contains its time, so only younger messages are searched. That time may be wrong, by a time zone or a
        month; if nothing is found, all messages are searched.
        """
        begin = earliest(uniq_key, time.time_ns() // 1_000_000)
        for since in dict.fromkeys((begin, 0)):
            header = QueryMessage(topic, uniq_key, _UNIQ_KEY_LIMIT, since, _ANY_TIME, unique_key_query=True)
            found, failure = await self._query(header)
            fitting = [message for message in found if message.topic == topic and message.msg_id == uniq_key]
            if fitting:
                return fitting[0]
            if failure is not None:
                raise failure
        raise NoMessage(f"no message of topic {topic} has the id {uniq_key}")

    async def get(self, topic: str, message_id: str) -> MessageExt:
        """A message by either of its ids, which look the same.

        It is tried as an offset id only if it contains a broker's address: a UNIQ_KEY may have anything there.
        """
        try:
            return await self.by_uniq_key(topic, message_id)
        except NoMessage:
            try:
                address, _ = place_in_id(message_id)
            except RemoteProtocolError:
                address = ""
            if address not in await self._addresses.broker_names():
                raise
        return await self.by_offset_id(message_id)

    async def at(self, queue: MessageQueue, offset: int) -> MessageExt:
        """The message at an offset of a queue. Raises NoMessage if it is still to come, or gone."""
        serving = await self._addresses.serving(queue.topic)
        address = serving.get(queue.broker_name) or await self._addresses.master_of(queue)
        header = _pull_header(queue, offset, 1, subscription_data(queue.topic, ALL, 0))
        reply = await self._requests.pull(address, header)
        found = _messages(reply, queue.broker_name) if reply.code == ResponseCode.SUCCESS else []
        wanted = [message for message in found if message.queue_offset == offset]
        if not wanted:
            raise NoMessage(f"there is no message at {offset} of {queue}", address)
        return wanted[0]

    async def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        expression: Expression = ALL,
        wait: float = 0.0,
    ) -> PullResult:
        """Pull messages from `offset` on, from the broker at `address`. Changes no offsets.

        With `wait` the broker waits that many seconds for a message if there is none.
        """
        subscription = subscription_data(queue.topic, expression, 0)
        reply = await self._requests.pull(address, _pull_header(queue, offset, count, subscription, wait), longer=wait)
        return decode_pull(reply, queue, subscription)

    async def consume_queue(
        self, queue: MessageQueue, index: int, count: int = 32, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue from `index` on; `group` adds its subscription.

        Raises NoMessage if the queue ends before `index`, and ServerError if there is no such queue.
        """
        address = await self._addresses.master_of(queue)
        header = QueryConsumeQueue(queue.topic, queue.queue_id, index, count, group)
        reply = await self._requests.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        if not reply.body_bytes:
            raise NoMessage(reply.remark or f"{queue} has no entry {index}", address)
        return QueryConsumeQueueResponseBody.decode(reply.body_bytes)

    # What became of them

    async def track(self, message: MessageExt) -> list[MessageTrack]:
        """What each group of the message's topic has done with it, judging by offsets.

        A group that cannot be checked is UNKNOWN, with the reason: one group never makes this fail.
        """
        groups = await self._topics.groups(message.topic)
        broker = message.broker_name or await self._name_of(_address_of(message))
        answers = await fan_out(groups, lambda group: self._track_in(group, message, broker))
        unknown = {
            group: MessageTrack(group, TrackState.UNKNOWN, str(error)) for group, error in answers.failures.items()
        }
        tracks = answers.results | unknown
        return [tracks[group] for group in groups]

    async def _track_in(self, group: str, message: MessageExt, broker: str) -> MessageTrack:
        try:
            connections = await self._groups.connections(group)
        except ConsumerNotOnline as exc:
            return MessageTrack(group, TrackState.NOT_ONLINE, str(exc))
        try:
            progress = await self._groups.progress(group, message.topic)
        except ConsumerNotOnline:
            progress = None
        return track_of(group, message, broker, connections, progress)

    async def consume_directly(
        self, group: str, message: MessageExt | str, client_id: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Make a consumer handle a message now, whatever the group's offsets. Changes no offsets.

        `message` may be an offset id. Without `client_id` any consumer of the group gets it. Raises NoMessage or
        ServerError if there is no such message or consumer, ConsumeMessageTimeout if it takes over ten seconds.
        """
        offset_id = message if isinstance(message, str) else message.offset_msg_id
        address, _ = place_in_id(offset_id)
        if client_id is None:
            client_id = (await self._groups.connections(group)).connection_set[0].client_id
        header = ConsumeMessageDirectly(group, client_id, offset_id)
        reply = await self._requests.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, at_least=RELAYED)
        return ConsumeMessageDirectlyResult.decode(reply.body_bytes)

    async def resume_check(self, message: MessageExt | str, topic: str | None = None) -> None:
        """Make the broker resume checks of a half message it gave up on; `message` may be its offset id."""
        offset_id = message if isinstance(message, str) else message.offset_msg_id
        if not isinstance(message, str):
            topic = topic or message.topic
        address, _ = place_in_id(offset_id)
        header = ResumeCheckHalfMessage(offset_id, topic)
        await self._requests.ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    # How

    async def _query(self, header: QueryMessage) -> tuple[list[MessageExt], PartialFailure | None]:
        """What the brokers of a topic find, by store time, and which of them failed."""
        brokers = await self._addresses.serving(header.topic)

        async def ask(address: str) -> Command | None:
            try:
                return await self._requests.ask(address, RequestCode.QUERY_MESSAGE, header, slow=SLOW)
            except QueryNotFound:
                return None

        answers = await fan_out(brokers, ask, f"query {header.key} in topic {header.topic}")
        found = [message for name, reply in answers.results.items() if reply for message in _messages(reply, name)]
        failure = None
        try:
            answers.check()
        except PartialFailure as exc:
            failure = exc
        return sorted(found, key=lambda message: message.store_timestamp), failure

    async def _name_of(self, address: str) -> str:
        """The name of a broker, empty if unknown: that is no reason to lose a message."""
        try:
            return (await self._addresses.broker_names()).get(address, "")
        except (ConnectionLost, NoNameServer, RequestTimeout):
            return ""


def earliest(uniq_key: str, now: int) -> int:
    """The earliest store time of a message with this id, in ms; 0 if the id does not say."""
    try:
        key = decode_uniq_key(uniq_key)
    except RemoteProtocolError:
        return 0
    return max(0, key.sent_at(now, None) - _CLOCK_SKEW_MS)


def _pull_header(
    queue: MessageQueue, offset: int, count: int, subscription: SubscriptionData, wait: float = 0.0
) -> PullMessage:
    return PullMessage(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=sysflag.PULL_SUBSCRIPTION | (sysflag.PULL_SUSPEND if wait else 0),
        commit_offset=0,
        suspend_timeout_millis=int(wait * 1000),
        sub_version=0,
        subscription=subscription.sub_string,
        expression_type=subscription.expression_type,
    )


def place_in_id(offset_id: str) -> tuple[str, int]:
    where = decode_offset_message_id(offset_id)
    return join_address(*decode_host(where.store_host)), where.physical_offset


def _address_of(message: MessageExt) -> str:
    return join_address(*message.record.store_address)


def _messages(reply: Command, broker_name: str) -> list[MessageExt]:
    return [MessageExt(inner, broker_name) for record in decode_records(reply.body_bytes) for inner in unwrap(record)]
