"""`make demo`: what works today, shown on this machine.

A name server starts inside this program, two brokers register their topics with it, a client asks where a topic lives,
one broker leaves, and the client asks again.
"""

from __future__ import annotations

import asyncio
import time

from rich.console import Console
from rich.table import Table

from pyromq.namesrv import NameServer, load_settings
from pyromq.protocol.bodies.register import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pyromq.protocol.bodies.route import TopicRouteData
from pyromq.protocol.codes import RequestCode
from pyromq.protocol.command import Command
from pyromq.protocol.headers import GetRouteInfo, RegisterBroker
from pyromq.remoting import NameServers, RemotingClient, run

console = Console()


async def register(broker: RemotingClient, name_server: str, name: str, port: int, queues: dict[str, int]) -> None:
    """Say to the name server what a broker serves; the connection that says it is the broker's sign of life."""
    topics = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        for topic, count in queues.items()
    }
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=1, timestamp=time.time_ns() // 1_000_000), topic_config_table=topics
        )
    )
    header = RegisterBroker(name, f"127.0.0.1:{port}", "DemoCluster", f"127.0.0.1:{port + 1}", 0)
    reply = await broker.invoke(name_server, Command.request(RequestCode.REGISTER_BROKER, header, body.encode()))
    console.print(f"  {name} registered {', '.join(queues)}: code {reply.code}")


async def route(name_servers: NameServers, topic: str) -> TopicRouteData:
    """Ask which brokers serve `topic`, as every producer and consumer does."""
    reply = await name_servers.invoke(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic)))
    return TopicRouteData.decode(reply.body_bytes)


def show(title: str, found: TopicRouteData) -> None:
    addresses = {broker.broker_name: broker.broker_addrs.get(0, "-") for broker in found.broker_datas}
    table = Table(title=title, title_justify="left")
    for column in ("broker", "address", "queues", "permission"):
        table.add_column(column)
    for queue in sorted(found.queue_datas, key=lambda queue: queue.broker_name):
        permission = ("r" if queue.perm & 4 else "-") + ("w" if queue.perm & 2 else "-")
        table.add_row(queue.broker_name, addresses[queue.broker_name], str(queue.write_queue_nums), permission)
    console.print(table)


async def main() -> None:
    began = time.perf_counter()
    settings = load_settings(sets=["listenPort=0", "bindAddress=127.0.0.1"])
    async with NameServer(settings) as name_server, RemotingClient() as client, RemotingClient() as broker_a:
        console.print(f"name server on {name_server.address}, up in {1000 * (time.perf_counter() - began):.0f} ms")
        name_servers = NameServers(client, [name_server.address])
        await register(broker_a, name_server.address, "broker-a", 10911, {"orders": 8, "payments": 4})
        async with RemotingClient() as broker_b:
            await register(broker_b, name_server.address, "broker-b", 10921, {"orders": 8})
            show("orders is served by", await route(name_servers, "orders"))
        console.print("broker-b closes its connection; the name server notices")
        while len((found := await route(name_servers, "orders")).broker_datas) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # clients ask for routes again and again; nobody calls them
        show("orders is served by", found)
        console.print(f"done in {time.perf_counter() - began:.1f} s; more: .venv/bin/pyromq --help")


if __name__ == "__main__":
    run(main())
