"""A cluster that answers as it is told: a name server and brokers made of bare servers.

For what a real broker does not do on demand (hang, refuse once, confirm nothing), and for what the broker of this
repository does not do yet: half messages, replies, recalls.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.bounds import TOO_LONG
from tests.integration.client.cluster_kit import Spy

from pyromq.protocol import properties as props
from pyromq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.headers import SendMessageV2
from pyromq.protocol.ids import encode_host, encode_offset_message_id

HOST = encode_host("10.1.1.1", 10911)

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)

# What a broker does with a send instead of answering with a code.
HANG = object()


class MockBroker(Spy):
    """Stores nothing and says that it did; `answers`, one for each send, say otherwise while there are some.

    An answer is a code, HANG, or a dict of further fields of the reply. `always` is for when they are used up.
    """

    def __init__(self, name, processors=None, always=0):
        self.name = name
        self.answers = []
        self.always = always
        self.hanging = []
        self.offset = 0
        super().__init__({**dict.fromkeys(SENDS, self._send), **(processors or {})})

    @property
    def sends(self):
        return [request for request in self.requests if request.code in SENDS]

    @property
    def headers(self):
        return [request.header(SendMessageV2) for request in self.sends]

    def properties(self, number=-1):
        """Those of a message that was sent."""
        return props.parse(self.headers[number].properties)

    def release(self):
        """Answer what hangs, as if nothing had been."""
        hanging, self.hanging = self.hanging, []
        for connection, request in hanging:
            connection.reply(request, self._stored(request, 0, {}))

    def _send(self, connection, request):
        answer = self.answers.pop(0) if self.answers else self.always
        if answer is HANG:
            self.hanging.append((connection, request))
            return None
        code, more = (0, answer) if isinstance(answer, dict) else (answer, {})
        return self._stored(request, code, more)

    def _stored(self, request, code, more):
        reply = request.reply(code, "as the test wants it" if code else None)
        count = max(request.ext.get("i", "").count("UNIQ_KEY"), 1)
        reply.ext = {
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "msgId": encode_offset_message_id(HOST, 1000 + self.offset),
            "queueId": request.ext["e"],
            "queueOffset": str(self.offset),
            **more,
        }
        self.offset += count
        return reply


class MockCluster(contextlib.AsyncExitStack):
    """Mock brokers behind a name server that has a route for every topic, with `queues` queues on each broker.

    `gone` names brokers that nobody listens for.
    """

    def __init__(self, *brokers, gone=(), queues=4):
        super().__init__()
        self.brokers = {broker.name: broker for broker in brokers}
        self._gone = gone
        self._queues = queues
        self._name_server = Spy({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})

    @property
    def namesrv(self):
        return self._name_server.address

    async def __aenter__(self):
        await super().__aenter__()
        for server in (self._name_server, *self.brokers.values()):
            await self.enter_async_context(server)
        return self

    def _route(self, _, request):
        addresses = {name: broker.address for name, broker in self.brokers.items()}
        # Port 1 of this machine refuses.
        addresses |= dict.fromkeys(self._gone, "127.0.0.1:1")
        route = TopicRouteData(
            broker_datas=[BrokerData(broker_name=name, broker_addrs={0: at}) for name, at in addresses.items()],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=self._queues, write_queue_nums=self._queues)
                for name in addresses
            ],
        )
        return request.reply(body=route.encode())


async def until(condition, patience=TOO_LONG):
    """Wait until `condition()` is true; gives what it gave."""
    async with asyncio.timeout(patience):
        while True:
            if result := condition():
                return result
            await asyncio.sleep(0.002)
