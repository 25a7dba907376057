"""`make demo`: a shop on an embedded cluster, on this machine, in a few seconds.

A name server and a broker start inside this program. Orders and payments are sent, ordered by customer; two members of
one group share them, and one order in a thousand is handled only at the second attempt. At the end: what was sold, what
is owed, and whether anything is left to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections import Counter

import msgspec
from examples.shop import Order, Payment, sales
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pyromq import AdminClient, Client, Consumer, Message, Producer, ReceivedMessage, Retry, StartAt
from pyromq.remoting import run
from pyromq.testing import Cluster

console = Console()
GROUP = "bookkeeping"
TOPICS = ("orders", "payments")
# Without this, a failed message comes again after ten seconds; here after one.
DELAYS = "messageDelayLevel=1s 1s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class Books:
    """What has been sold and paid. Messages may come twice, so everything is counted by the order's id."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self.payments: dict[str, float] = {}
        self.failed: set[str] = set()
        self.retried = 0

    async def order(self, message: ReceivedMessage) -> Retry | None:
        order = msgspec.json.decode(message.body, type=Order)
        if order.id.endswith("500") and order.id not in self.failed:
            self.failed.add(order.id)
            return Retry()
        self.retried += message.reconsume_times > 0
        self.orders[order.id] = order
        return None

    async def payment(self, message: ReceivedMessage) -> None:
        payment = msgspec.json.decode(message.body, type=Payment)
        self.payments[payment.order] = payment.total


def member(books: Books, namesrv: str, name: str) -> Consumer:
    consumer = Consumer(GROUP, client=Client(namesrv, instance_name=name), start_at=StartAt.FIRST)
    consumer.subscribe("orders", handler=books.order)
    consumer.subscribe("payments", handler=books.payment)
    return consumer


async def create_topics(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        for topic in TOPICS:
            await admin.topics.create(topic, cluster="DefaultCluster", read_queues=8, write_queues=8)


async def shared(first: Consumer, second: Consumer) -> None:
    """Wait until each of the two has half of the queues of both topics."""
    async with asyncio.timeout(30):
        while any(  # noqa: ASYNC110  # who has which queues is only looked up
            sum(queue.topic == topic for queue in consumer.assignment) != 4
            for consumer in (first, second)
            for topic in TOPICS
        ):
            await asyncio.sleep(0.05)
    console.print("two members of one group share the queues")


async def produce(namesrv: str, messages: list[Message]) -> float:
    """Send all of them; messages a second."""
    async with Producer("shop", namesrv=namesrv) as producer:
        began = time.perf_counter()
        for message in messages:
            await producer.submit(message)
        await producer.flush()
        return len(messages) / (time.perf_counter() - began)


async def follow(books: Books, orders: int, payments: int) -> None:
    columns = (TextColumn("consuming"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=orders + payments)
        async with asyncio.timeout(60):
            while len(books.orders) < orders or len(books.payments) < payments:
                await asyncio.sleep(0.05)
                progress.update(task, completed=len(books.orders) + len(books.payments))
        progress.update(task, completed=orders + payments)


async def lag(namesrv: str) -> int:
    async with AdminClient(namesrv) as admin:
        return (await admin.groups.progress(GROUP)).lag


def report(books: Books) -> None:
    sold: Counter[str] = Counter()
    for order in books.orders.values():
        sold[order.product] += order.amount
    table = Table(title="sold", title_justify="left", box=None, show_header=False)
    most = max(sold.values())
    for product, amount in sold.most_common():
        table.add_row(product, f"{amount:,}", "█" * round(40 * amount / most))
    console.print(table)
    owed = [order for order in books.orders.values() if order.id not in books.payments]
    total = sum(order.amount * order.price for order in owed)
    console.print(
        f"{len(books.orders):,} orders, {len(books.payments):,} payments, {len(owed):,} orders owed ({total:,.2f}); "
        f"{books.retried} orders came at the second attempt"
    )


async def main(orders: int, keep: bool) -> None:
    began = time.perf_counter()
    async with Cluster(None, DELAYS) as cluster:
        console.print(f"name server at {cluster.namesrv}, up in {1000 * (time.perf_counter() - began):.0f} ms")
        made = list(sales(orders))
        payments = [sale.payment for sale in made if sale.payment is not None]
        messages = [*(sale.order for sale in made), *payments]
        books = Books()
        await create_topics(cluster.namesrv)
        async with member(books, cluster.namesrv, "first") as first, member(books, cluster.namesrv, "second") as second:
            await shared(first, second)
            rate = await produce(cluster.namesrv, messages)
            console.print(f"{len(messages):,} messages sent, {rate:,.0f} a second, by a client in the same process")
            await follow(books, orders, len(payments))
        report(books)
        console.print(f"left to be read by {GROUP}: {await lag(cluster.namesrv)}")
        console.print(f"done in {time.perf_counter() - began:.1f} s")
        if keep:
            console.print(f"still up: NAMESRV_ADDR={cluster.namesrv}, data in {cluster.folder}; Ctrl-C stops it")
            await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A shop on an embedded cluster.")
    parser.add_argument("--orders", type=int, default=20_000, help="how many orders to send")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    try:
        run(main(arguments.orders, arguments.keep))
    except KeyboardInterrupt:
        console.print("stopped")
