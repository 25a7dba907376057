"""The shop's consumers: two share the bookkeeping, one sends gifts, one sends reminders."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec
from examples.shop import Order, Payment

from pyromq import Client, Consumer, ReceivedMessage, Retry, Sql, StartAt

GROUP = "bookkeeping"
GIFTS = Sql("channel = 'app' AND amount > 3")


@dataclass(slots=True)
class Books:
    """What was sold, paid and reminded of. Messages may arrive twice, so everything is counted by the order's id."""

    orders: dict[str, Order] = field(default_factory=dict)
    payments: dict[str, float] = field(default_factory=dict)
    gifts: set[str] = field(default_factory=set)
    reminders: dict[str, float] = field(default_factory=dict)  # how long after it was sent each came, in seconds
    retried: int = 0
    _failed: set[str] = field(default_factory=set)

    async def order(self, message: ReceivedMessage) -> Retry | None:
        order = msgspec.json.decode(message.body, type=Order)
        if order.id.endswith("500") and order.id not in self._failed:
            self._failed.add(order.id)
            return Retry()
        self.retried += message.reconsume_times > 0
        self.orders[order.id] = order
        return None

    async def payment(self, message: ReceivedMessage) -> None:
        payment = msgspec.json.decode(message.body, type=Payment)
        self.payments[payment.order] = payment.total

    async def gift(self, message: ReceivedMessage) -> None:
        self.gifts.add(msgspec.json.decode(message.body, type=Order).id)

    async def reminder(self, message: ReceivedMessage) -> None:
        self.reminders[message.body.decode()] = time.time() - message.born_at.timestamp()

    def revenue(self) -> dict[str, float]:
        """What each product brought."""
        totals: Counter[str] = Counter()
        for order_id, total in self.payments.items():
            totals[self.orders[order_id].product] += total  # type: ignore[assignment]  # amounts of money
        return {product: round(total, 2) for product, total in totals.items()}


def bookkeeper(books: Books, namesrv: str, name: str) -> Consumer:
    """A member of the bookkeeping group; the members share the queues."""
    consumer = Consumer(GROUP, client=Client(namesrv, instance_name=name), start_at=StartAt.FIRST)
    consumer.subscribe("orders", handler=books.order)
    consumer.subscribe("payments", handler=books.payment)
    return consumer


def gift_sender(books: Books, namesrv: str) -> Consumer:
    """Gets only the messages that the expression selects: the broker evaluates it on their properties."""
    consumer = Consumer("gifts", namesrv=namesrv, start_at=StartAt.FIRST)
    consumer.subscribe("orders", GIFTS, handler=books.gift)
    return consumer


def reminder(books: Books, namesrv: str) -> Consumer:
    """Gets reminders when they are due; until then the broker keeps them."""
    consumer = Consumer("reminders", namesrv=namesrv, start_at=StartAt.FIRST)
    consumer.subscribe("reminders", handler=books.reminder)
    return consumer
