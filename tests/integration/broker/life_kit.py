"""A client that says single requests, and a name server and broker to say them to, for tests of a broker's life."""

from __future__ import annotations

import asyncio

from tests.ports import free_port

from pyromq.broker import Broker, load_settings
from pyromq.errors import ConnectionLost, TopicNotFound, broker_error
from pyromq.namesrv import NameServer
from pyromq.namesrv import load_settings as load_namesrv_settings
from pyromq.protocol.bodies import ClusterInfo, TopicRouteData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import (
    CreateTopic,
    GetRouteInfo,
    PullMessage,
    QueryConsumerOffset,
    SendMessageReply,
    SendMessageV2,
    UpdateConsumerOffset,
)
from pyromq.remoting import RemotingClient

PATIENCE = 30.0

SUSPEND_AND_SUBSCRIBE = 2 | 4


def new_name_server(folder, port=None):
    files = [f"kvConfigPath={folder}/kv.json", f"configStorePath={folder}/namesrv.properties"]
    return NameServer(
        load_namesrv_settings(
            sets=[
                *files,
                f"listenPort={port or free_port()}",
                "bindAddress=127.0.0.1",
                "tls.test.mode.enable=true",
            ]
        )
    )


def new_broker(folder, *sets, namesrv_addr=None, disk=None):
    """A broker with small files on ports that stay its own, which leaves at once when it is asked to."""
    settings = [
        f"storePathRootDir={folder}",
        f"brokerConfigPath={folder}/broker.properties",
        f"listenPort={free_port()}",
        "bindAddress=127.0.0.1",
        "tls.test.mode.enable=true",
        "brokerIP1=127.0.0.1",
        "brokerIP2=127.0.0.1",
        "brokerName=broker-a",
        "mappedFileSizeCommitLog=1m",
        "mappedFileSizeConsumeQueue=20000",
        "maxHashSlotNum=1000",
        "maxIndexNum=4000",
        "drainSeconds=0",
        # A test may hold up the loop it shares with the broker; that is not overload.
        "brokerFastFailureEnable=false",
    ]
    return Broker(load_settings(sets=[*settings, *sets], namesrv_addr=namesrv_addr), disk=disk)


async def eventually(condition):
    """Wait until `condition`, a coroutine function, gives something that is true; gives it, too."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if result := await condition():
                return result
            await asyncio.sleep(0.005)


class Peer(RemotingClient):
    """Asks brokers and name servers. A refusal is raised."""

    async def ask(self, address, code, header=None, body=None):
        reply = await self.invoke(address, Command.request(code, header, body), PATIENCE)
        if reply.code:
            raise broker_error(reply.code, reply.remark)
        return reply

    async def send(self, address, body=b"hello", topic="orders", queue_id=0):
        """Send a message as clients do; gives its offset in the queue."""
        header = SendMessageV2("producers", topic, "TBW102", 4, queue_id, 0, 1, 0)
        reply = await self.ask(address, RequestCode.SEND_MESSAGE_V2, header, body)
        return reply.header(SendMessageReply).queue_offset

    async def pull(self, address, offset=0, topic="orders", wait=0):
        """Pull with a subscription in the request; gives the reply, whatever its code."""
        header = PullMessage("readers", topic, 0, offset, 32, SUSPEND_AND_SUBSCRIBE, 0, wait, 0, subscription="*")
        return await self.invoke(address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE)

    async def create_topic(self, address, topic, queues=4):
        header = CreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def commit(self, address, offset, group="readers", topic="orders"):
        await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(group, topic, 0, offset))

    async def committed(self, address, group="readers", topic="orders"):
        reply = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(group, topic, 0))
        return int(reply.ext["offset"])

    async def configure(self, address, text):
        await self.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())

    # Name servers

    async def brokers(self, name_server):
        """The addresses of all brokers, by name and id."""
        reply = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        return {
            (name, broker_id): address
            for name, data in ClusterInfo.decode(reply.body_bytes).broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }

    async def route(self, name_server, topic):
        """The queues of a topic by broker; None while the name server has no route, or is not there."""
        try:
            reply = await self.ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic))
        except (TopicNotFound, ConnectionLost):
            return None
        return {queue.broker_name: queue for queue in TopicRouteData.decode(reply.body_bytes).queue_datas}

    async def routed(self, name_server, topic):
        """Wait until there is a route."""
        return await eventually(lambda: self.route(name_server, topic))
