"""`make demo`: a shop on an embedded cluster and on Spark, on this machine, in less than a minute.

A name server and a broker start inside this program. Orders, payments and reminders are sent, some orders in
transactions of which a part is rolled back. Two members of one group keep the books, and one order in a thousand is
handled only at the second attempt; a third consumer gets what an SQL expression selects, a fourth gets reminders once
they are due. Meanwhile Spark archives orders and payments in tables of a lake, joins the topics `orders` and `payments`
into the topic `paid-orders`, and that one into a table. At the end: what was sold, whether the books and Spark agree,
and orders as one table of history and live, since the last of them came after the archive.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from examples import bookkeeping
from examples.bookkeeping import Books
from examples.demo_report import Channel, Figures, Product, print_report, write_page
from examples.shop import Order, Sale, order_message, sales
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pyromq import AdminClient, Consumer, Producer, ReceivedMessage, TransactionProducer, TxState
from pyromq.remoting import run
from pyromq.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
TOPICS = ("orders", "payments", "reminders", "paid-orders")
ARCHIVED = ("orders", "payments")
LAKE = "lake"
PIPELINE_GROUPS = ("spark-paid", "spark-revenue")
CHECKOUTS = 50  # orders in transactions; every fifth customer changes his mind
# By default a failed message comes back after ten seconds; here after one.
DELAYS = "messageDelayLevel=1s 1s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
SETTINGS = (DELAYS, "enablePropertyFilter=true")
SPARK = {
    # Two cores and a few thousand rows: more tasks would only wait for each other.
    "spark.sql.shuffle.partitions": "2",
    # One more batch, only to forget old orders, would be cut short by the end.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
PATIENCE = 180.0


# One thread for everything that is asked of Spark: a session is the active one only where it was made, and without an
# active session Spark does not find our format when a query starts.
_spark_thread = ThreadPoolExecutor(1, "spark")


async def in_spark_thread(call: Callable[..., T], *arguments: object, **options: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_spark_thread, partial(call, *arguments, **options))


class Demo:
    """One run: what it sends, who reads it, and how far the readers are."""

    def __init__(self, orders: int, console: Console) -> None:
        self.sales = list(sales(orders))
        self.books = Books()
        self.console = console
        self.committed = 0
        self.archived = 0
        self.facts: list[tuple[str, str]] = []
        columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console)

    @property
    def payments(self) -> int:
        return sum(sale.payment is not None for sale in self.sales)

    @property
    def orders(self) -> int:
        return len(self.sales) + self.committed

    # Producing

    async def create_topics(self, namesrv: str) -> None:
        async with AdminClient(namesrv) as admin:
            for topic in TOPICS:
                await admin.topics.create(topic, cluster="DefaultCluster", read_queues=8, write_queues=8)

    async def produce(self, namesrv: str) -> None:
        """Send all sales, order before payment, as fast as the broker takes them."""
        messages = [message for sale in self.sales for message in _messages(sale)]
        task = self.progress.add_task("sending", total=len(messages))
        async with Producer("shop", namesrv=namesrv) as producer:
            began = time.perf_counter()
            for number, message in enumerate(messages):
                await producer.submit(message)
                if not number % 500:
                    self.progress.update(task, completed=number)
            await producer.flush()
            rate = len(messages) / (time.perf_counter() - began)
        self.progress.update(task, completed=len(messages))
        self.facts.append(
            ("sent", f"{len(messages):,} messages, {rate:,.0f} a second, by a client in the same process")
        )

    async def check_out(self, namesrv: str) -> None:
        """Send orders that become visible only if the till agrees. If this program dies, the broker asks `decide`."""
        stays = {f"o9{number:05d}": number % 5 > 0 for number in range(CHECKOUTS)}
        producer = TransactionProducer("till", namesrv=namesrv)

        @producer.check
        async def decide(message: ReceivedMessage) -> TxState:
            return TxState.COMMIT if stays[message.keys[0]] else TxState.ROLLBACK

        async with producer:
            for order_id, stay in stays.items():
                message = order_message(Order(order_id, "c000", "tea", 1, 2.2), "till")
                async with producer.transaction(message) as transaction:
                    if not stay:
                        transaction.rollback()
                self.committed += stay
        self.facts.append(("in transactions", f"{self.committed} orders committed, {CHECKOUTS - self.committed} not"))

    # Consuming

    def consumers(self, namesrv: str) -> list[Consumer]:
        return [
            bookkeeping.bookkeeper(self.books, namesrv, "first"),
            bookkeeping.bookkeeper(self.books, namesrv, "second"),
            bookkeeping.gift_sender(self.books, namesrv),
            bookkeeping.reminder(self.books, namesrv),
        ]

    async def keep_books(self) -> None:
        """Wait until everything has been consumed, retried and reminded of."""
        books, owed = self.books, len(self.sales) - self.payments
        await self._follow(
            "consuming",
            self.orders + self.payments + owed,
            lambda: len(books.orders) + len(books.payments) + len(books.reminders),
        )
        late = sorted(books.reminders.values())[len(books.reminders) // 2] if books.reminders else 0.0
        self.facts += [
            (
                "bookkeeping",
                f"{len(books.orders):,} orders, {len(books.payments):,} payments; {books.retried} came twice",
            ),
            ("gifts", f"{len(books.gifts):,} orders, by SQL at the broker: {bookkeeping.GIFTS.expression}"),
            (
                "reminders",
                f"{len(books.reminders):,} orders are owed; the median reminder came {late:.2f} s after the order",
            ),
        ]

    # Spark

    async def archive(self, starting: Coroutine[Any, Any, SparkSession], folder: Path) -> SparkSession:
        """Put what was sent until now into the lake."""
        from pyromq.spark.lake.archive import ArchiveProgress, archive

        waiting = self.progress.add_task("Spark starts", total=1)
        spark = await starting
        self.progress.update(waiting, completed=1)
        task = self.progress.add_task("archiving", total=len(self.sales) + self.payments)
        rows: dict[str, int] = {}

        def show(at: ArchiveProgress) -> None:
            rows[at.topic] = at.rows
            self.progress.update(task, completed=sum(rows.values()))

        done = await in_spark_thread(archive, spark, ARCHIVED, root=str(folder / LAKE), once=True, progress=show)
        if not done.is_complete:
            raise RuntimeError(f"the archive is not complete: {done}")
        self.archived = done.rows
        self.progress.update(task, completed=done.rows)
        size = f"{done.files} files of {done.bytes / 1e6:,.1f} MB"
        self.facts.append(("archived", f"{done.rows:,} orders and payments in {len(ARCHIVED)} Delta tables, {size}"))
        return spark

    async def history_and_live(self, spark: SparkSession, folder: Path) -> list[Channel]:
        """Orders by channel, as one table: those in the lake, and those that came since."""
        from pyromq import spark as mq

        def ask() -> list[Channel]:
            mq.register_topics(spark, pattern="orders", lake=str(folder / LAKE))
            counts = [
                spark.sql(f"SELECT properties['channel'] AS channel, count(*) AS orders FROM {view} GROUP BY channel")
                for view in ("orders_all", "orders_lake")
            ]
            every, archived = ({row["channel"]: row["orders"] for row in frame.collect()} for frame in counts)
            return [Channel(name, archived.get(name, 0), every[name]) for name in sorted(every)]

        found = await in_spark_thread(ask)
        history, both = sum(each.archived for each in found), sum(each.orders for each in found)
        said = f"{history:,} orders in the lake, {both - history:,} live, {both:,} as one table"
        self.facts.append(("history and live", said))
        return found

    async def pipeline(self, spark: SparkSession, namesrv: str, folder: Path) -> list[Product]:
        """Run both queries until they have read everything, and return the table."""
        from examples import pipeline

        began = time.perf_counter()
        queries = [
            await in_spark_thread(start, spark, namesrv, folder) for start in (pipeline.paid_orders, pipeline.revenue)
        ]
        async with AdminClient(namesrv) as admin:

            async def rows() -> int:
                for query in queries:
                    if (error := await in_spark_thread(query.exception)) is not None:
                        raise error
                stored = sum(offsets.max_offset for offsets in (await admin.topics.stats("paid-orders")).values())
                # The last row counts once both queries have said that they are through.
                is_through = stored >= self.payments and not sum([await _lag(admin, each) for each in PIPELINE_GROUPS])
                return self.payments if is_through else min(stored, self.payments - 1)

            await self._follow("Spark joins", self.payments, rows)
        rate = 2 * self.payments / (time.perf_counter() - began)
        for query in queries:
            await in_spark_thread(_stop_at_rest, query)
        table = spark.read.parquet(str(folder / "revenue")).orderBy("revenue", ascending=False)
        found = await in_spark_thread(table.collect)
        self.facts.append(("Spark", f"joined and summed {self.payments:,} payments, {rate:,.0f} messages a second"))
        return [Product(row["product"], row["orders"], row["pieces"], row["revenue"]) for row in found]

    async def _follow(
        self, what: str, total: int, done: Callable[[], int] | Callable[[], Coroutine[Any, Any, int]]
    ) -> None:
        task = self.progress.add_task(what, total=total)
        async with asyncio.timeout(PATIENCE):
            count = 0
            while count < total:
                await asyncio.sleep(0.1)
                found = done()
                count = found if isinstance(found, int) else await found
                self.progress.update(task, completed=count)

    def agree(self, table: list[Product]) -> bool:
        """Whether the books and the table agree."""
        return {product.name: product.revenue for product in table} == self.books.revenue()


def _messages(sale: Sale) -> list[Any]:
    return [message for message in (sale.order, sale.payment, sale.reminder) if message is not None]


def _stop_at_rest(query: StreamingQuery) -> None:
    """Stop a query between two batches: cutting one short would lose nothing, but Spark would complain."""
    while query.status["isTriggerActive"] and "Waiting" not in query.status["message"]:
        time.sleep(0.05)
    query.stop()


async def _lag(admin: AdminClient, group: str) -> int:
    return (await admin.groups.progress(group)).lag


async def start_spark(namesrv: str) -> SparkSession:
    import pyromq.spark as mq

    return await in_spark_thread(mq.session, namesrv, master="local[2]", app="demo", conf=SPARK)


async def main(orders: int, report: Path, keep: bool, console: Console) -> bool:
    began = time.perf_counter()
    demo = Demo(orders, console)
    async with AsyncExitStack() as life:
        cluster = await life.enter_async_context(Cluster(None, *SETTINGS))
        namesrv = cluster.namesrv
        console.print(f"name server at {namesrv}, broker up in {1000 * (time.perf_counter() - began):.0f} ms")
        folder = Path(life.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-demo-")))
        spark = asyncio.ensure_future(start_spark(namesrv))
        await demo.create_topics(namesrv)
        with demo.progress:
            async with AsyncExitStack() as reading:
                for consumer in demo.consumers(namesrv):
                    await reading.enter_async_context(consumer)
                await demo.produce(namesrv)
                session = await demo.archive(_awaited(spark), folder)
                await demo.check_out(namesrv)
                _, table = await asyncio.gather(demo.keep_books(), demo.pipeline(session, namesrv, folder))
                channels = await demo.history_and_live(session, folder)
        async with AdminClient(namesrv) as admin:
            left = {group: await _lag(admin, group) for group in (bookkeeping.GROUP, "gifts", *PIPELINE_GROUPS)}
        agree = demo.agree(table)
        whole = sum(channel.orders for channel in channels) == demo.orders
        demo.facts += [
            ("left to be read", ", ".join(f"{group} {count}" for group, count in left.items())),
            ("the books and Spark", "agree" if agree else "DO NOT AGREE"),
            *([] if whole else [("history and live", "ARE NOT ALL ORDERS")]),
            ("time", f"{time.perf_counter() - began:.1f} s"),
        ]
        figures = Figures(table, demo.facts, channels)
        print_report(figures, console)
        write_page(figures, report)
        console.print(f"as a page: {report}")
        if keep:
            _say_how_to_look(namesrv, cluster.folder, folder / LAKE, console)
            await asyncio.Event().wait()
        await in_spark_thread(session.stop)
    return agree and whole and not any(left.values())


async def _awaited(future: asyncio.Future[SparkSession]) -> SparkSession:
    return await future


def _say_how_to_look(namesrv: str, folder: Path, lake: Path, console: Console) -> None:
    console.print(f"still up, data in {folder}; Ctrl-C stops it. In another terminal:")
    sql = f'sql "select tags, count(*) from orders_all group by tags" --lake {lake} -n {namesrv}'
    for command in (
        f"topic list -n {namesrv}",
        f"group lag bookkeeping -n {namesrv}",
        f"spark shell -n {namesrv}",
        sql,
    ):
        console.print(f"  .venv/bin/pyromq {command}", soft_wrap=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A shop on an embedded cluster and on Spark.")
    parser.add_argument("--orders", type=int, default=20_000, help="how many orders to send")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    parser.add_argument("--report", type=Path, default=ROOT / ".cache" / "demo.html", help="where to put the page")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    terminal = Console()
    try:
        raise SystemExit(0 if run(main(arguments.orders, arguments.report, arguments.keep, terminal)) else 1)
    except KeyboardInterrupt:
        terminal.print("stopped")
