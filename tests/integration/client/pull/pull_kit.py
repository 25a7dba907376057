"""Words for the tests of pulling: put messages somewhere, and read what a consumer gives."""

from __future__ import annotations

import asyncio

from tests.integration.client.cluster_kit import Spy, eventually

from pyromq.client.consumer.pull_consumer import PullConsumer
from pyromq.client.consumer.start_offset import StartAt
from pyromq.errors import QueryNotFound
from pyromq.protocol.bodies import BrokerData, ConsumerIdList, HeartbeatData, QueueData, TopicRouteData
from pyromq.protocol.codes import RequestCode, ResponseCode
from pyromq.protocol.headers import (
    GetRouteInfo,
    OffsetReply,
    PullMessage,
    PullMessageReply,
    QueryConsumerOffset,
    SendMessageV2,
    UpdateConsumerOffset,
)
from pyromq.protocol.message_queue import MessageQueue
from pyromq.protocol.record import MessageRecord, encode_record

PATIENCE = 30.0
TOPIC = "orders"
GROUP = "readers"


def queue(queue_id=0, topic=TOPIC, broker="broker-a"):
    return MessageQueue(broker_name=broker, queue_id=queue_id, topic=topic)


def consumer_of(cluster, topics=None, group=GROUP, **settings):
    settings.setdefault("start_at", StartAt.FIRST)
    return PullConsumer(group, topics, namesrv=cluster.namesrv, **settings)


async def put(cluster, *bodies, queue_id=0, topic=TOPIC, properties=None):
    """Send messages one after another."""
    for body in bodies:
        header = SendMessageV2("producers", topic, "TBW102", 4, queue_id, 0, 1, 0, properties)
        await cluster.peer.ask(cluster.address(), RequestCode.SEND_MESSAGE_V2, header, body)


async def committed(cluster, queue_id=0, group=GROUP, topic=TOPIC):
    """What the broker knows of a group's progress; None if nothing."""
    header = QueryConsumerOffset(group, topic, queue_id, set_zero_if_not_found=False)
    try:
        reply = await cluster.peer.ask(cluster.address(), RequestCode.QUERY_CONSUMER_OFFSET, header)
    except QueryNotFound:
        return None
    return int(reply.ext["offset"])


async def read(consumer, count):
    """The bodies of the next `count` messages, in the order they came."""
    bodies: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll()]
    return bodies


async def until(condition):
    async def check():
        return condition()

    await eventually(check)


class ScriptedBroker:
    """A name server and broker in one that has the queues of `orders` and answers as it is told.

    `members`, `offsets` (committed, by queue id), `refusals` (code of a request, code of the answer) and the bounds of
    the queues may be changed while it runs. `pulls` are the offsets asked for.
    """

    def __init__(self, queues=1, first=100, end=200):
        self.queues = queues
        self.first = first
        self.end = end
        self.by_time = 150
        self.members = None  # those that said hello
        self.offsets = {}
        self.refusals = {}
        self.pulls = []
        self.heartbeats = []
        self.spy = Spy(
            {
                code: self._unless_refused(answer)
                for code, answer in {
                    RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                    RequestCode.HEART_BEAT: self._heartbeat,
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
                    RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
                    RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
                    RequestCode.GET_MIN_OFFSET: lambda request: _offset(request, self.first),
                    RequestCode.GET_MAX_OFFSET: lambda request: _offset(request, self.end),
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda request: _offset(request, self.by_time),
                    RequestCode.PULL_MESSAGE: self._pull,
                }.items()
            }
        )

    async def __aenter__(self):
        await self.spy.__aenter__()
        return self

    async def __aexit__(self, *exc_info):
        await self.spy.__aexit__(*exc_info)

    @property
    def namesrv(self):
        return self.spy.address

    def _unless_refused(self, answer):
        def answering(_connection, request):
            code = self.refusals.get(request.code)
            return answer(request) if code is None else request.reply(code, "as told")

        return answering

    def _route(self, request):
        if request.header(GetRouteInfo).topic != TOPIC:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        queues = QueueData(broker_name="broker-a", perm=6, read_queue_nums=self.queues, write_queue_nums=self.queues)
        broker = BrokerData(broker_name="broker-a", broker_addrs={0: self.spy.address})
        return request.reply(body=TopicRouteData(broker_datas=[broker], queue_datas=[queues]).encode())

    def _heartbeat(self, request):
        self.heartbeats.append(HeartbeatData.decode(request.body_bytes))
        return request.reply()

    def _members(self, request):
        members = self.members
        if members is None:
            members = sorted({beat.client_id for beat in self.heartbeats})
        return request.reply(body=ConsumerIdList(members).encode())

    def _committed(self, request):
        offset = self.offsets.get(request.header(QueryConsumerOffset).queue_id)
        return request.reply(ResponseCode.QUERY_NOT_FOUND) if offset is None else _offset(request, offset)

    def _commit(self, request):
        header = request.header(UpdateConsumerOffset)
        self.offsets[header.queue_id] = header.commit_offset
        return request.reply()

    def _pull(self, request):
        header = request.header(PullMessage)
        offset = header.queue_offset
        self.pulls.append(offset)
        following, code, body = offset, ResponseCode.PULL_NOT_FOUND, None
        if not self.first <= offset <= self.end:
            following, code = min(max(self.first, offset), self.end), ResponseCode.PULL_OFFSET_MOVED
        elif offset < self.end:
            following, code = offset + 1, ResponseCode.SUCCESS
            record = MessageRecord(
                topic=TOPIC, body=b"%d" % offset, queue_id=header.queue_id, queue_offset=offset, store_timestamp=1
            )
            body = encode_record(record)
        return request.reply(code, header=PullMessageReply(0, following, self.first, self.end), body=body)


def _offset(request, offset):
    return request.reply(header=OffsetReply(offset))
