"""What the tests of consumers share: a way to send single messages, and a place where consumers put what they got."""

from __future__ import annotations

import asyncio

from tests.integration.client.cluster_kit import eventually

from pyromq.client.client import Client
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import PullMessage, QueryConsumerOffset, SendMessageReply, SendMessageV2
from pyromq.protocol.message import MessageExt, decode_records
from pyromq.protocol.properties import render

TOPIC = "orders"
GROUP = "billing"
PATIENCE = 30.0


def quick_client(cluster, **settings):
    """A client that commits offsets and looks for new topics all the time."""
    return Client(cluster.namesrv, **({"offset_interval": 0.02, "route_interval": 0.05} | settings))


class Basket:
    """Messages as they came. Also a handler: a coroutine function that takes everything."""

    def __init__(self):
        self.messages = []
        self._changed = asyncio.Condition()

    async def __call__(self, message):
        await self.add(message)

    async def add(self, message):
        async with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    @property
    def bodies(self):
        return [message.body for message in self.messages]

    async def holds(self, count):
        """Wait until so many messages came; gives their bodies."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: len(self.messages) >= count)
        return self.bodies[:count]


async def send(cluster, body=b"hello", topic=TOPIC, queue_id=0, broker="broker-a", **properties):
    """Send a message; gives its offset in the queue."""
    text = render({name: str(value) for name, value in properties.items()})
    header = SendMessageV2("producers", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 7, properties=text)
    reply = await cluster.peer.ask(cluster.address(broker), RequestCode.SEND_MESSAGE_V2, header, body)
    return reply.header(SendMessageReply).queue_offset


async def send_many(cluster, count, topic=TOPIC, queues=1):
    """Send messages with the bodies 0, 1, …, to the queues in turn."""
    for number in range(count):
        await send(cluster, str(number).encode(), topic, number % queues)


def numbers(count):
    return [str(number).encode() for number in range(count)]


async def committed(cluster, queue_id=0, topic=TOPIC, group=GROUP, broker="broker-a"):
    """The offset that a group committed; None if it never did."""
    header = QueryConsumerOffset(group, topic, queue_id, set_zero_if_not_found=False)
    request = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    reply = await cluster.peer.invoke(cluster.address(broker), request)
    return None if reply.code else int(reply.ext["offset"])


async def commits(cluster, offset, queue_id=0, topic=TOPIC, group=GROUP):
    """Wait until a group has committed `offset`."""

    async def reached():
        return await committed(cluster, queue_id, topic, group) == offset

    await eventually(reached)


async def stored(cluster, topic, queue_id=0, broker="broker-a"):
    """All messages in a queue."""
    header = PullMessage("readers", topic, queue_id, 0, 32, 4, 0, 0, 0, subscription="*", expression_type="TAG")
    reply = await cluster.peer.invoke(cluster.address(broker), Command.request(RequestCode.PULL_MESSAGE, header))
    return [MessageExt(record, broker) for record in decode_records(reply.body_bytes)] if reply.code == 0 else []


async def dead_letters(cluster, count, group=GROUP):
    """Wait for that many dead letters of a group; gives them."""

    async def there():
        found = await stored(cluster, f"%DLQ%{group}")
        return found if len(found) >= count else None

    return await eventually(there)


async def owns(consumer, count):
    """Wait until a consumer owns that many queues of ordinary topics."""

    async def owned():
        queues = [queue for queue in consumer.assignment if not queue.topic.startswith("%")]
        return len(queues) == count

    await eventually(owned)


def serve(cluster, code, processor, broker="broker-a"):
    """Have a broker answer one kind of request otherwise; gives how it did before."""
    ports = cluster.brokers[broker]._ports
    before = ports._processors[code]
    ports.serve({**ports._processors, code: processor})
    return before


def refuse(cluster, code, answer=1, remark="refused"):
    """Have the broker refuse one kind of request; gives the requests that it refuses, and how it did before."""
    refused = []

    def refusing(connection, request):
        refused.append(request)
        return request.reply(answer, remark)

    return refused, serve(cluster, code, refusing)


def watch(cluster, code):
    """The requests of one kind that the broker gets from now on."""
    seen = []

    def watching(connection, request):
        seen.append(request)
        return before(connection, request)

    before = serve(cluster, code, watching)
    return seen
